//! Reads the overrides of the store for the build of a table, and lets the store take over the rows
//! of the default file, in which earlier versions of riskgate kept overrides.
//!
//! The store remembers a file that it has taken over in two ways: by the file's content, and by its
//! path and machine. So each file is taken over once. riskgate ignores a copy of such a file on
//! another node, and ignores the file itself after an operator has edited it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::fault::ManagementFault;
use super::lost_overrides::{ComparisonTimes, LostOverrides, parse_stored_row};
use super::present_time::{read_machine_time, read_time_of_store};
use crate::config::StoreOptions;
use crate::keys::sha256;
use crate::store::{
    ChangeAuthor, ChangeSurface, OverrideTakeOver, OverridesVersion, Store, StoreError,
    StoredOverride, StoredOverrides,
};
use crate::support::machine_name::machine_name;
use crate::table::{
    OverrideListRow, TableInputs, parse_override_rows, read_list_file, render_override_list,
};

/// The most damaged rows that a problem names.
const MAX_NAMED_DAMAGED_ROWS: usize = 8;

/// The overrides of a store as a process knows them.
#[derive(Clone, Debug, Default)]
pub struct KnownOverrides {
    version: Option<OverridesVersion>,
    /// The readable rows as the text of a file of overrides; `None` if there are no such rows.
    text: Option<Arc<str>>,
    /// The names of the rows that no table can read.
    damaged: Vec<String>,
    default_file: DefaultFileState,
    lost: LostOverrides,
    /// Whether the store lost changes between the overrides before and these.
    is_after_loss: bool,
}

/// Whether the store has the rows of the default file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DefaultFileState {
    /// The store has not taken the rows of the file over. Also if the file does not exist, or can't
    /// be read.
    #[default]
    InUse,
    /// The store has the rows of the file.
    TakenOver,
    /// The store has the rows that the file had before an operator edited it.
    EditedAfterwards,
}

/// A default file whose rows the store has just taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOverFile {
    /// The absolute path.
    pub path: String,
    /// How many rows the file has.
    pub row_count: usize,
    /// How many of these rows the store did not have.
    pub added: usize,
}

impl KnownOverrides {
    /// Reads the overrides of a store. `None` if the store is an empty server.
    ///
    /// # Errors
    /// If the store fails, or has lost overrides.
    pub fn read(
        store: &mut Store,
        inputs: &TableInputs,
    ) -> Result<Option<KnownOverrides>, StoreError> {
        let Some(stored) = store.stored_overrides()? else { return Ok(None) };
        KnownOverrides::of_stored(store, inputs, stored).map(Some)
    }

    /// Reads the overrides of the store from which these overrides came. If the store has lost
    /// changes since, remembers which overrides it lost. `None` if the store is an empty server.
    ///
    /// # Errors
    /// As [`KnownOverrides::read`].
    pub fn read_next(
        &self,
        store: &mut Store,
        inputs: &TableInputs,
        times: ComparisonTimes,
    ) -> Result<Option<KnownOverrides>, StoreError> {
        let Some(stored) = store.stored_overrides()? else { return Ok(None) };
        let has_lost_changes = match &self.version {
            Some(known) => {
                let change_id = store.override_change_id(known.number)?;
                known.is_lost(&stored.version, change_id.as_deref())
            }
            None => false,
        };
        let mut lost = self.lost.clone();
        lost.forget_names_set_again(&stored.rows);
        if has_lost_changes {
            lost.add_differences(self.text.as_deref(), &stored.rows, times);
            lost.read_override_file(inputs);
        }
        let next = KnownOverrides::of_stored(store, inputs, stored)?;
        Ok(Some(KnownOverrides { lost, is_after_loss: has_lost_changes, ..next }))
    }

    /// Returns true if the store lost changes between the overrides before and these.
    pub fn is_after_loss(&self) -> bool {
        self.is_after_loss
    }

    /// Reads the file of `table.overrides`, if the store has lost overrides: those that a row of
    /// the file decides are not named.
    pub fn read_file_for_losses(&mut self, inputs: &TableInputs) {
        self.lost.read_override_file(inputs);
    }

