//! The rules for proxies that ask whether to admit a request: `[authz]` in the config.

use http::HeaderName;

use crate::screening::FieldPath;

use super::screen_rules::ScreenPolicy;

/// The field with the key of a proxy's client, without a scheme. With this field, `Authorization`
/// is free for the server behind the proxy.
pub(super) const AUTHZ_KEY_FIELD: HeaderName = HeaderName::from_static("x-riskgate-key");

/// What riskgate checks for a proxy that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthzRules {
    /// Whether the client needs a key.
    pub needs_key: bool,
    /// Whether the key must allow the client's origin. Without effect if the client needs no key.
    pub checks_origin: bool,
    /// Whether a request spends a call of the quota.
    pub is_counted: bool,
    /// How e-mail addresses are screened; `None` if they are not.
    pub screening: Option<AuthzScreening>,
}

impl AuthzRules {
    /// Rules that check nothing.
    pub fn admit_all() -> AuthzRules {
        AuthzRules { needs_key: false, checks_origin: false, is_counted: false, screening: None }
    }
}

/// How the e-mail addresses of a request that a proxy asks about are screened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthzScreening {
    /// What follows from a verdict.
    pub policy: ScreenPolicy,
    /// The header fields that contain addresses.
    pub header_names: Vec<HeaderName>,
    /// The fields of the client's query that contain addresses.
    pub query_fields: Vec<FieldPath>,
    /// The fields of the client's body that contain addresses.
    pub body_fields: Vec<FieldPath>,
}

impl AuthzScreening {
    /// Creates the rules for addresses in these places.
    pub fn new(policy: ScreenPolicy, sources: Vec<EmailSource>) -> AuthzScreening {
        let mut screening = AuthzScreening {
            policy,
            header_names: Vec::new(),
            query_fields: Vec::new(),
            body_fields: Vec::new(),
        };
        for source in sources {
            match source {
                EmailSource::Header(name) => screening.header_names.push(name),
                EmailSource::Query(field) => screening.query_fields.push(field),
                EmailSource::Body(field) => screening.body_fields.push(field),
            }
        }
        screening
    }
}

/// A place in which riskgate looks for the e-mail address of a proxy's client.
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
}
