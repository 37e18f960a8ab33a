//! What the gateway keeps beyond its own life: the quota ledger, keys, accounts, top counts.
//!
//! Owns the words that pass between the state in memory and a store, and the promise of each
//! verb, which both stores keep: `sqlite` for one machine, `redis` for several nodes. It decides
//! nothing about admission, and knows no HTTP and no config.

mod error;
mod ledger;
mod lost;
mod operations;
mod redis;
mod rows;
mod sqlite;
mod url;

#[cfg(test)]
#[path = "../tests/parts/redis_server.rs"]
pub(crate) mod redis_server;
#[cfg(test)]
mod tests;

pub use crate::model::monthly_limit::LimitRow;
pub use error::StoreError;
pub use ledger::{Known, Pulse, Round, Standing, Statement};
pub use lost::Lost;
pub use operations::open::Store;
pub use redis::connection::{Redis, RedisOptions};
pub use rows::{
    AccountRow, Contents, Credit, Damaged, KeyRow, LearnedRow, MAX_ACCOUNTS, MOST_LEARNED,
    RepairedMonth, RingChanges, RingMark, RingRows, TopRow, UsageRow,
};
pub use sqlite::connection::Sqlite;
pub use url::{RedisUrl, STORE_URL_FORM, StoreUrl, without_password};
