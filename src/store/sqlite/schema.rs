//! The tables of a store's file, and how older versions get them.

use rusqlite::Connection;

pub(super) const SCHEMA_VERSION: i64 = 3;
pub(super) const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE account (
    name TEXT PRIMARY KEY, plan TEXT, calls INTEGER, unlimited INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE INDEX account_version ON account (version);
CREATE TABLE api_key (
    id TEXT PRIMARY KEY, account TEXT NOT NULL, label TEXT, digest BLOB NOT NULL UNIQUE,
    origins TEXT NOT NULL, require_origin INTEGER NOT NULL, created_at INTEGER NOT NULL,
    expires_at INTEGER, revoked_at INTEGER, version INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE INDEX api_key_version ON api_key (version);
CREATE TABLE ledger (
    account TEXT NOT NULL, month INTEGER NOT NULL, node BLOB NOT NULL, sequence INTEGER NOT NULL,
    leased INTEGER NOT NULL, spent INTEGER NOT NULL, PRIMARY KEY (account, month, node)
) WITHOUT ROWID;
CREATE TABLE top_count (
    domain TEXT PRIMARY KEY, count REAL NOT NULL, at INTEGER NOT NULL, accounts BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE top_seen (
    day INTEGER NOT NULL, mark INTEGER NOT NULL, PRIMARY KEY (day, mark)
) WITHOUT ROWID;
";

/// The tables that version 3 added: the audit, the states of sources, requests that can be
/// repeated, and usage by day.
pub(super) const TABLES_OF_VERSION_3: &str = "
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, author TEXT NOT NULL,
    operation TEXT NOT NULL, target TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL
);
CREATE INDEX audit_at ON audit (at);
CREATE TABLE source_state (subject TEXT PRIMARY KEY, entries TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE request (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL, salt TEXT NOT NULL, key_id TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE daily_usage (
    month INTEGER NOT NULL, account TEXT NOT NULL, day INTEGER NOT NULL, route TEXT NOT NULL,
    key_id TEXT NOT NULL, node BLOB NOT NULL, calls INTEGER NOT NULL,
    PRIMARY KEY (month, account, day, route, key_id, node)
) WITHOUT ROWID;
";

/// The table of quota events, new in version 3. A pending event has a `due_at`, a finished one a
/// `finished_at`.
pub(super) const QUOTA_EVENT_SCHEMA: &str = "
CREATE TABLE quota_event (
    key TEXT PRIMARY KEY, account TEXT NOT NULL, month INTEGER NOT NULL, body TEXT NOT NULL,
    created_at INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, due_at INTEGER,
    finished_at INTEGER, delivered INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX quota_event_due ON quota_event (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX quota_event_finished ON quota_event (finished_at) WHERE finished_at IS NOT NULL;
";

/// The change from version 1 to 2: each row gets the version of the ring that last changed it.
pub(super) const MIGRATION_FROM_1: &str = "
ALTER TABLE account ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE api_key ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
CREATE INDEX account_version ON account (version);
CREATE INDEX api_key_version ON api_key (version);
";

/// The table of overrides, which stores of earlier versions get when they are opened. The schema
/// version of the store stays the same with this table, so that an earlier riskgate can
/// still open the store.
const OVERRIDE_SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS domain_override (
    domain TEXT NOT NULL, scope TEXT NOT NULL, text TEXT NOT NULL, author TEXT NOT NULL,
    created_at INTEGER NOT NULL, PRIMARY KEY (domain, scope)
) WITHOUT ROWID;
";

/// Adds the table of overrides, unless the store has it.
pub(super) fn add_override_table(connection: &Connection) -> rusqlite::Result<()> {
    let select = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'domain_override'";
    // `CREATE TABLE IF NOT EXISTS` waits for a lock even if the table exists.
    match connection.prepare(select)?.exists([])? {
        true => Ok(()),
        false => connection.execute_batch(OVERRIDE_SCHEMA),
    }
}
