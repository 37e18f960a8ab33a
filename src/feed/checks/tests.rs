use super::*;

#[test]
fn the_names_of_a_list_are_counted_in_each_format() {
    for (text, count) in [
        ("", 0),
        ("a.com\nb.com", 2),
        ("a.com\r\n\r\nb.com\r\n", 2),
        ("[\"a.com\",\"b.com\"]", 2),
        ("[\n    \"a.com\",\n    \"b.com\"\n]", 4),
        ("0.0.0.0 a.com b.com\tc.com", 4),
    ] {
        assert_eq!(count_possible_names(text.as_bytes()), count, "{text:?}");
    }
}
