//! Tests of the deletion of rows that are past their time, in both stores.

use super::super::{DnsFactRow, RepeatableRequestRow, Store, TopCredit};
use super::{TEST_TIME, TestStore, key, on_each_store, tester};
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::month::SECONDS_PER_DAY;

const NOW: i64 = TEST_TIME.unix_now;

fn open_at(location: &TestStore, unix_now: i64, trust: TimeTrust) -> Store {
    let mut store = location.open();
    store.set_time(BelievedTime { unix_now, trust });
    store
}

fn fact(name: &str, expires_at: i64) -> DnsFactRow {
    DnsFactRow { name: name.to_owned(), mx: ".".to_owned(), addresses: vec![], expires_at }
}

#[track_caller]
fn assert_facts(store: &mut Store, after: u64, expected: &[DnsFactRow]) -> u64 {
    let (facts, version) = store.read_dns_facts_page(after).unwrap();
    assert_eq!(facts, expected);
    version
}

#[test]
fn dns_facts_past_their_time_are_deleted() {
    on_each_store(|location| {
        let mut store = open_at(location, NOW, TimeTrust::Known);
        store.delete_expired_rows(NOW).unwrap();
        let facts = [fact("old.com", NOW), fact("new.com", NOW + 1), fact("last.com", NOW - 9)];
        store.save_dns_facts(&facts).unwrap();
        let version = assert_facts(&mut store, 0, &facts);
        store.delete_expired_rows(NOW).unwrap();
        assert_facts(&mut store, 0, &facts);
        let mut store = open_at(location, NOW, TimeTrust::Settled);
        store.delete_expired_rows(NOW).unwrap();
        assert_eq!(store.find_dns_fact("old.com").unwrap(), None);
        assert_facts(&mut store, 0, &facts[1..2]);
        assert_eq!(assert_facts(&mut store, version, &[]), version);
        store.delete_expired_rows(NOW + 1).unwrap();
        let latest = assert_facts(&mut store, 0, &[]);
        assert_eq!(assert_facts(&mut store, latest, &[]), latest);
        // A node that knows the deleted facts reads the next one.
        store.save_dns_facts(&[fact("next.com", NOW)]).unwrap();
        assert!(assert_facts(&mut store, version, &[fact("next.com", NOW)]) > version);
    });
}

#[test]
fn many_dns_facts_past_their_time_are_deleted_at_once() {
    on_each_store(|location| {
        let mut store = open_at(location, NOW, TimeTrust::Settled);
        let facts: Vec<DnsFactRow> =
            (0..2_300).map(|number| fact(&format!("{number}.com"), NOW + number % 2)).collect();
        store.save_dns_facts(&facts).unwrap();
        store.delete_expired_rows(NOW).unwrap();
        let (mut after, mut count) = (0, 0);
        loop {
            let (page, version) = store.read_dns_facts_page(after).unwrap();
            assert!(page.iter().all(|fact| fact.expires_at > NOW));
            count += page.len();
            if std::mem::replace(&mut after, version) == version {
                break;
            }
        }
        assert_eq!(count, 1_150);
    });
}

/// The ids of the requests in the store, however old they are. The believed time of 1970 is before
/// each request was forgotten.
fn known_requests(location: &TestStore) -> Vec<&'static str> {
    let mut store = open_at(location, 0, TimeTrust::Known);
    let mut is_known = |id: &str| store.find_repeatable_request(id).unwrap().is_some();
    ["first", "second"].into_iter().filter(|id| is_known(id)).collect()
}

#[test]
fn requests_are_deleted_after_a_day() {
    on_each_store(|location| {
        let request = |id: &str, key_id: &str| RepeatableRequestRow {
            id: id.to_owned(),
            digest: "d".to_owned(),
            salt: "00ff".to_owned(),
            key_id: key_id.to_owned(),
        };
        for (number, id, trust) in
            [(1, "first", TimeTrust::Known), (2, "second", TimeTrust::Settled)]
        {
            let at = NOW + i64::from(number);
            let mut store = open_at(location, at, trust);
            let known = request(id, &format!("key_{number}"));
            let author = tester();
            store.add_keys(&author, &[(key(number, "acme"), None)], Some(&known)).unwrap();
        }
        let delete_at = |at, trust| open_at(location, at, trust).delete_expired_rows(0).unwrap();
        delete_at(NOW + SECONDS_PER_DAY, TimeTrust::Settled);
        delete_at(NOW + 9 * SECONDS_PER_DAY, TimeTrust::Known);
        assert_eq!(known_requests(location), ["first", "second"]);
        delete_at(NOW + SECONDS_PER_DAY + 1, TimeTrust::Settled);
        assert_eq!(known_requests(location), ["second"]);
        delete_at(NOW + SECONDS_PER_DAY + 2, TimeTrust::Settled);
        assert_eq!(known_requests(location), Vec::<&str>::new());
    });
}

#[test]
fn dedup_hashes_are_deleted_after_two_days() {
    let file = TestStore::new_sqlite();
    let today = NOW.div_euclid(SECONDS_PER_DAY);
    let mut store = open_at(&file, NOW, TimeTrust::Known);
    for day in [today - 2, today - 1, today] {
        let credit = TopCredit {
            domain: "a.test".to_owned(),
            initial_count: 0.0,
            at: NOW,
            dedup_hashes: (0..1_200).map(|number| (number, 7)).collect(),
        };
        store.add_credits(&[credit], &[], day, 3_600.0).unwrap();
    }
    let mut count = |trust| {
        store.set_time(BelievedTime { unix_now: NOW, trust });
        store.delete_expired_rows(0).unwrap();
        let days = [today - 2, today - 1, today];
        days.map(|day| store.top_rows_and_dedup_hashes(day).unwrap().1.len())
    };
    assert_eq!(count(TimeTrust::Known), [1_200; 3]);
    assert_eq!(count(TimeTrust::Settled), [0, 1_200, 1_200]);
}
