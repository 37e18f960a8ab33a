//! The metrics of the table in use and of its feeds.

use prometheus::core::Collector;
use prometheus::{Error, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::register::{register_counter_vec, register_gauge, register_gauge_vec};
use crate::feed::FeedStatus;

/// The table in use, and the feeds that its lists come from.
pub struct TableMetrics {
    /// Rows of the serving table.
    pub table_rows: IntGauge,
    /// When the serving table was built, in Unix seconds.
    pub table_built_at: IntGauge,
    feed_rows: IntGaugeVec,
    feed_fetched_at: IntGaugeVec,
    feed_changed_at: IntGaugeVec,
    feed_fetches: IntCounterVec,
}

impl TableMetrics {
    pub(super) fn register(registry: &Registry) -> Result<TableMetrics, Error> {
        Ok(TableMetrics {
            table_rows: register_gauge(
                registry,
                "riskgate_table_rows",
                "Rows of the serving table.",
            )?,
            table_built_at: register_gauge(
                registry,
                "riskgate_table_built_timestamp_seconds",
                "When the serving table was built.",
            )?,
            feed_rows: register_gauge_vec(
                registry,
                "riskgate_feed_rows",
                "Rows of a feed's last good list.",
                &["feed"],
            )?,
            feed_fetched_at: register_gauge_vec(
                registry,
                "riskgate_feed_fetched_timestamp_seconds",
                "When a feed's list was last seen to be good.",
                &["feed"],
            )?,
            feed_changed_at: register_gauge_vec(
                registry,
                "riskgate_feed_changed_timestamp_seconds",
                "When a feed's list changed last.",
                &["feed"],
            )?,
            feed_fetches: register_counter_vec(
                registry,
                "riskgate_feed_fetches_total",
                "Fetches by feed and outcome.",
                &["feed", "outcome"],
            )?,
        })
    }

    /// Counts a fetch of a feed.
    pub fn count_feed_fetch(&self, feed: &str, is_good: bool) {
        let outcome = if is_good { "ok" } else { "failed" };
        self.feed_fetches.with_label_values(&[feed, outcome]).inc();
    }

    /// Sets the gauges of these feeds, and removes those of all others.
    pub fn set_feed_gauges(&self, feeds: &[FeedStatus]) {
        for gauges in [&self.feed_rows, &self.feed_fetched_at, &self.feed_changed_at] {
            let shown = gauges.collect();
            let shown = shown.iter().flat_map(|family| family.get_metric());
            let names = shown.flat_map(|metric| metric.get_label()).map(|label| label.value());
            for removed in names.filter(|name| feeds.iter().all(|feed| feed.name != *name)) {
                // Fails only if the gauge is gone, and only this thread removes gauges.
                let _ = gauges.remove_label_values(&[removed]);
            }
        }
        for FeedStatus { name, state, .. } in feeds {
            let rows = i64::try_from(state.rows).unwrap_or(i64::MAX);
            let show = |gauges: &IntGaugeVec, value| gauges.with_label_values(&[name]).set(value);
            show(&self.feed_rows, rows);
            if let Some(fetched_at) = state.fetched_at {
                show(&self.feed_fetched_at, fetched_at);
            }
            if let Some(changed_at) = state.changed_at {
                show(&self.feed_changed_at, changed_at);
            }
        }
    }
}
