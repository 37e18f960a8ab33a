//! The files of a store on the disk: the database file, and the write-ahead log and the shared
//! memory that SQLite has beside it. Tells whether they belong together and are still the opened
//! ones.
//!
//! SQLite itself does not notice if somebody moves, removes or replaces one of these files. It
//! applies a log to any database file that it finds beside the log. This module never deletes,
//! renames or empties these files, because each may have the only copy of a change.

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::store::error::StoreError;
use crate::support::lock::lock;
use crate::support::regular_file::{file_identity, write_atomically};

/// What SQLite adds to the name of the store for its write-ahead log and its shared memory.
const SUFFIXES_BESIDE_FILE: [&str; 2] = ["-wal", "-shm"];
/// What SQLite adds to the name of the store for the files whose content it applies to the store.
const LOG_SUFFIXES: [&str; 2] = ["-wal", "-journal"];
/// What riskgate adds to the name of the store for the note that another file took the place of the
/// store, and that the log stayed.
const NOTE_SUFFIX: &str = "-wal-note";

/// The length of the header of a log, and where its salts are (SQLite's file format, section 4.1).
/// SQLite draws new salts whenever it begins the log again.
const LOG_HEADER_BYTES: usize = 32;
const LOG_SALTS: std::ops::Range<usize> = 16..24;

/// The stores of this process of which a log or a shared memory was lost.
static LOST_FILES: Mutex<Vec<LostFile>> = Mutex::new(Vec::new());

/// A log or a shared memory that was lost while this process had it open. If the process opened the
/// store once more, SQLite would begin other files, and nobody could see that these are lost.
struct LostFile {
    real_path: PathBuf,
    ids_beside_file: [Option<(u64, u64)>; 2],
    location: PathBuf,
    found: &'static str,
}

impl LostFile {
    fn to_error(&self) -> StoreError {
        unusable(&self.location, "the file that SQLite opened", self.found)
    }
}

/// Fails if this process has lost the log or the shared memory of the store at `path`, and they are
/// not back.
pub(super) fn check_none_is_lost(path: &Path) -> Result<(), StoreError> {
    let real_path = resolve(path);
    let mut lost = lock(&LOST_FILES);
    lost.retain(|it| {
        it.real_path != real_path || it.ids_beside_file != read_identities_beside(&real_path)
    });
    lost.iter().find(|it| it.real_path == real_path).map_or(Ok(()), |it| Err(it.to_error()))
}

/// Which files SQLite opened for a store: their paths, devices and inodes.
pub(super) struct FileIdentities {
    /// The path as it was given.
    path: PathBuf,
    /// The path without links. SQLite has its files beside the file to which a link leads.
    real_path: PathBuf,
    /// Device and inode of the database file.
    file_id: Option<(u64, u64)>,
    /// Device and inode of the log and of the shared memory.
    ids_beside_file: [Option<(u64, u64)>; 2],
}

impl FileIdentities {
    /// Remembers the files that are at these paths now.
    pub(super) fn at(path: &Path) -> FileIdentities {
        let real_path = resolve(path);
        FileIdentities {
            path: path.to_owned(),
            file_id: file_identity(path),
            ids_beside_file: read_identities_beside(&real_path),
            real_path,
        }
    }

    /// Remembers a database file that was copied into memory, without what is beside it.
    pub(super) fn of_copy(path: &Path) -> FileIdentities {
        FileIdentities { ids_beside_file: [None; 2], ..FileIdentities::at(path) }
    }

    /// Fails if the path no longer leads to the opened files. Further writes would go to files that
    /// nobody finds.
    pub(super) fn check_in_place(&self, connection: &Connection) -> Result<(), StoreError> {
        if !self.path.exists() {
            return Err(self.missing_file_error());
        }
        self.check_not_mixed(connection)
    }

