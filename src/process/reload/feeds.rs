//! Fetches feeds when they are due, on a thread that lets requests go first.
//!
//! It only brings their files up to date: the table's reader sees the files change. A fetch that
//! takes its time holds back other feeds, and nothing else.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::status_reporter::StatusReporter;
use crate::feed::{Feed, Feeds, LastAttempt};
use crate::gate::GateState;

/// How often it looks whether a feed is due.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How far its thread stands behind those of requests where both want a processor (`nice`).
const THREAD_NICENESS: i32 = 10;

/// Fetches feeds; it ends with this.
pub(super) struct FeedFetcher(Sender<Feeds>);

impl FeedFetcher {
    /// Fetches these feeds from now on.
    pub(super) fn start(
        state: Arc<GateState>,
        report: StatusReporter,
        feeds: Feeds,
    ) -> std::io::Result<FeedFetcher> {
        let (sender, changes) = channel();
        let jitter = getrandom::u64().unwrap_or_default();
        let worker =
            Worker { state, report, feeds, jitter_seed: jitter, last_attempts: HashMap::new() };
        let thread = std::thread::Builder::new().name("feeds".to_owned());
        thread.spawn(move || worker.run(&changes))?;
        Ok(FeedFetcher(sender))
    }

    /// Fetches other feeds from now on.
    pub(super) fn set_feeds(&self, feeds: Feeds) {
        // Nobody listens any more only when the process ends.
        let _ = self.0.send(feeds);
    }
}

struct Worker {
    state: Arc<GateState>,
    report: StatusReporter,
    feeds: Feeds,
    /// So that nodes do not fetch together for ever.
    jitter_seed: u64,
    /// When each feed was tried last, and what was wrong: also where the directory takes no file.
    last_attempts: HashMap<String, (i64, Option<String>)>,
}

impl Worker {
    fn run(mut self, changes: &Receiver<Feeds>) {
        // Without it the work is done all the same.
        let _ = rustix::process::nice(THREAD_NICENESS);
        loop {
            for feed in self.feeds.feeds.clone() {
                self.fetch_if_due(&feed);
            }
            self.show();
            match changes.recv_timeout(POLL_INTERVAL) {
                Ok(feeds) => {
                    self.feeds = feeds;
                    // What was tried may have come from another place.
                    self.last_attempts.clear();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn fetch_if_due(&mut self, feed: &Feed) {
        let now = self.state.ledger.now();
        if !self.is_due(feed, now) {
            return;
        }
        let table = self.state.table.snapshot();
        let update = || feed.update(&self.feeds.dir, &table, now, false);
        let updated = catch_unwind(AssertUnwindSafe(update));
        let fault = match updated {
            Ok(updated) => updated.err().map(|error| error.to_string()),
            Err(_) => Some(format!("{}: expected a list, but found a panic", feed.name)),
        };
        self.state.metrics.table.count_fetch(&feed.name, fault.is_none());
        self.last_attempts.insert(feed.name.clone(), (now, fault));
        // The next one may take its time.
        self.show();
    }

    /// Later than it could be, by up to a tenth of the interval, or a minute after a fault; and at
    /// once if the clock was ahead when it was tried last.
    fn is_due(&self, feed: &Feed, now: i64) -> bool {
        let tried = self.last_attempts.get(&feed.name);
        let tried = tried.map(|(at, fault)| LastAttempt { at: *at, has_failed: fault.is_some() });
        let on_disk = feed.last_attempt(&self.feeds.dir);
        let Some(last) = on_disk.into_iter().chain(tried).max_by_key(|last| last.at) else {
            return true;
        };
        if !last.has_failed && feed.is_damaged(&self.feeds.dir) {
            return true;
        }
        let (due_at, interval) = (feed.next_due_at(&last), feed.interval.as_secs());
        let max_delay = if last.has_failed { (interval / 10).min(60) } else { interval / 10 };
        let delay = self.jitter_seed.wrapping_mul(due_at.unsigned_abs() | 1) % (max_delay + 1);
        let was_ahead = due_at > now.saturating_add(2 * interval.cast_signed());
        now >= due_at.saturating_add(delay.cast_signed()) || was_ahead
    }

    fn show(&self) {
        let mut status = self.feeds.status(self.state.ledger.now());
        for feed in &mut status {
            // What the directory says is later where it could be written, or a command has fetched.
            if let Some((at, Some(fault))) = self.last_attempts.get(&feed.name)
                && feed.state.attempted_at.is_none_or(|attempted_at| attempted_at < *at)
            {
                feed.problem = Some(format!("feed {fault}"));
            }
        }
        let problems: Vec<&str> =
            status.iter().filter_map(|feed| feed.problem.as_deref()).collect();
        let problem = (!problems.is_empty()).then(|| problems.join("\n"));
        self.state.metrics.table.set_feeds(&status);
        self.report.set_feeds(status);
        self.report.record("feeds", problem.as_deref(), false);
    }
}
