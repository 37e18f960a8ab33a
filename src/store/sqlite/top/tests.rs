use std::time::Duration;

use super::*;

#[test]
fn a_damaged_row_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(&folder.path().join("s.db"), Duration::from_secs(5)).unwrap();
    let credit = |domain: &str| TopCredit {
        domain: domain.to_owned(),
        initial_count: 1.0,
        at: 1_790_000_000,
        dedup_hashes: vec![(7, 1)],
    };
    store.add_credits(&[credit("a.test")], &[], 20_000, 60.0).unwrap();
    let insert = "INSERT INTO top_seen VALUES (20000, 'x');
                      INSERT INTO top_count VALUES ('b.test', 'x', 5, 'y')";
    store.connection.execute_batch(insert).unwrap();
    let (rows, hashes) = store.top_rows_and_dedup_hashes(20_000).unwrap();
    let domains =
        |rows: &[TopRow]| rows.iter().map(|row| row.domain.clone()).collect::<Vec<String>>();
    assert_eq!((domains(&rows), hashes), (vec!["a.test".to_owned()], vec![7]));
    let error = store.top_rows_to_copy().unwrap_err().to_string();
    assert!(error.contains("the top count \"b.test\""), "{error}");
    // A look-up replaces the row.
    store.add_credits(&[credit("b.test")], &[], 20_001, 60.0).unwrap();
    assert_eq!(domains(&store.top_rows_to_copy().unwrap()), ["a.test", "b.test"]);
}
