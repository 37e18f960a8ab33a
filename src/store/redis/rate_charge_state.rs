//! What a connection remembers from one charge of shared rates to the next.

use std::time::Instant;

/// How many statements a connection sent to charge shared rates, and the server's time at the last.
#[derive(Default)]
pub(super) struct RateChargeState {
    /// The number of statements sent.
    pub statements_sent: u64,
    server_time: Option<ServerTime>,
}

/// The time of a server at a moment.
struct ServerTime {
    microseconds: u64,
    /// When this process got to know the time.
    read_at: Instant,
    /// The number of the link to the server: another link may lead to another server.
    link_number: u64,
}

impl RateChargeState {
    /// Remembers the time that the server showed in its latest reply, in microseconds, as its time
    /// of this moment. The server's clock has gone on since its reply. So a charge may seem to be
    /// sent earlier than it was, and never later.
    pub(super) fn set_server_time(&mut self, microseconds: u64, link_number: u64) {
        self.server_time = Some(ServerTime { microseconds, read_at: Instant::now(), link_number });
    }

    /// The server's time at this moment, in microseconds; `None` if it is not known of this link.
    pub(super) fn server_time_at(&self, moment: Instant, link_number: u64) -> Option<u64> {
        let between = |earlier: Instant, later: Instant| {
            let passed = later.saturating_duration_since(earlier).as_micros();
            u64::try_from(passed).unwrap_or(u64::MAX)
        };
        let known = self.server_time.as_ref().filter(|it| it.link_number == link_number)?;
        let after_reply = known.microseconds.saturating_add(between(known.read_at, moment));
        Some(after_reply.saturating_sub(between(moment, known.read_at)))
    }
}
