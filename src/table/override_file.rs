//! Changes the operator's file of overrides.
//!
//! Owns the format of a row. A change keeps the comments, and the rows of other names. `rules`
//! decides how an override changes a verdict.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::aligned_bytes;
use super::csv;
use super::csv_lists::{OVERRIDE_COLUMNS, REQUIRED_OVERRIDE_COLUMN_COUNT};
use super::fault::{TableFault, TableFaults, fault_from_read_error, quote_excerpt};
use super::location::MAX_LIST_BYTES;
use crate::model::domain::DnsName;
use crate::model::month::parse_day_as_unix_seconds;
use crate::support::regular_file::{
    ReadError, follow_symlinks, lock_within, parent_dir, read_regular_text,
};

/// How long a command waits while another process writes the file.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(3);

/// The operator's file of overrides.
#[derive(Clone, Debug)]
pub struct OverrideFile {
    path: PathBuf,
}

/// What an override does with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideAction {
    /// The name is safe, with score 0.
    Allow,
    /// The name is disposable, with score 100.
    Deny,
}

/// An override to write.
#[derive(Clone, Debug)]
pub struct NewOverride<'a> {
    /// The name.
    pub name: &'a DnsName,
    /// What the override does.
    pub action: OverrideAction,
    /// Whether the override covers only the name itself, not the names below it.
    pub is_exact: bool,
    /// A note for people, on one line.
    pub note: &'a str,
    /// The last day on which the override counts, such as `2026-12-31`, in UTC. `None`: no end.
    pub last_day: Option<&'a str>,
}

impl NewOverride<'_> {
    /// Checks that a table can read the row.
    ///
    /// # Errors
    /// Returns the first faulty value.
    pub fn check(&self) -> Result<(), InvalidOverride> {
        let invalid = |field, expected, found| Err(InvalidOverride { field, expected, found });
        if let Some(until) = self.last_day.filter(|day| parse_day_as_unix_seconds(day).is_none()) {
            return invalid(
                "until",
                "today or a later day such as 2030-12-31",
                quote_excerpt(until),
            );
        }
        if self.note.chars().any(char::is_control) {
            return invalid("note", "text on one line", "a control character".to_owned());
        }
        // No e-mail domain has a single label, so the row could never match.
        if self.is_exact && !self.name.as_str().contains('.') {
            let expected = "an override that also covers the names below a top-level domain";
            return invalid("exact", expected, format!("exact for {}", self.name));
        }
        Ok(())
    }
}

/// A value that no row of the file can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOverride {
    /// `until`, `note` or `exact`.
    pub field: &'static str,
    /// What was expected.
    pub expected: &'static str,
    /// What was found.
    pub found: String,
}

impl OverrideFile {
    /// The file at this path, which need not exist yet.
    pub fn new(path: &Path) -> OverrideFile {
        OverrideFile { path: path.to_owned() }
    }

