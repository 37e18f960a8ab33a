//! Reads columns that may have a value which riskgate did not write, and converts numbers.

use rusqlite::types::ValueRef;
use rusqlite::{Row, Rows};

use crate::store::error::{StoreError, unreadable_row_error};

/// The value of a column as text; empty for a type that no id or name has.
pub(super) fn column_text(row: &Row<'_>, column: usize) -> String {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        Ok(ValueRef::Integer(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// The value of a column as a number. Fails for a negative number, and for another type.
pub(super) fn column_u64(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// Converts a count for SQLite, which has only signed integers. A number above 2^63 - 1 becomes
/// 2^63 - 1.
pub(super) fn to_i64_saturating(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn to_u64_or_zero(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Parses rows. Also returns the texts of the first column of the rows that can't be read.
pub(super) fn parse_rows<T>(
    mut rows: Rows<'_>,
    parse: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<(Vec<T>, Vec<String>)> {
    let (mut readable, mut damaged) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        match parse(row) {
            Ok(parsed) => readable.push(parsed),
            Err(_) => damaged.push(column_text(row, 0)),
        }
    }
    Ok((readable, damaged))
}

/// Fails if there is a row that can't be read. `describe` gets the text of its first column.
pub(super) fn fail_if_unreadable(
    damaged: Vec<String>,
    describe: impl Fn(String) -> String,
) -> Result<(), StoreError> {
    let first = damaged.into_iter().next();
    first.map_or(Ok(()), |first| Err(unreadable_row_error(&describe(first))))
}
