//! Helpers that create a metric and register it.

use prometheus::core::Collector;
use prometheus::{Error, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// A gauge that has a series only while it has a value. So a missing value does not look like 0.
#[derive(Clone)]
pub struct OptionalGauge(IntGaugeVec);

impl OptionalGauge {
    pub fn register(registry: &Registry, name: &str, help: &str) -> Result<OptionalGauge, Error> {
        register_gauge_vec(registry, name, help, &[]).map(OptionalGauge)
    }

    /// Sets the value, or removes the series.
    pub fn set(&self, value: Option<i64>) {
        match value {
            Some(value) => self.0.with_label_values::<&str>(&[]).set(value),
            // The call fails if there is no series, which does no harm.
            None => drop(self.0.remove_label_values::<&str>(&[])),
        }
    }
}

/// A gauge for each name of a changing set. If a name leaves the set, its series is removed.
#[derive(Clone)]
pub struct GaugesByName(IntGaugeVec);

impl GaugesByName {
    /// Registers the gauges; `label` is the label of the name.
    pub fn register(
        registry: &Registry,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<GaugesByName, Error> {
        register_gauge_vec(registry, name, help, &[label]).map(GaugesByName)
    }

    /// Sets the gauges of these names, and removes all others.
    pub fn set_all(&self, values: &[(String, i64)]) {
        let shown = self.0.collect();
        let shown = shown.iter().flat_map(|family| family.get_metric());
        let names = shown.flat_map(|metric| metric.get_label()).map(|label| label.value());
        for removed in names.filter(|name| values.iter().all(|(kept, _)| kept != name)) {
            // The call fails only if another thread has removed the gauge.
            let _ = self.0.remove_label_values(&[removed]);
        }
        for (name, value) in values {
            self.0.with_label_values(&[name]).set(*value);
        }
    }
}

/// Raises a counter to a total that is counted elsewhere.
pub fn raise_counter(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

pub fn register_gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, Error> {
    register_metric(registry, IntGauge::new(name, help)?)
}

pub fn register_gauge_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, Error> {
    register_metric(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

pub fn register_counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, Error> {
    register_metric(registry, IntCounter::new(name, help)?)
}

pub fn register_counter_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, Error> {
    register_metric(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

pub fn register_metric<M>(registry: &Registry, metric: M) -> Result<M, Error>
where
    M: Collector + Clone + 'static,
{
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
