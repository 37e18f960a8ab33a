//! Creates metrics and registers them.

use prometheus::core::Collector;
use prometheus::{
    Error, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// A gauge that has a series only while it has a value. So a missing value does not look like 0.
#[derive(Clone)]
pub struct OptionalGauge(IntGaugeVec);

impl OptionalGauge {
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

/// Creates metrics that belong to a registry.
#[derive(Clone, Copy)]
pub struct Registrar<'r>(pub &'r Registry);

impl Registrar<'_> {
    pub fn gauge(self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.add(IntGauge::new(name, help)?)
    }

    pub fn optional_gauge(self, name: &str, help: &str) -> Result<OptionalGauge, Error> {
        self.gauge_vec(name, help, &[]).map(OptionalGauge)
    }

    pub fn gauge_vec(self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// Creates gauges of which each has its name in this label.
    pub fn gauges_by_name(
        self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<GaugesByName, Error> {
        self.gauge_vec(name, help, &[label]).map(GaugesByName)
    }

    pub fn counter(self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.add(IntCounter::new(name, help)?)
    }

    pub fn counter_vec(
        self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, Error> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub fn histogram_vec(
        self,
        name: &str,
        help: &str,
        buckets: &[f64],
        label: &str,
    ) -> Result<HistogramVec, Error> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(HistogramVec::new(options, &[label])?)
    }

    fn add<M: Collector + Clone + 'static>(self, metric: M) -> Result<M, Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}
