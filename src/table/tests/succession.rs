//! Which table may replace the serving table.

use super::support::load_lists;

#[test]
fn a_table_is_rejected_if_a_list_of_20_rows_or_more_was_emptied() {
    let rows = |head: &str, count: u32| -> String {
        (0..count).map(|n| format!("{head}{n}.com\n")).collect()
    };
    let large = ("a.txt", rows("large", 500));
    let build = |short: &str| {
        let free = ("free.txt", short);
        load_lists(&[("protected.txt", "gmail.com\n"), (large.0, large.1.as_str()), free])
    };
    let before = build(&rows("free", 30));
    let error = build("").check_succession(&before).err().unwrap().to_string();
    assert!(error.contains("free.txt: expected at most 9 of 30 rows"), "{error}");
    // A manifest that no longer names the list is rejected as well: it may be truncated.
    let bare = load_lists(&[("protected.txt", "gmail.com\n"), (large.0, large.1.as_str())]);
    let error = bare.check_succession(&before).err().unwrap().to_string();
    assert!(error.contains("free.txt: expected at most 9 of 30 rows"), "{error}");
    // Short lists are not checked, because people edit them by hand.
    let before = build(&rows("free", 5));
    build("").check_succession(&before).unwrap();
}

#[test]
fn a_table_that_differs_too_much_or_flags_a_protected_name_is_rejected() {
    let rows = |range: std::ops::Range<u32>| -> String {
        range.map(|n| format!("bad{n}.com\n")).collect()
    };
    let protected = ("protected.txt", "gmail.com\n");
    let before = load_lists(&[("a.txt", &rows(0..99)), protected]);
    before.check_succession(&before).unwrap();
    load_lists(&[("a.txt", &rows(15..114)), protected]).check_succession(&before).unwrap();
    let error = load_lists(&[("a.txt", &rows(16..115)), protected])
        .check_succession(&before)
        .err()
        .unwrap();
    assert!(
        error.to_string().ends_with(
            "expected at most 30 of 100 rows to be added or removed, but found 16 new and 16 gone \
             (guard.max_changed_share)"
        ),
        "{error}"
    );
    let share = ("manifest.toml", "[guard]\nmax_changed_share = 1.0\n");
    load_lists(&[("a.txt", &rows(50..149)), protected, share]).check_succession(&before).unwrap();

    let unprotected = load_lists(&[("a.txt", &(rows(0..99) + "gmail.com\n"))]);
    let error = unprotected.check_succession(&before).err().unwrap().to_string();
    assert!(error.contains("a protected name would be flagged: gmail.com"), "{error}");
    let allowed = ("manifest.toml", "[guard]\nallow_flagging = [\"gmail.com\"]\n");
    let list = rows(0..99) + "gmail.com\n";
    load_lists(&[("a.txt", &list), protected, allowed]).check_succession(&before).unwrap();
}
