//! Top counts in SQLite.

use super::connection::Sqlite;
use super::rows::{self, read_dedup_hashes, read_top_rows};
use crate::store::error::{StoreError, unreadable_row_error};
use crate::store::operations::top::TopListBackend;
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
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_damaged_row_stops_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&folder.path().join("s.db"), Duration::from_secs(5)).unwrap();
        let credit = |domain: &str| TopCredit {
            domain: domain.to_owned(),
            initial_count: 1.0,
            at: 1_790_000_000,
            dedup_hashes: vec![(7, 1)],
        };
        store.add_credits(&[credit("a.test")], &[], 20_000, 60.0).unwrap();
        let insert = "INSERT INTO top_seen VALUES (20000, 'x');
                      INSERT INTO top_count VALUES ('b.test', 'x', 5, 'y')";
        store.connection.execute_batch(insert).unwrap();
        let (rows, hashes) = store.top_rows_and_dedup_hashes(20_000).unwrap();
        let domains =
            |rows: &[TopRow]| rows.iter().map(|row| row.domain.clone()).collect::<Vec<String>>();
        assert_eq!((domains(&rows), hashes), (vec!["a.test".to_owned()], vec![7]));
        let error = store.top_rows_to_copy().unwrap_err().to_string();
        assert!(error.contains("the top count \"b.test\""), "{error}");
        // A look-up replaces the row.
        store.add_credits(&[credit("b.test")], &[], 20_001, 60.0).unwrap();
        assert_eq!(domains(&store.top_rows_to_copy().unwrap()), ["a.test", "b.test"]);
    }
}
