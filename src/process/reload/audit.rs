//! Records what changes in files, and writes the records of the store to `audit.path`.
//!
//! If an operator edits a file, riskgate applies the change even if the store does not answer. The
//! record of the change then waits until the store answers. If the process ends before that, the
//! next process finds that the file differs from the state in the store, and records the
//! difference. If the change was undone meanwhile, nothing is recorded.

mod audit_file;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use serde_json::json;

use audit_file::AuditFile;
pub(in crate::process) use audit_file::{check_audit_file, path_of_written_records_log};

use super::status_reporter::StatusReporter;
use super::store_connection::open_if_none;
use crate::config::{
    Config, ConfigSources, EffectiveSetting, EffectiveSettings, SettingOrigin, StartupConfig,
    StoreOptions, fingerprint_secret,
};
use crate::gate::GateState;
use crate::keys::{DeclaredKey, sha256};
use crate::management::{ManagementFault, describe_file_owner, read_override_file_state};
use crate::model::month::{format_known_time, format_rfc3339};
use crate::store::{AuditOperation, ChangeAuthor, ChangeSurface, SourceState, Store, StoreError};
use crate::support::lock::lock;
use crate::support::machine_name::machine_name;
use crate::support::regular_file::{ReadError, read_regular_file};
use crate::table::{STORED_OVERRIDES_LIST_NAME, Table, TableInputs, TableLocation};

/// How often the thread appends new records to `audit.path`, and tries again after a failure.
const AUDIT_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout with which the thread opens the store.
const AUDIT_STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The audit makes no fingerprint of a larger file of the table.
const MAX_TABLE_FILE_BYTES: u64 = 1 << 30;
/// The name of the table inside the binary.
const BUNDLED_TABLE: &str = "bundled";
/// The end of a fault while changes wait: what a restart loses.
const RESTART_LOSS_NOTE: &str =
    "until they are recorded, a restart records only what is then in force";
/// The most changes that wait for the store.
const MAX_WAITING_CHANGES: usize = 1_024;

/// Sends the states of sources to the thread that records their changes. The thread ends once all
/// clones are dropped.
#[derive(Clone)]
pub(super) struct AuditRecorder {
    changes: Sender<SourceChange>,
}

/// The state of a source, and what the record of a change to this state says.
struct SourceChange {
    operation: AuditOperation,
    state: SourceState,
    /// The path of the file that the source is in.
    path: String,
}

impl AuditRecorder {
    /// Starts the thread, which records nothing before this process serves.
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
        thread.spawn(move || worker.run(&changes))?;
        Ok(AuditRecorder { changes: sender })
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