    /// The absolute path, for messages.
    pub fn display_path(&self) -> String {
        std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()).display().to_string()
    }

    /// Prepares the file with a new override. The override replaces the name's row of the same
    /// scope. If it also covers the names below, it replaces the name's exact row too. The new row
    /// keeps `is_free_provider`, `is_corporate_email` and `mx_provider_label` of a replaced row of
    /// the same scope.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn prepare_override(
        &self,
        new: &NewOverride<'_>,
    ) -> Result<PreparedOverrideFile, TableFaults> {
        let scope = if new.is_exact { "exact" } else { "subtree" };
        let (reason, score) = match new.action {
            OverrideAction::Allow => ("safe", "0"),
            OverrideAction::Deny => ("disposable", "100"),
        };
        let lock = self.lock_directory()?;
        let rows_before = self.read_rows()?;
        let is_replaced = |other: &str| other == scope || !new.is_exact;
        let OverridesWithoutRows { remaining_text: mut text, removed_rows: removed } =
            self.read_without_rows(new.name, is_replaced)?;
        let same_scope = removed.iter().find(|fields| fields[1] == scope);
        let facts = same_scope.map_or([""; 3], |fields| [4, 5, 6].map(|at| fields[at].as_str()));
        let [is_free, is_corporate, label] = facts;
        let name = new.name.as_str();
        let (note, until) = (new.note, new.last_day.unwrap_or(""));
        let fields = [name, scope, reason, score, is_free, is_corporate, label, note, until];
        text.push_str(&csv::format_line(&fields));
        Ok(self.prepare(lock, rows_before, text, &removed))
    }

    fn prepare(
        &self,
        lock: File,
        rows_before: Vec<OverrideListRow>,
        text: String,
        removed: &[Vec<String>],
    ) -> PreparedOverrideFile {
        PreparedOverrideFile {
            path: self.path.clone(),
            rows_before,
            rows_after: list_rows(&text),
            removed_rows: format_rows(removed),
            text,
            _lock: lock,
        }
    }

    /// Reads the rows; none if there is no file.
    ///
    /// # Errors
    /// If the file can't be read, or is no file of overrides.
    pub fn read_rows(&self) -> Result<Vec<OverrideListRow>, TableFaults> {
        // This call removes no row, so any name will do.
        let any_name = DnsName::parse("example.invalid")
            .map_err(|error| TableFault::expected("domain", "a name", error.to_string()))?;
        Ok(list_rows(&self.read_without_rows(&any_name, |_| false)?.remaining_text))
    }

    /// Keeps other commands from writing the file until the returned lock is dropped. Creates the
    /// directory of the file if there is none. Waits at most [`MAX_LOCK_WAIT`].
    fn lock_directory(&self) -> Result<File, TableFaults> {
        let target = follow_symlinks(&self.path);
        let directory = parent_dir(&target);
        let locked = std::fs::create_dir_all(directory)
            .and_then(|()| File::open(directory))
            .and_then(|file| lock_within(&file, MAX_LOCK_WAIT).map(|()| file));
        locked.map_err(|error| TableFault::io(directory, error).into())
    }

    /// Prepares the file without the rows of a name. `None` if the file has no row of it.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn prepare_removal(
        &self,
        name: &DnsName,
    ) -> Result<Option<PreparedOverrideFile>, TableFaults> {
        if !parent_dir(&self.path).exists() {
            return Ok(None);
        }
        let lock = self.lock_directory()?;
        let rows_before = self.read_rows()?;
        let OverridesWithoutRows { remaining_text: text, removed_rows: removed } =
            self.read_without_rows(name, |_| true)?;
        let is_changed = !removed.is_empty();
        Ok(is_changed.then(|| self.prepare(lock, rows_before, text, &removed)))
    }

    /// Reads the file, and drops the rows of this name for whose scope `is_removed` returns true.
    /// Returns the remaining text and the dropped rows. Writes nothing.
    fn read_without_rows(
        &self,
        name: &DnsName,
        is_removed: impl Fn(&str) -> bool,
    ) -> Result<OverridesWithoutRows, TableFaults> {
        let header = csv::format_line(&OVERRIDE_COLUMNS);
        let before = match read_regular_text(&self.path, MAX_LIST_BYTES) {
            Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(OverridesWithoutRows {
                    remaining_text: header,
                    removed_rows: Vec::new(),
                });
            }
            read => read.map_err(|found| fault_from_read_error(&self.path, found))?,
        };
        let (mut text, mut removed, mut has_header) = (String::new(), Vec::new(), false);
        for (number, line) in (1..).zip(before.trim_start_matches('\u{feff}').lines()) {
            let content = line.trim();
            if content.is_empty() || content.starts_with('#') {
                text.push_str(line);
                text.push('\n');
                continue;
            }
            let at = || format!("{}:{number}", self.path.display());
            let fields = csv::parse_fields(content)
                .map_err(|(expected, found)| TableFault::expected(at(), expected, found))?;
            if !std::mem::replace(&mut has_header, true) {
                let required = &OVERRIDE_COLUMNS[..REQUIRED_OVERRIDE_COLUMN_COUNT];
                let found = fields.iter().map(|field| &**field).take(required.len());
                if !found.eq(required.iter().copied()) {
                    let expected = format!("the header {}", required.join(","));
                    return Err(TableFault::expected(at(), expected, quote_excerpt(content)).into());
                }
                text.push_str(&header);
                continue;
            }
            let mut fields: Vec<String> = fields.iter().map(|field| field.to_string()).collect();
            fields.resize(fields.len().max(OVERRIDE_COLUMNS.len()), String::new());
            let is_of_name = DnsName::parse(&fields[0]).is_ok_and(|read| read == *name);
            if is_of_name && is_removed(&fields[1]) {
                removed.push(fields);
            } else {
                text.push_str(&format_row(&fields));
            }
        }
        if !has_header {
            text.push_str(&header);
        }
        Ok(OverridesWithoutRows { remaining_text: text, removed_rows: removed })
    }
}

/// A changed file of overrides that is ready to be written. Until it is dropped, no other process
/// can change the file.
pub struct PreparedOverrideFile {
    path: PathBuf,
    /// The rows of the file before the change.
    pub rows_before: Vec<OverrideListRow>,
    /// The rows of the file after the change.
    pub rows_after: Vec<OverrideListRow>,
    /// The texts of the rows that are removed or replaced.
    pub removed_rows: Vec<String>,
    text: String,
    _lock: File,
}

impl PreparedOverrideFile {
    /// Replaces the file, in one step.
    ///
    /// # Errors
    /// If the file can't be written. It then stays as it was.
    pub fn write(self) -> Result<(), TableFaults> {
        Ok(aligned_bytes::write_file_atomically(&self.path, self.text.as_bytes())?)
    }
}

/// A row of the file, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideListRow {
    /// The name.
    pub domain: String,
    /// Whether the row covers only the name itself.
    pub is_exact: bool,
    /// The reason of the verdict.
    pub reason: String,
    /// The score of the verdict.
    pub risk_score: String,
    /// The note for people.
    pub note: String,
    /// The last day on which the row counts; empty if it has no end.
    pub until: String,
    /// The whole row.
    pub text: String,
}

/// Lists the rows in a text of `read_without_rows`: comments, a header, and rows.
fn list_rows(text: &str) -> Vec<OverrideListRow> {
    let is_row = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let rows = text.lines().filter(is_row).skip(1).filter_map(|line| {
        let fields = csv::parse_fields(line.trim()).ok()?;
        let field = |at: usize| fields.get(at).map_or(String::new(), |field| field.to_string());
        Some(OverrideListRow {
            domain: field(0),
            is_exact: field(1) == "exact",
            reason: field(2),
            risk_score: field(3),
            note: field(7),
            until: field(8),
            text: line.trim().to_owned(),
        })
    });
    rows.collect()
}

/// A file of overrides after rows were removed.
struct OverridesWithoutRows {
    /// The remaining text, with the columns `note` and `until`.
    remaining_text: String,
    /// The fields of the removed rows.
    removed_rows: Vec<Vec<String>>,
}

fn format_row(fields: &[String]) -> String {
    csv::format_line(&fields.iter().map(String::as_str).collect::<Vec<_>>())
}

fn format_rows(rows: &[Vec<String>]) -> Vec<String> {
    rows.iter().map(|row| format_row(row).trim_end().to_owned()).collect()
}
