//! Operations on the top list.

use super::open::Store;
use crate::store::error::StoreError;
use crate::store::rows::{TopCredit, TopRow};

impl Store {
    /// The counts of the top list.
    pub fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.top_rows(),
            Store::Redis(store) => store.top_rows(),
        }
    }

    /// The counts of the top list, and the sightings already counted on `day`.
    pub fn read_top(&mut self, day: i64) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        match self {
            Store::Sqlite(store) => store.read_top(day),
            Store::Redis(store) => store.read_top(day),
        }
    }

    /// Counts look-ups, each sighting once on its `day` over all nodes. Deletes the rows in
    /// `evicted`, and sightings of days before the previous one. Returns the credited rows.
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
