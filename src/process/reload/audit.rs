//! Records what changes in files, and writes the records of the store to `audit.path`.
//!
//! An operator who edits a file has made the change already, so riskgate applies it even if the store
//! does not answer. The record then waits for the store. If the process ends first, the next one finds
//! that the file differs from what the store remembers, and records the change.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::status_reporter::StatusReporter;
use crate::config::{Config, ConfigSources, EffectiveSetting, StoreOptions};
use crate::keys::DeclaredKey;
use crate::management::{list_keys, list_overrides, override_file_state};
use crate::model::month::format_rfc3339;
use crate::store::{
    AuditRecord, ChangeAuthor, ChangeKind, ChangeSurface, SourceState, Store, StoreError,
};
use crate::support::machine_name::machine_name;
use crate::table::{Table, TableInputs, TableLocation};

/// How often the thread writes new records to the file, and tries again after a failure.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long an operation of the store may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most records that are read from the store at a time.
const RECORDS_PER_READ: usize = 500;
/// The longest line that the end of the file is searched for.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// The most changes that wait for the store. The state of a source replaces an earlier one that waits.
const MAX_WAITING: usize = 64;

/// Sends changes to the thread that records them. The thread ends once all clones are dropped.
#[derive(Clone)]
pub(super) struct AuditRecorder(Sender<SourceChange>);

/// The state of a source, and what a record of its change says.
struct SourceChange {
    kind: ChangeKind,
    state: SourceState,
    /// The path of the file.
    place: String,
}

impl AuditRecorder {
    /// Starts the thread. The settings are those of the process start.
    pub(super) fn start(
        config: &Config,
        status_reporter: StatusReporter,
    ) -> io::Result<AuditRecorder> {
        let (sender, changes) = channel();
        let worker = Worker {
            store_options: config.store.clone(),
            store: None,
            status_reporter,
            waiting: VecDeque::new(),
            export: config.audit_path.clone().map(Export::new),
        };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || worker.run(&changes))?;
        Ok(AuditRecorder(sender))
    }

    fn record(&self, kind: ChangeKind, what: &str, path: &str, entries: BTreeMap<String, String>) {
        let subject = format!("{what} {path} on {}", machine_name());
        self.send(kind, SourceState { subject, entries }, path);
    }

    fn send(&self, kind: ChangeKind, state: SourceState, place: &str) {
        // The thread ends only with the process.
        let _ = self.0.send(SourceChange { kind, state, place: place.to_owned() });
    }

    /// Records the settings that have no default value, and apart from them the admin tokens.
    pub(super) fn record_config(&self, sources: &ConfigSources) {
        let path = sources.file_path().map_or("defaults".to_owned(), |path| absolute(&path));
        // A faulty config is not in force, and its faults are reported elsewhere.
        let Ok(settings) = Config::read_effective_settings(sources) else { return };
        let is_set = |setting: &EffectiveSetting| setting.source != "default";
        let set = settings.0.into_iter().filter(is_set);
        let entries = set.map(|setting| {
            let secret = setting.secret_fingerprint.map(|print| format!("a secret, {print}…"));
            (setting.key, secret.or(setting.value).unwrap_or_default())
        });
        let (tokens, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            entries.partition(|(key, _)| key.starts_with("admin.token"));
        self.record(ChangeKind::ConfigChange, "config", &path, others);
        self.record(ChangeKind::TokenChange, "admin tokens of config", &path, tokens);
    }

    /// Records the keys that the key file declares.
    pub(super) fn record_key_file(&self, path: Option<&Path>, declared: &[DeclaredKey]) {
        let Some(path) = path.map(absolute) else { return };
        let entry = |key: crate::management::KeyEntry| {
            let expires_at = key.expires_at.map(format_rfc3339);
            let value = json!({
                "account": key.account, "plan": key.plan, "label": key.label,
                "origins": key.origins, "require_origin": key.require_origin,
                "expires_at": expires_at,
            });
            (key.id, value.to_string())
        };
        let entries = list_keys(&[], &[], declared).into_iter().map(entry).collect();
        self.record(ChangeKind::KeyFileChange, "key file", &path, entries);
    }

    /// Records the lists of the table, and the rows of the file of overrides.
    pub(super) fn record_table(&self, sources: &TableInputs, table: &Table) {
        let path = match &sources.base_location {
            TableLocation::Bundled => "bundled".to_owned(),
            TableLocation::Path(path) => absolute(path),
        };
        let lists = table.lists().iter().map(|list| {
            (format!("list {}", list.file), format!("{} rows, {}", list.rows, list.kind))
        });
        let versions = table.sources().iter().map(|source| {
            (format!("source {}", source.name), format!("{} of {}", source.version, source.date))
        });
        let is_other = |(name, _): &(String, String)| !is_override_list(name, sources);
        let entries = lists.filter(is_other).chain(versions).collect();
        self.record(ChangeKind::TableChange, "table", &path, entries);
        if let (Some(path), Ok(rows)) = (&sources.overrides_path, list_overrides(sources)) {
            let state = override_file_state(path, &rows);
            self.send(ChangeKind::OverrideFileChange, state, &absolute(path));
        }
    }
}

