//! The `X-Riskgate-` fields that tell a server who the client is, and what screening found. The
//! server is riskgate's upstream server, or the server of a proxy that asks.

use http::header::HeaderName;
use itoa::Buffer;

use super::response::FieldName;
use crate::keys::Key;
use crate::model::sign_up::Pseudonym;

static X_RISKGATE_ACCOUNT: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-account"), "x-riskgate-account: ");
static X_RISKGATE_KEY_ID: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-key-id"), "x-riskgate-key-id: ");
static X_RISKGATE_PLAN: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-plan"), "x-riskgate-plan: ");
static X_RISKGATE_ACTION: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-action"), "x-riskgate-action: ");
static X_RISKGATE_SCORE: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-score"), "x-riskgate-score: ");
static X_RISKGATE_REASON: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-reason"), "x-riskgate-reason: ");
static X_RISKGATE_DOMAIN: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-domain"), "x-riskgate-domain: ");
static X_RISKGATE_SUGGESTION: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-suggestion"), "x-riskgate-suggestion: ");
static X_RISKGATE_RULE: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-rule"), "x-riskgate-rule: ");
static X_RISKGATE_INBOX: FieldName =
    FieldName::new(HeaderName::from_static("x-riskgate-inbox"), "x-riskgate-inbox: ");

/// What screening found in a form.
#[derive(Clone, Copy, Debug)]
pub struct ScreeningFacts<'f> {
    /// `pass`, `review`, `would_block`, `block` or `unscreened`.
    pub action: &'static str,
    /// The reason of the verdict that decided, or why riskgate did not judge the form.
    pub reason: &'static str,
    /// The score of the verdict that decided.
    pub score: Option<u8>,
    /// The domain of the verdict that decided.
    pub domain: Option<&'f str>,
    /// The provider that the user probably meant.
    pub suggestion: Option<&'f str>,
    /// The rule that decided.
    pub rule: Option<&'f str>,
    /// The inbox of all addresses in the form.
    pub inbox: Option<Pseudonym>,
}

/// Passes to `put` the fields that tell the identity of a client that authenticated with `key`.
pub fn write_identity_fields(key: &Key, put: &mut impl FnMut(&'static FieldName, &[u8])) {
    put(&X_RISKGATE_ACCOUNT, key.account.name.as_bytes());
    put(&X_RISKGATE_KEY_ID, key.id.as_bytes());
    put(&X_RISKGATE_PLAN, key.account.plan.as_bytes());
}

/// Passes to `put` the fields that tell what screening found.
pub fn write_screening_fields(
    facts: &ScreeningFacts<'_>,
    put: &mut impl FnMut(&'static FieldName, &[u8]),
) {
    put(&X_RISKGATE_ACTION, facts.action.as_bytes());
    put(&X_RISKGATE_REASON, facts.reason.as_bytes());
    if let Some(score) = facts.score {
        put(&X_RISKGATE_SCORE, Buffer::new().format(score).as_bytes());
    }
    if let Some(domain) = facts.domain {
        put(&X_RISKGATE_DOMAIN, domain.as_bytes());
    }
    if let Some(suggestion) = facts.suggestion {
        put(&X_RISKGATE_SUGGESTION, suggestion.as_bytes());
    }
    if let Some(rule) = facts.rule {
        put(&X_RISKGATE_RULE, rule.as_bytes());
    }
    if let Some(inbox) = facts.inbox {
        put(&X_RISKGATE_INBOX, inbox.to_string().as_bytes());
    }
}
