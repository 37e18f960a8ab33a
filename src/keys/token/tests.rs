use super::*;

#[test]
fn a_generated_key_ends_with_its_checksum() {
    let token = Token::generate("rg_").unwrap();
    let text = token.expose_text();
    assert_eq!(text.len(), 3 + 32);
    assert!(text.starts_with("rg_"));
    assert!(text[3..].bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_ne!(text, Token::generate("rg_").unwrap().expose_text());
    let (head, check) = text.split_at(29);
    let value = check.bytes().fold(0u64, |sum, byte| {
        sum * 62 + BASE62.iter().position(|digit| *digit == byte).unwrap() as u64
    });
    assert_eq!(value, u64::from(crc32fast::hash(head.as_bytes())));
    assert!(Token::has_valid_checksum(text.as_bytes()));
    assert!(!Token::has_valid_checksum(head.as_bytes()));
    assert!(!Token::has_valid_checksum(b"0123456789abcdef0123456789abcdef"));
    assert!(!Token::has_valid_checksum(b"short"));
}

#[test]
fn the_same_seed_gives_the_same_key() {
    let derive = |seed: u8| Token::derive("rg_", &[seed; 32]).unwrap().expose_text().to_owned();
    assert_eq!(derive(1), derive(1));
    assert_ne!(derive(1), derive(2));
    assert!(Token::has_valid_checksum(derive(3).as_bytes()));
    assert_eq!(derive(4).len(), 35);
}

#[test]
fn a_key_is_16_to_256_visible_characters() {
    for (text, good) in [
        ("a".repeat(15), false),
        ("a".repeat(16), true),
        ("a".repeat(256), true),
        ("a".repeat(257), false),
        (format!("{} b", "a".repeat(16)), false),
        (format!("{}\u{e9}", "a".repeat(16)), false),
    ] {
        assert_eq!(Token::parse(text.clone()).is_ok(), good, "{text}");
    }
}
