//! Records what changes in files, and writes the records of the store to `audit.path`.
//!
//! If an operator edits a file, riskgate applies the change even if the store does not answer. The
//! change then waits until the store answers and can record it. If the process ends before that,
//! the next process finds that the file differs from the state in the store, and records the
//! change. Of a change that was undone meanwhile, it knows nothing.

mod audit_file;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::json;

use audit_file::AuditFile;

use super::status_reporter::StatusReporter;
use super::store_connection::open_if_none;
use crate::config::{
    Config, ConfigSources, EffectiveSetting, SettingOrigin, StartupConfig, StoreOptions,
    fingerprint_secret,
};
use crate::gate::GateState;
use crate::keys::{DeclaredKey, sha256};
use crate::management::{ManagementFault, file_owner, override_file_state};
use crate::model::month::format_rfc3339;
use crate::store::{AuditOperation, ChangeAuthor, ChangeSurface, SourceState, Store, StoreError};
use crate::support::machine_name::machine_name;
use crate::support::regular_file::{ReadError, read_regular_file};
use crate::table::{STORED_LIST_NAME, Table, TableInputs, TableLocation};

/// How often the thread writes new records to the file, and tries again after a failure.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long an operation of the store may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest file of a table, in bytes.
const MAX_TABLE_FILE_BYTES: u64 = 1 << 30;
/// What a restart does while changes wait for the store.
const AFTER_RESTART: &str = "until they are recorded, a restart records only what is then in force";
/// The most changes that wait for the store.
const MAX_WAITING: usize = 1_024;

