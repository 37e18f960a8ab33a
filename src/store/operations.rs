//! The operations of a store and the promise of each, the same for both kinds of store.
//!
//! A returned result is as durable as the store makes it. SQLite has it on disk. A server has
//! acknowledged it, and so have `store.wait_replicas` of its replicas. An operation is atomic: all
//! of it happens, or none.

mod learned;
mod ledger;
pub(super) mod open;
mod ring;
mod top;
