//! Top counts in the embedded store.

use super::connection::Sqlite;
use super::rows::{self, read_marks, read_top};
use crate::store::error::StoreError;
use crate::store::rows::{Credit, TopRow};

impl Sqlite {
    pub(in crate::store) fn top_rows(&self) -> Result<Vec<TopRow>, StoreError> {
        read_top(&self.connection).map_err(self.failed("reading the top counts"))
    }

    pub(in crate::store) fn top(&self, day: i64) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        let marks = read_marks(&self.connection, day);
        Ok((self.top_rows()?, marks.map_err(self.failed("reading the top counts"))?))
    }

    pub(in crate::store) fn credit_top(
        &mut self,
        credits: &[Credit],
        gone: &[String],
        day: i64,
        half_life: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        let failed = self.failed("saving the top counts");
        let transaction = self.begin("saving the top counts")?;
        let rows = rows::credit_top(&transaction, credits, gone, day, half_life);
        let rows = rows.map_err(&failed)?;
        transaction.commit().map_err(failed)?;
        Ok(rows)
    }
}
