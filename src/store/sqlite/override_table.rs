//! The table of overrides, which stores of earlier versions get when they are opened.

use rusqlite::Connection;

/// The schema version of the store stays the same with this table, so that an earlier riskgate can
/// still open the store.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS domain_override (
    domain TEXT NOT NULL, scope TEXT NOT NULL, text TEXT NOT NULL, author TEXT NOT NULL,
    created_at INTEGER NOT NULL, PRIMARY KEY (domain, scope)
) WITHOUT ROWID;
";

/// Adds the table, unless the store has it.
pub(super) fn add_table(connection: &Connection) -> rusqlite::Result<()> {
    let select = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'domain_override'";
    // `CREATE TABLE IF NOT EXISTS` waits for a lock even if the table exists.
    match connection.prepare(select)?.exists([])? {
        true => Ok(()),
        false => connection.execute_batch(SCHEMA),
    }
}
