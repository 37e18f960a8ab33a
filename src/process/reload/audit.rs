//! Records what changes in files, and writes the records of the store to `audit.path`.
//!
//! If an operator edits a file, riskgate applies the change even if the store does not answer. The
//! change then waits until the store answers and can record it. If the process ends before that,
//! the next process finds that the file differs from the state in the store, and records the
//! change.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::status_reporter::StatusReporter;
use super::store_connection::open_if_none;
use crate::config::{Config, ConfigSources, EffectiveSetting, StoreOptions, fingerprint_secret};
use crate::gate::GateState;
use crate::keys::DeclaredKey;
use crate::management::{KeyEntry, list_keys, list_overrides, override_file_state};
use crate::model::month::format_rfc3339;
use crate::store::{
    AuditOperation, AuditRecord, ChangeAuthor, ChangeSurface, SourceState, Store, StoreError,
};
use crate::support::machine_name::machine_name;
use crate::table::{Table, TableInputs, TableLocation};

/// How often the thread writes new records to the file, and tries again after a failure.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long an operation of the store may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most records that are read from the store at a time.
const RECORDS_PER_READ: usize = 500;
/// How much of the end of the file is searched for the last record.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// The most changes that wait for the store. A later state of a source replaces an earlier one.
const MAX_WAITING: usize = 64;

/// Sends changes to the thread that records them. The thread ends once all clones are dropped.
#[derive(Clone)]
pub(super) struct AuditRecorder(Sender<SourceChange>);

/// The state of a source, and what a record of its change says.
struct SourceChange {
    operation: AuditOperation,
    state: SourceState,
    /// The path of the file that the source is in.
    path: String,
}

impl AuditRecorder {
    /// Starts the thread. The settings are those of the process start.
    pub(super) fn start(
        config: &Config,
        gate_state: Arc<GateState>,
        status_reporter: StatusReporter,
    ) -> io::Result<AuditRecorder> {
        let (sender, changes) = channel();
        let worker = Worker {
            store_options: config.store.clone(),
            store: None,
            gate_state,
            status_reporter,
            waiting: VecDeque::new(),
            audit_file: config.audit_path.clone().map(AuditFile::new),
        };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || worker.run(&changes))?;
        Ok(AuditRecorder(sender))
    }

    fn send_entries(
        &self,
        operation: AuditOperation,
        source_kind: &str,
        path: &str,
        entries: BTreeMap<String, String>,
    ) {
        let subject = format!("{source_kind} {path} on {}", machine_name());
        self.send_state(operation, SourceState { subject, entries }, path);
    }

    fn send_state(&self, operation: AuditOperation, state: SourceState, path: &str) {
        // The thread lives as long as this sender.
        let _ = self.0.send(SourceChange { operation, state, path: path.to_owned() });
    }

    /// Records the settings that the config sets. The admin tokens are a source of their own.
    pub(super) fn record_config(&self, sources: &ConfigSources) {
        let path = sources.file_path().map_or("defaults".to_owned(), |path| absolute(&path));
        // A faulty config is not in force, and its faults are reported elsewhere.
        let Ok(settings) = Config::read_effective_settings(sources) else { return };
        let is_set = |setting: &EffectiveSetting| setting.source != "default";
        let set = settings.0.into_iter().filter(is_set);
        let entries = set.map(|setting| {
            let is_token_hash =
                setting.key.starts_with("admin.token.") && setting.key.ends_with(".hash");
            let fingerprint = match &setting.value {
                Some(hash) if is_token_hash => Some(fingerprint_secret(hash)),
                _ => setting.secret_fingerprint,
            };
            let secret = fingerprint.map(|print| format!("a secret, {print}…"));
            (setting.key, secret.or(setting.value).unwrap_or_default())
        });
        let (tokens, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            entries.partition(|(key, _)| key.starts_with("admin.token"));
        self.send_entries(AuditOperation::ConfigChange, "config", &path, others);
        self.send_entries(AuditOperation::TokenChange, "admin tokens of config", &path, tokens);
    }

    /// Records the keys that the key file declares.
    pub(super) fn record_key_file(&self, path: Option<&Path>, declared: &[DeclaredKey]) {
        let Some(path) = path.map(absolute) else { return };
        let entry = |key: KeyEntry| {
            let expires_at = key.expires_at.map(format_rfc3339);
            let value = json!({
                "account": key.account, "plan": key.plan, "label": key.label,
                "origins": key.origins, "require_origin": key.require_origin,
                "expires_at": expires_at,
            });
            (key.id, value.to_string())
        };
        let entries = list_keys(&[], &[], declared).into_iter().map(entry).collect();
        self.send_entries(AuditOperation::KeyFileChange, "key file", &path, entries);
    }

    /// Records the lists of the table, and the rows of the file of overrides.
    pub(super) fn record_table(&self, inputs: &TableInputs, table: &Table) {
        let path = match &inputs.base_location {
            TableLocation::Bundled => "bundled".to_owned(),
            TableLocation::Path(path) => absolute(path),
        };
        let lists = table.lists().iter().map(|list| {
            (format!("list {}", list.file), format!("{} rows, {}", list.rows, list.kind))
        });
        let versions = table.sources().iter().map(|source| {
            (format!("source {}", source.name), format!("{} of {}", source.version, source.date))
        });
        let is_other = |(name, _): &(String, String)| !is_override_list(name, inputs);
        let entries = lists.filter(is_other).chain(versions).collect();
        self.send_entries(AuditOperation::TableChange, "table", &path, entries);
        if let (Some(path), Ok(rows)) = (&inputs.overrides_path, list_overrides(inputs)) {
            let state = override_file_state(path, &rows);
            self.send_state(AuditOperation::OverrideFileChange, state, &absolute(path));
        }
    }
}

