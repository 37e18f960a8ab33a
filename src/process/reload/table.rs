//! Polls the table's files and rebuilds the table on a low-priority thread, so that no other part
//! waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::audit::AuditRecorder;
use super::overrides::OverrideFollower;
use super::status_reporter::StatusReporter;
use super::watch::{FileWatch, MAX_SETTLE_WAIT, POLL_INTERVAL, UNSETTLED};
use crate::gate::GateState;
use crate::model::month::parse_day_as_unix_seconds;
use crate::support::counted::Counted;
use crate::table::{Table, TableInputs, read_list_file};

/// The `nice` value of the thread. If all processors are busy, the thread gets about a quarter of a
/// processor.
const THREAD_NICENESS: i32 = 5;

/// The shortest time between two rebuilds that are due because an override has expired. A failed
/// rebuild is retried after this time.
const EXPIRY_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// A believed time that has gone back by more than this, in seconds, was wrong before.
const MAX_TIME_STEP: i64 = 60;

/// The time after which the audit reads the files of the table again, if one was refused.
const RECORD_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Controls the thread that rebuilds the table. The thread ends when all clones are dropped.
#[derive(Clone)]
pub(super) struct TableRebuilder {
    requests: Sender<RebuildRequest>,
    has_begun: Arc<AtomicBool>,
}

/// Requests a rebuild of the table. The reply is the fault, or None.
struct RebuildRequest {
    /// The new sources; `None` if they stay as they are, and an override of the store has changed.
    sources: Option<TableInputs>,
    reply: oneshot::Sender<Option<String>>,
}

impl TableRebuilder {
    /// Starts the thread. The current table was built from `config_sources`, which `watch` has
    /// watched since before, and from the overrides that `overrides` knows.
    pub(super) fn start(
        state: Arc<GateState>,
        status_reporter: StatusReporter,
        config_sources: TableInputs,
        (overrides, watch): (OverrideFollower, FileWatch),
        audit: AuditRecorder,
    ) -> std::io::Result<TableRebuilder> {
        let (sender, requests) = channel();
        let (has_begun, sources) =
            (Arc::new(AtomicBool::new(false)), overrides.add_to(&config_sources));
        let good_overrides = read_overrides(&sources);
        let mut reader = Worker {
            state,
            status_reporter,
            audit,
            config_sources,
            overrides,
            are_overrides_unapplied: false,
            has_begun: Arc::clone(&has_begun),
            sources,
            watch,
            last_expiry_rebuild_at: None,
            last_good_overrides: good_overrides,
            record_refused_at: None,
            waiting_requests: Vec::new(),
            waiting_since: Instant::now(),
        };
        reader.update_table_gauges();
        reader.record_table();
        let thread = std::thread::Builder::new().name("table".to_owned());
        thread.spawn(move || reader.run(&requests))?;
        Ok(TableRebuilder { requests: sender, has_begun })
    }

    /// Lets the thread change the store, once this process serves: a successor that never does
    /// changes nothing.
    pub(super) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Requests a rebuild of the table, from these sources if there are any. The receiver gets None
    /// if the new table serves, else the fault. The receiver gets an error only if the thread has
    /// stopped.
    pub(super) fn request_rebuild(
        &self,
        sources: Option<TableInputs>,
    ) -> oneshot::Receiver<Option<String>> {
        let (reply, outcome) = oneshot::channel();
        // If the thread has stopped, the reply's sender is dropped and the receiver gets an error.
        let _ = self.requests.send(RebuildRequest { sources, reply });
        outcome
    }
}

struct Worker {
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    audit: AuditRecorder,
    /// The sources that the config names.
    config_sources: TableInputs,
    overrides: OverrideFollower,
    /// Whether no table has been built since the overrides of the store changed.
    are_overrides_unapplied: bool,
    has_begun: Arc<AtomicBool>,
    /// The sources of the table: those of the config, with the overrides of the store.
    sources: TableInputs,
    watch: FileWatch,
    /// When an expired override last caused a rebuild.
    last_expiry_rebuild_at: Option<Instant>,
    /// The text of the operator's overrides when they last had no fault.
    last_good_overrides: Option<String>,
    /// When a file was refused that the audit was to read; `None` if the table is recorded.
    record_refused_at: Option<Instant>,
    /// Where to send the outcome of the next rebuild. If there are any, a rebuild was requested,
    /// and waits until no file is being written.
    waiting_requests: Vec<WaitingRequest>,
    /// When the first of `waiting_requests` arrived.
    waiting_since: Instant,
}

