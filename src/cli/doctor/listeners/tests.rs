use super::*;

#[test]
fn a_handshake_without_an_answer_is_told_in_words() {
    for (kind, expected) in [
        (io::ErrorKind::WouldBlock, "never answers"),
        (io::ErrorKind::UnexpectedEof, "closes the connection"),
        (io::ErrorKind::InvalidData, "not one of TLS"),
    ] {
        let text = describe_failed_handshake(&io::Error::new(kind, "os error 11"));
        assert!(text.ends_with(expected) && !text.contains("os error"), "{text}");
    }
}
