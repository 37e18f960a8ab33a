//! Where a server's body ends (RFC 9112 section 6), and how it is passed on.

use std::io::Write;

use bytes::{Buf, BytesMut};
use httparse::Status;

/// Bytes of a line between two chunks.
const MAX_CHUNK_LINE: usize = 4096;

/// It is no answer that could be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedResponse;

/// What is missing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyState {
    /// Nothing.
    Complete,
    /// So many bytes.
    Length(u64),
    /// It ends with the connection; for the client it becomes chunks.
    UntilClose,
    /// Chunks, the next part of which is this.
    Chunks(ChunkState),
}

/// What comes next of chunks (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// A line with a size.
    Size,
    /// So many bytes.
    Data(u64),
    /// The end of a line behind them.
    DataEnd,
    /// Fields, which are not passed on, and an empty line.
    Trailers,
}

impl BodyState {
    /// Passes on what has arrived of it, and takes that out.
    pub fn forward(
        &mut self,
        arrived: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedResponse> {
        while !arrived.is_empty() {
            *self = match *self {
                BodyState::Complete => return Ok(()),
                BodyState::Length(left) => match forward_bytes(arrived, left, out) {
                    0 => BodyState::Complete,
                    left => BodyState::Length(left),
                },
                BodyState::UntilClose => {
                    write_chunk(arrived, out);
                    arrived.clear();
                    BodyState::UntilClose
                }
                BodyState::Chunks(chunk) => match chunk.forward(arrived, out)? {
                    Some(next) => next,
                    None => return Ok(()),
                },
            };
        }
        Ok(())
    }

    /// The server has closed: that may be the end.
    pub fn finish_at_eof(&mut self, out: &mut Vec<u8>) -> Result<(), MalformedResponse> {
        match self {
            BodyState::Complete => {}
            BodyState::UntilClose => out.extend_from_slice(b"0\r\n\r\n"),
            BodyState::Length(_) | BodyState::Chunks(_) => return Err(MalformedResponse),
        }
        *self = BodyState::Complete;
        Ok(())
    }
}

impl ChunkState {
    /// What comes next; `None` if this has not arrived.
    fn forward(
        self,
        arrived: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<Option<BodyState>, MalformedResponse> {
        let next = match self {
            ChunkState::Size => match httparse::parse_chunk_size(arrived) {
                Ok(Status::Complete((line, size))) if line <= MAX_CHUNK_LINE => {
                    arrived.advance(line);
                    if size == 0 { ChunkState::Trailers } else { ChunkState::Data(size) }
                }
                Ok(Status::Partial) if arrived.len() < MAX_CHUNK_LINE => return Ok(None),
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

/// Passes on up to so many bytes, and says how many are left.
fn forward_bytes(arrived: &mut BytesMut, left: u64, out: &mut Vec<u8>) -> u64 {
    let length = arrived.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    out.extend_from_slice(&arrived[..length]);
    arrived.advance(length);
    left - length as u64
}

fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    // Memory takes everything.
    let _ = write!(out, "{:x}\r\n", data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Takes a line out, and says how long it was without its end.
fn consume_line(arrived: &mut BytesMut) -> Result<Option<usize>, MalformedResponse> {
    match arrived.iter().take(MAX_CHUNK_LINE).position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && arrived[end - 1] == b'\r' => {
            arrived.advance(end + 1);
            Ok(Some(end - 1))
        }
        None if arrived.len() < MAX_CHUNK_LINE => Ok(None),
        Some(_) | None => Err(MalformedResponse),
    }
}
