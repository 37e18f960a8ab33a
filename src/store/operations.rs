//! The operations of a store. Their contracts are the same for both kinds of store.
//!
//! If an operation returns `Ok`, SQLite has written its changes to disk, or the Redis server has
//! acknowledged them. After a change of keys, accounts or overrides, `store.wait_replicas` replicas
//! have acknowledged the change too. Such a change is atomic: it takes effect completely or not at
//! all. The exception is `restore_rows`, which writes lost rows in pages, and returns how many
//! replicas lack these rows.
//!
//! Lost rows, top counts, DNS facts and sign-ups may be written in several pages. Each page is
//! atomic. If the operation fails, some pages may be written already, and the caller can repeat the
//! operation. Of these operations, only `restore_rows` waits for replicas.

pub(super) mod audit;
pub(super) mod changes;
pub(super) mod connection;
mod contents;
pub(super) mod expired_rows;
pub(super) mod inbox_secret;
pub(super) mod learned;
pub(super) mod ledger;
pub(super) mod open;
pub(super) mod overrides;
pub(super) mod quota_events;
pub(super) mod ring;
pub(super) mod rows;
mod sign_up_pages;
pub(super) mod sign_ups;
pub(super) mod time;
pub(super) mod top;
