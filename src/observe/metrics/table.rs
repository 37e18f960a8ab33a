//! The metrics of the table in use and of its feeds.

use prometheus::{Error, IntCounterVec, IntGauge};

use super::register::{GaugesByName, Registrar};
use crate::feed::{FeedState, FeedStatus};

/// The table in use, and the feeds that its lists come from.
pub struct TableMetrics {
    /// Rows of the serving table.
    pub table_rows: IntGauge,
    /// When the serving table was built, in Unix seconds.
    pub table_built_at: IntGauge,
    /// When the newest source behind the serving table's disposable names was published, in Unix
    /// seconds; 0 if it is not known.
    pub newest_source_day: IntGauge,
    /// When each list package of the serving table was published, in Unix seconds.
    pub source_published_at: GaugesByName,
    feed_rows: GaugesByName,
    feed_fetched_at: GaugesByName,
    feed_changed_at: GaugesByName,
    feed_fetches: IntCounterVec,
}

impl TableMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<TableMetrics, Error> {
        Ok(TableMetrics {
            table_rows: registrar.gauge("riskgate_table_rows", "Rows of the serving table.")?,
            table_built_at: registrar.gauge(
                "riskgate_table_built_timestamp_seconds",
                "When the serving table was built.",
            )?,
            newest_source_day: registrar.gauge(
                "riskgate_table_newest_evidence_timestamp_seconds",
                "The day of the newest source behind the serving table's disposable names.",
            )?,
            source_published_at: registrar.gauges_by_name(
                "riskgate_table_source_published_timestamp_seconds",
                "When a list package of the serving table was published.",
                "source",
            )?,
            feed_rows: registrar.gauges_by_name(
                "riskgate_feed_rows",
                "Rows of a feed's last good list.",
                "feed",
            )?,
            feed_fetched_at: registrar.gauges_by_name(
                "riskgate_feed_fetched_timestamp_seconds",
                "When a feed's list was last seen to be good.",
                "feed",
            )?,
            feed_changed_at: registrar.gauges_by_name(
                "riskgate_feed_changed_timestamp_seconds",
                "When a feed's list changed last.",
                "feed",
            )?,
            feed_fetches: registrar.counter_vec(
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

    /// Sets the gauges of these feeds, and removes the gauges of all other feeds.
    pub fn set_feed_gauges(&self, feeds: &[FeedStatus]) {
        let show_all = |gauges: &GaugesByName, value: fn(&FeedState) -> Option<i64>| {
            let with_value = |feed: &FeedStatus| Some((feed.name.clone(), value(&feed.state)?));
            gauges.set_all(&feeds.iter().filter_map(with_value).collect::<Vec<_>>());
        };
        show_all(&self.feed_rows, |feed| i64::try_from(feed.rows).ok());
        show_all(&self.feed_fetched_at, |feed| feed.fetched_at);
        show_all(&self.feed_changed_at, |feed| feed.changed_at);
    }
}
