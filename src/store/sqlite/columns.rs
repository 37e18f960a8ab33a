//! Reads columns that may have a value which riskgate did not write.

use rusqlite::Row;
use rusqlite::types::ValueRef;

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
