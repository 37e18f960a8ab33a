//! The metrics of reloads.

use prometheus::{Error, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::register::{counters, gauge, gauges};

/// Reloads, and the state that they loaded.
pub struct ReloadMetrics {
    reloads: IntCounterVec,
    reload_failing: IntGaugeVec,
    /// When the first of the serving certificates expires; 0 without one.
    pub certificate_expiry: IntGauge,
    /// Keys in the ring.
    pub keys: IntGauge,
}

impl ReloadMetrics {
    pub(super) fn register(registry: &Registry) -> Result<ReloadMetrics, Error> {
        Ok(ReloadMetrics {
            reloads: counters(
                registry,
                "riskgate_reloads_total",
                "Reloads by part and outcome.",
                &["part", "outcome"],
            )?,
            reload_failing: gauges(
                registry,
                "riskgate_reload_failing",
                "1 while a part serves its last good state instead of what is there.",
                &["part"],
            )?,
            certificate_expiry: gauge(
                registry,
                "riskgate_tls_certificate_expires_timestamp_seconds",
                "When the first of the serving certificates expires; 0 without one.",
            )?,
            keys: gauge(registry, "riskgate_keys", "Keys in the ring, revoked ones included.")?,
        })
    }

    /// Counts a reload of a part (`table`, `keys`, `config`).
    pub fn count_reload(&self, part: &'static str, is_good: bool) {
        let outcome = if is_good { "ok" } else { "failed" };
        self.reloads.with_label_values(&[part, outcome]).inc();
        self.reload_failing.with_label_values(&[part]).set(i64::from(!is_good));
    }
}
