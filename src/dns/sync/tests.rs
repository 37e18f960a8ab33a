use std::path::Path;
use std::time::Duration;

use super::*;
use crate::dns::DnsFinding;
use crate::store::{DnsFactRow, RedisOptions, StoreUrl};
use crate::table::TableLocation;

const NOW: i64 = 1_795_219_200;

fn open_store(folder: &Path) -> Store {
    let url = StoreUrl::Sqlite(folder.join("riskgate.db"));
    Store::open(&url, &RedisOptions::default(), Duration::from_millis(100)).unwrap()
}

fn learn(cache: &DnsFactCache, table: &Table, name: &str) {
    let (mx_value, addresses) = ("mx.host.com".to_owned(), Vec::new());
    let finding = DnsFinding::Mx { mx_value, addresses, ttl_seconds: 600 };
    cache.record_finding(&name.into(), finding, table, NOW);
}

fn saved_names(store: &mut Store) -> Vec<String> {
    let (rows, _) = store.read_dns_facts_page(0).unwrap();
    rows.into_iter().map(|DnsFactRow { name, .. }| name).collect()
}

#[test]
fn facts_that_were_learned_without_a_store_or_while_it_failed_are_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::load(&TableLocation::Bundled).unwrap();
    let cache = DnsFactCache::default();
    cache.enable_or_clear(true);
    learn(&cache, &table, "first.com");

    let mut reader = open_store(folder.path());
    let mut failing = DnsFactSync::new(open_store(folder.path()));
    let lock = rusqlite::Connection::open(folder.path().join("riskgate.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    failing.sync_with_store(&cache, &table, NOW).unwrap_err();
    drop((failing, lock));
    learn(&cache, &table, "second.com");
    assert!(saved_names(&mut reader).is_empty());

    let mut sync = DnsFactSync::new(open_store(folder.path()));
    sync.sync_with_store(&cache, &table, NOW).unwrap();
    assert_eq!(saved_names(&mut reader), ["first.com", "second.com"]);
    assert!(cache.take_unsaved_facts(NOW).is_empty());

    learn(&cache, &table, "third.com");
    cache.enable_or_clear(false);
    assert!(cache.take_unsaved_facts(NOW).is_empty(), "learning was switched off");
}
