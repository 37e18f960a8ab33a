//! Which store the running gateway serves, for commands.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::support::regular_file::write_atomically;

/// The store that a process serves, as commands learn it, so that they do not change another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedStore {
    /// Where it is: see
    /// [`StoreOptions::shown_address`](crate::config::StoreOptions::shown_address).
    pub address: String,
    /// The id of the store; `None` until the process has read keys from it.
    pub id: Option<String>,
    /// The inode of an SQLite file. Another file at the address has another one, although SQLite
    /// may read the id from the log beside it.
    pub inode: Option<u64>,
}

impl ServedStore {
    /// Writes the file that [`ServedStore::read`] reads.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let ServedStore { address, id, inode } = self;
        let id = id.as_deref().unwrap_or_default();
        let inode = inode.map_or(String::new(), |inode| inode.to_string());
        write_atomically(file, format!("{address}\n{id}\n{inode}\n").as_bytes())
    }

    /// Reads what a process on this machine has written.
    pub fn read(file: &Path) -> io::Result<ServedStore> {
        let text = fs::read_to_string(file)?;
        let mut lines = text.lines();
        // Older versions wrote the address alone.
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (address, id, inode) = (next(), next(), next());
        Ok(ServedStore {
            address,
            id: Some(id).filter(|id| !id.is_empty()),
            inode: inode.parse().ok(),
        })
    }
}

/// The file that names the store of the process that serves from a runtime directory. Only that
/// process writes it, so that commands don't take the store of another process for it.
#[derive(Debug)]
pub struct ServedStoreFile {
    path: PathBuf,
    /// Contains the id of the process that serves from the directory.
    pid_file: PathBuf,
    /// What this process has written; `None` if it has written nothing.
    written: Option<ServedStore>,
}

impl ServedStoreFile {
    /// The file at `path`. `pid_file` contains the id of the process that may write it.
    pub fn new(path: PathBuf, pid_file: PathBuf) -> ServedStoreFile {
        ServedStoreFile { path, pid_file, written: None }
    }

    /// Writes the file if this process serves from the directory and has not written this before.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn update(&mut self, served: &ServedStore) -> io::Result<()> {
        if self.written.as_ref() == Some(served) || !self.is_held_by_this_process() {
            return Ok(());
        }
        // A write that failed is not repeated each time.
        self.written = Some(served.clone());
        served.write(&self.path)
    }

    fn is_held_by_this_process(&self) -> bool {
        let holder = fs::read_to_string(&self.pid_file);
        holder.is_ok_and(|id| id.trim().parse() == Ok(std::process::id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_serves_from_the_directory_writes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, pid_file) = (folder.path().join("store"), folder.path().join("riskgate.pid"));
        let mut file = ServedStoreFile::new(path.clone(), pid_file.clone());
        let served = ServedStore { address: "sqlite:a".to_owned(), id: None, inode: Some(7) };
        for other in ["", "1\n"] {
            fs::write(&pid_file, other).unwrap();
            file.update(&served).unwrap();
            assert!(!path.exists(), "{other:?}");
        }
        fs::write(&pid_file, format!("{}\n", std::process::id())).unwrap();
        file.update(&served).unwrap();
        assert_eq!(ServedStore::read(&path).unwrap(), served);
    }
}
