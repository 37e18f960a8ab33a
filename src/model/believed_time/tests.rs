use super::*;

#[test]
fn an_anchor_is_read_as_it_was_written() {
    let anchor = TimeAnchor { boot_id: "3f-a/7".to_owned(), boottime: 5, unix_now: -9 };
    assert_eq!(TimeAnchor::parse(&anchor.to_string()), Some(anchor));
    for other in ["", "1 2", "1 x boot", "1 2 boot more", "1 -9223372036854775808 x", "4e18 1 x"]
        .into_iter()
        .chain(["9223372036854775807 1 x"])
    {
        assert_eq!(TimeAnchor::parse(other), None, "{other}");
    }
}
