use super::*;

#[test]
fn a_place_counts_lines_and_characters_from_one() {
    let text = "a\nüb\n\nc";
    let index = LineIndex::new(text);
    for (offset, expected) in
        [(0, "f:1:1"), (1, "f:1:2"), (2, "f:2:1"), (4, "f:2:2"), (6, "f:3:1"), (8, "f:4:2")]
    {
        assert_eq!(index.format_place("f", offset), expected, "{offset}");
    }
    assert_eq!(index.line_and_text_before(5), (2, "üb"));
}
