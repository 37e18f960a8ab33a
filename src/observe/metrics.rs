//! Counters and gauges in Prometheus' text format.
//!
//! Owns the registry and every metric's name. Labels are closed sets: no key, account or domain
//! ever becomes one. It never decides anything.

use prometheus::core::Collector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::feed::FeedStatus;

/// Which door a request went through; the `route` label.
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
    /// A prefix of `[[upstream.route]]`.
    Upstream,
    /// OPTIONS.
    Options,
    /// None of ours, or refused before a route was found.
    None,
}

impl RouteLabel {
    /// All labels.
    pub const ALL: [RouteLabel; 7] = [
        RouteLabel::TopDomains,
        RouteLabel::Domain,
        RouteLabel::Check,
        RouteLabel::Usage,
        RouteLabel::Upstream,
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
            RouteLabel::Options => "options",
            RouteLabel::None => "none",
        }
    }
}

/// How a request ended; the `outcome` label. Refusals use their `error` code.
pub const OUTCOMES: [&str; 18] = [
    "ok",
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "uri_too_long",
    "expectation_failed",
    "validation_error",
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

/// Every metric of the gateway.
pub struct Metrics {
    registry: Registry,
    requests: Vec<IntCounter>,
    duration: Histogram,
    /// Connections that are open.
    pub connections: IntGauge,
    /// Requests between their header and the end of their answer.
    pub in_flight: IntGauge,
    /// Connections that ended by a panic.
    pub panics: IntCounter,
    /// Connections closed unread: at a cap, or from a proxy that is not trusted.
    pub connections_refused: IntCounter,
    /// TLS handshakes that failed or took too long.
    pub handshakes_failed: IntCounter,
    /// When the first of the serving certificates expires; 0 without one.
    pub certificate_expires: IntGauge,
    /// Access-log lines that were dropped.
    pub log_dropped: IntGauge,
    /// Lines for standard error that were dropped.
    pub error_log_dropped: IntGauge,
    /// Flagged look-ups that the top list did not count.
    pub top_dropped: IntGauge,
    /// Answers given by the lane.
    pub lane_answers: IntCounter,
    /// Calls given back, since we failed to serve them.
    pub given_back: IntCounter,
    reloads: IntCounterVec,
    reload_failing: IntGaugeVec,
    /// Rows of the serving table.
    pub table_rows: IntGauge,
    /// When the serving table was built.
    pub table_built: IntGauge,
    feed_rows: IntGaugeVec,
    feed_fetched: IntGaugeVec,
    feed_changed: IntGaugeVec,
    feed_fetches: IntCounterVec,
    dns_queries: IntCounterVec,
    dns_learned: IntGauge,
    dns_queue: IntGauge,
    dns_dropped: IntCounter,
    /// Keys in the ring.
    pub keys: IntGauge,
    /// 1 while a clock is doubted, or calls were counted in a month that has not begun.
    pub clock_doubted: IntGauge,
    /// 1 while the store counts as down.
    pub store_down: IntGauge,
    /// How many of `store.wait_replicas` lack what was last stated.
    pub replicas_missing: IntGauge,
    /// 1 while all nodes restate their numbers.
    pub store_settling: IntGauge,
    /// Commits of the ledger.
    pub store_commits: IntGauge,
    /// Failed operations of the ledger.
    pub store_failures: IntGauge,
    /// Calls admitted while the store was down, not yet settled.
    pub store_unsettled: IntGauge,
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| register(&registry, IntGauge::new(name, help)?);
        let counter = |name: &str, help: &str| register(&registry, IntCounter::new(name, help)?);
        let by_feed = |name: &str, help: &str| {
            register(&registry, IntGaugeVec::new(Opts::new(name, help), &["feed"])?)
        };
        let requests = register(
            &registry,
            IntCounterVec::new(
                Opts::new("riskgate_requests_total", "Requests by route and outcome."),
                &["route", "outcome"],
            )?,
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
        Ok(Metrics {
            requests: by_label,
            duration: register(&registry, Histogram::with_opts(duration)?)?,
            connections: gauge("riskgate_connections", "Connections that are open.")?,
            in_flight: gauge("riskgate_requests_in_flight", "Requests being answered.")?,
            panics: counter("riskgate_panics_total", "Connections that ended by a panic.")?,
            connections_refused: counter(
                "riskgate_connections_refused_total",
                "Connections closed unread: at a cap, or from a proxy that is not trusted.",
            )?,
            handshakes_failed: counter(
                "riskgate_tls_handshakes_failed_total",
                "TLS handshakes that failed or took too long.",
            )?,
            certificate_expires: gauge(
                "riskgate_tls_certificate_expires_timestamp_seconds",
                "When the first of the serving certificates expires; 0 without one.",
            )?,
            log_dropped: gauge("riskgate_access_log_dropped", "Access-log lines dropped.")?,
            error_log_dropped: gauge(
                "riskgate_error_log_dropped",
                "Lines for standard error dropped.",
            )?,
            top_dropped: gauge("riskgate_top_dropped", "Look-ups that the top list dropped.")?,
            lane_answers: counter("riskgate_lane_answers_total", "Answers given by the lane.")?,
            given_back: counter("riskgate_calls_given_back_total", "Counted calls given back.")?,
            reloads: register(
                &registry,
                IntCounterVec::new(
                    Opts::new("riskgate_reload_total", "Reloads by part and outcome."),
                    &["part", "outcome"],
                )?,
            )?,
            reload_failing: register(
                &registry,
                IntGaugeVec::new(
                    Opts::new(
                        "riskgate_reload_failing",
                        "1 while a part serves its last good state instead of what is there.",
                    ),
                    &["part"],
                )?,
            )?,
            table_rows: gauge("riskgate_table_rows", "Rows of the serving table.")?,
            table_built: gauge(
                "riskgate_table_built_timestamp_seconds",
                "When the serving table was built.",
            )?,
            feed_rows: by_feed("riskgate_feed_rows", "Rows of a feed's last good list.")?,
            feed_fetched: by_feed(
                "riskgate_feed_fetched_timestamp_seconds",
                "When a feed's list was last seen to be good; 0 if it never was.",
            )?,
            feed_changed: by_feed(
                "riskgate_feed_changed_timestamp_seconds",
                "When a feed's list changed last; 0 if there was none.",
            )?,
            feed_fetches: register(
                &registry,
                IntCounterVec::new(
                    Opts::new("riskgate_feed_fetches_total", "Fetches by feed and outcome."),
                    &["feed", "outcome"],
                )?,
            )?,
            dns_queries: register(
                &registry,
                IntCounterVec::new(
                    Opts::new(
                        "riskgate_dns_queries_total",
                        "Names of which the DNS was asked, by what it said.",
                    ),
                    &["outcome"],
                )?,
            )?,
            dns_learned: gauge(
                "riskgate_dns_learned",
                "Names of which it is kept in memory what the DNS said.",
            )?,
            dns_queue: gauge("riskgate_dns_queue", "Names that wait to be asked.")?,
            dns_dropped: counter(
                "riskgate_dns_dropped_total",
                "Names that were not taken to be asked, since too many waited.",
            )?,
            keys: gauge("riskgate_keys", "Keys in the ring, revoked ones included.")?,
            clock_doubted: gauge(
                "riskgate_clock_doubted",
                "1 while a clock is doubted, or a month was counted in that has not begun.",
            )?,
            store_down: gauge("riskgate_store_down", "1 while the store counts as down.")?,
            replicas_missing: gauge(
                "riskgate_store_replicas_missing",
                "How many of store.wait_replicas lack what was last stated.",
            )?,
            store_settling: gauge(
                "riskgate_store_settling",
                "1 while all nodes restate their numbers, since the store may have lost some.",
            )?,
            store_commits: gauge("riskgate_store_commits", "Commits of the ledger.")?,
            store_failures: gauge("riskgate_store_failures", "Failed ledger operations.")?,
            store_unsettled: gauge(
                "riskgate_store_unsettled_calls",
                "Calls admitted while the store was down, not yet settled.",
            )?,
            registry,
        })
    }

    /// Counts an answer.
    pub fn request(&self, route: RouteLabel, outcome: &'static str, seconds: f64) {
        let other = OUTCOMES.len() - 1;
        let place = OUTCOMES.iter().position(|known| *known == outcome).unwrap_or(other);
        self.requests[route as usize * OUTCOMES.len() + place].inc();
        self.duration.observe(seconds);
    }

    /// Counts a reload of a part (`table`, `keys`, `config`).
    pub fn reload(&self, part: &'static str, good: bool) {
        let outcome = if good { "ok" } else { "failed" };
        self.reloads.with_label_values(&[part, outcome]).inc();
        self.reload_failing.with_label_values(&[part]).set(i64::from(!good));
    }

    /// Counts a fetch of a feed.
    pub fn count_fetch(&self, feed: &str, is_good: bool) {
        let outcome = if is_good { "ok" } else { "failed" };
        self.feed_fetches.with_label_values(&[feed, outcome]).inc();
    }

    /// Shows these feeds and no others.
    pub fn show_feeds(&self, feeds: &[FeedStatus]) {
        for gauges in [&self.feed_rows, &self.feed_fetched, &self.feed_changed] {
            let shown = gauges.collect();
            let shown = shown.iter().flat_map(|family| family.get_metric());
            let names = shown.flat_map(|metric| metric.get_label()).map(|label| label.value());
            for gone in names.filter(|name| feeds.iter().all(|feed| feed.name != *name)) {
                // Only this thread removes any.
                let _ = gauges.remove_label_values(&[gone]);
            }
        }
        for FeedStatus { name, state, .. } in feeds {
            let rows = i64::try_from(state.rows).unwrap_or(i64::MAX);
            let show = |gauges: &IntGaugeVec, value| gauges.with_label_values(&[name]).set(value);
            show(&self.feed_rows, rows);
            show(&self.feed_fetched, state.fetched_at.unwrap_or_default());
            show(&self.feed_changed, state.changed_at.unwrap_or_default());
        }
    }

    /// Shows how the DNS is learned from; `asked` is how many names led to each outcome so far.
    pub fn show_dns(
        &self,
        known: usize,
        queue: usize,
        dropped: u64,
        asked: impl Iterator<Item = (&'static str, u64)>,
    ) {
        let raise = |counter: &IntCounter, to: u64| {
            counter.inc_by(to.saturating_sub(counter.get()));
        };
        self.dns_learned.set(known as i64);
        self.dns_queue.set(queue as i64);
        raise(&self.dns_dropped, dropped);
        for (outcome, names) in asked {
            raise(&self.dns_queries.with_label_values(&[outcome]), names);
        }
    }

    /// Everything, as a scraper reads it.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        out
    }
}

fn register<M>(registry: &Registry, metric: M) -> Result<M, prometheus::Error>
where
    M: prometheus::core::Collector + Clone + 'static,
{
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_an_outcome() {
        use crate::model::refusal::Refusal::*;
        for refusal in [BadRequest, Unauthorized, NotFound, UriTooLong, HeadersTooLarge, Internal] {
            assert!(OUTCOMES.contains(&refusal.code()));
        }
        let metrics = Metrics::new().unwrap();
        metrics.request(RouteLabel::Domain, "unauthorized", 0.001);
        metrics.request(RouteLabel::Domain, "no such outcome", 0.001);
        let text = String::from_utf8(metrics.render()).unwrap();
        for line in [
            r#"riskgate_requests_total{outcome="unauthorized",route="domain"} 1"#,
            r#"riskgate_requests_total{outcome="other",route="domain"} 1"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
