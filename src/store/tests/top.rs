//! Tests of the top list. Both stores keep the same contract.

use std::collections::HashSet;

use super::super::{TopCredit, TopRow};
use super::on_each_store;

const DAY: i64 = 20_000;
const NOON: i64 = DAY * 86_400 + 43_200;
const HALF_LIFE: f64 = 3_600.0;

fn credit(domain: &str, base: f64, at: i64, hashes: &[(u64, u64)]) -> TopCredit {
    TopCredit { domain: domain.to_owned(), initial_count: base, at, dedup_hashes: hashes.to_vec() }
}

#[track_caller]
fn assert_same_row(found: &TopRow, expected: &TopRow) {
    let close = (found.count - expected.count).abs() <= expected.count.abs() * 1e-12;
    assert!(close, "{} is not {}", found.count, expected.count);
    assert_eq!(TopRow { count: 0.0, ..found.clone() }, TopRow { count: 0.0, ..expected.clone() });
}

#[test]
fn both_stores_count_top_rows_by_the_same_rule() {
    on_each_store(|location| {
        let mut store = location.open();
        let base = 1.0 / 3.0;
        let first = credit("a.test", base, NOON, &[(u64::MAX, u64::MAX), (1 << 53, (1 << 53) + 1)]);
        let mut expected = TopRow::add_lookups(None, &first, &[u64::MAX, (1 << 53) + 1], HALF_LIFE);
        let answered = store.add_credits(&[first], &[], DAY, HALF_LIFE).unwrap();
        assert_same_row(&answered[0], &expected);
        let hashes: Vec<(u64, u64)> = (0..20).map(|n| (u64::MAX - 10 - n, n)).collect();
        let accounts: Vec<u64> = (0..20).collect();
        for (at, hashes, accounts) in [
            (NOON + 1_800, &hashes[..], &accounts[..]),
            // A late credit counts now, and the row does not get an earlier time.
            (NOON - 500, &[(77, 5)][..], &[5][..]),
        ] {
            let more = credit("a.test", 0.0, at, hashes);
            expected = TopRow::add_lookups(Some(expected), &more, accounts, HALF_LIFE);
            let answered = store.add_credits(&[more], &[], DAY, HALF_LIFE).unwrap();
            assert_same_row(&answered[0], &expected);
        }
        assert_eq!(expected.account_hashes.len(), super::super::MAX_TOP_ROW_ACCOUNTS);
        let (rows, seen) = location.open().top_rows_and_dedup_hashes(DAY).unwrap();
        assert_eq!(rows.len(), 1);
        assert_same_row(&rows[0], &expected);
        let mut all: HashSet<u64> = hashes.iter().map(|(dedup_hash, _)| *dedup_hash).collect();
        all.extend([u64::MAX, 1 << 53, 77]);
        assert_eq!(seen.into_iter().collect::<HashSet<u64>>(), all);
        assert!(
            store.top_rows_and_dedup_hashes(DAY + 1).unwrap().1.is_empty(),
            "another day has other dedup hashes"
        );
    });
}

#[test]
fn a_dedup_hash_counts_once_a_day_over_all_nodes() {
    on_each_store(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        let asked = credit("a.test", 0.0, NOON, &[(1, 10), (2, 20)]);
        one.add_credits(std::slice::from_ref(&asked), &[], DAY, HALF_LIFE).unwrap();
        for store in [&mut one, &mut other] {
            let row = store.add_credits(std::slice::from_ref(&asked), &[], DAY, HALF_LIFE).unwrap();
            assert_eq!((row[0].count, &row[0].account_hashes[..]), (2.0, &[10, 20][..]));
        }
        let more = credit("a.test", 0.0, NOON, &[(2, 20), (3, 30)]);
        assert_eq!(other.add_credits(&[more], &[], DAY, HALF_LIFE).unwrap()[0].count, 3.0);
        let tomorrow = credit("a.test", 0.0, NOON, &[(1, 10)]);
        let row = one.add_credits(&[tomorrow], &[], DAY + 1, HALF_LIFE).unwrap();
        assert_eq!(row[0].count, 4.0);
    });
}

#[test]
fn evicted_top_rows_are_deleted() {
    on_each_store(|location| {
        let mut store = location.open();
        let many: Vec<TopCredit> =
            (0..3_000).map(|n| credit(&format!("{n}.test"), 0.5, NOON, &[(n, n)])).collect();
        let rows = store.add_credits(&many, &[], DAY, HALF_LIFE).unwrap();
        assert_eq!(rows.len(), 3_000);
        assert!(rows.iter().zip(&many).all(|(row, credit)| row.domain == credit.domain));
        assert_eq!(store.top_rows().unwrap().len(), 3_000);
        let evicted: Vec<String> = (0..2_999).map(|n| format!("{n}.test")).collect();
        assert_eq!(store.add_credits(&[], &evicted, DAY, HALF_LIFE).unwrap(), []);
        let remaining = store.top_rows().unwrap();
        assert_eq!((remaining.len(), remaining[0].domain.as_str()), (1, "2999.test"));
        assert_eq!(remaining[0].count, 1.5);
    });
}

#[test]
fn a_count_of_any_time_decays_without_overflow() {
    for (row_at, at, expected) in [(i64::MIN, i64::MAX, 0.0), (i64::MAX, i64::MIN, 5.0)] {
        let row =
            TopRow { domain: "a".to_owned(), count: 5.0, at: row_at, account_hashes: Vec::new() };
        assert_eq!(row.count_at(at, HALF_LIFE), expected);
    }
}
