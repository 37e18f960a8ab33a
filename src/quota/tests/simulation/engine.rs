//! The shipped stores, and what only a simulation does to them.

use std::time::Duration;

use crate::model::month::Month;
use crate::store::{BatchContext, Grant, LeaseReport, RedisOptions, Store, StoreError, StoreUrl};

pub use crate::store::redis_server::RedisServer;

/// A store, and a second way to its numbers.
pub struct SimulatedStore {
    store: Store,
    raw: Raw,
}

enum Raw {
    Sqlite { raw: rusqlite::Connection, _folder: tempfile::TempDir },
    Redis(redis::Connection),
}

/// An account's numbers of a month, as a replica may have them.
pub type LedgerSnapshot = Vec<(String, String)>;

const PATIENCE: Duration = Duration::from_secs(5);

impl SimulatedStore {
    pub fn sqlite() -> SimulatedStore {
        // In memory where that can be had: what a disk does is another test's business.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = folder.path().join("store.db");
        let url = StoreUrl::Sqlite(path.clone());
        let store = Store::open(&url, &RedisOptions::default(), PATIENCE).unwrap();
        let raw = rusqlite::Connection::open(path).unwrap();
        SimulatedStore { store, raw: Raw::Sqlite { raw, _folder: folder } }
    }

    pub fn redis(server: &RedisServer) -> SimulatedStore {
        let url = StoreUrl::parse(&server.url()).unwrap();
        let mut store = Store::open(&url, &RedisOptions::default(), PATIENCE).unwrap();
        store.probe(Month::containing(0), None).unwrap();
        let raw = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        SimulatedStore { store, raw: Raw::Redis(raw) }
    }

    pub fn is_server(&self) -> bool {
        matches!(self.raw, Raw::Redis(_))
    }

    pub fn state(
        &mut self,
        round: BatchContext<'_>,
        statements: &[LeaseReport],
    ) -> Result<Vec<Option<Grant>>, StoreError> {
        self.store.report_leases(round, statements)
    }

    /// Spent and leased of all nodes, as `riskgate usage` sees them.
    pub fn usage(&mut self, account: &str, month: Month) -> (u64, u64) {
        let rows = self.store.usage(month, Some(account)).unwrap();
        rows.first().map_or((0, 0), |row| (row.spent, row.leased))
    }

    /// What one node has leased.
    pub fn row(&mut self, account: &str, month: Month, node: &[u8; 16]) -> u64 {
        match &mut self.raw {
            Raw::Sqlite { raw, .. } => raw
                .prepare_cached(
                    "SELECT leased FROM ledger WHERE account = ?1 AND month = ?2 AND node = ?3",
                )
                .unwrap()
                .query_row(rusqlite::params![account, month.number(), node.as_slice()], |row| {
                    row.get::<_, i64>(0)
                })
                .map_or(0, i64::cast_unsigned),
            Raw::Redis(raw) => {
                let field: String = node.iter().map(|byte| format!("{byte:02x}")).collect();
                let mut read = redis::cmd("HGET");
                read.arg(ledger_key(account, month)).arg(field);
                let row: Option<String> = read.query(raw).unwrap();
                row.map_or(0, |row| row.split(' ').nth(1).unwrap().parse().unwrap())
            }
        }
    }

    /// Time passes for the server: its mark that the account settles has expired.
    pub fn end_recovery(&mut self, account: &str, month: Month) {
        self.delete(&format!("riskgate:recovering:{{{account}}}:{month}"));
    }

    /// The account's numbers as they now stand.
    pub fn take_snapshot(&mut self, account: &str, month: Month) -> LedgerSnapshot {
        let Raw::Redis(raw) = &mut self.raw else { return LedgerSnapshot::new() };
        redis::cmd("HGETALL").arg(ledger_key(account, month)).query(raw).unwrap()
    }

    /// The server comes back with older numbers, or with none.
    pub fn restore_snapshot(&mut self, account: &str, month: Month, copy: &LedgerSnapshot) {
        let key = ledger_key(account, month);
        self.delete(&key);
        let Raw::Redis(raw) = &mut self.raw else { return };
        if !copy.is_empty() {
            redis::cmd("HSET").arg(&key).arg(copy).exec(raw).unwrap();
        }
    }

    fn delete(&mut self, key: &str) {
        if let Raw::Redis(raw) = &mut self.raw {
            redis::cmd("DEL").arg(key).exec(raw).unwrap();
        }
    }
}

fn ledger_key(account: &str, month: Month) -> String {
    format!("riskgate:ledger:{{{account}}}:{month}")
}
