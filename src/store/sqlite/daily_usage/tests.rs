use std::time::Duration;

use super::*;

#[test]
fn a_value_that_cannot_be_read_stops_no_other_and_no_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(&folder.path().join("s.db"), Duration::from_secs(5)).unwrap();
    let max = i64::MAX;
    let insert = format!(
        "INSERT INTO daily_usage VALUES
         (0, 'a', 1, 'check', 'k', x'01', 2), (0, 'a', 1, 'check', 'k', x'02', 3),
         (0, 'b', 1, 'check', 'k', x'01', 'many'), (0, 'b', 1, 'check', 'k', x'02', 4),
         (0, 'c', 1, 'check', 'k', x'01', 'many'), (0, 'c', 2, 'check', 'k', x'01', -1),
         (0, 'd', 1, 'check', 'k', x'01', {max}), (0, 'd', 1, 'check', 'k', x'02', {max}),
         (0, 'e', 1, 'check', 'k', x'01', {max}), (0, 'e', 1, 'check', 'k', x'02', 1)"
    );
    store.connection.execute_batch(&insert).unwrap();
    let mut read = Vec::new();
    let mut after = None;
    loop {
        let page = store.read_daily_usage(Month::FIRST, None, after.as_ref(), 2).unwrap();
        after = page.last().map(DailyUsageRow::cursor);
        let is_last = page.len() < 2;
        read.extend(page.into_iter().map(|row| (row.account, row.calls)));
        if is_last {
            break;
        }
    }
    let max = max.cast_unsigned();
    let expected = [("a", 5), ("b", 4), ("d", 2 * max), ("e", max + 1)];
    assert_eq!(read, expected.map(|(account, calls)| (account.to_owned(), calls)));
    let error = store.daily_usage_to_copy(Month::FIRST).unwrap_err().to_string();
    assert!(error.contains("the usage of b by day"), "{error}");
}
