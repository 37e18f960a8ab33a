//! The chunked transfer coding (RFC 9112 section 7.1): finds the data in the bytes of a body, and
//! writes data as chunks.
//!
//! riskgate drops extensions and trailer fields.

use std::io::Write;

use bytes::{Buf, BytesMut};

use crate::support::byte_sets::is_token_byte;

/// The most bytes of a line with its end: a chunk's size with its extensions, or a trailer field.
const MAX_LINE_BYTES: usize = 4096;
/// The most bytes of all extensions and trailer fields of one body.
const MAX_DROPPED_BYTES: usize = 16 * 1024;
/// The most digits of a chunk's size. Two parsers could read a longer number differently.
const MAX_SIZE_DIGITS: usize = 16;

/// The end of a chunked body without trailer fields.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The error if the bytes are no chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunks")]
pub struct MalformedChunks;

/// Which lines between chunks riskgate accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkSyntax {
    /// Only lines that every parser reads alike; for requests.
    Strict,
    /// Blanks behind the size of a chunk as well, because some servers write them, and trailer
    /// lines that are no fields.
    PaddedSizes,
}

/// Reads the chunks of one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkDecoder {
    syntax: ChunkSyntax,
    next: NextElement,
    dropped_bytes: usize,
}

/// The element to which the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextElement {
    /// A line with a chunk's size.
    Size,
    /// Data, of which this many bytes are still to come.
    Data(u64),
    /// The end of line after the data.
    DataEnd,
    /// Trailer fields and an empty line.
    Trailers,
    /// Nothing: the body is complete.
    End,
}

impl ChunkDecoder {
    /// Creates a decoder at the start of a body.
    pub fn new(syntax: ChunkSyntax) -> ChunkDecoder {
        ChunkDecoder { syntax, next: NextElement::Size, dropped_bytes: 0 }
    }

    /// Returns true if the body is complete.
    pub fn is_complete(&self) -> bool {
        self.next == NextElement::End
    }

    /// Removes the body from the front of `arrived`, as far as it has arrived, and passes its data
    /// to `sink`. An incomplete line, and bytes after the end of the body, stay in `arrived`.
    pub fn decode(
        &mut self,
        arrived: &mut BytesMut,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<(), MalformedChunks> {
        while !arrived.is_empty() {
            self.next = match self.next {
                NextElement::End => return Ok(()),
                NextElement::Data(left) => {
                    let length = arrived.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    sink(&arrived[..length]);
                    arrived.advance(length);
                    match left - length as u64 {
                        0 => NextElement::DataEnd,
                        left => NextElement::Data(left),
                    }
                }
                NextElement::Size | NextElement::DataEnd | NextElement::Trailers => {
                    let Some(line) = first_line(arrived)? else { return Ok(()) };
                    let (next, dropped) = self.element_after_line(line)?;
                    self.dropped_bytes += dropped;
                    if self.dropped_bytes > MAX_DROPPED_BYTES {
                        return Err(MalformedChunks);
                    }
                    let length = line.len() + 2;
                    arrived.advance(length);
                    next
                }
            };
        }
        Ok(())
    }

    /// Returns the element that follows a line, and how many bytes of the line are dropped.
    fn element_after_line(&self, line: &[u8]) -> Result<(NextElement, usize), MalformedChunks> {
        match self.next {
            NextElement::Size => {
                let (size, extensions) = self.parse_size_line(line)?;
                let next = if size == 0 { NextElement::Trailers } else { NextElement::Data(size) };
                Ok((next, extensions))
            }
            NextElement::DataEnd if line.is_empty() => Ok((NextElement::Size, 0)),
            NextElement::Trailers if line.is_empty() => Ok((NextElement::End, 0)),
            NextElement::Trailers if self.is_trailer_valid(line) => {
                Ok((NextElement::Trailers, line.len()))
            }
            _ => Err(MalformedChunks),
        }
    }

    /// Returns the size of a chunk, and the length of its extensions.
    fn parse_size_line(&self, line: &[u8]) -> Result<(u64, usize), MalformedChunks> {
        let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
        let (digits, mut rest) = line.split_at(end);
        if digits.is_empty() || digits.len() > MAX_SIZE_DIGITS {
            return Err(MalformedChunks);
        }
        let digits = std::str::from_utf8(digits).map_err(|_| MalformedChunks)?;
        let size = u64::from_str_radix(digits, 16).map_err(|_| MalformedChunks)?;
        if self.syntax == ChunkSyntax::PaddedSizes {
            rest = rest.trim_ascii();
        }
        let is_valid = rest.is_empty() || rest[0] == b';' && are_extensions_valid(rest);
        if is_valid { Ok((size, rest.len())) } else { Err(MalformedChunks) }
    }

    fn is_trailer_valid(&self, line: &[u8]) -> bool {
        let colon = line.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(line.len());
        self.syntax == ChunkSyntax::PaddedSizes || colon > 0 && line.get(colon) == Some(&b':')
    }
}

/// Appends data as one chunk. Appends nothing if `data` is empty, because an empty chunk would be
/// the last chunk.
pub fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    // A write to a Vec can't fail.
    let _ = write!(out, "{:x}\r\n", data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Returns true if extensions contain only visible ASCII characters and blanks, and close each
/// quote that they open. A parser could read on to the next line in search of the closing quote.
fn are_extensions_valid(extensions: &[u8]) -> bool {
    let mut is_quoted = false;
    let mut bytes = extensions.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => drop(bytes.next()),
            b' ' | b'\t' | 0x21..=0x7e => {}
            _ => return false,
        }
    }
    !is_quoted
}

/// Returns the line at the front of `arrived`, without its CRLF; `None` if the line is incomplete.
fn first_line(arrived: &[u8]) -> Result<Option<&[u8]>, MalformedChunks> {
    let searched = &arrived[..arrived.len().min(MAX_LINE_BYTES)];
    let line = match memchr::memchr(b'\n', searched) {
        Some(end) => searched[..end].strip_suffix(b"\r").ok_or(MalformedChunks)?,
        None if arrived.len() < MAX_LINE_BYTES => {
            // A control character before the last byte is malformed, whatever follows.
            let before_last = searched.split_last().map_or(&[][..], |(_, before)| before);
            return if has_control_byte(before_last) { Err(MalformedChunks) } else { Ok(None) };
        }
        None => return Err(MalformedChunks),
    };
    if has_control_byte(line) { Err(MalformedChunks) } else { Ok(Some(line)) }
}

fn has_control_byte(line: &[u8]) -> bool {
    line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
}

#[cfg(test)]
mod tests {
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
}
