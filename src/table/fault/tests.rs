use super::*;

#[test]
fn an_error_shows_twenty_faults_and_counts_the_rest() {
    let mut error = TableFaults::default();
    for line in 1..=25 {
        error.push(TableFault::expected(format!("a.txt:{line}"), "a name", quote_excerpt("-")));
    }
    let text = error.to_string();
    assert_eq!(text.lines().count(), 21);
    assert!(text.starts_with("a.txt:1: expected a name, but found \"-\"\n"));
    assert!(text.ends_with("\nand 5 more"));
    assert_eq!(error.fault_count(), 25);
}

#[test]
fn no_fault_repeats_an_address_or_a_long_text() {
    for address in [
        "user@example.com",
        "user%40example.com",
        "user\u{ff20}example.com",
        "user\u{fe6b}example.com",
        "user&commat;example.com",
        "user\\u0040example.com",
    ] {
        assert!(!quote_excerpt(address).contains("user"), "{address}");
    }
    assert!(quote_excerpt(&"a".repeat(500)).len() < 80);
}
