//! The verbs of the top counts.

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

    /// The counts of the top list, and the marks already counted on `day`.
    pub fn read_top(&mut self, day: i64) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        match self {
            Store::Sqlite(store) => store.top(day),
            Store::Redis(store) => store.top(day),
        }
    }

    /// Counts look-ups, each mark once on its `day`, over all nodes; drops the rows in `gone`
    /// and forgets marks of days before the last. Answers the rows as they now stand.
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
