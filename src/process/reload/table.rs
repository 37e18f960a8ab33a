//! The table's own reader: looks at its files, and reads them on a thread that lets requests go
//! first. However long that takes, no other part waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::status_reporter::StatusReporter;
use super::watch::{FileWatch, POLL_INTERVAL};
use crate::gate::GateState;
use crate::support::regular_file::read_regular_text;
use crate::table::{Table, TableInputs};

/// How far its thread stands behind those of requests where both want a processor: it has a quarter
/// of one then (`nice`).
const BEHIND_REQUESTS: i32 = 5;

/// How long a table waits that could not be made anew when an override ended.
const EXPIRY_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The largest file of overrides that is kept in memory, in bytes.
const MAX_OVERRIDES: u64 = 64 << 20;

/// Asks the reader; it ends with this.
pub(super) struct TableReader(Sender<ReadRequest>);

/// To read the table of these sources, now, and to say what was wrong with it.
struct ReadRequest {
    sources: TableInputs,
    reply: oneshot::Sender<Option<String>>,
}

impl TableReader {
    /// Follows `sources`, of which what serves was just read.
    pub(super) fn start(
        state: Arc<GateState>,
        report: StatusReporter,
        sources: TableInputs,
    ) -> std::io::Result<TableReader> {
        let (sender, asks) = channel();
        let watch = FileWatch::for_paths(sources.paths());
        let good_overrides = read_overrides(&sources);
        let reader =
            Worker { state, report, sources, watch, expiry_tried_at: None, good_overrides };
        reader.show();
        let thread = std::thread::Builder::new().name("table".to_owned());
        thread.spawn(move || reader.run(&asks))?;
        Ok(TableReader(sender))
    }

    /// Has the table of these sources read anew. The answer says what was wrong; there is none only if
    /// nobody reads any more.
    pub(super) fn read_table(&self, sources: TableInputs) -> oneshot::Receiver<Option<String>> {
        let (answered, answer) = oneshot::channel();
        // Who does not get it is told by the channel's end.
        let _ = self.0.send(ReadRequest { sources, reply: answered });
        answer
    }
}

struct Worker {
    state: Arc<GateState>,
    report: StatusReporter,
    sources: TableInputs,
    watch: FileWatch,
    /// When the table was made anew last because an override had ended.
    expiry_tried_at: Option<Instant>,
    /// The operator's overrides as they were read last without a fault.
    good_overrides: Option<String>,
}

impl Worker {
    fn run(mut self, asks: &Receiver<ReadRequest>) {
        // Without it the work is done all the same.
        let _ = rustix::process::nice(BEHIND_REQUESTS);
        loop {
            match asks.recv_timeout(POLL_INTERVAL) {
                Ok(ask) => self.handle_requests(ask, asks),
                Err(RecvTimeoutError::Timeout) if self.watch.is_due() || self.is_expiry_due() => {
                    drop(self.reload());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// However many ask at once, one reading serves them all.
    fn handle_requests(&mut self, first: ReadRequest, asks: &Receiver<ReadRequest>) {
        let mut waiting = Vec::new();
        for ReadRequest { sources, reply: answered } in
            std::iter::once(first).chain(asks.try_iter())
        {
            if sources != self.sources {
                self.watch = FileWatch::for_paths(sources.paths());
                self.sources = sources;
            }
            waiting.push(answered);
        }
        let problem = self.reload();
        for answered in waiting {
            // Whoever asked may have left.
            let _ = answered.send(problem.clone());
        }
    }

    fn reload(&mut self) -> Option<String> {
        let read = catch_unwind(AssertUnwindSafe(|| self.read_table()));
        let problem =
            match read.unwrap_or_else(|_| Err("expected a table, but found a panic".into())) {
                Ok(table) => {
                    self.serve(table);
                    self.good_overrides = read_overrides(&self.sources);
                    None
                }
                Err(problem) => {
                    self.follow_all_but_overrides();
                    Some(problem)
                }
            };
        self.report.record("table", problem.as_deref(), true);
        problem
    }

    /// Serves the other parts as they are now while the file of overrides is broken.
    fn follow_all_but_overrides(&mut self) {
        let last_good_overrides = self.good_overrides.clone();
        if self.sources.overrides.is_none() || last_good_overrides.is_none() {
            return;
        }
        let sources = TableInputs { last_good_overrides, ..self.sources.clone() };
        let serving = self.state.table.snapshot();
        let assemble = || Table::build(&sources, self.state.ledger.now());
        if let Ok(Ok(table)) = catch_unwind(AssertUnwindSafe(assemble))
            && table.version() != serving.version()
            && table.check_succession(&serving).is_ok()
        {
            self.serve(table);
        }
    }

    fn serve(&self, table: Table) {
        log::info!("table {} serves, {} rows", table.version(), table.row_count());
        self.state.table.publish(table);
        self.state.top_domains.mark_stale();
        self.show();
    }

    /// A table that may serve.
    fn read_table(&mut self) -> Result<Table, String> {
        // Read again if it changed meanwhile; a directory in constant change is left alone.
        for _ in 0..3 {
            self.watch.mark_read();
            let table = Table::build(&self.sources, self.state.ledger.now());
            let table = table.map_err(|error| error.to_string());
            if !self.watch.has_changed() {
                let table = table?;
                table
                    .check_succession(&self.state.table.snapshot())
                    .map_err(|error| error.to_string())?;
                return Ok(table);
            }
        }
        Err("expected files that do not change while they are read".to_owned())
    }

    /// Whether an override of the table that serves has ended. A table that can't be made anew is
    /// told, and tried again in a minute.
    fn is_expiry_due(&mut self) -> bool {
        let end = self.state.table.peek().next_override_expiry();
        let has_ended = end.is_some_and(|end| end <= self.state.ledger.now());
        let is_due = has_ended
            && self.expiry_tried_at.is_none_or(|tried| tried.elapsed() >= EXPIRY_RETRY_INTERVAL);
        if is_due {
            self.expiry_tried_at = Some(Instant::now());
        }
        is_due
    }

    /// Brings the gauges of what serves up to date.
    fn show(&self) {
        let table = self.state.table.peek();
        self.state.metrics.table.table_rows.set(table.row_count() as i64);
        self.state.metrics.table.table_built.set(table.built_at());
    }
}

/// The text of the operator's overrides; empty without a file.
fn read_overrides(sources: &TableInputs) -> Option<String> {
    let path = sources.overrides.as_ref()?;
    Some(read_regular_text(path, MAX_OVERRIDES).unwrap_or_default())
}
