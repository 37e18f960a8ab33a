//! Operations on the top list.

use super::open::Store;
use crate::store::error::StoreError;
use crate::store::rows::{TopCredit, TopRow};

impl Store {
    /// The rows of the top list.
    pub fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.top_rows(),
            Store::Redis(store) => store.top_rows(),
        }
    }

    /// The rows of the top list, and the dedup hashes of the look-ups already counted on `day`, in
    /// days since 1970. A dedup hash is the hash of account, row and day.
    pub fn top_rows_and_hashes(&mut self, day: i64) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        match self {
            Store::Sqlite(store) => store.top_rows_and_hashes(day),
            Store::Redis(store) => store.top_rows_and_hashes(day),
        }
    }

    /// Adds the look-ups in `credits` to the top list. Each dedup hash counts once on its `day`,
    /// whatever node reports it. Deletes the rows in `evicted`, and the hashes of days before the
    /// previous day. `half_life` is in seconds. Returns the credited rows.
    pub fn credit_top(
        &mut self,
        credits: &[TopCredit],
        evicted: &[String],
        day: i64,
        half_life: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.credit_top(credits, evicted, day, half_life),
            Store::Redis(store) => store.credit_top(credits, evicted, day, half_life),
        }
    }
}
