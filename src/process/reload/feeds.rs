//! Fetches feeds when they are due, from when this process serves.
//!
//! One thread decides which feeds are due, and starts a low-priority thread for each update. An
//! update changes only the files of its feed. The thread of `table.rs` notices the changed files
//! and rebuilds the table. A feed that takes long, or whose lock another process holds, delays no
//! other feed.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::status_reporter::{StatusReporter, join_problems};
use crate::feed::{Feed, Feeds, LastAttempt};
use crate::gate::GateState;

/// How often the deciding thread checks whether a feed is due.
const DUE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long an update waits for the lock of its feed. If another process holds the lock for longer,
/// the update fails.
const MAX_LOCK_WAIT_OF_UPDATE: Duration = Duration::from_secs(10);
/// An update that runs longer is a fault of its feed, for example because a disk does not answer.
const SLOW_UPDATE_TIME: Duration = Duration::from_secs(180);
/// The `nice` value of the updating threads, so that request threads go first if processors are
/// busy.
const THREAD_NICENESS: i32 = 10;

/// Controls the thread that decides which feeds are due. That thread ends when its `FeedFetcher` is
/// dropped.
pub(super) struct FeedFetcher(Sender<Feeds>);

impl FeedFetcher {
    /// Starts the deciding thread.
    pub(super) fn start(
        state: Arc<GateState>,
        status_reporter: StatusReporter,
        feeds: Feeds,
    ) -> std::io::Result<FeedFetcher> {
        let (sender, changes) = channel();
        let jitter = getrandom::u64().unwrap_or_default();
        let (finished_sender, finished_updates) = channel();
        let worker = Worker {
            running: HashMap::new(),
            finished_sender,
            finished_updates,
            state,
            status_reporter,
            feeds,
            jitter_seed: jitter,
            last_attempts: HashMap::new(),
        };
        let thread = std::thread::Builder::new().name("feeds".to_owned());
        thread.spawn(move || worker.run(&changes))?;
        Ok(FeedFetcher(sender))
    }

    /// Replaces the feeds to fetch.
    pub(super) fn set_feeds(&self, feeds: Feeds) {
        // The receiver is gone only when the process ends.
        let _ = self.0.send(feeds);
    }
}

/// The state of the deciding thread.
struct Worker {
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    feeds: Feeds,
    /// Random, so that nodes do not fetch at the same time.
    jitter_seed: u64,
    /// By the name of a feed: when this process last tried to fetch the feed, in Unix seconds, and
    /// the fault, if any. This is kept in memory, because riskgate may be unable to write to the
    /// feed directory.
    last_attempts: HashMap<String, (i64, Option<String>)>,
    /// By the name of each feed that is being updated: when the update began.
    running: HashMap<String, Instant>,
    finished_sender: Sender<FinishedUpdate>,
    finished_updates: Receiver<FinishedUpdate>,
}

/// The end of the update of a feed.
struct FinishedUpdate {
    feed: Feed,
    /// When the update began, in Unix seconds.
    begun_at: i64,
    fault: Option<String>,
}