/// Returns true if the list is the file of overrides, whose rows are a source of their own.
fn is_override_list(entry_name: &str, inputs: &TableInputs) -> bool {
    let name = inputs.overrides_path.as_ref().map(|path| format!("list {}", path.display()));
    name.is_some_and(|name| name == entry_name)
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

struct Worker {
    store_options: StoreOptions,
    /// The connection of this thread; `None` until it is needed, and after a failure.
    store: Option<Store>,
    gate_state: Arc<GateState>,
    status_reporter: StatusReporter,
    /// The changes that are not recorded yet, the oldest first.
    waiting: VecDeque<SourceChange>,
    audit_file: Option<AuditFile>,
}

impl Worker {
    fn run(mut self, changes: &Receiver<SourceChange>) {
        loop {
            match changes.recv_timeout(INTERVAL) {
                Ok(change) => {
                    self.add_waiting(change);
                    changes.try_iter().for_each(|change| self.add_waiting(change));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let problem = self.record_and_append().err();
            self.status_reporter.record_part("audit", problem.as_deref(), false);
        }
    }

    fn add_waiting(&mut self, change: SourceChange) {
        self.waiting.retain(|waiting| waiting.state.subject != change.state.subject);
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(change);
    }

    /// Records the waiting changes, and appends new records to `audit.path`. Returns the problem if
    /// one of both fails.
    fn record_and_append(&mut self) -> Result<(), String> {
        if self.waiting.is_empty() && self.audit_file.is_none() {
            return Ok(());
        }
        let outcome = self.try_record_and_append();
        if outcome.is_err() {
            // The next attempt opens the store again.
            self.store = None;
        }
        outcome
    }

    fn try_record_and_append(&mut self) -> Result<(), String> {
        let describe = |error: StoreError| format!("expected to record changes, but found {error}");
        let store = open_if_none(&mut self.store, &self.store_options, STORE_TIMEOUT);
        let store = store.map_err(describe)?;
        store.set_time(self.gate_state.ledger.believed_time());
        while let Some(SourceChange { operation, state, path }) = self.waiting.front() {
            let from = format!("{path} on {}", machine_name());
            let author = match operation {
                // riskgate itself changes the lists that feeds fill.
                AuditOperation::TableChange => ChangeAuthor::riskgate(&from),
                _ => ChangeAuthor { actor: file_owner(path), via: ChangeSurface::File, from },
            };
            store.changes_by(&author).record_source_state(*operation, state).map_err(describe)?;
            self.waiting.pop_front();
        }
        match &mut self.audit_file {
            Some(file) => file.append_new_records(store),
            None => Ok(()),
        }
    }
}

/// Returns the owner of a file: nothing else tells who changed it.
fn file_owner(path: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or("unknown".to_owned(), |meta| format!("owner uid {}", meta.uid()))
}

/// The file of `audit.path`.
struct AuditFile {
    path: PathBuf,
    /// The id of the last record in the file: `Some(None)` if the file has no record, `None` before
    /// the file is read.
    last_id: Option<Option<String>>,
}

impl AuditFile {
    fn new(path: PathBuf) -> AuditFile {
        AuditFile { path, last_id: None }
    }

    /// Appends the records that the file lacks. During an upgrade, two processes write the same
    /// file, so each locks the file and reads its last record before a write.
    fn append_new_records(&mut self, store: &mut Store) -> Result<(), String> {
        let path = self.path.display().to_string();
        let describe =
            |error: io::Error| format!("{path}: expected to append records, but found {error}");
        let mut last_id = match &self.last_id {
            Some(last_id) => last_id.clone(),
            None => {
                let mut file = open_to_append(&self.path).map_err(describe)?;
                repair_and_read_last_id(&mut file).map_err(describe)?
            }
        };
        loop {
            let records = store.read_audit_after(last_id.as_deref(), RECORDS_PER_READ);
            let records = records.map_err(|error| error.to_string())?;
            self.last_id = Some(last_id.clone());
            let Some(newest) = records.last() else { return Ok(()) };
            let mut file = open_to_append(&self.path).map_err(describe)?;
            file.lock().map_err(describe)?;
            let on_file = repair_and_read_last_id(&mut file).map_err(describe)?;
            if parse_optional_id(&on_file) > parse_optional_id(&last_id) {
                // Another process has appended records meanwhile.
                last_id = on_file;
                continue;
            }
            let lines: String = records.iter().map(|it| format!("{}\n", it.to_json())).collect();
            let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
            written.map_err(describe)?;
            last_id = Some(newest.id.clone());
        }
    }
}

fn parse_optional_id(id: &Option<String>) -> Option<(u64, u64)> {
    id.as_deref().and_then(AuditRecord::parse_id)
}

/// Opens the file for reading and appending. Creates it so that only its owner may read it.
fn open_to_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Without O_NONBLOCK, opening a FIFO would wait for its reader.
    options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("something that is no regular file")),
    }
}

