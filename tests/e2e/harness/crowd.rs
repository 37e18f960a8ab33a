//! Clients that ask on and on: what they were answered, and how long it took.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::{Connection, get};

/// How often a status came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub admitted: u64,
    pub exhausted: u64,
    pub failed: u64,
    /// Asked, and the connection ended before the answer: it may have been counted.
    pub unknown: u64,
}

/// Many clients of one key, on kept connections.
pub struct Crowd {
    target: String,
    key: String,
    pause: Duration,
    done: AtomicBool,
    admitted: AtomicU64,
    exhausted: AtomicU64,
    failed: AtomicU64,
    unknown: AtomicU64,
    took: Mutex<Vec<Duration>>,
}

impl Crowd {
    pub fn new(target: &str, key: &str) -> Crowd {
        Crowd {
            target: target.to_owned(),
            key: key.to_owned(),
            pause: Duration::ZERO,
            done: AtomicBool::new(false),
            admitted: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            took: Mutex::default(),
        }
    }

    /// Each client rests between its calls, so that there is something left of the machine.
    pub fn pausing(self, pause: Duration) -> Crowd {
        Crowd { pause, ..self }
    }

    /// So many clients ask a gateway until [`Crowd::done`], or until it is gone.
    pub fn come<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        gateway: SocketAddr,
        clients: usize,
    ) -> Vec<ScopedJoinHandle<'s, ()>> {
        (0..clients).map(|_| scope.spawn(move || self.ask_on(gateway))).collect()
    }

    fn ask_on(&self, gateway: SocketAddr) {
        let request = get(&self.target).key(&self.key);
        while let Some(mut connection) = self.connection(gateway) {
            while !self.is_done() {
                let begun = Instant::now();
                let Some(answer) = connection.try_ask(&request).filter(|a| a.complete) else {
                    self.unknown.fetch_add(1, Ordering::SeqCst);
                    break;
                };
                self.times().push(begun.elapsed());
                let count = match answer.status {
                    200 => &self.admitted,
                    429 => &self.exhausted,
                    500 => &self.failed,
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

    fn connection(&self, gateway: SocketAddr) -> Option<Connection> {
        if self.is_done() { None } else { Connection::try_open(gateway) }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    fn times(&self) -> MutexGuard<'_, Vec<Duration>> {
        self.took.lock().unwrap()
    }

    /// The clients finish the call that they are at, and go; so too when this is dropped.
    pub fn ending(&self) -> super::DoneOnDrop<'_> {
        super::DoneOnDrop(&self.done)
    }

    /// What was answered so far.
    pub fn said(&self) -> Said {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Said {
            admitted: read(&self.admitted),
            exhausted: read(&self.exhausted),
            failed: read(&self.failed),
            unknown: read(&self.unknown),
        }
    }

    /// The time within which 99 of 100 calls were answered, and the longest, as clients saw it.
    pub fn took(&self) -> (Duration, Duration) {
        high(self.times().clone())
    }
}

/// The 99th percentile and the worst.
pub fn high(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).or(times.last()).copied();
    (at(99).unwrap_or_default(), times.last().copied().unwrap_or_default())
}
