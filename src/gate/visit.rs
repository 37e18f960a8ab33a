//! One request at the gate: what is known of it, from its header to its log line.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::admission::Permit;
use crate::keys::Key;
use crate::metrics::RouteLabel;
use crate::reply::Common;

/// One request at the gate.
pub struct Visit {
    started: Instant,
    pub(super) at_ms: i64,
    pub(crate) common: Common,
    /// Proof that the gates were passed; none before, and none for what was refused.
    pub(crate) permit: Option<Permit>,
    pub(super) forward: Option<Vec<u8>>,
    pub(super) route: RouteLabel,
    pub(super) key: Option<Arc<Key>>,
    pub(super) outcome: Option<&'static str>,
    pub(super) status: u16,
    pub(super) reason: Option<&'static str>,
}

impl Default for Visit {
    fn default() -> Visit {
        Visit {
            started: Instant::now(),
            at_ms: unix_ms(),
            common: Common::default(),
            permit: None,
            forward: None,
            route: RouteLabel::None,
            key: None,
            outcome: None,
            status: 0,
            reason: None,
        }
    }
}

impl Visit {
    /// When the request began, in seconds since 1970: the clock is read once for a request.
    pub fn unix_now(&self) -> i64 {
        self.at_ms.div_euclid(1000)
    }

    /// The path and query to ask the upstream for, in canonical form; none before the gates
    /// were passed.
    pub fn forward(&self) -> Option<&[u8]> {
        self.forward.as_deref()
    }

    /// The key that opened the gates: its id, account and plan, none of it secret.
    pub fn key(&self) -> Option<&Arc<Key>> {
        self.key.as_ref()
    }

    /// When the request began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Sets how the request ended, unless that was said already.
    pub fn conclude(&mut self, status: u16, outcome: &'static str) {
        if self.outcome.is_none() {
            self.status = status;
            self.outcome = Some(outcome);
        }
    }

    /// The answer was cut, also if its header had told how it would end.
    pub fn break_off(&mut self) {
        self.outcome = Some("aborted");
    }
}

/// The caller's id if it is 1 to 128 visible ASCII characters, otherwise a new one.
pub(super) fn request_id(sent: Option<&http::HeaderValue>) -> String {
    let visible =
        |bytes: &[u8]| (1..=128).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    match sent.map(http::HeaderValue::as_bytes) {
        Some(bytes) if visible(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => new_request_id(),
    }
}

/// 128 random bits in hexadecimal.
pub(crate) fn new_request_id() -> String {
    let mut bytes = [0u8; 16];
    // Without random bits ids repeat, which costs nobody an answer.
    let _ = getrandom::fill(&mut bytes);
    format!("{:032x}", u128::from_be_bytes(bytes))
}

fn unix_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
