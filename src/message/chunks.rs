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
                    let (next, dropped) = self.find_element_after_line(line)?;
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
    fn find_element_after_line(
        &self,
        line: &[u8],
    ) -> Result<(NextElement, usize), MalformedChunks> {
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
mod tests;
