//! DNS findings in both stores.

use super::super::{LearnedRow, MAX_LEARNED, Store};
use super::on_both_stores;

fn learned(name: &str, mx: &str, until: i64) -> LearnedRow {
    LearnedRow { name: name.to_owned(), mx: mx.to_owned(), until }
}

/// All findings written after a version, and the version that they lead to.
fn all_learned(store: &mut Store, mut since: u64) -> (Vec<LearnedRow>, u64) {
    let mut all = Vec::new();
    loop {
        let (rows, version) = store.learned_since(since).unwrap();
        all.extend(rows);
        if std::mem::replace(&mut since, version) == version {
            return (all, version);
        }
    }
}

#[test]
fn what_the_dns_said_is_told_to_all_in_the_order_in_which_it_came() {
    on_both_stores(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        assert_eq!(all_learned(&mut other, 0), (vec![], 0));
        assert_eq!(other.find_learned("b.com").unwrap(), None);
        assert_eq!(all_learned(&mut other, 7), (vec![], 0), "the store is empty again");
        let first = [learned("b.com", "mx.b.com", 5), learned("a.com", ".", i64::MAX)];
        one.save_learned(&first).unwrap();
        let (rows, version) = all_learned(&mut other, 0);
        assert_eq!(rows, first);
        one.save_learned(&[learned("b.com", "parked", 9)]).unwrap();
        let (rows, later) = all_learned(&mut other, version);
        assert_eq!(rows, [learned("b.com", "parked", 9)]);
        assert!(later > version);
        assert_eq!(other.find_learned("b.com").unwrap(), Some(learned("b.com", "parked", 9)));
        assert_eq!(other.find_learned("c.com").unwrap(), None);
        assert_eq!(all_learned(&mut other, later), (vec![], later));
        let (rows, _) = all_learned(&mut location.open(), later + 1_000);
        let again = [learned("a.com", ".", i64::MAX), learned("b.com", "parked", 9)];
        assert_eq!(rows, again, "a store that was set back is read from its beginning");
    });
}

#[test]
fn of_what_the_dns_said_so_much_is_kept_and_no_more() {
    const MORE: usize = 2_500;
    on_both_stores(|location| {
        let mut store = location.open();
        let rows: Vec<LearnedRow> = (0..MAX_LEARNED + MORE)
            .map(|number| learned(&format!("name-{number}.com"), "mx.host.com", 5))
            .collect();
        for chunk in rows.chunks(10_000) {
            store.save_learned(chunk).unwrap();
        }
        let (kept, _) = all_learned(&mut store, 0);
        assert_eq!(kept.len(), MAX_LEARNED);
        assert_eq!(kept, rows[MORE..], "those written last");
    });
}
