//! Fetches feeds when they are due, on a thread that lets requests go first.
//!
//! It only brings their files up to date: the table's reader sees the files change. A fetch that
//! takes its time holds nothing else back.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::report::Report;
use crate::feed::{Feed, Feeds};
use crate::gate::State;

/// How often it looks whether a feed is due.
const LOOK: Duration = Duration::from_millis(500);
/// How far its thread stands behind those of requests where both want a processor (`nice`).
const BEHIND_REQUESTS: i32 = 10;

/// Fetches feeds; it ends with this.
pub(super) struct FeedFetcher(Sender<Feeds>);

impl FeedFetcher {
    /// Fetches these feeds from now on.
    pub(super) fn start(
        state: Arc<State>,
        report: Report,
        feeds: Feeds,
    ) -> std::io::Result<FeedFetcher> {
        let (sender, changes) = channel();
        let jitter = getrandom::u64().unwrap_or_default();
        let worker = Worker { state, report, feeds, jitter };
        let thread = std::thread::Builder::new().name("feeds".to_owned());
        thread.spawn(move || worker.run(&changes))?;
        Ok(FeedFetcher(sender))
    }

    /// Fetches other feeds from now on.
    pub(super) fn follow(&self, feeds: Feeds) {
        // Nobody listens any more only when the process ends.
        let _ = self.0.send(feeds);
    }
}

struct Worker {
    state: Arc<State>,
    report: Report,
    feeds: Feeds,
    /// So that nodes which started together do not fetch together.
    jitter: u64,
}

impl Worker {
    fn run(mut self, changes: &Receiver<Feeds>) {
        // Without it the work is done all the same.
        let _ = rustix::process::nice(BEHIND_REQUESTS);
        loop {
            self.fetch_due();
            self.show();
            match changes.recv_timeout(LOOK) {
                Ok(feeds) => self.feeds = feeds,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn fetch_due(&self) {
        for feed in &self.feeds.all {
            let now = self.state.ledger.now();
            if self.is_due(feed, now) {
                let table = self.state.table.snapshot();
                let updated = feed.update(&self.feeds.folder, &table, now, false);
                self.state.metrics.count_fetch(&feed.name, updated.is_ok());
            }
        }
    }

    /// Up to a tenth of the interval later than it could be; also if the clock was ahead when it
    /// was tried last.
    fn is_due(&self, feed: &Feed, now: i64) -> bool {
        let due_at = feed.due_at(&self.feeds.folder);
        let interval = feed.interval.as_secs();
        let late = self.jitter.wrapping_mul(due_at.unsigned_abs() | 1) % (interval / 10 + 1);
        let was_ahead = due_at > now.saturating_add(2 * interval.cast_signed());
        now >= due_at.saturating_add(late.cast_signed()) || was_ahead
    }

    fn show(&self) {
        let status = self.feeds.status(self.state.ledger.now());
        let problems: Vec<&str> =
            status.iter().filter_map(|feed| feed.problem.as_deref()).collect();
        let problem = (!problems.is_empty()).then(|| problems.join("\n"));
        self.report.note("feeds", problem.as_deref(), false);
        self.state.metrics.show_feeds(status.iter().map(|feed| {
            (feed.name.as_str(), feed.state.rows, feed.state.fetched_at.unwrap_or_default())
        }));
        self.report.show_feeds(status);
    }
}
