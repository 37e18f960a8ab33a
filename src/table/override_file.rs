//! The operator's own overrides, as commands change them: one row for each name.
//!
//! Owns how a row is written. Rows of other names stay as people wrote them, and comments too. What
//! a row does to a verdict is decided where the table is built.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::csv;
use super::disk;
use super::fault::{Fault, TableError, quoted, unreadable};
use super::packages::is_day;
use super::records::{NEEDED_OF_OVERRIDE, OVERRIDE};
use super::source::MAX_LIST;
use crate::model::domain::Name;
use crate::support::regular_file::{Unreadable, folder_of, read_regular_text};

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

    /// Writes one override instead of those that it outdates, and gives these back: a row of the
    /// same scope, and for a name with all below it that of the name alone. What a row of the same
    /// scope says beside reason and score stays.
    ///
    /// # Errors
    /// If the end is no day, the note has more than one line, or the file can't be read or written.
    pub fn set(&self, new: &NewOverride<'_>) -> Result<Vec<String>, TableError> {
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
        let _lock = self.lock()?;
        let is_outdated = |other: &str| other == scope || !new.is_exact;
        let Rest { mut text, taken_out } = self.without(new.name, is_outdated)?;
        let same_scope = taken_out.iter().find(|fields| fields[1] == scope);
        let facts = same_scope.map_or([""; 3], |fields| [4, 5, 6].map(|at| fields[at].as_str()));
        let [is_free, is_corporate, label] = facts;
        let name = new.name.as_str();
        let (note, until) = (new.note, new.until.unwrap_or(""));
        let fields = [name, scope, reason, score, is_free, is_corporate, label, note, until];
        text.push_str(&csv::line(&fields));
        disk::write(&self.path, text.as_bytes())?;
        Ok(lines(&taken_out))
    }

    /// Keeps other commands from writing until the lock is dropped.
    fn lock(&self) -> Result<File, TableError> {
        let folder = folder_of(&self.path);
        let locked = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
        locked.map_err(|error| Fault::io(folder, error).into())
    }

    /// Takes out the rows of a name, and gives them back.
    ///
    /// # Errors
    /// If the file can't be read or written.
    pub fn clear(&self, name: &Name) -> Result<Vec<String>, TableError> {
        let _lock = self.lock()?;
        let Rest { text, taken_out } = self.without(name, |_| true)?;
        if !taken_out.is_empty() {
            disk::write(&self.path, text.as_bytes())?;
        }
        Ok(lines(&taken_out))
    }

    /// The file without those rows of this name whose scope is one of these.
    fn without(&self, name: &Name, is_outdated: impl Fn(&str) -> bool) -> Result<Rest, TableError> {
        let header = csv::line(&OVERRIDE);
        let before = match read_regular_text(&self.path, MAX_LIST) {
            Err(Unreadable::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Rest { text: header, taken_out: Vec::new() });
            }
            read => read.map_err(|found| unreadable(&self.path, found))?,
        };
        let (mut text, mut taken_out, mut is_headed) = (String::new(), Vec::new(), false);
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
            let mut fields: Vec<String> = fields.iter().map(|field| field.to_string()).collect();
            fields.resize(fields.len().max(OVERRIDE.len()), String::new());
            let is_of_name = Name::parse(&fields[0]).is_ok_and(|read| read == *name);
            if is_of_name && is_outdated(&fields[1]) {
                taken_out.push(fields);
            } else {
                text.push_str(&line_of(&fields));
            }
        }
        if !is_headed {
            text.push_str(&header);
        }
        Ok(Rest { text, taken_out })
    }
}

/// A file of overrides without some of its rows.
struct Rest {
    /// In the form that has a note and an end.
    text: String,
    /// The fields of the rows that are gone.
    taken_out: Vec<Vec<String>>,
}

fn line_of(fields: &[String]) -> String {
    csv::line(&fields.iter().map(String::as_str).collect::<Vec<_>>())
}

fn lines(rows: &[Vec<String>]) -> Vec<String> {
    rows.iter().map(|row| line_of(row).trim_end().to_owned()).collect()
}
