//! Fetches feeds when they are due, on a low-priority thread.
//!
//! The thread only updates the files of the feeds. The thread of `table.rs` detects the changed
//! files and rebuilds the table. A slow fetch delays only the fetches of other feeds.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::status_reporter::StatusReporter;
use crate::feed::{Feed, Feeds, LastAttempt};
use crate::gate::GateState;

/// How often the thread checks whether a feed is due.
const DUE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The `nice` value of the thread, so that request threads go first if processors are busy.
const THREAD_NICENESS: i32 = 10;

/// Controls the thread that fetches feeds. The thread ends when this is dropped.
pub(super) struct FeedFetcher(Sender<Feeds>);

impl FeedFetcher {
    /// Starts the thread.
    pub(super) fn start(
        state: Arc<GateState>,
        status_reporter: StatusReporter,
        feeds: Feeds,
    ) -> std::io::Result<FeedFetcher> {
        let (sender, changes) = channel();
        let jitter = getrandom::u64().unwrap_or_default();
        let worker = Worker {
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

/// What the thread works with.
struct Worker {
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    feeds: Feeds,
    /// Random, so that nodes do not fetch at the same time.
    jitter_seed: u64,
    /// For each feed's name: when this process last tried to fetch it, in Unix seconds, and the
    /// fault, if any. Kept in memory, because the feed directory may not be writable.
    last_attempts: HashMap<String, (i64, Option<String>)>,
}

impl Worker {
    fn run(mut self, changes: &Receiver<Feeds>) {
        // If this fails, the thread works at normal priority.
        let _ = rustix::process::nice(THREAD_NICENESS);
        loop {
            for feed in self.feeds.feeds.clone() {
                self.fetch_feed_if_due(&feed);
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

    fn fetch_feed_if_due(&mut self, feed: &Feed) {
        let now = self.state.ledger.believed_now();
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
        self.state.metrics.table.count_feed_fetch(&feed.name, fault.is_none());
        self.last_attempts.insert(feed.name.clone(), (now, fault));
        // Published now, because the next fetch may take long.
        self.publish_status();
    }

    /// Returns true if the feed is due. A random delay of up to a tenth of the interval (after a
    /// failed attempt, of at most a minute) is added to each due time. A feed is due at once if it
    /// was never tried, if its list was damaged after a good attempt, or if the clock was ahead at
    /// the last attempt.
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
            // fetched the feed since, or this process wrote the fault there too.
            if let Some((at, Some(fault))) = self.last_attempts.get(&feed.name)
                && feed.state.attempted_at.is_none_or(|attempted_at| attempted_at < *at)
            {
                feed.problem = Some(format!("feed {fault}"));
            }
        }
        let problems: Vec<&str> =
            status.iter().filter_map(|feed| feed.problem.as_deref()).collect();
        let problem = (!problems.is_empty()).then(|| problems.join("\n"));
        self.state.metrics.table.set_feed_gauges(&status);
        self.status_reporter.set_feed_statuses(status);
        self.status_reporter.record_part("feeds", problem.as_deref(), false);
    }
}