    /// Fails if another database file is at the path, or if the log or the shared memory are no
    /// longer beside it: other processes may then use other files. Passes while the database file
    /// is missing, and the log and the shared memory are in place.
    pub(super) fn check_not_mixed(&self, connection: &Connection) -> Result<(), StoreError> {
        let found = file_identity(&self.path);
        if found.is_some() && found != self.file_id {
            return Err(self.other_file_error());
        }
        let now = read_identities_beside(&self.real_path);
        let is_lost = |at: &usize| {
            self.ids_beside_file[*at].is_some() && self.ids_beside_file[*at] != now[*at]
        };
        match (0..now.len()).find(is_lost) {
            None => Ok(()),
            Some(_) if found.is_none() => Err(self.missing_file_error()),
            Some(at) => Err(self.lost_file_error(at, connection)),
        }
    }

    fn missing_file_error(&self) -> StoreError {
        self.opened_file_error("none; put it back first: without it, a restart has no keys".into())
    }

    /// Makes the error for another file in place of the database file. If the log of the opened
    /// file is still beside the other file, leaves a note, so that no process opens both together.
    fn other_file_error(&self) -> StoreError {
        let now = read_identities_beside(&self.real_path);
        let is_log_left = self.ids_beside_file[0].is_some() && self.ids_beside_file[0] == now[0];
        if !is_log_left || resolve(&self.path) != self.real_path {
            let restart = "another one; put it back, or restart riskgate to use the present one";
            return self.opened_file_error(restart.to_owned());
        }
        let mut without_note = String::new();
        if let (Some(log), Some((_, file))) = (read_log_salts(&self.real_path), self.file_id) {
            let text = format!("{log} {file}\n");
            let note = with_suffix(&self.real_path, NOTE_SUFFIX);
            if std::fs::read_to_string(&note).ok().as_ref() != Some(&text)
                && let Err(error) = write_atomically(&note, text.as_bytes())
            {
                without_note = format!(" (could not leave the note {}: {error})", note.display());
            }
        }
        let advice = advice_to_separate(&self.real_path);
        self.opened_file_error(format!("another one; put it back, or {advice}{without_note}"))
    }

    fn opened_file_error(&self, found: String) -> StoreError {
        unusable(&self.path, "the file that was opened", found)
    }

    /// Makes the error for a lost log (0) or a lost shared memory (1). First tries to save what
    /// only a removed log has.
    fn lost_file_error(&self, at: usize, connection: &Connection) -> StoreError {
        // Otherwise SQLite would remove the files of another process when the connection closes, or
        // move the removed log into a file that has newer pages.
        let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        let mut lost = lock(&LOST_FILES);
        if let Some(known) = lost.iter().find(|it| it.real_path == self.real_path) {
            return known.to_error();
        }
        let found = match at {
            0 if self.move_removed_log_into_file(connection) => {
                "none; its changes are saved in the store: restart riskgate, and never remove this \
                 file while riskgate runs"
            }
            0 => {
                "another one, or none; put it back before you restart riskgate: a restart may lose \
                 the changes that only this file has"
            }
            _ => {
                "another one, or none; restart riskgate, and never remove this file while riskgate \
                 runs"
            }
        };
        let new = LostFile {
            real_path: self.real_path.clone(),
            ids_beside_file: self.ids_beside_file,
            location: with_suffix(&self.real_path, SUFFIXES_BESIDE_FILE[at]),
            found,
        };
        let error = new.to_error();
        lost.push(new);
        error
    }

    /// Moves the log that was removed, and that this process still has open, into the database
    /// file. Returns true if the database file now has everything.
    ///
    /// Does nothing if another process may have written a new log since, or may have a new shared
    /// memory: the locks of such a process are not known here.
    fn move_removed_log_into_file(&self, connection: &Connection) -> bool {
        let [log, memory] = SUFFIXES_BESIDE_FILE.map(|it| with_suffix(&self.real_path, it));
        let is_empty = std::fs::metadata(&log).is_ok_and(|log| log.len() == 0);
        let is_memory_known =
            is_missing(&memory) || file_identity(&memory) == self.ids_beside_file[1];
        if file_identity(&self.path) != self.file_id
            || !(is_missing(&log) || is_empty)
            || !is_memory_known
        {
            return false;
        }
        // This kind of checkpoint leaves the log as it is, and waits for nobody.
        let counts = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        counts.is_ok_and(|(in_log, moved)| in_log >= 0 && in_log == moved)
    }
}

