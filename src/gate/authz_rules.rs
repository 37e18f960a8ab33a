//! The rules for proxies that ask whether to admit a request: `[authz]` in the config.

use http::HeaderName;

use crate::screening::FieldPath;

use super::screen_rules::ScreenPolicy;

/// What riskgate checks for a proxy that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthzRules {
    /// Whether the client needs a key.
    pub needs_key: bool,
    /// Whether the key must allow the client's origin.
    pub checks_origin: bool,
    /// Whether a request spends a call of the quota.
    pub is_counted: bool,
    /// How e-mail addresses are screened; `None` if they are not.
    pub screening: Option<AuthzScreening>,
}

/// How the e-mail addresses of a request that a proxy asks about are screened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthzScreening {
    /// What follows from a verdict.
    pub policy: ScreenPolicy,
    /// Where the addresses are.
    pub sources: Vec<EmailSource>,
}

/// Where a proxy passes an e-mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmailSource {
    /// In this header field.
    Header(HeaderName),
    /// In this field of the query that the client sent.
    Query(FieldPath),
    /// In this field of the body that the client sent.
    Body(FieldPath),
}

impl EmailSource {
    /// Parses `header:X-Email`, `query:email` or `body:user.email`; `None` for any other text.
    pub fn parse(text: &str) -> Option<EmailSource> {
        match text.split_once(':')? {
            ("header", name) => name.parse().ok().map(EmailSource::Header),
            ("query", name) => FieldPath::parse(name).map(EmailSource::Query),
            ("body", name) => FieldPath::parse(name).map(EmailSource::Body),
            _ => None,
        }
    }

    /// Returns the name of a header field.
    pub(super) fn header(&self) -> Option<&HeaderName> {
        if let EmailSource::Header(name) = self { Some(name) } else { None }
    }

    /// Returns the name of a field of the query.
    pub(super) fn query_field(&self) -> Option<&FieldPath> {
        if let EmailSource::Query(field) = self { Some(field) } else { None }
    }

    /// Returns the name of a field of the body.
    pub(super) fn body_field(&self) -> Option<&FieldPath> {
        if let EmailSource::Body(field) = self { Some(field) } else { None }
    }
}
