//! The overrides of the store, as a table is built from them, and the default file of earlier
//! versions, whose rows the store takes over.
//!
//! The store remembers a file by its content, and by its path and machine. So a file is taken over
//! once: a copy of it on another node changes nothing, and riskgate reads no edited one either.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::fault::ManagementFault;
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
const MAX_NAMED_ROWS: usize = 8;

/// The overrides of a store as a process knows them.
#[derive(Clone, Debug, Default)]
pub struct KnownOverrides {
    version: Option<OverridesVersion>,
    /// The rows as the text of a file; `None` if there are none.
    text: Option<Arc<str>>,
    /// The names of rows that no table can read.
    damaged: Vec<String>,
    default_file: DefaultFile,
}

/// What the store has of the default file of earlier versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DefaultFile {
    /// There is no such file, or the store has not taken its rows over.
    #[default]
    InUse,
    /// The store has its rows.
    TakenOver,
    /// The store has the rows that it had before it was edited.
    EditedAfterwards,
}

/// A default file whose rows the store has taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenFile {
    /// The absolute path.
    pub path: String,
    /// How many rows the file has.
    pub row_count: usize,
    /// How many of them the store did not have.
    pub added: usize,
}

impl KnownOverrides {
    /// Reads the overrides of a store. `None` if the store is not initialized.
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

    /// Reads the overrides that a store has, even if it has lost others. There are none if the
    /// store is not initialized.
    ///
    /// # Errors
    /// If the store fails.
    pub fn read_remaining(
        store: &mut Store,
        inputs: &TableInputs,
    ) -> Result<KnownOverrides, StoreError> {
        let Some(stored) = store.remaining_overrides()? else { return Ok(Self::default()) };
        KnownOverrides::of_stored(store, inputs, stored)
    }

    fn of_stored(
        store: &mut Store,
        inputs: &TableInputs,
        stored: StoredOverrides,
    ) -> Result<KnownOverrides, StoreError> {
        let StoredOverrides { version, rows, mut damaged } = stored;
        let is_readable = |row: &&StoredOverride| {
            OverrideListRow::parse(&row.text)
                .is_ok_and(|read| read.domain == row.domain && read.is_exact == row.is_exact)
        };
        let (good, faulty): (Vec<_>, Vec<_>) = rows.iter().partition(is_readable);
        damaged.extend(faulty.into_iter().map(|row| row.domain.clone()));
        let text = render_override_list(good.iter().map(|row| row.text.as_str()));
        let mut known = KnownOverrides {
            version: Some(version),
            text: (!good.is_empty()).then(|| text.into()),
            damaged,
            default_file: DefaultFile::InUse,
        };
        known.look_at_default_file(store, inputs)?;
        Ok(known)
    }

    /// Reads the overrides of the store of a config, which may not exist. Creates no store.
    ///
    /// # Errors
    /// As [`KnownOverrides::read`].
    pub fn read_of_config(
        options: &StoreOptions,
        timeout: Duration,
        inputs: &TableInputs,
    ) -> Result<KnownOverrides, StoreError> {
        let store = Store::open_to_check(&options.url, &options.redis, timeout)?;
        let known = store.map(|mut store| KnownOverrides::read(&mut store, inputs)).transpose()?;
        Ok(known.flatten().unwrap_or_default())
    }

    /// Reads the present time, and the overrides as [`KnownOverrides::read_of_config`] does. Waits
    /// only once for a store that does not answer, which has no overrides then.
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

    /// The version of the overrides; `None` if none has been read.
    pub fn version(&self) -> Option<&OverridesVersion> {
        self.version.as_ref()
    }

    /// Finds out what the store has of the default file. Returns true if that has changed.
    ///
    /// # Errors
    /// If the store fails.
    pub fn look_at_default_file(
        &mut self,
        store: &mut Store,
        inputs: &TableInputs,
    ) -> Result<bool, StoreError> {
        let before = self.default_file;
        self.default_file = match read_default_file(inputs) {
            Ok(Some((path, text))) => {
                let [content, file] = remembered_subjects(&path, &text);
                if store.read_source_state(&content)?.is_some() {
                    DefaultFile::TakenOver
                } else if store.read_source_state(&file)?.is_some() {
                    DefaultFile::EditedAfterwards
                } else {
                    DefaultFile::InUse
                }
            }
            // The table reports what is wrong with the file.
            Ok(None) | Err(_) => DefaultFile::InUse,
        };
        Ok(before != self.default_file)
    }

    /// Returns true if the default file may have rows that the store should take over.
    pub fn may_take_over(&self, inputs: &TableInputs) -> bool {
        self.default_file == DefaultFile::InUse
            && default_path(inputs).is_some_and(|path| path.exists())
    }

    /// The inputs of a table, with the overrides of the store.
    pub fn add_to(&self, inputs: &TableInputs) -> TableInputs {
        let mut inputs = TableInputs { stored_overrides: self.text.clone(), ..inputs.clone() };
        if inputs.is_default_overrides_path && self.default_file != DefaultFile::InUse {
            inputs.overrides_path = None;
        }
        inputs
    }

    /// What is wrong with the overrides, for an operator.
    pub fn describe_problem(&self, inputs: &TableInputs) -> Option<String> {
        let mut problems = Vec::new();
        if !self.damaged.is_empty() {
            let named: Vec<&str> =
                self.damaged.iter().take(MAX_NAMED_ROWS).map(String::as_str).collect();
            problems.push(format!(
                "expected overrides in the store that can be read, but found {} others, such as {}",
                self.damaged.len(),
                named.join(", ")
            ));
        }
        if let Some(path) =
            default_path(inputs).filter(|_| self.default_file == DefaultFile::EditedAfterwards)
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

/// Lets the store take over the rows of the default file of earlier versions, unless it has done
/// so, and in one step. `None` if there was nothing to take over.
///
/// # Errors
/// If the file is faulty or has too many rows, or if the store fails. The file then stays in use.
pub fn take_over_default_file(
    store: &mut Store,
    inputs: &TableInputs,
    author: &ChangeAuthor,
) -> Result<Option<TakenFile>, ManagementFault> {
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
        actor: file_owner(Path::new(&path)),
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
    let added = store.changes_by(author).take_over_overrides(&take_over)?;
    Ok(added.map(|added| TakenFile { row_count: rows.len(), added, path: path.clone() }))
}

/// The path of the default file, if the config names no other.
fn default_path(inputs: &TableInputs) -> Option<&PathBuf> {
    inputs.overrides_path.as_ref().filter(|_| inputs.is_default_overrides_path)
}

/// The absolute path and the text of the default file, if there is one.
fn read_default_file(inputs: &TableInputs) -> Result<Option<(String, String)>, ManagementFault> {
    let Some(path) = default_path(inputs) else { return Ok(None) };
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

/// The subjects under which a store remembers a file that it has taken over: one for the content,
/// and one for the file.
fn remembered_subjects(path: &str, text: &str) -> [String; 2] {
    let digest: String = sha256(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    [
        format!("overrides taken over, sha256 {digest}"),
        format!("overrides taken over from {path} on {}", machine_name()),
    ]
}

/// The owner of a file: nothing else tells who wrote it.
pub fn file_owner(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or("unknown".to_owned(), |meta| format!("owner uid {}", meta.uid()))
}
