//! The end of a response body (RFC 9112 section 6), and how the body is forwarded.

use std::io::Write;

use bytes::{Buf, BytesMut};
use httparse::Status;

use crate::exchange::MalformedResponse;

/// The most bytes of a line in a chunked body: a chunk's size, the end of its data, or a trailer.
const MAX_CHUNK_LINE_BYTES: usize = 4096;

/// The part of a response body that has still to arrive from the upstream server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyState {
    /// Nothing.
    Complete,
    /// This many bytes.
    BytesLeft(u64),
    /// All bytes until the connection ends; the client gets them as chunks.
    UntilClose,
    /// Chunks; the next bytes belong to this element.
    Chunks(ChunkState),
}

/// The next element of a chunked body (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// A line with a chunk's size.
    Size,
    /// This many bytes of data.
    Data(u64),
    /// The end of line after the data.
    DataEnd,
    /// Trailer fields, which are not forwarded, and an empty line.
    Trailers,
}

impl BodyState {
    /// Moves the part of the body that has arrived from `arrived` to `out`. Bytes after the end of
    /// the body stay in `arrived`.
    pub fn forward_arrived_bytes(
        &mut self,
        arrived: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedResponse> {
        while !arrived.is_empty() {
            *self = match *self {
                BodyState::Complete => return Ok(()),
                BodyState::BytesLeft(left) => match forward_and_count_left(arrived, left, out) {
                    0 => BodyState::Complete,
                    left => BodyState::BytesLeft(left),
                },
                BodyState::UntilClose => {
                    write_chunk(arrived, out);
                    arrived.clear();
                    BodyState::UntilClose
                }
                BodyState::Chunks(chunk) => match chunk.forward_element(arrived, out)? {
                    Some(next) => next,
                    None => return Ok(()),
                },
            };
        }
        Ok(())
    }

    /// Ends the body because the server has closed the connection. Returns an error if the body is
    /// incomplete.
    pub fn finish_at_eof(&mut self, out: &mut Vec<u8>) -> Result<(), MalformedResponse> {
        match self {
            BodyState::Complete => {}
            BodyState::UntilClose => out.extend_from_slice(b"0\r\n\r\n"),
            BodyState::BytesLeft(_) | BodyState::Chunks(_) => return Err(MalformedResponse),
        }
        *self = BodyState::Complete;
        Ok(())
    }
}

impl ChunkState {
    /// Forwards one element of a chunked body, or the part of a chunk's data that has arrived.
    /// Returns the next state; `None` if a line is incomplete.
    fn forward_element(
        self,
        arrived: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<Option<BodyState>, MalformedResponse> {
        let next = match self {
            ChunkState::Size => match httparse::parse_chunk_size(arrived) {
                Ok(Status::Complete((line, size))) if line <= MAX_CHUNK_LINE_BYTES => {
                    arrived.advance(line);
                    if size == 0 { ChunkState::Trailers } else { ChunkState::Data(size) }
                }
                Ok(Status::Partial) if arrived.len() < MAX_CHUNK_LINE_BYTES => return Ok(None),
                Ok(Status::Complete(_) | Status::Partial) | Err(_) => {
                    return Err(MalformedResponse);
                }
            },
            ChunkState::Data(left) => {
                let length = arrived.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                write_chunk(&arrived[..length], out);
                arrived.advance(length);
                match left - length as u64 {
                    0 => ChunkState::DataEnd,
                    left => ChunkState::Data(left),
                }
            }
            ChunkState::DataEnd => match consume_line(arrived)? {
                Some(0) => ChunkState::Size,
                Some(_) => return Err(MalformedResponse),
                None => return Ok(None),
            },
            ChunkState::Trailers => match consume_line(arrived)? {
                Some(0) => {
                    out.extend_from_slice(b"0\r\n\r\n");
                    return Ok(Some(BodyState::Complete));
                }
                Some(_) => ChunkState::Trailers,
                None => return Ok(None),
            },
        };
        Ok(Some(BodyState::Chunks(next)))
    }
}

/// Moves up to `left` bytes from `arrived` to `out`. Returns how many of `left` have still to
/// arrive.
fn forward_and_count_left(arrived: &mut BytesMut, left: u64, out: &mut Vec<u8>) -> u64 {
    let length = arrived.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    out.extend_from_slice(&arrived[..length]);
    arrived.advance(length);
    left - length as u64
}

fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    // A write to a Vec can't fail.
    let _ = write!(out, "{:x}\r\n", data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Removes a line from the front of `arrived`. Returns the line's length without its CRLF; `None`
/// if the line is incomplete.
fn consume_line(arrived: &mut BytesMut) -> Result<Option<usize>, MalformedResponse> {
    match arrived.iter().take(MAX_CHUNK_LINE_BYTES).position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && arrived[end - 1] == b'\r' => {
            arrived.advance(end + 1);
            Ok(Some(end - 1))
        }
        None if arrived.len() < MAX_CHUNK_LINE_BYTES => Ok(None),
        Some(_) | None => Err(MalformedResponse),
    }
}
