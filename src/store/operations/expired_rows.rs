//! Rows that are past their time.

use crate::store::error::StoreError;

/// How both kinds of store delete rows that are past their time.
pub trait ExpiredRowBackend {
    /// Deletes what is past its time: requests that can't be repeated any more, the dedup hashes of
    /// the top list from before yesterday, and the DNS facts whose expiry is
    /// `latest_useless_dns_expiry` or earlier. A server deletes the dedup hashes of a day by
    /// itself, two days after the last one. Does nothing unless the time that this store was told
    /// is settled.
    ///
    /// Deletes in pages, and a bounded number of rows. A later call deletes the others.
    fn delete_expired_rows(&mut self, latest_useless_dns_expiry: i64) -> Result<(), StoreError>;
}
