//! The traffic of the last 24 hours, in memory: requests by outcome, latencies, and verdicts.
//!
//! The history is bounded: a day has 8,640 samples of ten seconds, which need less than two
//! megabytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use serde_json::{Map, Value, json};

use crate::gate::GateState;
use crate::model::month::format_rfc3339;
use crate::model::verdict::Reason;
use crate::observe::metrics::{OUTCOMES, REQUEST_DURATION_BUCKETS, TrafficTotals};
use crate::support::lock::lock;

const SAMPLE_SECONDS: i64 = 10;
const MAX_SAMPLES: usize = 24 * 3_600 / SAMPLE_SECONDS as usize;
/// The most points of a chart. If there are more samples, a point is the sum of several samples.
const MAX_POINTS: usize = 240;

/// The traffic of the last 24 hours.
pub struct TrafficHistory {
    state: Arc<GateState>,
    samples: Mutex<Samples>,
}

#[derive(Default)]
struct Samples {
    /// The totals when the last sample was taken.
    last_totals: TrafficTotals,
    /// The samples, the oldest first.
    samples: VecDeque<Sample>,
}

/// The traffic of ten seconds, or of the part of the present ten seconds that has passed.
struct Sample {
    /// When this time ended, in Unix seconds.
    at: i64,
    outcomes: [u32; OUTCOMES.len()],
    verdicts: [u32; Reason::ALL.len()],
    /// The requests by duration: one count for each bucket, and one for longer requests.
    durations: [u32; REQUEST_DURATION_BUCKETS.len() + 1],
}

impl TrafficHistory {
    pub(super) fn new(state: Arc<GateState>) -> TrafficHistory {
        let last_totals = state.metrics.requests.traffic_totals();
        // A queue that grows as needed would reserve up to twice as much memory.
        let samples = VecDeque::with_capacity(MAX_SAMPLES);
        let samples = Mutex::new(Samples { last_totals, samples });
        TrafficHistory { state, samples }
    }

    fn take_sample(&self) {
        let totals = self.state.metrics.requests.traffic_totals();
        let mut samples = lock(&self.samples);
        let sample =
            Sample::between(&samples.last_totals, &totals, self.state.ledger.believed_now());
        samples.last_totals = totals;
        if samples.samples.len() == MAX_SAMPLES {
            samples.samples.pop_front();
        }
        samples.samples.push_back(sample);
    }

    /// Renders the traffic of the last `minutes`, up to now.
    pub(super) fn to_json(&self, minutes: u32) -> Value {
        let totals = self.state.metrics.requests.traffic_totals();
        let samples = lock(&self.samples);
        let latest =
            Sample::between(&samples.last_totals, &totals, self.state.ledger.believed_now());
        let shown = count_samples_in(minutes).min(MAX_SAMPLES);
        let skipped = (samples.samples.len() + 1).saturating_sub(shown);
        let shown: Vec<&Sample> = samples.samples.iter().chain([&latest]).skip(skipped).collect();
        render_samples(&shown, minutes)
    }
}

#[async_trait]
impl BackgroundService for TrafficHistory {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut interval = tokio::time::interval(Duration::from_secs(SAMPLE_SECONDS as u64));
        interval.tick().await;
        loop {
            tokio::select! {
                _ = interval.tick() => self.take_sample(),
                _ = shutdown.changed() => return,
            }
        }
    }
}

impl Sample {
    fn between(before: &TrafficTotals, after: &TrafficTotals, at: i64) -> Sample {
        let difference = |before: u64, after: u64| {
            u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX)
        };
        Sample {
            at,
            outcomes: std::array::from_fn(|i| difference(before.outcomes[i], after.outcomes[i])),
            verdicts: std::array::from_fn(|i| difference(before.verdicts[i], after.verdicts[i])),
            durations: std::array::from_fn(|i| difference(before.durations[i], after.durations[i])),
        }
    }
}

/// Returns the number of samples in this number of minutes.
fn count_samples_in(minutes: u32) -> usize {
    minutes as usize * 60 / SAMPLE_SECONDS as usize
}

/// Renders samples as columns of at most [`MAX_POINTS`] points. Leaves out outcomes without any
/// request, except `ok`.
fn render_samples(samples: &[&Sample], minutes: u32) -> Value {
    let per_point = count_samples_in(minutes).div_ceil(MAX_POINTS).max(1);
    // If the samples can't be divided evenly, the oldest point has fewer samples than the others.
    let (head, rest) = samples.split_at(samples.len() % per_point);
    let points: Vec<&[&Sample]> = Some(head)
        .filter(|head| !head.is_empty())
        .into_iter()
        .chain(rest.chunks(per_point))
        .collect();
    let sum = |read: &dyn Fn(&Sample) -> u32| -> Vec<u64> {
        points.iter().map(|point| point.iter().map(|it| u64::from(read(it))).sum()).collect()
    };
    let mut requests = Map::new();
    for (at, outcome) in OUTCOMES.iter().enumerate() {
        let counts = sum(&|sample| sample.outcomes[at]);
        if *outcome == "ok" || counts.iter().any(|count| *count > 0) {
            requests.insert((*outcome).to_owned(), json!(counts));
        }
    }
    let mut verdicts = Map::new();
    for (at, reason) in Reason::ALL.iter().enumerate() {
        verdicts.insert(reason.as_str().to_owned(), json!(sum(&|sample| sample.verdicts[at])));
    }
    let quantile = |share: f64| -> Vec<Option<f64>> {
        points.iter().map(|point| estimate_quantile(point, share)).collect()
    };
    let interval = per_point as i64 * SAMPLE_SECONDS;
    // The latest point has all its samples, so the times are counted back from its end.
    let end = samples.last().map_or(0, |sample| sample.at);
    let from = end - points.len() as i64 * interval;
    json!({
        "from": format_rfc3339(from),
        "interval_seconds": interval,
        "requests": requests,
        "latency_seconds": { "p50": quantile(0.5), "p99": quantile(0.99) },
        "verdicts": verdicts,
    })
}

/// Estimates a quantile of the durations, in seconds: by linear interpolation in the bucket of the
/// quantile, as `histogram_quantile` of Prometheus does. Returns `None` if there was no request.
fn estimate_quantile(samples: &[&Sample], share: f64) -> Option<f64> {
    let counts: Vec<u64> = (0..=REQUEST_DURATION_BUCKETS.len())
        .map(|at| samples.iter().map(|sample| u64::from(sample.durations[at])).sum())
        .collect();
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = share * total as f64;
    let mut below = 0;
    for (at, count) in counts.iter().enumerate() {
        let upper = REQUEST_DURATION_BUCKETS.get(at).copied()?;
        let lower = if at == 0 { 0.0 } else { REQUEST_DURATION_BUCKETS[at - 1] };
        if (below + count) as f64 >= rank && *count > 0 {
            return Some(lower + (upper - lower) * (rank - below as f64) / *count as f64);
        }
        below += count;
        if at + 1 == REQUEST_DURATION_BUCKETS.len() {
            // The quantile lies beyond the last bound.
            return Some(upper);
        }
    }
    None
}

#[cfg(test)]
mod tests;
