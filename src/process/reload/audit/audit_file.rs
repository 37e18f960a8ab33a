//! The file of `audit.path`, to which riskgate appends each record of the store once.
//!
//! The ids of records do not show what was written: after a restore, a failover or a copy to
//! another kind of store, the records have other ids. The file does not show it either, because
//! somebody may rename the file. So riskgate keeps a second file beside it: the *log of written
//! records*, which has the fingerprints of all records that were written, in their order. The
//! fingerprint of a record depends on what the record says, and not on its id.
//!
//! Normally riskgate appends the records behind the last one that it wrote. If this process has
//! written none yet, or if the store does not have that record any more, riskgate reads all records
//! of the store, and appends those whose fingerprints are not in the log.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::keys::sha256;
use crate::store::{AuditRecord, Store, StoreError};
use crate::support::regular_file::check_creatable;

/// The most records that are read from the store at a time.
const APPENDED_RECORDS_PER_READ: usize = 500;
/// How many bytes at the end of the file riskgate reads, to find an incomplete line, and records
/// that the log of written records lacks.
const MAX_TAIL_BYTES: u64 = 4 << 20;
const FINGERPRINT_BYTES: usize = 16;

/// The start of the SHA-256 of a record without its id.
type Fingerprint = [u8; FINGERPRINT_BYTES];

/// How often each fingerprint occurs: two records may say the same.
type FingerprintCounts = HashMap<Fingerprint, usize>;

/// The file of `audit.path`, and what this process knows of it.
pub(super) struct AuditFile {
    path: PathBuf,
    /// The last record of the store that was written to the file, as far as this process knows;
    /// `None` if this process knows of none.
    last_written: Option<LastRecord>,
    /// How many bytes of the log of written records this process has taken into account.
    known_log_bytes: u64,
}

struct LastRecord {
    id: String,
    fingerprint: Fingerprint,
}

impl AuditFile {
    pub(super) fn new(path: PathBuf) -> AuditFile {
        AuditFile { path, last_written: None, known_log_bytes: 0 }
    }

    /// Appends the records of the store that were not written before. Two processes may write the
    /// same file: during an upgrade, or if two gateways have one config. So each process locks the
    /// log of written records, and first reads what the other process has written.
    pub(super) fn append_new_records(&mut self, store: &mut Store) -> Result<(), String> {
        let path = self.path.display().to_string();
        let failed =
            |error: io::Error| format!("{path}: expected to append records, but found {error}");
        // After a failed write, the file may have lines that the log lacks. So after any failure
        // below, this process counts as knowing nothing of the log.
        let mut known_log_bytes = std::mem::take(&mut self.known_log_bytes);
        if !self.store_has_last_written(store).map_err(describe_store_error)? {
            (self.last_written, known_log_bytes) = (None, 0);
        }
        if self.read_next_records(store)?.is_empty() {
            self.known_log_bytes = known_log_bytes;
            return Ok(());
        }
        let mut log = open_or_create(&path_of_written_records_log(&self.path)).map_err(failed)?;
        log.lock().map_err(failed)?;
        if log.metadata().map_err(failed)?.len() < known_log_bytes {
            // Somebody has deleted or shortened the log.
            (self.last_written, known_log_bytes) = (None, 0);
        }
        if known_log_bytes == 0 {
            self.add_unlogged_lines(store, &mut log)?;
        }
        let mut written = read_fingerprints(&mut log, known_log_bytes).map_err(failed)?;
        loop {
            let records = self.read_next_records(store)?;
            let Some(last) = records.last() else { break };
            let (mut lines, mut fingerprints) = (String::new(), Vec::new());
            for record in &records {
                let (line, fingerprint) = (record.to_json(), fingerprint_of(record.to_json()));
                if !take_occurrence(&mut written, &fingerprint) {
                    lines += &format!("{line}\n");
                    fingerprints.extend(fingerprint);
                }
            }
            if !fingerprints.is_empty() {
                let mut file = open_or_create(&self.path).map_err(failed)?;
                remove_incomplete_line(&mut file).map_err(failed)?;
                let appended = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
                appended.map_err(failed)?;
                let logged = log.write_all(&fingerprints).and_then(|()| log.sync_data());
                logged.map_err(failed)?;
            }
            let fingerprint = fingerprint_of(last.to_json());
            self.last_written = Some(LastRecord { id: last.id.clone(), fingerprint });
        }
        self.known_log_bytes = log.metadata().map_err(failed)?.len();
        Ok(())
    }

    /// Returns true if the store still has the record [`AuditFile::last_written`].
    fn store_has_last_written(&self, store: &mut Store) -> Result<bool, StoreError> {
        let Some(last) = &self.last_written else { return Ok(false) };
        let found = store.find_audit_record(&last.id)?;
        Ok(found.is_some_and(|found| fingerprint_of(found.to_json()) == last.fingerprint))
    }

    /// Reads the records of the store behind [`AuditFile::last_written`], at most
    /// [`APPENDED_RECORDS_PER_READ`].
    fn read_next_records(&self, store: &mut Store) -> Result<Vec<AuditRecord>, String> {
        let after = self.last_written.as_ref().map(|last| last.id.as_str());
        store.read_audit_after(after, APPENDED_RECORDS_PER_READ).map_err(describe_store_error)
    }

