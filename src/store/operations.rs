//! The operations of a store. Their contracts are the same for both kinds of store.
//!
//! If an operation returns a result, SQLite has written it to disk, or the server has acknowledged
//! it. Changes of keys and accounts also wait for `store.wait_replicas` replicas. Such a change is
//! atomic: all of it happens, or none. Lost rows, top counts and DNS facts are written in pages,
//! each of them atomic, so a failed call may have written some of them and can be repeated.

mod learned;
mod ledger;
pub(super) mod open;
mod ring;
mod top;
