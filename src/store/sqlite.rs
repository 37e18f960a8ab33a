//! The embedded store: one SQLite file in WAL mode, with `synchronous=FULL`.
//!
//! Owns the operations and their transactions. Several processes may have the file open at once: a
//! gateway, its successor during an upgrade, and commands. A returned result is on disk. A file
//! that is not a store of a known version is never replaced or emptied.

pub(super) mod connection;
mod learned;
mod ledger;
mod meta;
mod open;
mod ring;
mod rotate;
mod rows;
mod top;
