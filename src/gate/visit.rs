//! One request at the gate: what is known of it, from its header to its log line.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::admission::Permit;
use crate::keys::{Key, SHORTEST_KEY, Token};
use crate::metrics::RouteLabel;
use crate::reply::{Common, X_REQUEST_ID};

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

/// The caller's id if it is 1 to 128 visible ASCII characters and no key, otherwise a new one: ids
/// are logged and passed on, and keys never are.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let visible =
        |bytes: &[u8]| (1..=128).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    match headers.get(X_REQUEST_ID).map(HeaderValue::as_bytes) {
        Some(id) if visible(id) && !Token::is_made_here(id) && !holds_key(id, headers) => {
            String::from_utf8_lossy(id).into_owned()
        }
        _ => new_request_id(),
    }
}

/// Whether the key of this very request stands in its id.
fn holds_key(id: &[u8], headers: &HeaderMap) -> bool {
    let sent = headers.get_all(AUTHORIZATION).into_iter().map(HeaderValue::as_bytes);
    let mut words = sent.flat_map(|value| value.split(|byte| matches!(byte, b' ' | b',' | b'\t')));
    words.any(|word| {
        word.len() >= SHORTEST_KEY
            && id.len() >= word.len()
            && id.windows(word.len()).any(|part| part == word)
    })
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