/// A request that waits for a rebuild.
struct WaitingRequest {
    reply: oneshot::Sender<Option<String>>,
    /// Whether the requester has changed an override of the store.
    needs_overrides: bool,
}

/// Why no new table was built.
struct BuildFault {
    text: String,
    /// True if the system could not read a file for now.
    is_transient: bool,
}

impl Worker {
    fn run(mut self, requests: &Receiver<RebuildRequest>) {
        // If this fails, the thread works at normal priority.
        let _ = rustix::process::nice(THREAD_NICENESS);
        loop {
            match requests.recv_timeout(POLL_INTERVAL) {
                Ok(request) => self.add_requests(request, requests),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Asked each time, because the watch compares with the last time.
            let is_settled = self.watch.is_settled();
            let is_read_due = self.watch.is_read_due();
            self.sync_overrides(is_read_due || !self.waiting_requests.is_empty());
            if !self.waiting_requests.is_empty() {
                self.answer_requests_if_due(is_settled);
            } else if is_read_due
                || is_settled && (self.are_overrides_unapplied || self.claim_due_expiry_rebuild())
            {
                drop(self.rebuild_and_publish());
            } else if self.record_refused_at.is_some_and(|at| at.elapsed() >= RECORD_RETRY_PAUSE) {
                self.record_table();
            }
        }
    }

    /// Adds all requests in the queue to those that wait for a rebuild. The sources of the last one
    /// apply.
    fn add_requests(&mut self, first: RebuildRequest, requests: &Receiver<RebuildRequest>) {
        if self.waiting_requests.is_empty() {
            self.waiting_since = Instant::now();
        }
        for RebuildRequest { sources, reply } in std::iter::once(first).chain(requests.try_iter()) {
            let needs_overrides = sources.is_none();
            if let Some(sources) = sources.filter(|sources| *sources != self.config_sources) {
                // Somebody may still be writing them.
                self.watch = FileWatch::for_unread_paths(sources.input_paths());
                self.sources = self.overrides.add_to(&sources);
                self.config_sources = sources;
            }
            self.waiting_requests.push(WaitingRequest { reply, needs_overrides });
        }
    }

    /// Reads the overrides of the store if they have changed.
    fn sync_overrides(&mut self, is_requested: bool) {
        let (now, inputs) = (self.state.ledger.believed_time(), &self.config_sources);
        let may_write = self.has_begun.load(Ordering::Relaxed);
        if self.overrides.sync(inputs, now, (may_write, is_requested)) {
            self.sources = self.overrides.add_to(inputs);
            self.are_overrides_unapplied = true;
        }
        let problem = self.overrides.describe_problem(inputs);
        self.status_reporter.record_part("overrides", problem.as_deref(), false);
    }

    /// Rebuilds the table once for all waiting requests, and replies to each requester. Waits while
    /// a file is being written, but not for ever.
    fn answer_requests_if_due(&mut self, is_settled: bool) {
        let problem = match is_settled {
            true => self.rebuild_and_publish(),
            false if self.waiting_since.elapsed() < MAX_SETTLE_WAIT => return,
            false => Some(UNSETTLED.to_owned()),
        };
        let of_overrides = self.overrides.store_problem();
        for request in std::mem::take(&mut self.waiting_requests) {
            let of_overrides = of_overrides.filter(|_| request.needs_overrides);
            let problem = problem.clone().or_else(|| of_overrides.map(str::to_owned));
            // The requester may be gone.
            let _ = request.reply.send(problem);
        }
    }

    /// Rebuilds the table and publishes it. If that fails, returns the fault; the old table or one
    /// with the last good overrides then serves.
    fn rebuild_and_publish(&mut self) -> Option<String> {
        self.are_overrides_unapplied = false;
        let read = catch_unwind(AssertUnwindSafe(|| self.build_successor()));
        let panic = BuildFault {
            text: "expected a table, but found a panic".to_owned(),
            is_transient: false,
        };
        let built = read.unwrap_or(Err(panic));
        self.watch.schedule_retry_if(built.as_ref().is_err_and(|fault| fault.is_transient));
        let problem = match built {
            Ok(table) => {
                self.publish_table(table);
                if let Some(text) = read_overrides(&self.sources) {
                    self.last_good_overrides = Some(text);
                }
                self.record_table();
                None
            }
            Err(fault) => {
                self.serve_with_last_good_overrides();
                Some(fault.text)
            }
        };
        self.status_reporter.record_part("table", problem.as_deref(), true);
        problem
    }

    /// Publishes a table of the current lists and the last good overrides, because the fault may be
    /// in the overrides file alone. Does nothing if the file has not changed, or if that table
    /// can't be built or would change nothing.
    fn serve_with_last_good_overrides(&mut self) {
        let last_good_overrides = self.last_good_overrides.clone();
        // With the same overrides, the same table would be built and refused once more.
        let are_unchanged = read_overrides(&self.sources) == last_good_overrides;
        if self.sources.overrides_path.is_none() || last_good_overrides.is_none() || are_unchanged {
            return;
        }
        let sources =
            TableInputs { last_good_overrides_text: last_good_overrides, ..self.sources.clone() };
        let serving = self.state.table.snapshot();
        let assemble = || Table::build(&sources, self.state.ledger.believed_now());
        if let Ok(Ok(table)) = catch_unwind(AssertUnwindSafe(assemble))
            && table.version() != serving.version()
            && table.check_succession(&serving).is_ok()
        {
            self.publish_table(table);
        }
    }

    fn publish_table(&self, table: Table) {
        log::info!("table {} serves, {}", table.version(), Counted(table.row_count(), "row"));
        self.state.table.publish(table);
        self.state.top_domains.mark_stale();
        self.update_table_gauges();
    }

    /// Builds a table and checks that it may replace the current one.
    fn build_successor(&mut self) -> Result<Table, BuildFault> {
        let fault = |text: String, is_transient| BuildFault { text, is_transient };
        // If the files changed during a build, the table is built again. After three such builds,
        // the table is refused.
        for _ in 0..3 {
            self.watch.mark_read();
            let table = Table::build(&self.sources, self.state.ledger.believed_now());
            if !self.watch.has_changed_since_read() {
                let table =
                    table.map_err(|faults| fault(faults.to_string(), faults.is_transient()))?;
                table
                    .check_succession(&self.state.table.snapshot())
                    .map_err(|error| fault(error.to_string(), false))?;
                return Ok(table);
            }
        }
        Err(fault("expected files that do not change while they are read".to_owned(), true))
    }

    /// Returns true if an override of the current table has expired, or may have been left out by a
    /// clock that was ahead. Returns true at most once in each [`EXPIRY_RETRY_INTERVAL`], because
    /// the rebuild may fail.
    fn claim_due_expiry_rebuild(&mut self) -> bool {
        let (table, now) = (self.state.table.peek(), self.state.ledger.believed_now());
        let has_ended = table.next_override_expiry().is_some_and(|end| end <= now);
        let was_clock_ahead = table.overrides_judged_at() > now + MAX_TIME_STEP;
        let is_due = (has_ended || was_clock_ahead)
            && self
                .last_expiry_rebuild_at
                .is_none_or(|tried| tried.elapsed() >= EXPIRY_RETRY_INTERVAL);
        if is_due {
            self.last_expiry_rebuild_at = Some(Instant::now());
        }
        is_due
    }

    /// Lets the audit record what has changed in the lists and in the overrides.
    fn record_table(&mut self) {
        let is_recorded = self.audit.record_table(&self.sources, &self.state.table.peek());
        self.record_refused_at = (!is_recorded).then(Instant::now);
    }

    /// Updates the gauges of the table.
    fn update_table_gauges(&self) {
        let table = self.state.table.peek();
        self.state.metrics.table.table_rows.set(table.row_count() as i64);
        self.state.metrics.table.table_built_at.set(table.built_at());
        let newest = table.newest_source_day().unwrap_or_default();
        self.state.metrics.table.newest_source_day.set(newest);
        let published = table.sources().iter().filter_map(|source| {
            Some((source.name.clone(), parse_day_as_unix_seconds(&source.date)?))
        });
        self.state.metrics.table.source_published_at.set_all(&published.collect::<Vec<_>>());
    }
}

/// The text of the overrides file, empty if there is no file; None if none is configured, or if the
/// file can't be read.
fn read_overrides(sources: &TableInputs) -> Option<String> {
    let read = read_list_file(sources.overrides_path.as_ref()?);
    read.ok().map(Option::unwrap_or_default)
}