/// Returns true if the list is the file of overrides, whose rows are recorded apart.
fn is_override_list(entry_name: &str, sources: &TableInputs) -> bool {
    let path = sources.overrides_path.as_ref().map(|path| format!("list {}", path.display()));
    path.is_some_and(|path| path == entry_name)
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

struct Worker {
    store_options: StoreOptions,
    /// The connection of this thread; `None` until it is needed, and after a failure.
    store: Option<Store>,
    status_reporter: StatusReporter,
    /// The changes that are not recorded yet, the oldest first.
    waiting: VecDeque<SourceChange>,
    export: Option<Export>,
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
            let problem = self.record_and_export().err();
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

    /// Records the waiting changes, and writes new records to the file.
    fn record_and_export(&mut self) -> Result<(), String> {
        if self.waiting.is_empty() && self.export.is_none() {
            return Ok(());
        }
        let outcome = self.try_record_and_export();
        if outcome.is_err() {
            self.store = None;
        }
        outcome
    }

    fn try_record_and_export(&mut self) -> Result<(), String> {
        let describe = |error: StoreError| format!("expected to record changes, but found {error}");
        let store = match &mut self.store {
            Some(store) => store,
            empty => empty.insert(self.store_options.open(STORE_TIMEOUT).map_err(describe)?),
        };
        while let Some(SourceChange { kind, state, place }) = self.waiting.front() {
            let path = place;
            let place = format!("{place} on {}", machine_name());
            let author = match kind {
                // Feeds and operators change lists; riskgate loads the table.
                ChangeKind::TableChange => ChangeAuthor::riskgate(&place),
                _ => ChangeAuthor { actor: file_owner(path), surface: ChangeSurface::File, place },
            };
            store.changes_by(&author).record_source_state(*kind, state).map_err(describe)?;
            self.waiting.pop_front();
        }
        match &mut self.export {
            Some(export) => export.write_new_records(store),
            None => Ok(()),
        }
    }
}

/// Who owns a file: the best that is known of who has changed it.
fn file_owner(path: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or("unknown".to_owned(), |meta| format!("owner uid {}", meta.uid()))
}

/// The file of `audit.path`.
struct Export {
    path: PathBuf,
    /// The id of the last record in the file. The outer `None` means that the file has not been read.
    last_id: Option<Option<String>>,
}

impl Export {
    fn new(path: PathBuf) -> Export {
        Export { path, last_id: None }
    }

    /// Appends the records that the file lacks. Another process may write the same file during an
    /// upgrade, so the file is locked and its last record read before each write.
    fn write_new_records(&mut self, store: &mut Store) -> Result<(), String> {
        let path = self.path.display().to_string();
        let describe =
            |error: io::Error| format!("{path}: expected to append records, but found {error}");
        let mut last_id = match &self.last_id {
            Some(last_id) => last_id.clone(),
            None => {
                let mut file = open_to_append(&self.path).map_err(describe)?;
                read_last_id(&mut file).map_err(describe)?
            }
        };
        loop {
            let records = store.read_audit_after(last_id.as_deref(), RECORDS_PER_READ);
            let records = records.map_err(|error| error.to_string())?;
            self.last_id = Some(last_id.clone());
            let Some(newest) = records.last() else { return Ok(()) };
            let mut file = open_to_append(&self.path).map_err(describe)?;
            file.lock().map_err(describe)?;
            let on_file = read_last_id(&mut file).map_err(describe)?;
            if order_of(&on_file) > order_of(&last_id) {
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

fn order_of(id: &Option<String>) -> Option<(u64, u64)> {
    id.as_deref().and_then(AuditRecord::order)
}

/// Opens the file for reading and appending, and creates it for its owner alone.
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

/// Reads the id of the last record. Removes a last line that has no end: a process was killed while it
/// wrote the line.
fn read_last_id(file: &mut File) -> io::Result<Option<String>> {
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
    fn a_line_that_was_cut_off_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, "{\"id\":\"1\"}\n{\"id\":\"2\"}\n{\"id\":\"3\",\"at").unwrap();
        let mut file = open_to_append(&path).unwrap();
        assert_eq!(read_last_id(&mut file).unwrap().as_deref(), Some("2"));
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
        let mut export = Export::new(path.clone());
        let count = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
        for step in 1..=6 {
            let name = format!("account-{step}");
            store.changes_by(&author).set_account(&name, None, Some(None)).unwrap();
            export.write_new_records(&mut store).unwrap();
            export.write_new_records(&mut store).unwrap();
            match step {
                2 => export = Export::new(path.clone()),
                4 => std::fs::rename(&path, folder.path().join("old")).unwrap(),
                _ => {}
            }
        }
        assert_eq!((count(&folder.path().join("old")), count(&path)), (4, 2));
    }
}
