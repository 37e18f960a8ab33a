//! Deletes rows that are past their time from SQLite, in pages.

use super::columns::to_i64_saturating;
use super::connection::Sqlite;
use crate::model::month::SECONDS_PER_DAY;
use crate::store::error::StoreError;
use crate::store::operations::ExpiredRowBackend;
use crate::store::rows::{
    EXPIRED_ROWS_PER_PAGE, MAX_PAGES_OF_EXPIRED_ROWS, latest_forgotten_request_time,
};

const OPERATION: &str = "deleting expired rows";

const DELETE_REQUESTS: &str = "DELETE FROM request WHERE id IN (
    SELECT id FROM request WHERE at <= ?1 LIMIT ?2)";

const DELETE_DEDUP_HASHES: &str = "DELETE FROM top_seen WHERE (day, mark) IN (
    SELECT day, mark FROM top_seen WHERE day <= ?1 LIMIT ?2)";

impl ExpiredRowBackend for Sqlite {
    fn delete_expired_rows(&mut self, latest_useless_dns_expiry: i64) -> Result<(), StoreError> {
        let now = self.told_time.now();
        if !now.allows_deletion() {
            return Ok(());
        }
        self.delete_in_pages(DELETE_REQUESTS, latest_forgotten_request_time(now.unix_now))?;
        // Look-ups of yesterday may be saved after midnight, so the hashes of yesterday stay.
        let yesterday = now.unix_now.div_euclid(SECONDS_PER_DAY) - 1;
        self.delete_in_pages(DELETE_DEDUP_HASHES, yesterday - 1)?;
        for _ in 0..MAX_PAGES_OF_EXPIRED_ROWS {
            if !self.delete_page_of_dns_facts(latest_useless_dns_expiry)? {
                break;
            }
        }
        Ok(())
    }
}

impl Sqlite {
    /// Repeats a statement until no row is left, or [`MAX_PAGES_OF_EXPIRED_ROWS`] times. Its
    /// parameters are the latest time or day of the rows to delete, and the length of a page. The
    /// ledger waits for the lock, so each transaction deletes only one page.
    fn delete_in_pages(&mut self, delete: &str, latest: i64) -> Result<(), StoreError> {
        let arguments = [latest, to_i64_saturating(EXPIRED_ROWS_PER_PAGE as u64)];
        for _ in 0..MAX_PAGES_OF_EXPIRED_ROWS {
            let count = self.write(OPERATION, |transaction| {
                Ok(transaction.prepare_cached(delete)?.execute(arguments)?)
            })?;
            if count < EXPIRED_ROWS_PER_PAGE {
                break;
            }
        }
        Ok(())
    }
}
