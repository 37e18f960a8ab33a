use super::*;

#[test]
fn only_a_short_body_whose_end_is_known_is_found() {
    let length = |length| SmallBody::find(RequestBodyFraming::Length(length), b"", usize::MAX);
    assert!(matches!(length(0), Some(SmallBody::Length(0))));
    assert!(matches!(length(65_536), Some(SmallBody::Length(65_536))));
    assert!(length(65_537).is_none());
    let chunks = |bytes: &[u8], max| SmallBody::find(RequestBodyFraming::Chunked, bytes, max);
    assert!(chunks(b"5\r\nhello\r\n0\r\n\r\n", 4).is_none());
    let chunks = |bytes: &[u8]| chunks(bytes, 1 << 20);
    let found = chunks(b"5\r\nhello\r\n0\r\n\r\nGET");
    let Some(SmallBody::Chunks { encoded_length: 15, data }) = found else {
        panic!("{found:?}");
    };
    assert_eq!(&data[..], b"hello");
    assert!(chunks(b"5\r\nhello\r\n0\r\n\r").is_none());
    assert!(chunks(b"5 \r\nhello\r\n0\r\n\r\n").is_none());
    let long = format!("10001\r\n{}\r\n0\r\n\r\n", "b".repeat(0x10001));
    assert!(chunks(long.as_bytes()).is_none());
}
