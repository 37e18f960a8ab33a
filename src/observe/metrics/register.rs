//! Helpers that create a metric and register it.

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

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
    M: prometheus::core::Collector + Clone + 'static,
{
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
