//! The metrics of traces.

use prometheus::{Error, IntCounterVec};

use super::register::{Registrar, raise_counter};

/// The spans of traces.
pub struct TraceMetrics {
    spans_by_outcome: IntCounterVec,
}

impl TraceMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<TraceMetrics, Error> {
        let spans_by_outcome = registrar.counter_vec(
            "riskgate_trace_spans_total",
            "Spans of traces, by outcome.",
            &["outcome"],
        )?;
        Ok(TraceMetrics { spans_by_outcome })
    }

    /// Sets how many spans the collector took, and how many were dropped, since the start.
    pub fn set_span_counts(&self, exported: u64, dropped: u64) {
        for (outcome, spans) in [("exported", exported), ("dropped", dropped)] {
            raise_counter(&self.spans_by_outcome.with_label_values(&[outcome]), spans);
        }
    }
}