/// Reads the id of the last record. First removes an incomplete last line, which a process left
/// that was killed while it wrote.
fn repair_and_read_last_id(file: &mut File) -> io::Result<Option<String>> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(MAX_LINE_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let complete = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if complete < tail.len() {
        file.set_len(start + complete as u64)?;
    }
    let lines = tail[..complete].split(|byte| *byte == b'\n').rev();
    let mut records = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    Ok(records.find_map(|record| record["id"].as_str().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_last_line_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, "{\"id\":\"1\"}\n{\"id\":\"2\"}\n{\"id\":\"3\",\"at").unwrap();
        let mut file = open_to_append(&path).unwrap();
        assert_eq!(repair_and_read_last_id(&mut file).unwrap().as_deref(), Some("2"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"id\":\"1\"}\n{\"id\":\"2\"}\n");
    }

    #[test]
    fn each_record_is_written_once_over_restarts_and_renames() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let url = crate::store::StoreUrl::Sqlite(folder.path().join("s.db"));
        let options = crate::store::RedisOptions::default();
        let mut store = Store::open(&url, &options, Duration::from_secs(5)).unwrap();
        let author = ChangeAuthor::riskgate("a test");
        let mut file = AuditFile::new(path.clone());
        let count = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
        for step in 1..=6 {
            let name = format!("account-{step}");
            store.changes_by(&author).set_account(&name, None, Some(None)).unwrap();
            file.append_new_records(&mut store).unwrap();
            file.append_new_records(&mut store).unwrap();
            match step {
                2 => file = AuditFile::new(path.clone()),
                4 => std::fs::rename(&path, folder.path().join("old")).unwrap(),
                _ => {}
            }
        }
        assert_eq!((count(&folder.path().join("old")), count(&path)), (4, 2));
    }
}
