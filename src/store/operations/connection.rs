//! The connection to a store.

use std::time::Duration;

use crate::store::error::StoreError;
use crate::store::finding::Finding;
use crate::store::told_time::ToldTime;

/// The connection to a store of either kind.
pub trait ConnectionBackend {
    /// Whether the store is a server, which other nodes may use too.
    fn is_server(&self) -> bool;

    /// The believed time that the caller has told this connection.
    fn told_time(&mut self) -> &mut ToldTime;

    /// Fails if riskgate must not use the store: its file is damaged or read-only, or its server
    /// may evict acknowledged data. A server that does not answer is no failure.
    fn check_safe_if_reachable(&mut self) -> Result<(), StoreError>;

    /// Fails if riskgate must not use an open store any more: its file was moved, deleted or
    /// replaced, or its server may now evict acknowledged data. A server that does not answer is no
    /// failure.
    fn check_still_safe(&mut self) -> Result<(), StoreError>;

    /// Checks what a gateway relies on, and changes nothing that the store keeps. `deadline` is how
    /// long a call waits for the store.
    fn check_deployment(&mut self, deadline: Duration) -> Result<Vec<Finding>, StoreError>;

    /// Says that the keys of this process were read over this connection, from the store with this
    /// id. From now on, other connections of this process with the same options write to no server
    /// that has another store: their operations fail. Does nothing if the store is a file.
    fn name_store_of_keys(&mut self, _store_id: &str) {}

    /// Lets later operations wait up to five seconds for an SQLite lock, so that a command succeeds
    /// while a busy gateway uses the same file. Does nothing if the store is in Redis.
    fn raise_busy_timeout(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Moves SQLite's write-ahead log into the database file and empties the log, unless another
    /// process reads the store. Keeps a writer waiting for some milliseconds at most. Returns true
    /// if the log is empty: what was deleted is then no longer on the disk, and once no process has
    /// the store open, the database file alone can be moved or backed up. Returns true if the store
    /// is in Redis.
    fn checkpoint_wal(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Fails if a server refuses writes, or if the disk of a file is full. Changes nothing that the
    /// store keeps.
    fn check_takes_writes(&mut self) -> Result<(), StoreError>;

    /// From now on, reads see the store as it is at one moment, whatever others change. Does
    /// nothing on a server.
    fn begin_snapshot(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Ends what [`ConnectionBackend::begin_snapshot`] began.
    fn end_snapshot(&mut self) {}
}