    /// Reads the overrides that a store has, even if the store has lost others. If the store is an
    /// empty server, returns no overrides.
    ///
    /// # Errors
    /// If the store fails.
    pub fn read_despite_loss(
        store: &mut Store,
        inputs: &TableInputs,
    ) -> Result<KnownOverrides, StoreError> {
        let Some(stored) = store.remaining_overrides()? else { return Ok(Self::default()) };
        KnownOverrides::of_stored(store, inputs, stored)
    }

    /// Sorts the rows of a store into readable and damaged ones, and looks at the default file.
    fn of_stored(
        store: &mut Store,
        inputs: &TableInputs,
        stored: StoredOverrides,
    ) -> Result<KnownOverrides, StoreError> {
        let StoredOverrides { version, rows, mut damaged } = stored;
        let is_readable = |row: &&StoredOverride| parse_stored_row(row).is_some();
        let (good, faulty): (Vec<_>, Vec<_>) = rows.iter().partition(is_readable);
        damaged.extend(faulty.into_iter().map(|row| row.domain.clone()));
        let text = render_override_list(good.iter().map(|row| row.text.as_str()));
        let mut known = KnownOverrides {
            version: Some(version),
            text: (!good.is_empty()).then(|| text.into()),
            damaged,
            default_file: DefaultFileState::InUse,
            lost: LostOverrides::default(),
            is_after_loss: false,
        };
        known.update_default_file_state(store, inputs)?;
        Ok(known)
    }

    /// Reads the overrides of the store of a config. If the store does not exist, returns no
    /// overrides, and creates no store.
    ///
    /// # Errors
    /// If the store fails, or has lost overrides.
    pub fn read_of_config(
        options: &StoreOptions,
        timeout: Duration,
        inputs: &TableInputs,
    ) -> Result<KnownOverrides, StoreError> {
        let store = Store::open_to_check(&options.url, &options.redis, timeout)?;
        let known = store.map(|mut store| KnownOverrides::read(&mut store, inputs)).transpose()?;
        Ok(known.flatten().unwrap_or_default())
    }

    /// Reads the present time in Unix seconds, and the overrides of the store of a config. If the
    /// store fails, returns no overrides. If the store does not answer, waits for it only once.
    pub fn read_with_time(
        options: &StoreOptions,
        timeout: Duration,
        inputs: &TableInputs,
    ) -> (i64, KnownOverrides) {
        let opened = Store::open_to_check(&options.url, &options.redis, timeout);
        let Ok(Some(mut store)) = opened else {
            return (read_machine_time(), KnownOverrides::default());
        };
        let (now, answers) = read_time_of_store(&mut store);
        let known = if answers { KnownOverrides::read(&mut store, inputs) } else { Ok(None) };
        (now, known.ok().flatten().unwrap_or_default())
    }

    /// The version of the overrides; `None` if no overrides have been read.
    pub fn version(&self) -> Option<&OverridesVersion> {
        self.version.as_ref()
    }

    /// Finds out whether the store has the rows of the default file. Returns true if the answer has
    /// changed since the last call.
    ///
    /// # Errors
    /// If the store fails.
    pub fn update_default_file_state(
        &mut self,
        store: &mut Store,
        inputs: &TableInputs,
    ) -> Result<bool, StoreError> {
        let before = self.default_file;
        self.default_file = match read_default_file(inputs) {
            Ok(Some((path, text))) => {
                let [content, file] = remembered_subjects(&path, &text);
                if store.read_source_state(&content)?.is_some() {
                    DefaultFileState::TakenOver
                } else if store.read_source_state(&file)?.is_some() {
                    DefaultFileState::EditedAfterwards
                } else {
                    DefaultFileState::InUse
                }
            }
            // The table reports what is wrong with the file.
            Ok(None) | Err(_) => DefaultFileState::InUse,
        };
        Ok(before != self.default_file)
    }

    /// Returns true if the default file may have rows that the store should take over.
    pub fn may_take_over(&self, inputs: &TableInputs) -> bool {
        self.default_file == DefaultFileState::InUse
            && default_overrides_path(inputs).is_some_and(|path| path.exists())
    }

