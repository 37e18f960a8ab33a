//! The metrics of the upstream servers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use prometheus::{Error, Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::register::{GaugesByName, OptionalGauge, Registrar};

/// The upper bounds of the buckets for the time to the header of a response, in seconds. A server
/// on the same machine answers within the first buckets.
const RESPONSE_HEADER_BUCKETS: [f64; 14] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

/// If more servers than this have series, the series of servers that have left are removed. Up to
/// this number they stay, so that counters don't vanish.
const MAX_SERVERS_WITH_SERIES: usize = 100;

/// An attempt to get a response from an upstream server, for metrics, the access log and traces.
#[derive(Clone, Copy, Debug)]
pub struct AttemptRecord {
    /// The server.
    pub server: SocketAddr,
    /// When the attempt began.
    pub started_at: Instant,
    /// The time until the header of the response had arrived, or until the attempt failed.
    pub duration: Duration,
    /// How the attempt ended.
    pub outcome: AttemptOutcome,
}

/// How an attempt to get a response from a server ended; the `outcome` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The header of a final response arrived.
    Response,
    /// No connection could be opened.
    ConnectFailed,
    /// The connection ended before a byte of the response arrived.
    ClosedEarly,
    /// The server was too slow.
    TimedOut,
    /// The bytes that arrived were no valid response header.
    BrokenResponse,
    /// The client left, or did not send the rest of its request.
    ClientFailed,
    /// A fault of riskgate itself.
    InternalError,
}

impl AttemptOutcome {
    /// All outcomes, in the order of the enum.
    const ALL: [AttemptOutcome; 7] = [
        AttemptOutcome::Response,
        AttemptOutcome::ConnectFailed,
        AttemptOutcome::ClosedEarly,
        AttemptOutcome::TimedOut,
        AttemptOutcome::BrokenResponse,
        AttemptOutcome::ClientFailed,
        AttemptOutcome::InternalError,
    ];

    /// The value of the `outcome` label.
    pub const fn as_str(self) -> &'static str {
        match self {
            AttemptOutcome::Response => "response",
            AttemptOutcome::ConnectFailed => "connect_failed",
            AttemptOutcome::ClosedEarly => "closed_early",
            AttemptOutcome::TimedOut => "timed_out",
            AttemptOutcome::BrokenResponse => "broken_response",
            AttemptOutcome::ClientFailed => "client_failed",
            AttemptOutcome::InternalError => "internal_error",
        }
    }
}

/// The state of the upstream servers at the moment of a scrape.
pub struct UpstreamSnapshot {
    /// Each server, and whether it is healthy.
    pub is_healthy_by_server: Vec<(SocketAddr, bool)>,
    /// The exchanges under way.
    pub exchanges_in_flight: usize,
    /// The idle connections that the fast path keeps.
    pub idle_connections: usize,
}

/// The upstream servers, and the attempts to get a response from them.
pub struct UpstreamMetrics {
    attempts: IntCounterVec,
    durations: HistogramVec,
    /// The series of each server that was asked, so that an attempt formats no label.
    series_by_server: DashMap<SocketAddr, ServerSeries>,
    /// Attempts after a first attempt that failed.
    pub retries: IntCounter,
    healthy: GaugesByName,
    exchanges_in_flight: OptionalGauge,
    idle_connections: OptionalGauge,
}

struct ServerSeries {
    attempts_by_outcome: [IntCounter; AttemptOutcome::ALL.len()],
    duration: Histogram,
}

impl UpstreamMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<UpstreamMetrics, Error> {
        Ok(UpstreamMetrics {
            attempts: registrar.counter_vec(
                "riskgate_upstream_requests_total",
                "Attempts to get a response from a server, by outcome.",
                &["server", "outcome"],
            )?,
            durations: registrar.histogram_vec(
                "riskgate_upstream_response_header_seconds",
                "From the start of an attempt to the header of the server's response.",
                &RESPONSE_HEADER_BUCKETS,
                "server",
            )?,
            series_by_server: DashMap::new(),
            retries: registrar.counter(
                "riskgate_upstream_retries_total",
                "Attempts after a first attempt that failed.",
            )?,
            healthy: registrar.gauges_by_name(
                "riskgate_upstream_healthy",
                "1 if riskgate sends requests to the server, 0 while it skips the server.",
                "server",
            )?,
            exchanges_in_flight: registrar.optional_gauge(
                "riskgate_upstream_exchanges_in_flight",
                "Exchanges under way with the servers.",
            )?,
            idle_connections: registrar.optional_gauge(
                "riskgate_upstream_idle_connections",
                "Idle connections to the servers that the fast path keeps.",
            )?,
        })
    }

    /// Counts an attempt that has ended. If a response came, counts the time to its header.
    pub fn count_attempt(&self, attempt: &AttemptRecord) {
        let AttemptRecord { server, outcome, duration, .. } = *attempt;
        let count = |series: &ServerSeries| {
            series.attempts_by_outcome[outcome as usize].inc();
            if outcome == AttemptOutcome::Response {
                series.duration.observe(duration.as_secs_f64());
            }
        };
        match self.series_by_server.get(&server) {
            Some(series) => count(&series),
            None => count(
                &self.series_by_server.entry(server).or_insert_with(|| self.create_series(server)),
            ),
        }
    }

    fn create_series(&self, server: SocketAddr) -> ServerSeries {
        let server = server.to_string();
        ServerSeries {
            attempts_by_outcome: AttemptOutcome::ALL
                .map(|outcome| self.attempts.with_label_values(&[&server, outcome.as_str()])),
            duration: self.durations.with_label_values(&[&server]),
        }
    }

    /// Sets the gauges. If more servers than [`MAX_SERVERS_WITH_SERIES`] have series, removes the
    /// series of those that have left. A mounted gate never calls this, because it has no servers
    /// of its own.
    pub fn set_gauges(&self, snapshot: &UpstreamSnapshot) {
        if self.series_by_server.len() > MAX_SERVERS_WITH_SERIES {
            self.remove_series_of_others(&snapshot.is_healthy_by_server);
        }
        let healths = snapshot.is_healthy_by_server.iter();
        let healths = healths.map(|(server, healthy)| (server.to_string(), i64::from(*healthy)));
        self.healthy.set_all(&healths.collect::<Vec<_>>());
        self.exchanges_in_flight.set(Some(snapshot.exchanges_in_flight as i64));
        self.idle_connections.set(Some(snapshot.idle_connections as i64));
    }

    fn remove_series_of_others(&self, servers: &[(SocketAddr, bool)]) {
        self.series_by_server.retain(|server, _| {
            let stays = servers.iter().any(|(kept, _)| kept == server);
            if !stays {
                let server = server.to_string();
                // The call fails only if there is no such series.
                let _ = self.durations.remove_label_values(&[&server]);
                for outcome in AttemptOutcome::ALL {
                    let _ = self.attempts.remove_label_values(&[&server, outcome.as_str()]);
                }
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests;