/// Sends changes to the thread that records them. The thread ends once all clones are dropped.
#[derive(Clone)]
pub(super) struct AuditRecorder {
    changes: Sender<SourceChange>,
    begin: Sender<()>,
}

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
        config: &StartupConfig,
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
            last_seen: HashMap::new(),
            audit_file: config.audit_path.clone().map(AuditFile::new),
        };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let (begin, may_begin) = channel();
        thread.spawn(move || {
            // An error means that the process never served.
            if may_begin.recv().is_ok() {
                worker.run(&changes);
            }
        })?;
        Ok(AuditRecorder { changes: sender, begin })
    }

    /// Lets the records begin, once this process serves: a successor that never does changes
    /// nothing.
    pub(super) fn begin(&self) {
        // After the first call, nobody receives it.
        let _ = self.begin.send(());
    }

    fn send_entries(
        &self,
        operation: AuditOperation,
        source_kind: &str,
        path: &str,
        entries: BTreeMap<String, String>,
    ) {
        let state = SourceState::on_this_machine(format!("{source_kind} {path}"), entries);
        self.send_state(operation, state, path);
    }

    fn send_state(&self, operation: AuditOperation, state: SourceState, path: &str) {
        // The thread lives as long as this sender.
        let _ = self.changes.send(SourceChange { operation, state, path: path.to_owned() });
    }

    /// Records the settings that the config sets. The admin tokens are a source of their own.
    ///
    /// Two processes may read one file, with other variables and other flags. So what the file says
    /// is one source for both, and what else a process has is a source of that process.
    ///
    /// Returns false, and records nothing, if a file can't be read or is faulty now.
    pub(super) fn record_config(&self, sources: &ConfigSources, admin: &SocketAddr) -> bool {
        let Ok(settings) = Config::read_effective_settings(sources) else { return false };
        let path = sources.file_path().map_or("defaults".to_owned(), |path| absolute(&path));
        let is_of_file = |setting: &EffectiveSetting| setting.origin == SettingOrigin::File;
        let in_force = match sources.file_path().map(|path| Config::read_settings_of_file(&path)) {
            Some(Ok(of_file)) => of_file.0,
            Some(Err(_)) => return false,
            None => Vec::new(),
        };
        let entries = in_force.into_iter().filter(is_of_file).map(describe_setting);
        let (tokens, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            entries.partition(|(key, _)| key.starts_with("admin.token"));
        self.send_entries(AuditOperation::ConfigChange, "config", &path, others);
        self.send_entries(AuditOperation::TokenChange, "admin tokens of config", &path, tokens);
        let is_of_process = |setting: &EffectiveSetting| setting.origin == SettingOrigin::Process;
        let entries = settings.0.into_iter().filter(is_of_process).map(describe_setting).collect();
        let kind = format!("variables and flags of the process at {admin} with the config");
        self.send_entries(AuditOperation::ConfigChange, &kind, &path, entries);
        true
    }

    /// Records the keys that the key file declares.
    pub(super) fn record_key_file(&self, path: Option<&Path>, declared: &[DeclaredKey]) {
        let Some(path) = path.map(absolute) else { return };
        let entry = |DeclaredKey { key, plan }: &DeclaredKey| {
            let created_at = Some(key.created_at).filter(|at| *at != 0);
            let value = json!({
                "account": key.account, "plan": plan, "label": key.label,
                "hash": format!("{}…", fingerprint_secret(format!("{:?}", key.digest).as_bytes())),
                "origins": key.origins, "require_origin": key.require_origin,
                "created_at": created_at.map(format_rfc3339),
                "expires_at": key.expires_at.map(format_rfc3339),
                "revoked_at": key.revoked_at.map(format_rfc3339),
            });
            (key.id.clone(), value.to_string())
        };
        let entries = declared.iter().map(entry).collect();
        self.send_entries(AuditOperation::KeyFileChange, "key file", &path, entries);
    }

    /// Records the lists of the table, and the rows of the file of overrides. Returns false if the
    /// system refuses to read a file for now; then the records lack what is in this file.
    pub(super) fn record_table(&self, inputs: &TableInputs, table: &Table) -> bool {
        let path = match &inputs.base_location {
            TableLocation::Bundled => "bundled".to_owned(),
            TableLocation::Path(path) => absolute(path),
        };
        let Ok(fingerprints) = fingerprint_table_files(inputs, table) else { return false };
        let fingerprint = |file: &str| fingerprints.get(file).cloned().unwrap_or_default();
        let lists = table.lists().iter().map(|list| {
            let value = format!("{} rows, {}{}", list.rows, list.kind, fingerprint(&list.file));
            (format!("list {}", list.file), value)
        });
        let is_list = |file: &str| table.lists().iter().any(|list| list.file == file);
        let other_files = fingerprints.iter().filter(|(file, _)| !is_list(file));
        let other_files = other_files.map(|(file, fingerprint)| {
            (format!("file {file}"), fingerprint.trim_start_matches(", ").to_owned())
        });
        let versions = table.sources().iter().map(|source| {
            (format!("source {}", source.name), format!("{} of {}", source.version, source.date))
        });
        let is_other = |(name, _): &(String, String)| !is_override_list(name, inputs);
        let entries = lists.filter(is_other).chain(other_files).chain(versions).collect();
        self.send_entries(AuditOperation::TableChange, "table", &path, entries);
        if let Some(path) = inputs.overrides_path.as_deref().map(absolute) {
            match read_override_file(&path) {
                Ok(Some(state)) => {
                    self.send_state(AuditOperation::OverrideFileChange, state, &path);
                }
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// Describes a setting for a record: a secret by its fingerprint, and an address that has secret
/// parts by its other parts and its fingerprint.
fn describe_setting(setting: EffectiveSetting) -> (String, String) {
    const HIDDEN: &str = "\"…\"";
    let is_token_hash = setting.key.starts_with("admin.token.") && setting.key.ends_with(".hash");
    let value = setting.value.unwrap_or_default();
    let description = match setting.secret_fingerprint {
        _ if is_token_hash => format!("a secret, {}…", fingerprint_secret(value.as_bytes())),
        Some(fingerprint) if value == HIDDEN => format!("a secret, {fingerprint}…"),
        Some(fingerprint) => format!("{value}, {fingerprint}…"),
        None => value,
    };
    (setting.key, description)
}

/// Returns the fingerprints of the files that a table is built from, by the name that
/// [`ListInfo::file`](crate::table::ListInfo::file) gives a list. Leaves out the overrides, and the
/// lists inside the binary, which change with the binary alone.
fn fingerprint_table_files(
    inputs: &TableInputs,
    table: &Table,
) -> io::Result<BTreeMap<String, String>> {
    let feeds = inputs.feeds.iter().map(|feed| (format!("feed {}", feed.name), feed.path.clone()));
    let mut files: Vec<(String, PathBuf)> = feeds.collect();
    match &inputs.base_location {
        TableLocation::Bundled => {}
        TableLocation::Path(folder) if folder.is_dir() => {
            let lists = table.lists().iter().filter(|list| !list.is_added);
            let names = lists.map(|list| list.file.as_str());
            let names = names.chain(["manifest.toml", "sources.toml"]);
            files.extend(names.map(|name| (name.to_owned(), folder.join(name))));
        }
        TableLocation::Path(file) => files.push(("compiled table".to_owned(), file.clone())),
    }
    let fingerprint = |(name, path): (String, PathBuf)| {
        let content = match read_regular_file(&path, MAX_TABLE_FILE_BYTES) {
            Ok(content) => content,
            Err(ReadError::Io(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Some(Err(error));
            }
            Err(_) => return None,
        };
        let digest = sha256(&content);
        let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Ok((name, format!(", sha256 {digits}…"))))
    };
    files.into_iter().filter_map(fingerprint).collect()
}

/// Returns true if the list has overrides: the rows of the file are a source of their own, and each
/// change of the store has its record.
fn is_override_list(entry_name: &str, inputs: &TableInputs) -> bool {
    let file = inputs.overrides_path.as_ref().map(|path| format!("list {}", path.display()));
    let stored = format!("list {STORED_LIST_NAME}");
    stored == entry_name || file.is_some_and(|name| name == entry_name)
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
    /// The latest state of each source that was sent to this thread, by its subject.
    last_seen: HashMap<String, SourceState>,
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

    /// Adds a state behind the states that wait. If a source changes and changes back, both changes
    /// are recorded.
    fn add_waiting(&mut self, change: SourceChange) {
        let subject = change.state.subject.clone();
        if self.last_seen.get(&subject) == Some(&change.state) {
            return;
        }
        self.last_seen.insert(subject, change.state.clone());
        if self.waiting.len() >= MAX_WAITING {
            // The latest state of each source stays, so that its record lacks only what was
            // between.
            let is_outdated = |at: &usize| {
                let subject = &self.waiting[*at].state.subject;
                self.waiting.iter().skip(at + 1).any(|later| later.state.subject == *subject)
            };
            let outdated = (0..self.waiting.len()).find(is_outdated).unwrap_or(0);
            self.waiting.remove(outdated);
        }
        self.waiting.push_back(change);
    }

    /// Records the waiting changes, and appends new records to `audit.path`. Returns the problem if
    /// one of both fails.
    fn record_and_append(&mut self) -> Result<(), String> {
        if self.waiting.is_empty() && self.audit_file.is_none() {
            return Ok(());
        }
        self.try_record_and_append().map_err(|problem| {
            // The next attempt opens the store again.
            self.store = None;
            match self.waiting.is_empty() {
                true => problem,
                false => format!("{problem}; {AFTER_RESTART}"),
            }
        })
    }

    fn try_record_and_append(&mut self) -> Result<(), String> {
        let state = Arc::clone(&self.gate_state);
        let _writes = state.audit_writes.lock().unwrap_or_else(PoisonError::into_inner);
        let store = open_if_none(&mut self.store, &self.store_options, STORE_TIMEOUT);
        let store = store.map_err(describe)?;
        store.set_time(self.gate_state.ledger.believed_time());
        while let Some(change) = self.waiting.front() {
            let SourceChange { operation, state, path } = change;
            let from = format!("{path} on {}", machine_name());
            let author = match operation {
                // riskgate itself changes the lists that feeds fill.
                AuditOperation::TableChange => ChangeAuthor::riskgate(&from),
                _ => ChangeAuthor {
                    actor: file_owner(Path::new(path)),
                    via: ChangeSurface::File,
                    from,
                },
            };
            let mut changes = store.changes_by(&author);
            changes.record_source_state(*operation, state).map_err(describe)?;
            self.waiting.pop_front();
        }
        match &mut self.audit_file {
            Some(file) => file.append_new_records(store),
            None => Ok(()),
        }
    }
}

/// Reads the state of a file of overrides; `None` if it is faulty.
///
/// # Errors
/// If the system refuses to read the file for now.
fn read_override_file(path: &str) -> Result<Option<SourceState>, String> {
    match override_file_state(Path::new(path)) {
        Ok(state) => Ok(Some(state)),
        Err(ManagementFault::Table(faults)) if faults.is_transient() => Err(faults.to_string()),
        Err(_) => Ok(None),
    }
}

fn describe(error: StoreError) -> String {
    format!("expected to record changes, but found {error}")
}