    /// Returns a copy of the inputs of a table, with the overrides of the store, and without a
    /// default file that the store has taken over.
    pub fn add_to_copy_of(&self, inputs: &TableInputs) -> TableInputs {
        let mut inputs = TableInputs { stored_overrides: self.text.clone(), ..inputs.clone() };
        if inputs.is_default_overrides_path && self.default_file != DefaultFileState::InUse {
            inputs.overrides_path = None;
        }
        inputs
    }

    /// Says to an operator what is wrong with the overrides at `now`, in Unix seconds; `None` if
    /// nothing is.
    pub fn describe_problem(&self, inputs: &TableInputs, now: i64) -> Option<String> {
        let mut problems = self.lost.describe_losses(now);
        if !self.damaged.is_empty() {
            let named: Vec<&str> =
                self.damaged.iter().take(MAX_NAMED_DAMAGED_ROWS).map(String::as_str).collect();
            problems.push(format!(
                "expected overrides in the store that can be read, but found {} others, such as {}",
                self.damaged.len(),
                named.join(", ")
            ));
        }
        if let Some(path) = default_overrides_path(inputs)
            .filter(|_| self.default_file == DefaultFileState::EditedAfterwards)
        {
            problems.push(format!(
                "{}: expected the file as it was when the store took its rows over, but found \
                 another text, which is not read; name the file in table.overrides, or use riskgate \
                 table allow, deny and clear",
                path.display()
            ));
        }
        (!problems.is_empty()).then(|| problems.join("\n"))
    }
}

/// Lets the store take over the rows of the default file in one step. `None` if there was nothing
/// to take over, or if the store has taken the file over before.
///
/// # Errors
/// If the file is faulty or has too many rows, or if the store fails. The file then stays in use.
pub fn take_over_default_file(
    store: &mut Store,
    inputs: &TableInputs,
    author: &ChangeAuthor,
) -> Result<Option<TakenOverFile>, ManagementFault> {
    let Some((path, text)) = read_default_file(inputs)? else { return Ok(None) };
    let subjects = remembered_subjects(&path, &text);
    for subject in &subjects {
        if store.read_source_state(subject)?.is_some() {
            return Ok(None);
        }
    }
    let rows = parse_override_rows(&path, &text)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let by = ChangeAuthor {
        actor: describe_file_owner(Path::new(&path)),
        via: ChangeSurface::File,
        from: format!("{path} on {}", machine_name()),
    };
    let rows: Vec<StoredOverride> = rows
        .into_iter()
        .map(|OverrideListRow { domain, is_exact, text, .. }| StoredOverride {
            domain,
            is_exact,
            text,
            author: by.clone(),
            created_at: 0,
        })
        .collect();
    let take_over = OverrideTakeOver { path: &path, rows: &rows, subjects };
    let added = store.take_over_overrides(author, &take_over)?;
    Ok(added.map(|added| TakenOverFile { row_count: rows.len(), added, path: path.clone() }))
}

/// The path of the default file; `None` if the config names a file of overrides.
pub(super) fn default_overrides_path(inputs: &TableInputs) -> Option<&PathBuf> {
    inputs.overrides_path.as_ref().filter(|_| inputs.is_default_overrides_path)
}

/// Reads the default file. Returns its absolute path and its text; `None` if there is no such file.
fn read_default_file(inputs: &TableInputs) -> Result<Option<(String, String)>, ManagementFault> {
    let Some(path) = default_overrides_path(inputs) else { return Ok(None) };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let at = absolute.display().to_string();
    match read_list_file(path) {
        Ok(text) => Ok(text.map(|text| (at, text))),
        Err(found) => {
            let line = format!("{at}: expected a file of overrides, but found {found}");
            Err(ManagementFault::File(vec![line]))
        }
    }
}

/// The two subjects under which a store remembers a file that it has taken over: one for the
/// content of the file, and one for its path on this machine.
fn remembered_subjects(path: &str, text: &str) -> [String; 2] {
    let digest = hex::encode(sha256(text.as_bytes()));
    [
        format!("overrides taken over, sha256 {digest}"),
        format!("overrides taken over from {path} on {}", machine_name()),
    ]
}

/// Names the owner of a file for the audit, because nothing else tells who wrote the file.
pub fn describe_file_owner(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or("unknown".to_owned(), |meta| format!("owner uid {}", meta.uid()))
}
