//! The metrics of requests.

use prometheus::core::Metric;
use prometheus::{Error, Histogram, IntCounter, IntCounterVec};

use super::register::{OptionalGauge, Registrar, raise_counter};
use crate::model::route_label::RouteLabel;
use crate::model::verdict::{Reason, VerdictSource};

/// The upper bounds of the buckets for durations of requests, in seconds. Look-ups take
/// microseconds, so the first buckets are narrow. The last bounds are the default deadline of a
/// check, and more.
pub const REQUEST_DURATION_BUCKETS: [f64; 18] = [
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 10.0,
];

/// The outcomes of a request: the values of the `outcome` label. The outcome of a refusal is its
/// `error` code.
pub const OUTCOMES: [&str; 25] = [
    "ok",
    "redirected",
    "fallback",
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "request_timeout",
    "content_too_large",
    "uri_too_long",
    "expectation_failed",
    "validation_error",
    "email_refused",
    "form_unreadable",
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

/// The traffic of all routes since the start.
#[derive(Clone, Debug)]
pub struct TrafficTotals {
    /// Requests by outcome, in the order of [`OUTCOMES`].
    pub outcomes: [u64; OUTCOMES.len()],
    /// Verdicts by reason, in the order of [`Reason::ALL`].
    pub verdicts: [u64; Reason::ALL.len()],
    /// Requests by duration, in the order of [`REQUEST_DURATION_BUCKETS`]. The last count is that
    /// of longer requests.
    pub durations: [u64; REQUEST_DURATION_BUCKETS.len() + 1],
}

impl Default for TrafficTotals {
    fn default() -> TrafficTotals {
        TrafficTotals {
            outcomes: [0; OUTCOMES.len()],
            verdicts: [0; Reason::ALL.len()],
            durations: [0; REQUEST_DURATION_BUCKETS.len() + 1],
        }
    }
}

/// Requests by route and outcome, and dropped records of requests.
pub struct RequestMetrics {
    /// One counter per route and outcome: the outcomes of the first route, then of the second, …
    requests_by_route_and_outcome: Vec<IntCounter>,
    /// One histogram of seconds per route.
    duration_by_route: Vec<Histogram>,
    /// One counter per reason and source: the sources of the first reason, then of the second, …
    verdicts_by_reason_and_source: Vec<IntCounter>,
    access_log_lines_dropped: IntCounter,
    process_log_lines_dropped: IntCounter,
    top_lookups_dropped: IntCounter,
    /// Requests served by the fast path.
    pub fast_path_requests: IntCounter,
    /// Requests whose calls riskgate refunded.
    pub quota_refunds: IntCounter,
    screened: IntCounterVec,
    rule_decisions: IntCounterVec,
    held_body_bytes: OptionalGauge,
}

impl RequestMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<RequestMetrics, Error> {
        let requests = registrar.counter_vec(
            "riskgate_requests_total",
            "Requests by route and outcome.",
            &["route", "outcome"],
        )?;
        let durations = registrar.histogram_vec(
            "riskgate_request_duration_seconds",
            "From a request's header to the end of its answer, by route.",
            &REQUEST_DURATION_BUCKETS,
            "route",
        )?;
        let by_route = RouteLabel::ALL.iter().map(|r| durations.with_label_values(&[r.as_str()]));
        let verdicts = registrar.counter_vec(
            "riskgate_verdicts_total",
            "Verdicts on domains, by reason and source.",
            &["reason", "source"],
        )?;
        let by_reason_and_source = Reason::ALL
            .iter()
            .flat_map(|reason| VerdictSource::ALL.iter().map(move |source| (reason, source)))
            .map(|(reason, source)| verdicts.with_label_values(&[reason.as_str(), source.as_str()]))
            .collect();
        let by_label = RouteLabel::ALL
            .iter()
            .flat_map(|route| OUTCOMES.iter().map(move |outcome| (route, outcome)))
            .map(|(route, outcome)| requests.with_label_values(&[route.as_str(), outcome]))
            .collect();
        Ok(RequestMetrics {
            requests_by_route_and_outcome: by_label,
            duration_by_route: by_route.collect(),
            verdicts_by_reason_and_source: by_reason_and_source,
            access_log_lines_dropped: registrar
                .counter("riskgate_access_log_lines_dropped_total", "Access-log lines dropped.")?,
            process_log_lines_dropped: registrar.counter(
                "riskgate_process_log_lines_dropped_total",
                "Lines for standard error dropped.",
            )?,
            top_lookups_dropped: registrar.counter(
                "riskgate_top_domains_lookups_dropped_total",
                "Look-ups that the top list dropped.",
            )?,
            fast_path_requests: registrar.counter(
                "riskgate_fast_path_requests_total",
                "Requests served by the fast path.",
            )?,
            quota_refunds: registrar.counter(
                "riskgate_quota_refunds_total",
                "Requests whose calls riskgate refunded to the quota.",
            )?,
            screened: registrar.counter_vec(
                "riskgate_screened_total",
                "Posts screened, by the prefix of their route.",
                &["route", "action", "reason"],
            )?,
            rule_decisions: registrar.counter_vec(
                "riskgate_rule_decisions_total",
                "Decisions of the rules of the config.",
                &["rule", "route", "action"],
            )?,
            held_body_bytes: registrar.optional_gauge(
                "riskgate_held_body_bytes",
                "Bytes of the request bodies that are arriving and held meanwhile.",
            )?,
        })
    }

    /// Returns the counter of screened forms with this route, action and reason. `route` is a
    /// prefix of the config.
    pub fn screened_form_counter(&self, route: &str, action: &str, reason: &str) -> IntCounter {
        self.screened.with_label_values(&[route, action, reason])
    }

    /// Counts a decision of a rule. `route` is a prefix of the config, or the name of a route of
    /// riskgate's own.
    pub fn count_rule_decision(&self, rule: &str, route: &str, action: &str) {
        self.rule_decisions.with_label_values(&[rule, route, action]).inc();
    }

    /// Counts a request that has ended, and its duration.
    pub fn count_request(&self, route: RouteLabel, outcome: &'static str, seconds: f64) {
        let other = OUTCOMES.len() - 1;
        let index = OUTCOMES.iter().position(|known| *known == outcome).unwrap_or(other);
        self.requests_by_route_and_outcome[route as usize * OUTCOMES.len() + index].inc();
        self.duration_by_route[route as usize].observe(seconds);
    }

    /// Returns the totals of all routes since the start.
    pub fn traffic_totals(&self) -> TrafficTotals {
        let mut totals = TrafficTotals::default();
        for (at, counter) in self.requests_by_route_and_outcome.iter().enumerate() {
            totals.outcomes[at % OUTCOMES.len()] += counter.get();
        }
        for (at, counter) in self.verdicts_by_reason_and_source.iter().enumerate() {
            totals.verdicts[at / VerdictSource::ALL.len()] += counter.get();
        }
        for histogram in &self.duration_by_route {
            let metric = histogram.metric();
            let histogram = metric.get_histogram();
            let mut below = 0;
            for (at, bucket) in histogram.get_bucket().iter().enumerate() {
                // The counts of buckets are cumulative.
                let count = bucket.cumulative_count();
                totals.durations[at.min(REQUEST_DURATION_BUCKETS.len())] +=
                    count.saturating_sub(below);
                below = count;
            }
            let longer = histogram.get_sample_count().saturating_sub(below);
            totals.durations[REQUEST_DURATION_BUCKETS.len()] += longer;
        }
        totals
    }

    /// Returns how many verdicts there were since the start, by reason and source.
    pub fn verdict_counts(&self) -> Vec<(Reason, VerdictSource, u64)> {
        let sources = VerdictSource::ALL.len();
        let counters = self.verdicts_by_reason_and_source.iter().enumerate();
        let count = |(at, counter): (usize, &IntCounter)| {
            (Reason::ALL[at / sources], VerdictSource::ALL[at % sources], counter.get())
        };
        counters.map(count).collect()
    }

    /// Counts a verdict on a domain.
    pub fn count_verdict(&self, reason: Reason, source: VerdictSource) {
        let index = reason as usize * VerdictSource::ALL.len() + source as usize;
        self.verdicts_by_reason_and_source[index].inc();
    }

    /// Sets how many bytes riskgate holds: of request bodies that are arriving, of HTTP/2 headers
    /// without an end, and of responses that no client takes.
    pub fn set_held_body_bytes(&self, bytes: usize) {
        self.held_body_bytes.set(Some(bytes as i64));
    }

    /// Sets the counters of dropped records to these totals: lines of the access log, lines for
    /// standard error, and flagged look-ups that the top list did not count.
    pub fn set_dropped_totals(&self, access_log: u64, process_log: u64, top_lookups: u64) {
        raise_counter(&self.access_log_lines_dropped, access_log);
        raise_counter(&self.process_log_lines_dropped, process_log);
        raise_counter(&self.top_lookups_dropped, top_lookups);
    }
}
