//! Tests of the operations of a store, but for the ledger. Most run on both stores; `server`,
//! `imports`, `foreign`, `rates` and `acl` test what only a server has.

mod acl;
mod audit;
mod both_stores;
mod copy;
mod expired_rows;
mod foreign;
mod history;
mod imports;
mod inbox_secret;
mod learned;
mod overrides;
mod plans;
mod quota_events;
mod rates;
mod server;
mod sign_ups;
mod top;

use std::sync::LazyLock;
use std::time::Duration;

use super::redis_server::{RedisCluster, RedisServer};
use super::{
    AccountRow, ChangeAuthor, ChangeSurface, KeyRow, RedisOptions, RingRows, Rotation, Store,
    StoreUrl,
};
use crate::model::believed_time::{BelievedTime, TimeTrust};

/// A directory or servers for a test store; deleted or stopped when dropped.
pub(super) enum TestStore {
    File(tempfile::TempDir),
    Server(Box<RedisServer>),
    Cluster(RedisCluster),
}

impl TestStore {
    fn new_sqlite() -> TestStore {
        TestStore::File(tempfile::tempdir().unwrap())
    }

    fn new_redis() -> TestStore {
        TestStore::Server(Box::new(RedisServer::start()))
    }

    /// The server, or the only server of the Cluster.
    fn server(&self) -> &RedisServer {
        match self {
            TestStore::File(_) => panic!("a file has no server"),
            TestStore::Server(server) => server,
            TestStore::Cluster(cluster) => &cluster.primaries[0],
        }
    }

    /// Runs a statement on the file, as another program does.
    fn run_sql(&self, statement: &str) {
        let TestStore::File(folder) = self else { panic!("a server runs no SQL") };
        let file = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
        file.execute(statement, []).unwrap();
    }

    /// Sets a field of a hash on the server to a text of Lua, such as `'\255'`.
    fn set_field(&self, hash: &str, field: &str, lua_text: &str) {
        let script = format!("redis.call('HSET', KEYS[1], ARGV[1], {lua_text})");
        self.server().run(&["EVAL", &script, "1", hash, field]);
    }

    pub(super) fn open(&self) -> Store {
        match self {
            TestStore::File(folder) => {
                let url = StoreUrl::Sqlite(folder.path().join("store.db"));
                with_time(
                    Store::open(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap(),
                )
            }
            TestStore::Server(server) => open(&server.url()),
            TestStore::Cluster(cluster) => open(&cluster.url()),
        }
    }
}

/// Runs a test three times: on an empty SQLite store, on an empty Redis server, and on an empty
/// Cluster of one server, which refuses commands and scripts with Redis keys of several slots.
pub(super) fn on_each_store(test: impl Fn(&TestStore)) {
    // The Cluster gets ready while the test runs on the other stores.
    let cluster = RedisCluster::begin_start(1, &[]);
    // The output of a failed test ends with the store that failed.
    println!("on SQLite");
    test(&TestStore::new_sqlite());
    println!("on a Redis server");
    test(&TestStore::new_redis());
    println!("on a Cluster");
    cluster.wait_until_ready();
    test(&TestStore::Cluster(cluster));
}

fn open(url: &str) -> Store {
    open_with_options(url, &RedisOptions::default())
}

fn open_with_options(url: &str, options: &RedisOptions) -> Store {
    with_time(Store::open(&StoreUrl::parse(url).unwrap(), options, Duration::from_secs(5)).unwrap())
}

/// The time of the changes of tests.
pub(super) const TEST_TIME: BelievedTime =
    BelievedTime { unix_now: 1_790_000_000, trust: TimeTrust::Known };

fn with_time(mut store: Store) -> Store {
    store.set_time(TEST_TIME);
    store
}

/// The n-th test key, of the given account.
pub(super) fn key(n: u32, account: &str) -> KeyRow {
    let mut digest = [7; 32];
    digest[..4].copy_from_slice(&n.to_le_bytes());
    KeyRow {
        id: format!("key_{n}"),
        account: account.to_owned(),
        label: None,
        digest,
        origins: Vec::new(),
        require_origin: false,
        created_at: 1_790_000_000 + i64::from(n),
        expires_at: None,
        revoked_at: None,
    }
}

/// The author of the changes of tests.
pub(crate) fn tester() -> ChangeAuthor {
    ChangeAuthor { actor: "tester".to_owned(), via: ChangeSurface::Cli, from: "a test".to_owned() }
}

pub(super) static TESTER: LazyLock<ChangeAuthor> = LazyLock::new(tester);

fn rotation(old_id: &str, new_key: &KeyRow, old_expires_at: i64, unix_now: i64) -> Rotation {
    Rotation { old_id: old_id.to_owned(), new_key: new_key.clone(), old_expires_at, unix_now }
}

fn account(name: &str, plan: Option<&str>) -> AccountRow {
    AccountRow { name: name.to_owned(), plan: plan.map(str::to_owned), own_limit: None }
}

fn add_keys(store: &mut Store, keys: &[KeyRow]) {
    let keys: Vec<_> = keys.iter().map(|key| (key.clone(), None)).collect();
    store.add_keys(&tester(), &keys, None).unwrap();
}

fn sort_rows(mut rows: RingRows) -> RingRows {
    rows.keys.sort_by(|a, b| a.id.cmp(&b.id));
    rows.accounts.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

#[track_caller]
fn rows(store: &mut Store) -> RingRows {
    sort_rows(store.ring_rows().unwrap().expect("a store"))
}

#[track_caller]
fn ring_version(store: &mut Store) -> u64 {
    store.ring_version().unwrap().expect("a store").version
}
