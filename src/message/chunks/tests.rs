use super::*;

type DataAndRest = (Vec<u8>, Vec<u8>);

/// Returns the data of a body that arrives in parts of `step` bytes, and the bytes behind it;
/// `None` inside if the body is incomplete.
fn decode(
    syntax: ChunkSyntax,
    bytes: &[u8],
    step: usize,
) -> Result<Option<DataAndRest>, MalformedChunks> {
    let (mut decoder, mut data) = (ChunkDecoder::new(syntax), Vec::new());
    let mut arrived = BytesMut::new();
    for part in bytes.chunks(step) {
        arrived.extend_from_slice(part);
        decoder.decode(&mut arrived, |part| data.extend_from_slice(part))?;
    }
    Ok(decoder.is_complete().then(|| (data, arrived.to_vec())))
}

#[test]
fn the_data_of_all_chunks_is_found_however_they_arrive() {
    for body in [
        "5\r\nhello\r\n0\r\n\r\n",
        "5;name=value;flag;text=\"a;\\\"b\"\r\nhello\r\n000\r\nDigest: x\r\nEmpty:\r\n\r\n",
        "2\r\nhe\r\n0003\r\nllo\r\n0;last\r\n\r\n",
    ] {
        let bytes = format!("{body}GET /next");
        for step in 1..bytes.len() {
            let found = decode(ChunkSyntax::Strict, bytes.as_bytes(), step).unwrap();
            let (data, rest) = found.unwrap();
            assert_eq!((&data[..], &rest[..]), (&b"hello"[..], &b"GET /next"[..]), "{body:?}");
        }
        for end in 0..body.len() {
            let found = decode(ChunkSyntax::Strict, &body.as_bytes()[..end], 7).unwrap();
            assert_eq!(found, None, "{:?}", &body[..end]);
        }
    }
}

#[test]
fn what_two_parsers_could_read_differently_is_malformed() {
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloo\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 ;a\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5_\r\nhello\r\n0\r\n\r\n",
        "5,\r\nhello\r\n0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        ";a\r\nhello\r\n0\r\n\r\n",
        "00000000000000005\r\nhello\r\n0\r\n\r\n",
        "10000000000000000\r\nhello\r\n0\r\n\r\n",
        "5;a=\"\r\nhello\r\n0\r\n\r\n",
        "5;a\r\r\nhello\r\n0\r\n\r\n",
        "5;a\0\r\nhello\r\n0\r\n\r\n",
        "5;\u{e4}\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nNo colon\r\n\r\n",
        "5\r\nhello\r\n0\r\n: x\r\n\r\n",
        "5\r\nhello\r\n0\r\nA : x\r\n\r\n",
        "5\r\nhello\r\n0\r\nA: x\r\n folded\r\n\r\n",
        "5\r\nhello\r\n0\r\nA: x\ry\r\n\r\n",
        "5\r\nhello\r\n0\r\nA: x\0\r\n\r\n",
    ] {
        for step in [1, 3, body.len()] {
            let found = decode(ChunkSyntax::Strict, body.as_bytes(), step);
            assert_eq!(found, Err(MalformedChunks), "{body:?}");
        }
    }
    let padded = decode(ChunkSyntax::PaddedSizes, b"5  \r\nhello\r\n0 \r\n\r\n", 4);
    assert_eq!(padded, Ok(Some((b"hello".to_vec(), Vec::new()))));
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let line = "a".repeat(MAX_LINE_BYTES - 4);
    let long = decode(ChunkSyntax::Strict, format!("1;{line}aaa\r\n").as_bytes(), 100);
    assert_eq!(long, Err(MalformedChunks));
    let chunk = format!("1;{line}\r\nx\r\n");
    let within = chunk.repeat(4) + "0\r\n\r\n";
    let found = decode(ChunkSyntax::Strict, within.as_bytes(), 100).unwrap();
    assert_eq!(found, Some((b"xxxx".to_vec(), Vec::new())));
    let beyond = decode(ChunkSyntax::Strict, chunk.repeat(5).as_bytes(), 100);
    assert_eq!(beyond, Err(MalformedChunks));
    let trailers = format!("0\r\n{}", format!("A: {}\r\n", "b".repeat(4000)).repeat(5));
    assert_eq!(decode(ChunkSyntax::Strict, trailers.as_bytes(), 100), Err(MalformedChunks));
}
