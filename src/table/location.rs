//! Where a table comes from, and how its files are read.
//!
//! This module reads whole files, and does not interpret them. It never blocks on a FIFO, never
//! reads more than the maximum size, and opens the lists of a manifest by plain names in the
//! manifest's directory.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use super::embedded_lists::ListsInCompiledTable;
use super::fault::{TableFault, fault_from_read_error, quote_excerpt};
use crate::support::regular_file::{ReadError, read_regular_file, read_regular_text};

/// The largest list, in bytes.
pub(super) const MAX_LIST_BYTES: u64 = 64 << 20;

/// Where a table comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TableLocation {
    /// The lists inside the binary.
    #[default]
    Bundled,
    /// A directory with a `manifest.toml`, or a compiled file.
    Path(PathBuf),
}

/// The lists inside the binary: the manifest, its sources and every file that it names.
const BUNDLED_FILES: &[(&str, &str)] = &[
    ("manifest.toml", include_str!("../../data/manifest.toml")),
    ("sources.toml", include_str!("../../data/sources.toml")),
    ("overrides.csv", include_str!("../../data/overrides.csv")),
    ("special-use.txt", include_str!("../../data/special-use.txt")),
    ("tlds.txt", include_str!("../../data/tlds.txt")),
    ("protected.txt", include_str!("../../data/protected.txt")),
    ("organisations.txt", include_str!("../../data/organisations.txt")),
    ("corporate.txt", include_str!("../../data/corporate.txt")),
    ("alias.txt", include_str!("../../data/alias.txt")),
    ("agent-inboxes.txt", include_str!("../../data/agent-inboxes.txt")),
    ("disposable-a.txt", include_str!("../../data/disposable-a.txt")),
    ("disposable-castle.txt", include_str!("../../data/disposable-castle.txt")),
    ("disposable-b.txt", include_str!("../../data/disposable-b.txt")),
    ("disposable-c.txt", include_str!("../../data/disposable-c.txt")),
    ("role.txt", include_str!("../../data/role.txt")),
    ("free.txt", include_str!("../../data/free.txt")),
    ("free-subdomains.txt", include_str!("../../data/free-subdomains.txt")),
    ("known.txt", include_str!("../../data/known.txt")),
    ("real-names.txt", include_str!("../../data/real-names.txt")),
    ("cleared.txt", include_str!("../../data/cleared.txt")),
    ("labels.csv", include_str!("../../data/labels.csv")),
    ("mx-labels.csv", include_str!("../../data/mx-labels.csv")),
    ("mx-addresses.csv", include_str!("../../data/mx-addresses.csv")),
    ("mx.csv", include_str!("../../data/mx.csv")),
    ("castle.tsv", include_str!("../../data/castle.tsv")),
    ("seed.txt", include_str!("../../data/seed.txt")),
];

/// The files of a table: the manifest, the sources and the lists.
pub(super) enum SourceFiles<'s> {
    Bundled,
    Directory(&'s Path),
    /// The texts that the compiled table at this path carries.
    Compiled(&'s Path, ListsInCompiledTable),
}

impl SourceFiles<'_> {
    /// The name of a file in faults.
    pub(super) fn name_in_faults(&self, file: &str) -> String {
        match self {
            SourceFiles::Bundled => format!("data/{file}"),
            SourceFiles::Directory(path) => path.join(file).display().to_string(),
            SourceFiles::Compiled(path, _) => format!("{}: {file}", path.display()),
        }
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) fn read_text(&self, file: &str) -> Result<Option<Cow<'static, str>>, TableFault> {
        let name_in_faults = self.name_in_faults(file);
        if !is_plain_file_name(file) {
            return Err(TableFault::expected(
                name_in_faults,
                "the name of a file in this directory",
                quote_excerpt(file),
            ));
        }
        let directory = match self {
            SourceFiles::Bundled => {
                let bundled = BUNDLED_FILES.iter().find(|(name, _)| *name == file);
                return Ok(bundled.map(|(_, text)| Cow::Borrowed(*text)));
            }
            SourceFiles::Compiled(_, lists) => {
                let found = lists.iter().find(|(name, _)| name == file);
                return Ok(found.map(|(_, text)| text.clone()));
            }
            SourceFiles::Directory(path) => path,
        };
        let path = directory.join(file);
        let read = unless_missing(read_regular_file(&path, MAX_LIST_BYTES));
        let Some(bytes) = read.map_err(|found| fault_from_read_error(&path, found))? else {
            return Ok(None);
        };
        String::from_utf8(bytes).map(|text| Some(Cow::Owned(text))).map_err(|error| {
            let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|b| **b == b'\n')
                .count();
            TableFault::expected(format!("{name_in_faults}:{line}"), "valid UTF-8", "other bytes")
        })
    }
}

/// Reads a list in a file of its own, such as the operator's overrides; `None` if there is no file.
///
/// # Errors
/// If the file can't be read. The error says what was found.
pub fn read_list_file(path: &Path) -> Result<Option<String>, ReadError> {
    unless_missing(read_regular_text(path, MAX_LIST_BYTES))
}

fn unless_missing<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Whether a text is a plain file name, which can't lead out of its directory.
pub(super) fn is_plain_file_name(file: &str) -> bool {
    Path::new(file).components().count() == 1
        && !file.contains(['/', '\\', '\0'])
        && !matches!(file, "." | "..")
}

#[cfg(test)]
mod tests;
