//! Top counts in SQLite.

use super::connection::Sqlite;
use super::rows::{self, read_dedup_hashes, read_top_rows};
use crate::store::error::{StoreError, unreadable_row_error};
use crate::store::operations::TopListBackend;
use crate::store::rows::{TopCredit, TopRow};

impl TopListBackend for Sqlite {
    fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        let read = read_top_rows(&self.connection);
        Ok(read.map_err(self.error_while("reading the top counts"))?.0)
    }

    fn top_rows_to_copy(&mut self) -> Result<Vec<TopRow>, StoreError> {
        let read = read_top_rows(&self.connection);
        match read.map_err(self.error_while("reading the top counts"))? {
            (rows, damaged) if damaged.is_empty() => Ok(rows),
            (_, damaged) => Err(unreadable_row_error(&format!("the top count {:?}", damaged[0]))),
        }
    }

    fn top_rows_and_dedup_hashes(
        &mut self,
        unix_day: i64,
    ) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        let dedup_hashes = read_dedup_hashes(&self.connection, unix_day);
        Ok((self.top_rows()?, dedup_hashes.map_err(self.error_while("reading the top counts"))?))
    }

    fn add_credits(
        &mut self,
        credits: &[TopCredit],
        evicted_domains: &[String],
        unix_day: i64,
        half_life_seconds: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        let failed = self.error_while("saving the top counts");
        let transaction = self.begin_write_transaction("saving the top counts")?;
        let rows = rows::write_top_credits(
            &transaction,
            credits,
            evicted_domains,
            unix_day,
            half_life_seconds,
        );
        let rows = rows.map_err(&failed)?;
        transaction.commit().map_err(failed)?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests;
