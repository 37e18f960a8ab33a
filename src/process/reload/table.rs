//! Polls the table's files, and rebuilds the table. A low-priority thread of its own does so, so
//! that no other part waits for a build.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::audit::AuditRecorder;
use super::overrides::OverrideFollower;
use super::status_reporter::{StatusReporter, join_problems};
use super::watch::{FileWatch, MAX_SETTLE_WAIT, POLL_INTERVAL, UNSETTLED};
use crate::gate::GateState;
use crate::model::month::parse_day_as_unix_seconds;
use crate::support::counted::CountedNoun;
use crate::table::{KeptLists, Table, TableInputs, TableLocation, read_list_file};

/// The `nice` value of the thread. If the thread competes with one request thread for a processor,
/// it gets about a quarter of the processor.
const THREAD_NICENESS: i32 = 5;

/// The shortest time between two rebuilds that are due because an override has expired. If such a
/// rebuild fails, the next one comes after this time.
const EXPIRY_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// If the believed time goes back by more seconds than this, it was wrong before.
const MAX_STEP_BACK_SECONDS: i64 = 60;

/// How long after the system refused to read a file of the table the audit reads the files again.
const RECORD_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The problem of overrides that no table has.
const OVERRIDES_HELD_BACK: &str = "expected a table with the latest overrides of the store, but found that \
                         none can be built: see the fault of the table";

/// Controls the thread that rebuilds the table. The thread ends when all clones are dropped.
#[derive(Clone)]
pub(super) struct TableRebuilder {
    requests: Sender<RebuildRequest>,
}

/// A request to rebuild the table. For the reply, see [`TableRebuilder::request_rebuild`].
struct RebuildRequest {
    /// The new sources; `None` if they stay as they are, and an override of the store has changed.
    sources: Option<TableInputs>,
    reply: oneshot::Sender<Option<String>>,
}

impl TableRebuilder {
    /// Starts the thread. The current table was built from `configured_sources` and from the
    /// overrides that `overrides` knows. `watch` has watched the files since before they were read.
    pub(super) fn start(
        state: Arc<GateState>,
        status_reporter: StatusReporter,
        configured_sources: TableInputs,
        (overrides, watch): (OverrideFollower, FileWatch),
        audit: AuditRecorder,
    ) -> std::io::Result<TableRebuilder> {
        let (sender, requests) = channel();
        let sources = overrides.add_to_copy_of(&configured_sources);
        // If the file has changed, its text may not be that of the current table.
        let good_overrides =
            read_overrides_file(&sources).filter(|_| !watch.has_changed_since_read());
        let mut reader = Worker {
            state,
            status_reporter,
            audit,
            configured_sources,
            overrides,
            are_overrides_unapplied: false,
            are_overrides_held_back: false,
            sources,
            watch,
            last_expiry_rebuild_at: None,
            last_good_overrides: good_overrides,
            last_good_lists: None,
            are_lists_to_keep: true,
            record_refused_at: None,
            rebuild_waiters: Vec::new(),
            waiting_since: Instant::now(),
        };
        reader.update_table_gauges();
        reader.record_table();
        let thread = std::thread::Builder::new().name("table".to_owned());
        thread.spawn(move || reader.run(&requests))?;
        Ok(TableRebuilder { requests: sender })
    }

    /// Requests a rebuild of the table. With new `sources`, the receiver gets `None` if the new
    /// table serves, and otherwise the fault. Without `sources`, an override of the store has
    /// changed: the receiver gets `None` if a table with the change serves, and otherwise the
    /// fault. The receiver gets an error only if the thread has stopped.
    pub(super) fn request_rebuild(
        &self,
        sources: Option<TableInputs>,
    ) -> oneshot::Receiver<Option<String>> {
        let (reply, outcome) = oneshot::channel();
        // If the thread has stopped, this drops `reply`, and the receiver gets an error.
        let _ = self.requests.send(RebuildRequest { sources, reply });
        outcome
    }
}

