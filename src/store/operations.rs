//! The operations of a store. Their contracts are the same for both kinds of store.
//!
//! If an operation returns `Ok`, SQLite has written its changes to disk, or the Redis server has
//! acknowledged them. An operation that changes keys or accounts also waits for
//! `store.wait_replicas` replicas. Such a change is atomic: it takes effect completely or not at
//! all.
//!
//! Lost rows, top counts and DNS facts may be written in several pages. Each page is atomic. If
//! such an operation fails, some pages may be written already, and the caller can repeat the
//! operation.

mod audit;
pub(super) mod changes;
mod clock;
mod contents;
mod learned;
mod ledger;
pub(super) mod open;
mod quota_events;
mod ring;
mod top;
