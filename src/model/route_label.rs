//! The routes, as metrics, the access log and usage by day name them.

/// The route of a request; the `route` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteLabel {
    /// `/v1/public/top-domains`
    TopDomains,
    /// `/v1/public/domain/…`
    Domain,
    /// `/v1/public/domains`
    DomainBatch,
    /// `/v1/assess`
    Assess,
    /// `/v1/check/…`
    Check,
    /// `/v1/usage`
    Usage,
    /// A route of `[[upstream.route]]`.
    Upstream,
    /// A proxy asks whether to admit a request.
    Authz,
    /// An OPTIONS request that riskgate answers itself, such as a CORS preflight.
    Options,
    /// No route matched, or the request was refused before it was routed.
    None,
}

impl RouteLabel {
    /// The number of labels.
    pub const COUNT: usize = RouteLabel::ALL.len();

    /// All labels, in the order of the enum.
    pub const ALL: [RouteLabel; 10] = [
        RouteLabel::TopDomains,
        RouteLabel::Domain,
        RouteLabel::DomainBatch,
        RouteLabel::Assess,
        RouteLabel::Check,
        RouteLabel::Usage,
        RouteLabel::Upstream,
        RouteLabel::Authz,
        RouteLabel::Options,
        RouteLabel::None,
    ];

    /// The label's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            RouteLabel::TopDomains => "top_domains",
            RouteLabel::Domain => "domain",
            RouteLabel::DomainBatch => "domains",
            RouteLabel::Assess => "assess",
            RouteLabel::Check => "check",
            RouteLabel::Usage => "usage",
            RouteLabel::Upstream => "upstream",
            RouteLabel::Authz => "authz",
            RouteLabel::Options => "options",
            RouteLabel::None => "none",
        }
    }
}