/// Returns the log that lies beside `path` and has content. SQLite would apply this log to any file
/// that is put at `path`.
pub fn find_log_beside(path: &Path) -> Option<PathBuf> {
    let path = resolve(path);
    let logs = LOG_SUFFIXES.map(|suffix| with_suffix(&path, suffix));
    logs.into_iter().find(|log| std::fs::metadata(log).is_ok_and(|log| log.len() > 0))
}

/// Returns true if the log or the shared memory is not beside `path`. SQLite keeps both, empty or
/// not, while a process has the store open.
pub fn is_log_or_memory_missing(path: &Path) -> bool {
    let path = resolve(path);
    SUFFIXES_BESIDE_FILE.iter().any(|suffix| is_missing(&with_suffix(&path, suffix)))
}

fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Fails if the log of a store is beside `path`, and its database file is missing. A new store
/// would be damaged by this log.
pub(super) fn check_no_log_is_left(path: &Path) -> Result<(), StoreError> {
    match find_log_beside(path) {
        // Another process may have created the store at this moment.
        Some(log) if !path.exists() => Err(unusable(
            path,
            "a store",
            format!(
                "only its log {}, which has changes that the file may lack; put the file back, or \
                 move {} away (beside the file, if it has another name now)",
                log.display(),
                names_beside(path)
            ),
        )),
        _ => Ok(()),
    }
}

/// Fails if riskgate has noted that the log beside the database file belongs to another file. A
/// note that no longer holds is removed.
pub(super) fn check_log_is_of_file(path: &Path) -> Result<(), StoreError> {
    let real_path = resolve(path);
    let note = with_suffix(&real_path, NOTE_SUFFIX);
    let Ok(text) = std::fs::read_to_string(&note) else { return Ok(()) };
    let mut noted = text.split_whitespace();
    let (log_then, file_then) = (noted.next(), noted.next());
    let log = read_log_salts(&real_path);
    let file = file_identity(&real_path).map(|(_, inode)| inode.to_string());
    // An empty log changes no file.
    if log.is_none() || log.as_deref() != log_then || file.as_deref() == file_then {
        // In a directory that is read-only, the note and the files stay.
        let _ = std::fs::remove_file(note);
        return Ok(());
    }
    let found = format!("another one; put that file back, or {}", advice_to_separate(path));
    Err(unusable(path, "the file to which the log beside it belongs", found))
}

/// Says how to use the present database file without the log that is beside it.
fn advice_to_separate(path: &Path) -> String {
    let names = names_beside(path);
    format!("stop riskgate, move {names} away, and start riskgate to use the present one")
}

/// Returns the salts of the log of the store at `path`, in hexadecimal; `None` if the log has no
/// content.
fn read_log_salts(path: &Path) -> Option<String> {
    let mut header = [0; LOG_HEADER_BYTES];
    let mut log = std::fs::File::open(with_suffix(path, SUFFIXES_BESIDE_FILE[0])).ok()?;
    log.read_exact(&mut header).ok()?;
    Some(hex::encode(&header[LOG_SALTS]))
}

/// The names of the log and of the shared memory of a store, for messages.
fn names_beside(path: &Path) -> String {
    let [log, memory] = SUFFIXES_BESIDE_FILE.map(|it| with_suffix(path, it).display().to_string());
    format!("{log} and {memory}")
}

/// The path to which `path` leads; `path` itself if that is missing.
fn resolve(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The error of a file that can't be used as a store.
pub(super) fn unusable(
    path: &Path,
    expected: &'static str,
    found: impl Into<String>,
) -> StoreError {
    StoreError::Unusable { location: path.display().to_string(), expected, found: found.into() }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn read_identities_beside(path: &Path) -> [Option<(u64, u64)>; 2] {
    SUFFIXES_BESIDE_FILE.map(|suffix| file_identity(&with_suffix(path, suffix)))
}
