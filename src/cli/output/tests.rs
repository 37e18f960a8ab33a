use super::*;

#[test]
fn columns_are_shortened_until_they_fit_the_terminal() {
    let rows = vec![vec!["key_1".to_owned(), "a".repeat(50), "x".to_owned()]];
    let header = ["ID", "ACCOUNT", "PLAN"];
    let wide = format_columns_within(&header, &rows, None);
    assert!(wide.lines().all(|line| !line.contains('…')) && wide.contains(&"a".repeat(50)));
    let narrow = format_columns_within(&header, &rows, Some(30));
    assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
    assert!(narrow.contains("aaa…  x"), "{narrow}");
    let tiny = format_columns_within(&header, &rows, Some(3));
    assert!(tiny.contains("ACCOUNT"), "{tiny}");
}

#[test]
fn a_column_may_be_wider_than_a_format_string_pads() {
    let long = "a".repeat(70_000);
    let rows = vec![
        vec!["1".to_owned(), long.clone(), "x".to_owned()],
        vec!["2".to_owned(), "b".to_owned(), "y".to_owned()],
    ];
    let shown = format_columns_within(&["ID", "CHANGE", "BY"], &rows, None);
    let widths: Vec<usize> = shown.lines().map(str::len).collect();
    assert_eq!(widths, [70_008, 70_007, 70_007]);
    assert!(shown.contains(&long));
}

#[test]
fn no_text_in_a_column_controls_the_terminal() {
    let rows = vec![vec!["a\u{1b}]0;b\u{7}".to_owned(), "\u{9b}2J\u{202e}\n".to_owned()]];
    let shown = format_columns(&["ID", "LABEL"], &rows);
    let escaped = r"a\u{1b}]0;b\u{7}  \u{9b}2J\u{202e}\u{a}";
    assert_eq!(shown.lines().nth(1), Some(escaped));
    assert_eq!(shown.lines().count(), 2);
}
