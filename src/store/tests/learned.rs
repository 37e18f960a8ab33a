//! Tests of DNS facts in both stores.

use super::super::{DnsFactRow, MAX_DNS_FACTS, Store};
use super::{TestStore, on_each_store};

fn dns_fact(name: &str, mx: &str, until: i64) -> DnsFactRow {
    DnsFactRow { name: name.to_owned(), mx: mx.to_owned(), addresses: vec![], expires_at: until }
}

/// All DNS facts written after a version, and the version that they lead to.
fn read_all_dns_facts(store: &mut Store, mut since: u64) -> (Vec<DnsFactRow>, u64) {
    let mut all = Vec::new();
    loop {
        let (rows, version) = store.read_dns_facts_page(since).unwrap();
        all.extend(rows);
        if std::mem::replace(&mut since, version) == version {
            return (all, version);
        }
    }
}

#[test]
fn dns_facts_are_read_in_the_order_of_writing() {
    on_each_store(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        assert_eq!(read_all_dns_facts(&mut other, 0), (vec![], 0));
        assert_eq!(other.find_dns_fact("b.com").unwrap(), None);
        assert_eq!(read_all_dns_facts(&mut other, 7), (vec![], 0), "the store is empty again");
        let first = [dns_fact("b.com", "mx.b.com", 5), dns_fact("a.com", ".", i64::MAX)];
        one.save_dns_facts(&first).unwrap();
        let (rows, version) = read_all_dns_facts(&mut other, 0);
        assert_eq!(rows, first);
        one.save_dns_facts(&[dns_fact("b.com", "parked", 9)]).unwrap();
        let (rows, later) = read_all_dns_facts(&mut other, version);
        assert_eq!(rows, [dns_fact("b.com", "parked", 9)]);
        assert!(later > version);
        assert_eq!(other.find_dns_fact("b.com").unwrap(), Some(dns_fact("b.com", "parked", 9)));
        assert_eq!(other.find_dns_fact("c.com").unwrap(), None);
        assert_eq!(read_all_dns_facts(&mut other, later), (vec![], later));
        let (rows, _) = read_all_dns_facts(&mut location.open(), later + 1_000);
        let again = [dns_fact("a.com", ".", i64::MAX), dns_fact("b.com", "parked", 9)];
        assert_eq!(rows, again, "a store that was set back is read from its beginning");
    });
}

#[test]
fn a_dns_fact_keeps_the_addresses_of_its_host() {
    on_each_store(|location| {
        let mut store = location.open();
        let mut fact = dns_fact("a.com", "mail.a.com", 5);
        fact.addresses = ["9.9.9.9", "2620:fe::9"].map(|text| text.parse().unwrap()).to_vec();
        store.save_dns_facts(std::slice::from_ref(&fact)).unwrap();
        assert_eq!(store.find_dns_fact("a.com").unwrap(), Some(fact.clone()));
        assert_eq!(read_all_dns_facts(&mut store, 0).0, [fact]);
    });
}

#[test]
fn the_text_of_a_fact_with_addresses_names_no_host_that_a_version_without_them_could_know() {
    let mut fact = dns_fact("a.com", "mail.a.com", 5);
    assert_eq!(fact.format_host_text(), "mail.a.com", "as before the addresses");
    fact.addresses = vec!["9.9.9.9".parse().unwrap()];
    assert_eq!(fact.format_host_text(), "mail.a.com 9.9.9.9");
    let damaged = DnsFactRow::from_host_text("a.com".to_owned(), "mail.a.com x 9.9.9.9 ", 5);
    assert_eq!(damaged, fact);
    let many = DnsFactRow::from_host_text(
        "a.com".to_owned(),
        "b 1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.4 1.1.1.5",
        5,
    );
    assert_eq!(many.addresses.len(), 4);
}

#[test]
fn only_the_latest_dns_facts_are_kept() {
    const SURPLUS_ROWS: usize = 2_500;
    on_each_store(|location| {
        let mut store = location.open();
        let rows: Vec<DnsFactRow> = (0..MAX_DNS_FACTS + SURPLUS_ROWS)
            .map(|number| dns_fact(&format!("name-{number}.com"), "mx.host.com", 5))
            .collect();
        for chunk in rows.chunks(10_000) {
            store.save_dns_facts(chunk).unwrap();
        }
        let (kept, _) = read_all_dns_facts(&mut store, 0);
        assert_eq!(kept.len(), MAX_DNS_FACTS);
        assert_eq!(kept, rows[SURPLUS_ROWS..], "those written last");
    });
}

#[test]
fn a_fact_with_a_damaged_version_stops_no_other() {
    let file = TestStore::new_sqlite();
    let mut store = file.open();
    store.save_dns_facts(&[dns_fact("a.com", ".", 5)]).unwrap();
    file.run_sql("INSERT INTO learned VALUES ('b.com', '.', 5, 'late')");
    store.save_dns_facts(&[dns_fact("c.com", ".", 5)]).unwrap();
    let facts = [dns_fact("a.com", ".", 5), dns_fact("c.com", ".", 5)];
    assert_eq!(read_all_dns_facts(&mut store, 0).0, facts);
}
