//! The embedded store: one SQLite file in WAL mode, `synchronous=FULL`.
//!
//! Owns the verbs and their transactions. Several processes may have the file open at once: a
//! gateway and its successor during a hand-over, and the command line beside them. What a verb
//! has returned is on disk. It never replaces or empties a file that it does not understand.

pub(super) mod connection;
mod learned;
mod ledger;
mod meta;
mod open;
mod ring;
mod rotate;
mod rows;
mod top;
