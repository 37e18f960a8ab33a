//! The shipped stores, plus direct access to their data for the simulation's faults and checks.

use std::time::Duration;

use crate::model::month::Month;
use crate::store::{
    LeaseReport, RedisOptions, ReportBatchContext, ReportOutcome, Store, StoreError, StoreUrl,
};

pub use crate::store::redis_server::{RedisCluster, RedisServer};

/// A shipped store, and a second connection for direct access to the same data.
pub struct SimulatedStore {
    store: Store,
    direct: DirectAccess,
}

enum DirectAccess {
    Sqlite { direct: rusqlite::Connection, _folder: tempfile::TempDir },
    Redis(redis::Connection),
}

/// A copy of an account's ledger rows of one month. Restored later, it stands for the older rows of
/// a stale replica. Always empty with SQLite.
pub type LedgerSnapshot = Vec<(String, String)>;

const TIMEOUT: Duration = Duration::from_secs(5);

impl SimulatedStore {
    pub fn sqlite() -> SimulatedStore {
        // In memory if possible: this test is not about the disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = folder.path().join("store.db");
        let url = StoreUrl::Sqlite(path.clone());
        let store = Store::open(&url, &RedisOptions::default(), TIMEOUT).unwrap();
        let direct = rusqlite::Connection::open(path).unwrap();
        SimulatedStore { store, direct: DirectAccess::Sqlite { direct, _folder: folder } }
    }

    pub fn redis(server: &RedisServer) -> SimulatedStore {
        SimulatedStore::on_server(&server.url(), server)
    }

    /// A Cluster of one server.
    pub fn cluster(cluster: &RedisCluster) -> SimulatedStore {
        SimulatedStore::on_server(&cluster.url(), &cluster.primaries[0])
    }

    fn on_server(url: &str, server: &RedisServer) -> SimulatedStore {
        let url = StoreUrl::parse(url).unwrap();
        let mut store = Store::open(&url, &RedisOptions::default(), TIMEOUT).unwrap();
        store.probe(Month::containing(0), None).unwrap();
        let direct = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        SimulatedStore { store, direct: DirectAccess::Redis(direct) }
    }

    pub fn is_redis(&self) -> bool {
        matches!(self.direct, DirectAccess::Redis(_))
    }

    pub fn report_leases(
        &mut self,
        context: ReportBatchContext<'_>,
        reports: &[LeaseReport],
    ) -> Result<Vec<ReportOutcome>, StoreError> {
        self.store.report_leases(context, reports)
    }

    /// The calls that all nodes have spent and leased, as `riskgate usage` sees them.
    pub fn spent_and_leased(&mut self, account: &str, month: Month) -> (u64, u64) {
        let rows = self.store.read_usage(month, Some(account)).unwrap();
        rows.first().map_or((0, 0), |row| (row.spent, row.leased))
    }

    /// The calls that one node has leased.
    pub fn leased_by_node(&mut self, account: &str, month: Month, node: &[u8; 16]) -> u64 {
        match &mut self.direct {
            DirectAccess::Sqlite { direct, .. } => direct
                .prepare_cached(
                    "SELECT leased FROM ledger WHERE account = ?1 AND month = ?2 AND node = ?3",
                )
                .unwrap()
                .query_row(rusqlite::params![account, month.number(), node.as_slice()], |row| {
                    row.get::<_, i64>(0)
                })
                .map_or(0, i64::cast_unsigned),
            DirectAccess::Redis(direct) => {
                let field = hex::encode(node);
                let mut read = redis::cmd("HGET");
                read.arg(redis_ledger_key(account, month)).arg(field);
                let row: Option<String> = read.query(direct).unwrap();
                row.map_or(0, |row| row.split(' ').nth(1).unwrap().parse().unwrap())
            }
        }
    }

    /// Deletes the key that says that the account recovers, as if the key had expired.
    pub fn end_recovery(&mut self, account: &str, month: Month) {
        self.delete_redis_key(&format!("riskgate:recovering:{{{account}}}:{month}"));
    }

    /// Copies the account's ledger rows.
    pub fn take_snapshot(&mut self, account: &str, month: Month) -> LedgerSnapshot {
        let DirectAccess::Redis(direct) = &mut self.direct else { return LedgerSnapshot::new() };
        redis::cmd("HGETALL").arg(redis_ledger_key(account, month)).query(direct).unwrap()
    }

    /// Replaces the account's ledger rows, as if the server had restarted with older data or none.
    pub fn restore_snapshot(&mut self, account: &str, month: Month, snapshot: &LedgerSnapshot) {
        let key = redis_ledger_key(account, month);
        self.delete_redis_key(&key);
        let DirectAccess::Redis(direct) = &mut self.direct else { return };
        if !snapshot.is_empty() {
            redis::cmd("HSET").arg(&key).arg(snapshot).exec(direct).unwrap();
        }
    }

    fn delete_redis_key(&mut self, key: &str) {
        if let DirectAccess::Redis(direct) = &mut self.direct {
            redis::cmd("DEL").arg(key).exec(direct).unwrap();
        }
    }
}

fn redis_ledger_key(account: &str, month: Month) -> String {
    format!("riskgate:ledger:{{{account}}}:{month}")
}