struct Worker {
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    audit: AuditRecorder,
    /// The sources that the config names.
    configured_sources: TableInputs,
    overrides: OverrideFollower,
    /// Whether the overrides of the store have changed since the last build.
    are_overrides_unapplied: bool,
    /// Whether no table could be built since the overrides of the store changed, not even from the
    /// last good lists.
    are_overrides_held_back: bool,
    /// The sources of the table: those of the config, with the overrides of the store.
    sources: TableInputs,
    watch: FileWatch,
    /// When [`Worker::claim_due_expiry_rebuild`] last returned true.
    last_expiry_rebuild_at: Option<Instant>,
    /// The text of the overrides file when a table was last built from it. `None` if there was no
    /// such text.
    last_good_overrides: Option<String>,
    /// The lists of the serving table, unless they could not be read again.
    last_good_lists: Option<Arc<KeptLists>>,
    /// Whether the serving table has other lists than `last_good_lists`.
    are_lists_to_keep: bool,
    /// When the audit could not read a file of the table; `None` if the table is recorded.
    record_refused_at: Option<Instant>,
    /// The requests that the next rebuild answers. They wait until no file is being written, at
    /// most for [`MAX_SETTLE_WAIT`].
    rebuild_waiters: Vec<RebuildWaiter>,
    /// When the first of `rebuild_waiters` arrived.
    waiting_since: Instant,
}

/// A request that waits for a rebuild.
struct RebuildWaiter {
    reply: oneshot::Sender<Option<String>>,
    /// Whether the requester has changed an override of the store.
    needs_overrides: bool,
}

/// Why no new table was built.
struct BuildFault {
    text: String,
    /// Whether the reason may pass by itself: the system could not read a file, or files changed.
    is_transient: bool,
}

