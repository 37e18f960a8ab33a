use super::*;

#[test]
fn only_one_bearer_token_of_16_to_256_bytes_is_accepted() {
    let good = "k".repeat(16);
    for value in [format!("Bearer {good}"), format!("bEARER {good}"), format!("Bearer   {good} ")] {
        assert_eq!(
            PresentedKey::read_bearer([value.as_bytes()].into_iter()).0,
            Some(good.as_bytes()),
            "{value}"
        );
    }
    for value in [
        good.clone(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Bearer{good}"),
        format!("Bearer\t{good}"),
        format!("Basic {good}"),
        format!("Bearer {good} {good}"),
        format!("Bearer {good},{good}"),
        format!("Bearer {}", "k".repeat(15)),
        format!("Bearer {}", "k".repeat(257)),
        format!("Bearer {good}\u{e9}"),
    ] {
        assert_eq!(PresentedKey::read_bearer([value.as_bytes()].into_iter()).0, None, "{value}");
    }
}

#[test]
fn repeated_or_invalid_origin_is_malformed() {
    let read = |values: &[&str]| OriginHeader::read(values.iter().map(|value| value.as_bytes()));
    assert_eq!(read(&[]), OriginHeader::Absent);
    assert!(matches!(read(&["https://a.com"]), OriginHeader::Valid(..)));
    for values in [&["null"][..], &["https://a.com", "https://a.com"], &["https://a.com/"]] {
        assert!(matches!(read(values), OriginHeader::Malformed(_)), "{values:?}");
    }
}
