//! Which store the running gateway serves, for commands.

use std::path::Path;
use std::{fs, io};

use crate::support::regular_file::write_atomically;

/// The store that a process serves, as commands learn it, so that they do not change another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedStore {
    /// Where it is: see [`StoreOptions::shown_address`](crate::config::StoreOptions::shown_address).
    pub address: String,
    /// The id of the store; `None` until the process has read keys from it.
    pub id: Option<String>,
    /// The inode of an SQLite file. Another file at the address has another one, although SQLite may
    /// read the id from the log beside it.
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