impl Worker {
    fn run(mut self, requests: &Receiver<RebuildRequest>) {
        // If the call fails, the thread works at normal priority.
        let _ = rustix::process::nice(THREAD_NICENESS);
        loop {
            match requests.recv_timeout(POLL_INTERVAL) {
                Ok(request) => self.add_requests(request, requests),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // The watch is asked in each turn, because it compares the files with the turn before.
            let is_settled = self.watch.is_settled();
            let is_read_due = self.watch.is_read_due();
            self.sync_overrides(is_read_due || !self.rebuild_waiters.is_empty());
            if !self.rebuild_waiters.is_empty() {
                self.answer_requests_if_due(is_settled);
            } else if is_read_due
                || is_settled && (self.are_overrides_unapplied || self.claim_due_expiry_rebuild())
            {
                drop(self.rebuild_and_publish());
            } else if self.are_lists_to_keep {
                self.keep_lists();
            } else if self.record_refused_at.is_some_and(|at| at.elapsed() >= RECORD_RETRY_PAUSE) {
                self.record_table();
            }
        }
    }

    /// Adds `first` and all requests in the queue to those that wait for a rebuild. The sources of
    /// the last request that has sources apply.
    fn add_requests(&mut self, first: RebuildRequest, requests: &Receiver<RebuildRequest>) {
        if self.rebuild_waiters.is_empty() {
            self.waiting_since = Instant::now();
        }
        for RebuildRequest { sources, reply } in std::iter::once(first).chain(requests.try_iter()) {
            let needs_overrides = sources.is_none();
            if let Some(sources) = sources.filter(|sources| *sources != self.configured_sources) {
                // Somebody may still be writing the new files.
                self.watch = FileWatch::for_unread_paths(sources.input_paths());
                self.sources = self.overrides.add_to_copy_of(&sources);
                self.configured_sources = sources;
            }
            self.rebuild_waiters.push(RebuildWaiter { reply, needs_overrides });
        }
    }

    /// Lets the follower read the overrides of the store if they have changed, and reports
    /// problems.
    fn sync_overrides(&mut self, is_requested: bool) {
        let (now, inputs) = (self.state.ledger.believed_time(), &self.configured_sources);
        let may_write = self.state.serving.is_serving();
        if self.overrides.sync(inputs, now, (may_write, is_requested)) {
            self.sources = self.overrides.add_to_copy_of(inputs);
            self.are_overrides_unapplied = true;
        }
        let problems = [
            self.overrides.describe_problem(inputs, now.unix_now),
            self.are_overrides_held_back.then(|| OVERRIDES_HELD_BACK.to_owned()),
        ];
        let problem = join_problems(problems.into_iter().flatten());
        self.status_reporter.record_part("overrides", problem.as_deref(), false);
    }

    /// Keeps the lists of the serving table, for a time when their files are faulty. If the files
    /// have changed since the table was built, keeps none, because they are not the lists of the
    /// table any more.
    fn keep_lists(&mut self) {
        self.are_lists_to_keep = false;
        let location = &self.sources.base_location;
        let read = catch_unwind(AssertUnwindSafe(|| KeptLists::read_and_compress(location)));
        let read = read.ok().and_then(Result::ok).filter(|_| !self.watch.has_changed_since_read());
        self.last_good_lists = read.map(Arc::new);
    }

    /// Rebuilds the table once for all waiting requests, and replies to each requester. While a
    /// file is being written, does nothing, until the first request is [`MAX_SETTLE_WAIT`] old:
    /// then replies with a fault.
    fn answer_requests_if_due(&mut self, is_settled: bool) {
        let problem = match is_settled {
            true => self.rebuild_and_publish(),
            false if self.waiting_since.elapsed() < MAX_SETTLE_WAIT => return,
            false => Some(UNSETTLED.to_owned()),
        };
        let are_overrides_served = is_settled && !self.are_overrides_held_back;
        let of_overrides = self.overrides.store_problem().map(str::to_owned);
        let of_overrides = of_overrides.or(problem.clone().filter(|_| !are_overrides_served));
        for request in std::mem::take(&mut self.rebuild_waiters) {
            let problem = if request.needs_overrides { &of_overrides } else { &problem };
            // The requester may be gone.
            let _ = request.reply.send(problem.clone());
        }
    }

    /// Rebuilds the table and publishes it. If no table can be built from the present files,
    /// returns the fault. Then the old table serves, or one with the last good lists or overrides.
    fn rebuild_and_publish(&mut self) -> Option<String> {
        let may_be_held_back =
            std::mem::take(&mut self.are_overrides_unapplied) || self.are_overrides_held_back;
        let has_new_files = self.watch.has_changed_since_read();
        self.overrides.read_file_for_losses(&self.configured_sources);
        let read = catch_unwind(AssertUnwindSafe(|| self.build_successor()));
        let panic = BuildFault {
            text: "expected a table, but found a panic".to_owned(),
            is_transient: false,
        };
        let built = read.unwrap_or(Err(panic));
        self.watch.schedule_retry_if(built.as_ref().is_err_and(|fault| fault.is_transient));
        let problem = match built {
            Ok((table, overrides)) => {
                self.publish_table(table);
                self.are_lists_to_keep |= has_new_files;
                self.are_overrides_held_back = false;
                if overrides.is_some() {
                    self.last_good_overrides = overrides;
                }
                self.record_table();
                None
            }
            Err(fault) => {
                if std::mem::take(&mut self.are_lists_to_keep) {
                    // The files that were to be kept have been replaced by faulty ones.
                    self.last_good_lists = None;
                }
                self.are_overrides_held_back =
                    !self.serve_with_last_good_parts() && may_be_held_back;
                Some(fault.text)
            }
        };
        self.status_reporter.record_part("table", problem.as_deref(), true);
        problem
    }

    /// Publishes a table in which the last good state replaces the overrides file, the lists or
    /// both. Its other parts are current. Returns false if no such table can be built. The serving
    /// table then stays.
    fn serve_with_last_good_parts(&self) -> bool {
        let serving = self.state.table.snapshot();
        for sources in self.list_last_good_sources() {
            let build = || Table::build(&sources, self.state.ledger.believed_now());
            if let Ok(Ok(table)) = catch_unwind(AssertUnwindSafe(build))
                && table.check_succession(&serving).is_ok()
            {
                if table.version() != serving.version() {
                    self.publish_table(table);
                }
                return true;
            }
        }
        false
    }

    /// Lists sources to try after a fault, in this order: with the last good overrides file, with
    /// the last good lists, and with both. Leaves out those that can't help.
    fn list_last_good_sources(&self) -> Vec<TableInputs> {
        let last_good_overrides = self.last_good_overrides.clone();
        // With the same overrides, the same table would be built and refused once more.
        let has_other_overrides = self.sources.overrides_path.is_some()
            && last_good_overrides.is_some()
            && read_overrides_file(&self.sources) != last_good_overrides;
        let with_overrides = has_other_overrides.then(|| TableInputs {
            last_good_overrides_text: last_good_overrides,
            ..self.sources.clone()
        });
        let has_bundled_lists = self.sources.base_location == TableLocation::Bundled;
        let lists = self.last_good_lists.as_ref();
        let lists = lists.filter(|lists| !(has_bundled_lists && lists.are_bundled()));
        let with_lists = lists.map(|lists| {
            let with = |sources: &TableInputs| TableInputs {
                last_good_lists: Some(Arc::clone(lists)),
                ..sources.clone()
            };
            std::iter::once(&self.sources).chain(&with_overrides).map(with).collect::<Vec<_>>()
        });
        with_overrides.iter().cloned().chain(with_lists.into_iter().flatten()).collect()
    }

    fn publish_table(&self, table: Table) {
        log::info!("table {} serves, {}", table.version(), CountedNoun(table.row_count(), "row"));
        self.state.table.publish(table);
        self.state.top_domains.mark_stale();
        self.update_table_gauges();
    }

    /// Builds a table, and checks that it may replace the current table. Also returns the text of
    /// the overrides file from which the table was built (see [`read_overrides_file`]).
    fn build_successor(&mut self) -> Result<(Table, Option<String>), BuildFault> {
        let fault = |text: String, is_transient| BuildFault { text, is_transient };
        // If the files changed during a build, the table is built again, at most three times in
        // all.
        for _ in 0..3 {
            self.watch.mark_read();
            let overrides = read_overrides_file(&self.sources);
            let table = Table::build(&self.sources, self.state.ledger.believed_now());
            if !self.watch.has_changed_since_read() {
                let table =
                    table.map_err(|faults| fault(faults.to_string(), faults.is_transient()))?;
                table
                    .check_succession(&self.state.table.snapshot())
                    .map_err(|error| fault(error.to_string(), false))?;
                return Ok((table, overrides));
            }
        }
        Err(fault("expected files that do not change while they are read".to_owned(), true))
    }

    /// Returns true if a rebuild is due, at most once in each [`EXPIRY_RETRY_INTERVAL`]. A rebuild
    /// is due if an override of the current table has expired. It is due as well if the believed
    /// time was ahead when the table was built, because the build may have left overrides out.
    fn claim_due_expiry_rebuild(&mut self) -> bool {
        let (table, now) = (self.state.table.peek(), self.state.ledger.believed_now());
        let has_ended = table.next_override_expiry().is_some_and(|end| end <= now);
        let was_clock_ahead = table.overrides_judged_at() > now + MAX_STEP_BACK_SECONDS;
        let is_due = (has_ended || was_clock_ahead)
            && self
                .last_expiry_rebuild_at
                .is_none_or(|tried| tried.elapsed() >= EXPIRY_RETRY_INTERVAL);
        if is_due {
            self.last_expiry_rebuild_at = Some(Instant::now());
        }
        is_due
    }

    /// Lets the audit record what has changed in the lists and in the overrides file.
    fn record_table(&mut self) {
        let is_recorded = self.audit.record_table(&self.sources, &self.state.table.peek());
        self.record_refused_at = (!is_recorded).then(Instant::now);
    }

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

/// Reads the text of the overrides file; an empty text if the file does not exist. Returns `None`
/// if no file is configured, or if the file can't be read.
fn read_overrides_file(sources: &TableInputs) -> Option<String> {
    let read = read_list_file(sources.overrides_path.as_ref()?);
    read.ok().map(Option::unwrap_or_default)
}
