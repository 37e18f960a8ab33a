use super::*;

#[test]
fn invalid_dates_and_repeated_names_or_votes_are_faults() {
    let text = "[[source]]\nname = \"a\"\ndate = \"2026-01-01\"\nvote = \"x\"\n\
                    [[source]]\nname = \"a\"\ndate = \"soon\"\nvote = \"x\"\n";
    let error = parse_sources(text, "s.toml").unwrap_err().to_string();
    assert_eq!(
        error,
        "s.toml:5: date: expected a day, YYYY-MM-DD, but found \"soon\"\n\
             s.toml:5: name: expected \"a\" once, but found it again (first in line 1)\n\
             s.toml:5: vote: expected \"x\" once, but found it again (first in line 1)"
    );
    assert!(parse_sources("[[source]]\nnam = 1\n", "s.toml").is_err());
}
