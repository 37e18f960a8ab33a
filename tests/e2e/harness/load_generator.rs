//! Clients that send calls continuously, and record the status and the duration of each call.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::{Connection, get};

/// How often each status was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseCounts {
    pub admitted: u64,
    pub quota_exceeded: u64,
    pub internal_errors: u64,
    /// The client sent the request, but the connection ended before the response. riskgate may have
    /// counted the call.
    pub unknown: u64,
}

/// Many clients with one key, on kept connections.
pub struct LoadGenerator {
    target: String,
    key: String,
    pause: Duration,
    done: AtomicBool,
    admitted: AtomicU64,
    quota_exceeded: AtomicU64,
    internal_errors: AtomicU64,
    unknown: AtomicU64,
    latencies: Mutex<Vec<Duration>>,
}

impl LoadGenerator {
    pub fn new(target: &str, key: &str) -> LoadGenerator {
        LoadGenerator {
            target: target.to_owned(),
            key: key.to_owned(),
            pause: Duration::ZERO,
            done: AtomicBool::new(false),
            admitted: AtomicU64::new(0),
            quota_exceeded: AtomicU64::new(0),
            internal_errors: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            latencies: Mutex::default(),
        }
    }

    /// Each client pauses between its calls, so that some CPU time is left.
    pub fn with_pause(self, pause: Duration) -> LoadGenerator {
        LoadGenerator { pause, ..self }
    }

    /// Starts this many clients. They send calls until the caller drops the guard of
    /// [`LoadGenerator::stop_on_drop`], or the gateway accepts no connection.
    pub fn spawn_clients<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        gateway: SocketAddr,
        clients: usize,
    ) -> Vec<ScopedJoinHandle<'s, ()>> {
        (0..clients).map(|_| scope.spawn(move || self.send_until_done(gateway))).collect()
    }

    fn send_until_done(&self, gateway: SocketAddr) {
        let request = get(&self.target).key(&self.key);
        while let Some(mut connection) = self.open_connection(gateway) {
            while !self.is_done() {
                let begun = Instant::now();
                let Some(answer) = connection.try_send_request(&request).filter(|a| a.is_complete)
                else {
                    self.unknown.fetch_add(1, Ordering::SeqCst);
                    break;
                };
                self.lock_latencies().push(begun.elapsed());
                let count = match answer.status {
                    200 => &self.admitted,
                    429 => &self.quota_exceeded,
                    500 => &self.internal_errors,
                    status => panic!("{status}: {}", answer.text()),
                };
                if matches!(answer.status, 429 | 500) {
                    assert_eq!(answer.header("X-Fail-Open"), Some("true"));
                }
                count.fetch_add(1, Ordering::SeqCst);
                if answer.header("Connection") == Some("close") {
                    break;
                }
                if !self.pause.is_zero() {
                    std::thread::sleep(self.pause);
                }
            }
        }
    }

    fn open_connection(&self, gateway: SocketAddr) -> Option<Connection> {
        if self.is_done() { None } else { Connection::try_open(gateway) }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    fn lock_latencies(&self) -> MutexGuard<'_, Vec<Duration>> {
        self.latencies.lock().unwrap()
    }

    /// Returns a guard. Dropping the guard lets the clients finish their current calls and stops
    /// them.
    pub fn stop_on_drop(&self) -> super::SetOnDrop<'_> {
        super::SetOnDrop(&self.done)
    }

    /// The number of responses so far.
    pub fn response_counts(&self) -> ResponseCounts {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        ResponseCounts {
            admitted: read(&self.admitted),
            quota_exceeded: read(&self.quota_exceeded),
            internal_errors: read(&self.internal_errors),
            unknown: read(&self.unknown),
        }
    }

    /// The 99th percentile and the longest of the durations, as the clients measured them.
    pub fn latency_p99_and_max(&self) -> (Duration, Duration) {
        p99_and_max(self.lock_latencies().clone())
    }
}

/// The 99th percentile and the maximum.
pub fn p99_and_max(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).or(times.last()).copied();
    (at(99).unwrap_or_default(), times.last().copied().unwrap_or_default())
}
