//! The lines of the process log about responses that riskgate can't forward.

use std::net::SocketAddr;

use dashmap::DashMap;

use crate::exchange::MalformedResponse;
use crate::support::log_interval::LogInterval;

/// The most pairs of a server and a fault whose last line riskgate remembers.
const MAX_REMEMBERED_LINES: usize = 1024;

const EXPECTED: &str = "expected a response that riskgate can forward, but found";

/// Logs at most one line for each server and fault in the interval of [`LogInterval`], as long as
/// it remembers the last line.
#[derive(Default)]
pub(super) struct BrokenResponseLog {
    intervals: DashMap<(SocketAddr, MalformedResponse), LogInterval>,
}

impl BrokenResponseLog {
    /// Logs what is wrong with a response of this server, unless riskgate has just logged the same.
    pub fn log(&self, server: SocketAddr, found: MalformedResponse, request_id: &str) {
        if self.intervals.len() >= MAX_REMEMBERED_LINES {
            self.intervals.clear();
        }
        if self.intervals.entry((server, found)).or_default().begin_if_due() {
            log::warn!("upstream server {server}: {EXPECTED} {found} (request {request_id})");
        }
    }
}
