//! Helpers that create a metric and register it.

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

pub fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, Error> {
    register(registry, IntGauge::new(name, help)?)
}

pub fn gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, Error> {
    register(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

pub fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, Error> {
    register(registry, IntCounter::new(name, help)?)
}

pub fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, Error> {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

pub fn register<M>(registry: &Registry, metric: M) -> Result<M, Error>
where
    M: prometheus::core::Collector + Clone + 'static,
{
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
