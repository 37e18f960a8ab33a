//! The metrics of quota webhooks.

use prometheus::{Error, IntCounterVec, IntGauge};

use super::register::Registrar;
use crate::webhook::DeliveryOutcome;

/// The messages of quota webhooks.
pub struct WebhookMetrics {
    deliveries_by_outcome: IntCounterVec,
    pending_events: IntGauge,
}

impl WebhookMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<WebhookMetrics, Error> {
        let deliveries_by_outcome = registrar.counter_vec(
            "riskgate_webhook_deliveries_total",
            "Attempts to deliver a quota event, by outcome.",
            &["outcome"],
        )?;
        // An alert needs the series before the first failure.
        for outcome in DeliveryOutcome::ALL {
            deliveries_by_outcome.with_label_values(&[outcome.as_str()]);
        }
        Ok(WebhookMetrics {
            deliveries_by_outcome,
            pending_events: registrar.gauge(
                "riskgate_webhook_events_pending",
                "Quota events that the receiver has not accepted yet, of all nodes.",
            )?,
        })
    }

    /// Counts an attempt to deliver an event.
    pub fn count_delivery(&self, outcome: DeliveryOutcome) {
        self.deliveries_by_outcome.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Sets how many events are pending.
    pub fn set_pending_events(&self, events: u64) {
        self.pending_events.set(events.cast_signed());
    }
}
