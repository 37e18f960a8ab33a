use super::*;

#[test]
fn an_id_is_1_to_128_visible_ascii_bytes() {
    assert_eq!(RequestId::parse(b"a-1").unwrap().as_str(), "a-1");
    for length in [32, 33, 128] {
        assert_eq!(RequestId::parse(&vec![b'x'; length]).unwrap().len(), length);
    }
    for bad in [b"".as_slice(), &[b'x'; 129], b"a b", b"a\xc3\xa9", b"a\x7f"] {
        assert!(RequestId::parse(bad).is_none(), "{bad:?}");
    }
}

#[test]
fn ids_differ_between_calls_and_generators() {
    let (one, other) = (RequestIdGenerator::new(), RequestIdGenerator::new());
    let mut all: Vec<String> = (0..1_000)
        .flat_map(|_| [one.generate().to_string(), other.generate().to_string()])
        .collect();
    assert!(all.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2_000);
}
