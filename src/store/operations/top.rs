//! The top list.

use crate::store::error::StoreError;
use crate::store::rows::{TopCredit, TopRow};

/// What both kinds of store do with the top list.
pub trait TopListBackend {
    /// The rows of the top list.
    fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError>;

    /// Reads the rows of the top list for a copy of the store. Fails if a row can't be read.
    fn top_rows_to_copy(&mut self) -> Result<Vec<TopRow>, StoreError>;

    /// Reads the rows of the top list, and the dedup hashes of the look-ups that were counted on
    /// the day `unix_day` (days since 1970). A dedup hash is the hash of account, row and day.
    fn top_rows_and_dedup_hashes(
        &mut self,
        unix_day: i64,
    ) -> Result<(Vec<TopRow>, Vec<u64>), StoreError>;

    /// Adds the look-ups in `credits` to the top list. Each dedup hash counts only once on its day,
    /// even if several nodes report it. Deletes the rows of `evicted_domains`. Returns the
    /// credited rows.
    fn add_credits(
        &mut self,
        credits: &[TopCredit],
        evicted_domains: &[String],
        unix_day: i64,
        half_life_seconds: f64,
    ) -> Result<Vec<TopRow>, StoreError>;
}
