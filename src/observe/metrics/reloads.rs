//! The metrics of reloads.

use prometheus::{Error, IntCounterVec, IntGauge, IntGaugeVec};

use super::register::{GaugesByName, Registrar};

/// Reloads, and the state that they loaded.
pub struct ReloadMetrics {
    reloads_by_part_and_outcome: IntCounterVec,
    reload_failing: IntGaugeVec,
    /// When each certificate in use expires, in Unix seconds, by the file of its chain.
    pub certificate_expires_at: GaugesByName,
    /// Keys in the ring, revoked ones included.
    pub keys_in_ring: IntGauge,
}

impl ReloadMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<ReloadMetrics, Error> {
        Ok(ReloadMetrics {
            reloads_by_part_and_outcome: registrar.counter_vec(
                "riskgate_reloads_total",
                "Reloads by part and outcome.",
                &["part", "outcome"],
            )?,
            reload_failing: registrar.gauge_vec(
                "riskgate_reload_failing",
                "1 while a part serves its last good state, or is degraded.",
                &["part"],
            )?,
            certificate_expires_at: registrar.gauges_by_name(
                "riskgate_tls_certificate_expires_timestamp_seconds",
                "When a serving certificate expires.",
                "certificate",
            )?,
            keys_in_ring: registrar
                .gauge("riskgate_keys", "Keys in the ring, revoked ones included.")?,
        })
    }

    /// Counts a reload of a part (`table`, `keys`, `config` or `certificates`).
    pub fn count_reload(&self, part: &'static str, is_good: bool) {
        let outcome = if is_good { "ok" } else { "failed" };
        self.reloads_by_part_and_outcome.with_label_values(&[part, outcome]).inc();
    }

    /// Sets whether a part is failing: one that is reloaded, or another that `/readyz` names.
    pub fn set_failing(&self, part: &'static str, is_failing: bool) {
        self.reload_failing.with_label_values(&[part]).set(i64::from(is_failing));
    }
}
