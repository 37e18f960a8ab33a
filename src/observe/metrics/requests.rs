//! The metrics of requests.

use prometheus::{Error, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Registry};

use super::register::{register_counter, register_counter_vec, register_gauge, register_metric};

/// The route of a request; the `route` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteLabel {
    /// `/v1/public/top-domains`
    TopDomains,
    /// `/v1/public/domain/…`
    Domain,
    /// `/v1/check/…`
    Check,
    /// `/v1/usage`
    Usage,
    /// A route of `[[upstream.route]]`.
    Upstream,
    /// A proxy asks whether to admit a request.
    Authz,
    /// An OPTIONS request to one of the routes, such as a CORS preflight.
    Options,
    /// No route matched, or the request was refused before it was routed.
    None,
}

impl RouteLabel {
    /// All labels, in the order of the enum.
    pub const ALL: [RouteLabel; 8] = [
        RouteLabel::TopDomains,
        RouteLabel::Domain,
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
            RouteLabel::Check => "check",
            RouteLabel::Usage => "usage",
            RouteLabel::Upstream => "upstream",
            RouteLabel::Authz => "authz",
            RouteLabel::Options => "options",
            RouteLabel::None => "none",
        }
    }
}

/// The outcomes of a request; the `outcome` label. A refusal uses its `error` code.
pub const OUTCOMES: [&str; 21] = [
    "ok",
    "fallback",
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "uri_too_long",
    "expectation_failed",
    "validation_error",
    "email_refused",
    "too_many_requests",
    "quota_exceeded",
    "headers_too_large",
    "internal_error",
    "upstream_unavailable",
    "upstream_timeout",
    "upstream_4xx",
    "upstream_5xx",
    "aborted",
    "other",
];

/// Requests by route and outcome, and dropped records of requests.
pub struct RequestMetrics {
    /// One counter per route and outcome: the outcomes of the first route, then of the second, …
    requests_by_route_and_outcome: Vec<IntCounter>,
    /// In seconds.
    duration_seconds: Histogram,
    /// Access-log lines that were dropped.
    pub access_log_lines_dropped: IntGauge,
    /// Lines for standard error that were dropped.
    pub process_log_lines_dropped: IntGauge,
    /// Flagged look-ups that the top list did not count.
    pub top_lookups_dropped: IntGauge,
    /// Requests served by the fast path.
    pub fast_path_requests: IntCounter,
    /// Calls refunded because riskgate failed to serve them.
    pub quota_refunds: IntCounter,
    screened: IntCounterVec,
}

impl RequestMetrics {
    pub(super) fn register(registry: &Registry) -> Result<RequestMetrics, Error> {
        let requests = register_counter_vec(
            registry,
            "riskgate_requests_total",
            "Requests by route and outcome.",
            &["route", "outcome"],
        )?;
        let duration = HistogramOpts::new(
            "riskgate_request_duration_seconds",
            "From a request's header to the end of its answer.",
        )
        .buckets(vec![
            5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5,
        ]);
        let by_label = RouteLabel::ALL
            .iter()
            .flat_map(|route| OUTCOMES.iter().map(move |outcome| (route, outcome)))
            .map(|(route, outcome)| requests.with_label_values(&[route.as_str(), outcome]))
            .collect();
        Ok(RequestMetrics {
            requests_by_route_and_outcome: by_label,
            duration_seconds: register_metric(registry, Histogram::with_opts(duration)?)?,
            access_log_lines_dropped: register_gauge(
                registry,
                "riskgate_access_log_lines_dropped_total",
                "Access-log lines dropped.",
            )?,
            process_log_lines_dropped: register_gauge(
                registry,
                "riskgate_process_log_lines_dropped_total",
                "Lines for standard error dropped.",
            )?,
            top_lookups_dropped: register_gauge(
                registry,
                "riskgate_top_domains_lookups_dropped_total",
                "Look-ups that the top list dropped.",
            )?,
            fast_path_requests: register_counter(
                registry,
                "riskgate_fast_path_requests_total",
                "Requests served by the fast path.",
            )?,
            quota_refunds: register_counter(
                registry,
                "riskgate_quota_refunds_total",
                "Calls refunded to the quota because riskgate failed to serve them.",
            )?,
            screened: register_counter_vec(
                registry,
                "riskgate_screened_total",
                "Posts screened, by the prefix of their route.",
                &["route", "action", "reason"],
            )?,
        })
    }

    /// Counts a screened post. `route` is a prefix of the config.
    pub fn count_screened(&self, route: &str, action: &str, reason: &str) {
        self.screened.with_label_values(&[route, action, reason]).inc();
    }

    /// Counts a request that is over, and observes its duration.
    pub fn count_request(&self, route: RouteLabel, outcome: &'static str, seconds: f64) {
        let other = OUTCOMES.len() - 1;
        let index = OUTCOMES.iter().position(|known| *known == outcome).unwrap_or(other);
        self.requests_by_route_and_outcome[route as usize * OUTCOMES.len() + index].inc();
        self.duration_seconds.observe(seconds);
    }
}
