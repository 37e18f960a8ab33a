//! The operator's own overrides, as commands change them: one row for each name.
//!
//! Owns how a row is written. What people wrote into the file by hand stays as it is. What a row
//! does to a verdict is decided where the table is built.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::csv;
use super::disk;
use super::fault::{Fault, TableError, quoted};
use super::packages::is_day;
use super::records::{NEEDED_OF_OVERRIDE, OVERRIDE};
use super::source::{MAX_LIST, unreadable};
use crate::domain::Name;
use crate::regular_file::{Unreadable, folder_of, read_regular_text};

/// The file of overrides that stands beside the lists.
#[derive(Clone, Debug)]
pub struct OverrideFile {
    path: PathBuf,
}

/// What an operator says of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Safe, score 0.
    Allow,
    /// Disposable, score 100.
    Deny,
}

/// One override as a command gives it.
#[derive(Clone, Debug)]
pub struct NewOverride<'a> {
    /// The name.
    pub name: &'a Name,
    /// What is said of it.
    pub word: Word,
    /// Whether names below it are left as they are.
    pub is_exact: bool,
    /// Words for people, on one line.
    pub note: &'a str,
    /// The last day on which it counts, such as `2026-12-31`, in UTC; none if it has no end.
    pub until: Option<&'a str>,
}

impl OverrideFile {
    /// The file at this path, which need not exist yet.
    pub fn at(path: &Path) -> OverrideFile {
        OverrideFile { path: path.to_owned() }
    }

    /// The whole path, for people.
    pub fn shown_path(&self) -> String {
        std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()).display().to_string()
    }

    /// Writes one override, instead of any that the file has for the name.
    ///
    /// # Errors
    /// If the end is no day, the note has more than one line, or the file can't be read or written.
    pub fn set(&self, new: &NewOverride<'_>) -> Result<(), TableError> {
        if let Some(until) = new.until.filter(|until| !is_day(until)) {
            return Err(
                Fault::expected("--until", "a day such as 2026-12-31", quoted(until)).into()
            );
        }
        if new.note.chars().any(char::is_control) {
            return Err(
                Fault::expected("--note", "words on one line", "a control character").into()
            );
        }
        let scope = if new.is_exact { "exact" } else { "subtree" };
        let (reason, score) = match new.word {
            Word::Allow => ("safe", "0"),
            Word::Deny => ("disposable", "100"),
        };
        let fields = [
            new.name.as_str(),
            scope,
            reason,
            score,
            "",
            "",
            "",
            new.note,
            new.until.unwrap_or(""),
        ];
        let _lock = self.lock()?;
        let (mut text, _) = self.without(new.name)?;
        text.push_str(&csv::line(&fields));
        disk::write(&self.path, text.as_bytes()).map_err(TableError::from)
    }

    /// Keeps other commands from writing until the lock is dropped.
    fn lock(&self) -> Result<File, TableError> {
        let folder = folder_of(&self.path);
        let locked = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
        locked.map_err(|error| Fault::io(folder, error).into())
    }

    /// Takes out what the file says of a name. Returns false if it said nothing.
    ///
    /// # Errors
    /// If the file can't be read or written.
    pub fn clear(&self, name: &Name) -> Result<bool, TableError> {
        let _lock = self.lock()?;
        let (text, was_there) = self.without(name)?;
        if was_there {
            disk::write(&self.path, text.as_bytes())?;
        }
        Ok(was_there)
    }

    /// The text of the file without the rows of this name, in the form that has a note and an end,
    /// and whether there were such rows.
    fn without(&self, name: &Name) -> Result<(String, bool), TableError> {
        let header = csv::line(&OVERRIDE);
        let before = match read_regular_text(&self.path, MAX_LIST) {
            Err(Unreadable::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((header, false));
            }
            read => read.map_err(|found| unreadable(&self.path, found))?,
        };
        let (mut text, mut was_there, mut is_headed) = (String::new(), false, false);
        for (number, line) in (1..).zip(before.trim_start_matches('\u{feff}').lines()) {
            let content = line.trim();
            if content.is_empty() || content.starts_with('#') {
                text.push_str(line);
                text.push('\n');
                continue;
            }
            let at = || format!("{}:{number}", self.path.display());
            let fields = csv::fields(content)
                .map_err(|(expected, found)| Fault::expected(at(), expected, found))?;
            if !std::mem::replace(&mut is_headed, true) {
                let known = &OVERRIDE[..NEEDED_OF_OVERRIDE];
                if !fields.iter().map(|field| &**field).take(known.len()).eq(known.iter().copied())
                {
                    let expected = format!("the header {}", known.join(","));
                    return Err(Fault::expected(at(), expected, quoted(content)).into());
                }
                text.push_str(&header);
                continue;
            }
            if Name::parse(&fields[0]).is_ok_and(|read| read == *name) {
                was_there = true;
                continue;
            }
            let missing = OVERRIDE.len().saturating_sub(fields.len());
            let empty = std::iter::repeat_n("", missing);
            let fields: Vec<&str> = fields.iter().map(|field| &**field).chain(empty).collect();
            text.push_str(&csv::line(&fields));
        }
        if !is_headed {
            text.push_str(&header);
        }
        Ok((text, was_there))
    }
}
