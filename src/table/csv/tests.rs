use super::*;

#[test]
fn fields_are_split_at_commas_outside_quotes() {
    for (line, expected) in [
        ("a,b", vec!["a", "b"]),
        ("a,,", vec!["a", "", ""]),
        ("", vec![""]),
        ("a,\"b, \"\"c\"\"\",d", vec!["a", "b, \"c\"", "d"]),
        ("\"\"", vec![""]),
        (" a , b\t,\" c \" , \"d\"", vec!["a", "b", " c ", "d"]),
    ] {
        assert_eq!(parse_fields(line).unwrap(), expected, "{line}");
    }
}

#[test]
fn a_formatted_line_parses_to_the_same_fields() {
    for texts in [vec!["a", "", "b"], vec!["a,b", "say \"no\"", " c "], vec!["#a", "\""]] {
        let written = format_line(&texts);
        assert_eq!(parse_fields(written.trim_end_matches('\n')).unwrap(), texts, "{written}");
        assert!(!written.starts_with('#'));
    }
}

#[test]
fn stray_quotes_are_faults() {
    for line in ["a\"b,c", "\"a", "\"a\"b,c", "a,\"b"] {
        assert!(parse_fields(line).is_err(), "{line}");
    }
}