    /// Lets the thread record the settings of the config. The admin tokens are a source of their
    /// own.
    ///
    /// Two processes may read the same file, with different variables and flags. So the settings of
    /// the file are one source for both, and the variables and flags of each process are another.
    ///
    /// Returns false, and records nothing, if a file can't be read or is faulty at this moment.
    pub(super) fn record_config(&self, sources: &ConfigSources, admin: &SocketAddr) -> bool {
        let Ok(settings) = Config::read_effective_settings(sources) else { return false };
        let path = sources.file_path().map_or("defaults".to_owned(), |path| to_absolute(&path));
        let in_force = match sources.file_path().map(|path| Config::read_settings_of_file(&path)) {
            Some(Ok(of_file)) => describe_settings(of_file, SettingOrigin::File),
            Some(Err(_)) => return false,
            None => BTreeMap::new(),
        };
        let (tokens, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            in_force.into_iter().partition(|(name, _)| name.starts_with("admin.token"));
        self.send_entries(AuditOperation::ConfigChange, "config", &path, others);
        self.send_entries(AuditOperation::TokenChange, "admin tokens of config", &path, tokens);
        let entries = describe_settings(settings, SettingOrigin::Process);
        let kind = format!("variables and flags of the process at {admin} with the config");
        self.send_entries(AuditOperation::ConfigChange, &kind, &path, entries);
        true
    }

    /// Lets the thread record the keys that the key file declares. Does nothing without a key file.
    pub(super) fn record_key_file(&self, path: Option<&Path>, declared: &[DeclaredKey]) {
        let Some(path) = path.map(to_absolute) else { return };
        let entry = |DeclaredKey { key, plan }: &DeclaredKey| {
            let value = json!({
                "account": key.account, "plan": plan, "label": key.label,
                "hash": format!("{}…", fingerprint_secret(format!("{:?}", key.digest).as_bytes())),
                "origins": key.origins, "require_origin": key.require_origin,
                "created_at": format_known_time(key.created_at),
                "expires_at": key.expires_at.map(format_rfc3339),
                "revoked_at": key.revoked_at.map(format_rfc3339),
            });
            (key.id.clone(), value.to_string())
        };
        let entries = declared.iter().map(entry).collect();
        self.send_entries(AuditOperation::KeyFileChange, "key file", &path, entries);
    }

    /// Lets the thread record the lists of the table, and the rows of the overrides file.
    ///
    /// Returns false if the system refuses to read a file for now. If the file is one of the table,
    /// nothing is recorded. If the file is the overrides file, only the table is recorded.
    pub(super) fn record_table(&self, inputs: &TableInputs, table: &Table) -> bool {
        let path = match &inputs.base_location {
            TableLocation::Bundled => BUNDLED_TABLE.to_owned(),
            TableLocation::Path(path) => to_absolute(path),
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
        if let Some(path) = inputs.overrides_path.as_deref().map(to_absolute) {
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

/// Returns the names of the settings from this kind of source, as the process log has them, and the
/// texts that a record shows for their values.
fn describe_settings(
    settings: EffectiveSettings,
    origin: SettingOrigin,
) -> BTreeMap<String, String> {
    let rule_order = settings.rule_order();
    let named = settings.into_named().into_iter();
    let of_origin = named.filter(|(_, setting)| setting.origin == origin);
    let mut described: BTreeMap<String, String> =
        of_origin.map(|(name, setting)| (name, describe_value(setting))).collect();
    if rule_order.len() > 1 && described.keys().any(|name| name.starts_with("rule ")) {
        described.insert("order of the rules".to_owned(), rule_order.join(", "));
    }
    described
}

/// Returns the text that a record shows for the value of a setting. A secret is shown as a
/// fingerprint. A URL with secret parts is shown without these parts, with a fingerprint.
fn describe_value(setting: EffectiveSetting) -> String {
    const HIDDEN: &str = "\"…\"";
    let is_token_hash = setting.key.starts_with("admin.token.") && setting.key.ends_with(".hash");
    let value = setting.value.unwrap_or_default();
    match setting.secret_fingerprint {
        _ if is_token_hash => format!("a secret, {}…", fingerprint_secret(value.as_bytes())),
        Some(fingerprint) if value == HIDDEN => format!("a secret, {fingerprint}…"),
        Some(fingerprint) => format!("{value}, {fingerprint}…"),
        None => value,
    }
}

/// Returns the fingerprints of the files that a table is built from, by name. The name of a list is
/// its [`ListInfo::file`](crate::table::ListInfo::file). Leaves out:
/// - the overrides,
/// - the lists inside the binary, which change only with the binary, and
/// - files that are missing, too large or no regular files.
///
/// # Errors
/// If the system refuses to read a file.
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

/// Returns true if the entry is a list of overrides. The table's record leaves such a list out: the
/// overrides file is a source of its own, and the store records its overrides itself.
fn is_override_list(entry_name: &str, inputs: &TableInputs) -> bool {
    let file = inputs.overrides_path.as_ref().map(|path| format!("list {}", path.display()));
    let stored = format!("list {STORED_OVERRIDES_LIST_NAME}");
    stored == entry_name || file.is_some_and(|name| name == entry_name)
}

fn to_absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

struct Worker {
    store_options: StoreOptions,
    /// The connection of this thread; `None` until the thread needs it, and after a failure.
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
        let mut is_serving = false;
        while !is_serving {
            is_serving = self.gate_state.serving.wait_until_serving(AUDIT_INTERVAL);
            loop {
                match changes.try_recv() {
                    Ok(change) => self.replace_waiting(change),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        }
        loop {
            match changes.recv_timeout(AUDIT_INTERVAL) {
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

    /// Adds a state in place of an earlier one of the same source. Before this process serves,
    /// another process records the changes. So only the latest state of a source counts here.
    fn replace_waiting(&mut self, change: SourceChange) {
        self.waiting.retain(|earlier| earlier.state.subject != change.state.subject);
        self.last_seen.insert(change.state.subject.clone(), change.state.clone());
        self.waiting.push_back(change);
    }

    /// Adds a state to those that wait, unless the last state of the same source was equal. If a
    /// source changes and changes back, both states wait. If [`MAX_WAITING_CHANGES`] wait, first
    /// drops the oldest state that has a later one of the same source.
    fn add_waiting(&mut self, change: SourceChange) {
        let subject = change.state.subject.clone();
        if self.last_seen.get(&subject) == Some(&change.state) {
            return;
        }
        self.last_seen.insert(subject, change.state.clone());
        if self.waiting.len() >= MAX_WAITING_CHANGES {
            // The latest state of each source stays. So the records of a source lack only states
            // that lay between.
            let is_outdated = |at: &usize| {
                let subject = &self.waiting[*at].state.subject;
                self.waiting.iter().skip(at + 1).any(|later| later.state.subject == *subject)
            };
            let outdated = (0..self.waiting.len()).find(is_outdated).unwrap_or(0);
            self.waiting.remove(outdated);
        }
        self.waiting.push_back(change);
    }

    /// Records the waiting changes in the store, and appends new records to `audit.path`. Returns
    /// the problem if either fails.
    fn record_and_append(&mut self) -> Result<(), String> {
        if self.waiting.is_empty() && self.audit_file.is_none() {
            return Ok(());
        }
        self.try_record_and_append().map_err(|problem| {
            // The next attempt opens the store again.
            self.store = None;
            match self.waiting.is_empty() {
                true => problem,
                false => format!("{problem}; {RESTART_LOSS_NOTE}"),
            }
        })
    }

    fn try_record_and_append(&mut self) -> Result<(), String> {
        let state = Arc::clone(&self.gate_state);
        let _writes = lock(&state.audit_writes);
        let store = open_if_none(&mut self.store, &self.store_options, AUDIT_STORE_TIMEOUT);
        let store = store.map_err(describe_store_error)?;
        store.set_time(self.gate_state.ledger.believed_time());
        while let Some(change) = self.waiting.front() {
            let SourceChange { operation, state, .. } = change;
            let author = find_author(store, change).map_err(describe_store_error)?;
            store.record_source_state(&author, *operation, state).map_err(describe_store_error)?;
            self.waiting.pop_front();
        }
        match &mut self.audit_file {
            Some(file) => file.append_new_records(store),
            None => Ok(()),
        }
    }
}

/// Finds who has changed a source: riskgate, which fetches the lists of feeds and contains the
/// bundled lists, or else the owner of the file or folder.
fn find_author(store: &mut Store, change: &SourceChange) -> Result<ChangeAuthor, StoreError> {
    let SourceChange { operation, state, path } = change;
    let from = format!("{path} on {}", machine_name());
    if *operation == AuditOperation::TableChange {
        let before = match store.read_source_state(&state.subject)? {
            Some(before) => Some(before),
            None => store.read_source_state(&state.shared_subject)?,
        };
        let changed = before.map(|before| state.list_changed_entries(&before)).unwrap_or_default();
        if path == BUNDLED_TABLE || changed.iter().all(|entry| is_feed_entry(entry)) {
            return Ok(ChangeAuthor::riskgate(&from));
        }
    }
    let actor = describe_file_owner(Path::new(path));
    Ok(ChangeAuthor { actor, via: ChangeSurface::File, from })
}

/// Returns true for an entry of the table's state that tells of a feed.
fn is_feed_entry(entry: &str) -> bool {
    let file = entry.strip_prefix("list ").or_else(|| entry.strip_prefix("file "));
    file.is_some_and(|file| file.starts_with("feed "))
}

/// Reads the state of an overrides file. Returns `None` if the file is faulty.
///
/// # Errors
/// If the system refuses to read the file for now.
fn read_override_file(path: &str) -> Result<Option<SourceState>, String> {
    match read_override_file_state(Path::new(path)) {
        Ok(state) => Ok(Some(state)),
        Err(ManagementFault::Table(faults)) if faults.is_transient() => Err(faults.to_string()),
        Err(_) => Ok(None),
    }
}

fn describe_store_error(error: StoreError) -> String {
    format!("expected to record changes, but found {error}")
}