    /// Adds to the log of written records the records that are in the file and not in the log: a
    /// process may have been killed after it wrote to the file. If the log is empty, an earlier
    /// version of riskgate may have written the file without a log. Then all records of the store
    /// up to the one in the last line count as written.
    fn add_unlogged_lines(&self, store: &mut Store, log: &mut File) -> Result<(), String> {
        let failed = |error: io::Error| {
            format!("{}: expected to read records, but found {error}", self.path.display())
        };
        let Some(mut file) = open_if_exists(&self.path).map_err(failed)? else { return Ok(()) };
        remove_incomplete_line(&mut file).map_err(failed)?;
        let mut lines = read_last_lines(&mut file).map_err(failed)?;
        let mut logged = read_fingerprints(log, 0).map_err(failed)?;
        let mut unlogged = Vec::new();
        if let (true, Some(last)) = (logged.is_empty(), lines.last()) {
            unlogged = read_fingerprints_up_to(store, last)?;
            // The loop below must not add the lines of these records again.
            let known = unlogged.iter().copied();
            known.for_each(|fingerprint| *logged.entry(fingerprint).or_default() += 1);
        }
        let mut of_lines = Vec::new();
        while let Some(line) = lines.pop() {
            let fingerprint = fingerprint_of(line);
            if take_occurrence(&mut logged, &fingerprint) {
                break;
            }
            of_lines.push(fingerprint);
        }
        unlogged.extend(of_lines.into_iter().rev());
        log.write_all(unlogged.as_flattened()).and_then(|()| log.sync_data()).map_err(failed)
    }
}

/// Checks that records could be appended to the file at `path`, without creating a file.
pub(in crate::process) fn check_audit_file(path: &Path) -> io::Result<()> {
    for path in [path.to_owned(), path_of_written_records_log(path)] {
        if open_if_exists(&path)?.is_none() {
            check_creatable(&path)?;
        }
    }
    Ok(())
}

fn describe_store_error(error: StoreError) -> String {
    error.to_string()
}

/// Returns the path of the log of written records. A tool that rotates this one file leaves the log
/// alone.
pub(in crate::process) fn path_of_written_records_log(path: &Path) -> PathBuf {
    path.with_added_extension("written")
}

/// Computes the fingerprint of a record in the form of [`AuditRecord::to_json`].
fn fingerprint_of(mut record: Value) -> Fingerprint {
    if let Value::Object(members) = &mut record {
        members.remove("id");
    }
    let digest = sha256(record.to_string().as_bytes());
    let mut fingerprint = [0; FINGERPRINT_BYTES];
    fingerprint.copy_from_slice(&digest[..FINGERPRINT_BYTES]);
    fingerprint
}

/// Takes one occurrence of the fingerprint out of the counts. Returns false if none is left.
fn take_occurrence(counts: &mut FingerprintCounts, fingerprint: &Fingerprint) -> bool {
    match counts.get_mut(fingerprint) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}

/// Reads the log of written records from the byte `from` on. First removes an incomplete
/// fingerprint at the end: a process that was killed while it wrote may have left one.
fn read_fingerprints(log: &mut File, from: u64) -> io::Result<FingerprintCounts> {
    let length = log.metadata()?.len();
    let remainder = length % FINGERPRINT_BYTES as u64;
    if remainder > 0 {
        log.set_len(length - remainder)?;
    }
    log.seek(SeekFrom::Start(from.min(length - remainder)))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    let mut counts = FingerprintCounts::new();
    for fingerprint in bytes.as_chunks::<FINGERPRINT_BYTES>().0 {
        *counts.entry(*fingerprint).or_default() += 1;
    }
    Ok(counts)
}

/// Reads the fingerprints of the store's records, up to the record in this line. Returns none if
/// the store does not have that record.
fn read_fingerprints_up_to(store: &mut Store, line: &Value) -> Result<Vec<Fingerprint>, String> {
    let id = line["id"].as_str().unwrap_or_default();
    let found = store.find_audit_record(id).map_err(describe_store_error)?;
    if found.is_none_or(|found| found.to_json() != *line) {
        return Ok(Vec::new());
    }
    let (mut fingerprints, mut after) = (Vec::new(), None);
    loop {
        let records = store.read_audit_after(after.as_deref(), APPENDED_RECORDS_PER_READ);
        let records = records.map_err(describe_store_error)?;
        if records.is_empty() {
            // The record was deleted after it was found.
            return Ok(Vec::new());
        }
        for record in records {
            fingerprints.push(fingerprint_of(record.to_json()));
            if record.id == id {
                return Ok(fingerprints);
            }
            after = Some(record.id);
        }
    }
}

/// Opens a file for reading and appending. If the file does not exist, creates it with mode 0600.
fn open_or_create(path: &Path) -> io::Result<File> {
    open_regular_file(OpenOptions::new().create(true).mode(0o600), path)
}

/// Opens a file for reading and appending. Returns `None` if the file does not exist.
fn open_if_exists(path: &Path) -> io::Result<Option<File>> {
    match open_regular_file(&mut OpenOptions::new(), path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

fn open_regular_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a FIFO would wait for its reader.
    let file = options.read(true).append(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("something that is no regular file")),
    }
}

/// Removes an incomplete last line. A process that was killed while it wrote may have left one.
fn remove_incomplete_line(file: &mut File) -> io::Result<()> {
    let (start, tail) = read_tail(file)?;
    let complete = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    match complete < tail.len() {
        true => file.set_len(start + complete as u64),
        false => Ok(()),
    }
}

/// Reads the records at the end of the file, the oldest first.
fn read_last_lines(file: &mut File) -> io::Result<Vec<Value>> {
    let (_, tail) = read_tail(file)?;
    let lines = tail.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()).collect())
}

/// Reads the last [`MAX_TAIL_BYTES`] of a file. Returns the position of the first of these bytes,
/// and the bytes.
fn read_tail(file: &mut File) -> io::Result<(u64, Vec<u8>)> {
    let start = file.metadata()?.len().saturating_sub(MAX_TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok((start, tail))
}

#[cfg(test)]
mod tests;
