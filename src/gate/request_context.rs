//! One request at the gate: what is known of it, from its header to its log line.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::gate::admission::Permit;
use crate::keys::{Key, KeyRing, SHORTEST_KEY, Token};
use crate::message::request_id::{RequestId, RequestIds};
use crate::message::response::Common;
use crate::model::domain::Domain;
use crate::observe::metrics::RouteLabel;
use crate::support::snapshot::Live;

/// One request at the gate.
pub struct Visit {
    started: Instant,
    /// By this machine's clock, for the log alone.
    pub(super) at_ms: i64,
    /// The ledger's time, which the request is judged by; 0 before it is.
    pub(super) now: i64,
    pub(crate) common: Common,
    /// Proof that the gates were passed; none before, and none for what was refused.
    pub(crate) permit: Option<Permit>,
    pub(super) forward: Option<Vec<u8>>,
    pub(super) route: RouteLabel,
    pub(super) key: Option<Arc<Key>>,
    pub(super) outcome: Option<&'static str>,
    pub(super) status: u16,
    pub(super) reason: Option<&'static str>,
    /// What was asked for, where that was a domain.
    pub(super) domain: Option<Domain>,
}

/// When something began: since when it lasts, and what this machine's clock said.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    at: Instant,
    unix_ms: i64,
}

impl Moment {
    pub fn now() -> Moment {
        Moment { at: Instant::now(), unix_ms: unix_ms() }
    }

    /// This machine's clock, in seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        self.unix_ms.div_euclid(1000)
    }
}

impl Default for Visit {
    fn default() -> Visit {
        Visit::from(Moment::now())
    }
}

impl From<Moment> for Visit {
    fn from(Moment { at, unix_ms }: Moment) -> Visit {
        Visit {
            started: at,
            at_ms: unix_ms,
            now: 0,
            common: Common::default(),
            permit: None,
            forward: None,
            route: RouteLabel::None,
            key: None,
            outcome: None,
            status: 0,
            reason: None,
            domain: None,
        }
    }
}

impl Visit {
    /// The time that the request is judged by, in seconds since 1970: the ledger's, which doubts
    /// clocks that jump. It is read once for a request.
    pub fn unix_now(&self) -> i64 {
        self.now
    }

    /// Keeps the permit, and tells the caller what it leaves.
    pub(super) fn admit(&mut self, permit: Permit) {
        self.common.allowance = permit.allowance(self.unix_now());
        self.permit = Some(permit);
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

    /// A server answered with this status, and that is passed back.
    pub fn pass_back(&mut self, status: u16) {
        let outcome = match status {
            400..=499 => "upstream_4xx",
            500..=599 => "upstream_5xx",
            _ => "ok",
        };
        self.conclude(status, outcome);
    }

    /// The answer was cut, also if its header had told how it would end.
    pub fn break_off(&mut self) {
        self.outcome = Some("aborted");
    }
}

/// The caller's id if it may be one and is no key, otherwise a new one: ids are logged and passed
/// on, and keys never are. `sent` are the values of `Authorization`.
pub(super) fn request_id<'h>(
    id: Option<&[u8]>,
    sent: impl Iterator<Item = &'h [u8]>,
    ids: &RequestIds,
    keys: &Live<Option<KeyRing>>,
) -> RequestId {
    let is_known = |id: &[u8]| keys.peek().as_ref().as_ref().is_some_and(|ring| ring.holds(id));
    let is_key = |id: &[u8]| Token::is_made_here(id) || is_known(id);
    // Nor has an id one among its words.
    let words = |id: &[u8]| {
        let mut words = id.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        words.any(|word| word.len() >= SHORTEST_KEY && is_key(word))
    };
    match id {
        Some(id) if !is_key(id) && !words(id) && !holds_key(id, sent) => {
            RequestId::parse(id).unwrap_or_else(|| ids.next())
        }
        _ => ids.next(),
    }
}

/// Whether the key of this very request stands in its id.
fn holds_key<'h>(id: &[u8], sent: impl Iterator<Item = &'h [u8]>) -> bool {
    let mut words = sent.flat_map(|value| value.split(|byte| matches!(byte, b' ' | b',' | b'\t')));
    words.any(|word| {
        word.len() >= SHORTEST_KEY
            && id.len() >= word.len()
            && id.windows(word.len()).any(|part| part == word)
    })
}

fn unix_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