impl Worker {
    fn run(mut self, changes: &Receiver<Feeds>) {
        loop {
            while let Ok(finished) = self.finished_updates.try_recv() {
                self.record_finished(finished);
            }
            for feed in self.feeds.feeds.clone() {
                if self.state.serving.is_serving() {
                    self.start_update_if_due(feed);
                }
            }
            self.publish_status();
            match changes.recv_timeout(DUE_CHECK_INTERVAL) {
                Ok(feeds) => {
                    self.feeds = feeds;
                    // A feed of the same name may have another URL now.
                    self.last_attempts.clear();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn record_finished(&mut self, FinishedUpdate { feed, begun_at, fault }: FinishedUpdate) {
        self.running.remove(&feed.name);
        self.state.metrics.table.count_feed_fetch(&feed.name, fault.is_none());
        // The settings of the feed may have changed meanwhile.
        if self.feeds.feeds.contains(&feed) {
            self.last_attempts.insert(feed.name, (begun_at, fault));
        }
    }

    fn start_update_if_due(&mut self, feed: Feed) {
        let believed_time = self.state.ledger.believed_time();
        let now = believed_time.unix_now;
        if self.running.contains_key(&feed.name) || !self.is_due(&feed, now) {
            return;
        }
        let (table, folder) = (self.state.table.snapshot(), self.feeds.dir.clone());
        let (name, sender) = (feed.name.clone(), self.finished_sender.clone());
        let update_and_report = move || {
            // If the call fails, the thread works at normal priority.
            let _ = rustix::process::nice(THREAD_NICENESS);
            let update =
                || feed.update(&folder, &table, believed_time, false, MAX_LOCK_WAIT_OF_UPDATE);
            let fault = match catch_unwind(AssertUnwindSafe(update)) {
                Ok(updated) => updated.err().map(|error| error.to_string()),
                Err(_) => Some(format!("{}: expected a list, but found a panic", feed.name)),
            };
            // The receiver is gone only when the process ends.
            let _ = sender.send(FinishedUpdate { feed, begun_at: now, fault });
        };
        match std::thread::Builder::new().name("feed".to_owned()).spawn(update_and_report) {
            Ok(_) => drop(self.running.insert(name, Instant::now())),
            Err(error) => {
                let fault = format!("{name}: expected free memory for a thread, but found {error}");
                self.last_attempts.insert(name, (now, Some(fault)));
            }
        }
    }

    /// Returns true if the feed is due. To each due time, this function adds a delay that depends
    /// on the node: up to a tenth of the interval, and at most a minute after a failed attempt. A
    /// feed is due at once:
    /// - if no attempt is known,
    /// - if its list was damaged after a good attempt, or
    /// - if the clock was ahead at the last attempt.
    fn is_due(&self, feed: &Feed, now: i64) -> bool {
        let tried = self.last_attempts.get(&feed.name);
        let tried = tried.map(|(at, fault)| LastAttempt { at: *at, has_failed: fault.is_some() });
        let on_disk = feed.read_last_attempt(&self.feeds.dir);
        let Some(last) = on_disk.into_iter().chain(tried).max_by_key(|last| last.at) else {
            return true;
        };
        if !last.has_failed && feed.has_damaged_list(&self.feeds.dir) {
            return true;
        }
        let (due_at, interval) = (feed.next_fetch_due_at(&last), feed.fetch_interval.as_secs());
        let max_delay = if last.has_failed { (interval / 10).min(60) } else { interval / 10 };
        let delay = self.jitter_seed.wrapping_mul(due_at.unsigned_abs() | 1) % (max_delay + 1);
        let was_ahead = due_at > now.saturating_add(2 * interval.cast_signed());
        now >= due_at.saturating_add(delay.cast_signed()) || was_ahead
    }

    fn publish_status(&self) {
        let mut status = self.feeds.read_status(self.state.ledger.believed_now());
        for feed in &mut status {
            // The state in the feed directory may be newer than this fault: a command may have
            // fetched the feed since, or this process may have written the fault there.
            if let Some((at, Some(fault))) = self.last_attempts.get(&feed.name)
                && feed.state.attempted_at.is_none_or(|attempted_at| attempted_at < *at)
            {
                feed.problem = Some(format!("feed {fault}"));
            }
            if let Some(since) = self.running.get(&feed.name)
                && since.elapsed() > SLOW_UPDATE_TIME
            {
                let seconds = SLOW_UPDATE_TIME.as_secs();
                let expected = format!("expected its update to end within {seconds} s");
                let name = &feed.name;
                feed.problem = Some(format!("feed {name}: {expected}, but found that it goes on"));
            }
        }
        let problem = join_problems(status.iter().filter_map(|feed| feed.problem.as_deref()));
        self.state.metrics.table.set_feed_gauges(&status);
        self.status_reporter.update(|all| all.feeds = status);
        self.status_reporter.record_part("feeds", problem.as_deref(), false);
    }
}
