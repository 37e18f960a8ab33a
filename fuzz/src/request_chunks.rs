//! riskgate finds the same data in a chunked body, in however many parts it arrives, and as
//! `httparse` does. It keeps what follows the body.

use bytes::BytesMut;
use httparse::{Status, parse_chunk_size};
use riskgate::message::chunks::{ChunkDecoder, ChunkSyntax, LAST_CHUNK, write_chunk};

/// What a body contains, or how far it is read.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Body { data: Vec<u8>, rest: Vec<u8> },
    Incomplete,
    Malformed,
}

/// Panics if a promise is broken for this input.
pub fn check_input(bytes: &[u8]) {
    for syntax in [ChunkSyntax::Strict, ChunkSyntax::PaddedSizes] {
        let whole = decode_in_parts(syntax, bytes, bytes.len().max(1));
        for step in [1, 7] {
            assert_eq!(decode_in_parts(syntax, bytes, step), whole, "in parts of {step}");
        }
        let Found::Body { data, rest } = whole else { continue };
        assert!(bytes.ends_with(&rest));
        assert_eq!(decode_with_httparse(bytes), Some(data.clone()), "httparse finds other data");
        let mut written = Vec::new();
        for part in data.chunks(5) {
            write_chunk(part, &mut written);
        }
        written.extend_from_slice(LAST_CHUNK);
        let again = decode_in_parts(ChunkSyntax::Strict, &written, 3);
        assert_eq!(again, Found::Body { data, rest: Vec::new() });
    }
}

fn decode_in_parts(syntax: ChunkSyntax, bytes: &[u8], step: usize) -> Found {
    let (mut decoder, mut data) = (ChunkDecoder::new(syntax), Vec::new());
    let mut arrived = BytesMut::new();
    for part in bytes.chunks(step) {
        arrived.extend_from_slice(part);
        if decoder.decode(&mut arrived, |part| data.extend_from_slice(part)).is_err() {
            return Found::Malformed;
        }
    }
    match decoder.is_complete() {
        true => Found::Body { data, rest: arrived.to_vec() },
        false => Found::Incomplete,
    }
}

/// Returns the data of all chunks before the last one.
fn decode_with_httparse(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let Ok(Status::Complete((line, size))) = parse_chunk_size(bytes) else { return None };
        bytes = &bytes[line..];
        if size == 0 {
            return Some(data);
        }
        let (chunk, rest) = bytes.split_at_checked(usize::try_from(size).ok()?)?;
        data.extend_from_slice(chunk);
        bytes = rest.strip_prefix(b"\r\n")?;
    }
}
