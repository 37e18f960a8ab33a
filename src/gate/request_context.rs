//! One request at the gate: what is known of it, from its header to its log line.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::gate::admission::Permit;
use crate::keys::{Key, KeyRing, MIN_KEY_LEN, Token};
use crate::message::request_id::{RequestId, RequestIdGenerator};
use crate::message::response::CommonHeaders;
use crate::model::domain::Domain;
use crate::observe::metrics::RouteLabel;
use crate::support::snapshot::SnapshotCell;

/// One request at the gate.
pub struct RequestContext {
    started: Instant,
    /// By this machine's clock, for the log alone.
    pub(super) started_unix_ms: i64,
    /// The ledger's time, which the request is judged by; 0 before it is.
    pub(super) unix_now: i64,
    pub(crate) common_headers: CommonHeaders,
    /// Proof that the gates were passed; none before, and none for what was refused.
    pub(crate) permit: Option<Permit>,
    pub(super) upstream_target: Option<Vec<u8>>,
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
pub(crate) struct StartTime {
    instant: Instant,
    unix_ms: i64,
}

impl StartTime {
    pub fn now() -> StartTime {
        StartTime { instant: Instant::now(), unix_ms: unix_ms_now() }
    }

    /// This machine's clock, in seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        self.unix_ms.div_euclid(1000)
    }
}

impl Default for RequestContext {
    fn default() -> RequestContext {
        RequestContext::from(StartTime::now())
    }
}

impl From<StartTime> for RequestContext {
    fn from(StartTime { instant: at, unix_ms }: StartTime) -> RequestContext {
        RequestContext {
            started: at,
            started_unix_ms: unix_ms,
            unix_now: 0,
            common_headers: CommonHeaders::default(),
            permit: None,
            upstream_target: None,
            route: RouteLabel::None,
            key: None,
            outcome: None,
            status: 0,
            reason: None,
            domain: None,
        }
    }
}

impl RequestContext {
    /// The time that the request is judged by, in seconds since 1970: the ledger's, which doubts
    /// clocks that jump. It is read once for a request.
    pub fn unix_now(&self) -> i64 {
        self.unix_now
    }

    /// Keeps the permit, and tells the caller what it leaves.
    pub(super) fn set_permit(&mut self, permit: Permit) {
        self.common_headers.allowance = permit.allowance(self.unix_now());
        self.permit = Some(permit);
    }

    /// The path and query to ask the upstream for, in canonical form; none before the gates
    /// were passed.
    pub fn forward(&self) -> Option<&[u8]> {
        self.upstream_target.as_deref()
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
    pub fn set_outcome(&mut self, status: u16, outcome: &'static str) {
        if self.outcome.is_none() {
            self.status = status;
            self.outcome = Some(outcome);
        }
    }

    /// A server answered with this status, and that is passed back.
    pub fn set_upstream_outcome(&mut self, status: u16) {
        let outcome = match status {
            400..=499 => "upstream_4xx",
            500..=599 => "upstream_5xx",
            _ => "ok",
        };
        self.set_outcome(status, outcome);
    }

    /// The answer was cut, also if its header had told how it would end.
    pub fn mark_aborted(&mut self) {
        self.outcome = Some("aborted");
    }
}

/// The caller's id if it may be one and is no key, otherwise a new one: ids are logged and passed
/// on, and keys never are. `sent` are the values of `Authorization`.
pub(super) fn choose_request_id<'h>(
    id: Option<&[u8]>,
    authorization_values: impl Iterator<Item = &'h [u8]>,
    ids: &RequestIdGenerator,
    keys: &SnapshotCell<Option<KeyRing>>,
) -> RequestId {
    let is_known =
        |id: &[u8]| keys.peek().as_ref().as_ref().is_some_and(|ring| ring.contains_key(id));
    let is_key = |id: &[u8]| Token::has_valid_checksum(id) || is_known(id);
    // Nor has an id one among its words.
    let has_key_among_words = |id: &[u8]| {
        let mut has_key_among_words =
            id.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        has_key_among_words.any(|word| word.len() >= MIN_KEY_LEN && is_key(word))
    };
    match id {
        Some(id)
            if !is_key(id)
                && !has_key_among_words(id)
                && !contains_sent_key(id, authorization_values) =>
        {
            RequestId::parse(id).unwrap_or_else(|| ids.generate())
        }
        _ => ids.generate(),
    }
}

/// Whether the key of this very request stands in its id.
fn contains_sent_key<'h>(id: &[u8], authorization_values: impl Iterator<Item = &'h [u8]>) -> bool {
    let mut has_key_among_words = authorization_values
        .flat_map(|value| value.split(|byte| matches!(byte, b' ' | b',' | b'\t')));
    has_key_among_words.any(|word| {
        word.len() >= MIN_KEY_LEN
            && id.len() >= word.len()
            && id.windows(word.len()).any(|part| part == word)
    })
}

fn unix_ms_now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
