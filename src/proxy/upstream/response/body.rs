//! Where a server's body ends (RFC 9112 section 6), and how it is passed on.

use std::io::Write;

use bytes::{Buf, BytesMut};
use httparse::Status;

/// Bytes of a line between two chunks.
const LONGEST_LINE: usize = 4096;

/// It is no answer that could be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What is missing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    Over,
    /// So many bytes.
    Length(u64),
    /// It ends with the connection; for the client it becomes chunks.
    UntilClose,
    /// Chunks, the next part of which is this.
    Chunks(Chunk),
}

/// What comes next of chunks (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A line with a size.
    Size,
    /// So many bytes.
    Data(u64),
    /// The end of a line behind them.
    End,
    /// Fields, which are not passed on, and an empty line.
    Trailers,
}

impl Body {
    /// Passes on what has arrived of it, and takes that out.
    pub fn pass(&mut self, arrived: &mut BytesMut, out: &mut Vec<u8>) -> Result<(), Malformed> {
        while !arrived.is_empty() {
            *self = match *self {
                Body::Over => return Ok(()),
                Body::Length(left) => match take(arrived, left, out) {
                    0 => Body::Over,
                    left => Body::Length(left),
                },
                Body::UntilClose => {
                    write_chunk(arrived, out);
                    arrived.clear();
                    Body::UntilClose
                }
                Body::Chunks(chunk) => match chunk.pass(arrived, out)? {
                    Some(next) => next,
                    None => return Ok(()),
                },
            };
        }
        Ok(())
    }

    /// The server has closed: that may be the end.
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Body::Over => {}
            Body::UntilClose => out.extend_from_slice(b"0\r\n\r\n"),
            Body::Length(_) | Body::Chunks(_) => return Err(Malformed),
        }
        *self = Body::Over;
        Ok(())
    }
}

impl Chunk {
    /// What comes next; `None` if this has not arrived.
    fn pass(self, arrived: &mut BytesMut, out: &mut Vec<u8>) -> Result<Option<Body>, Malformed> {
        let next = match self {
            Chunk::Size => match httparse::parse_chunk_size(arrived) {
                Ok(Status::Complete((line, size))) if line <= LONGEST_LINE => {
                    arrived.advance(line);
                    if size == 0 { Chunk::Trailers } else { Chunk::Data(size) }
                }
                Ok(Status::Partial) if arrived.len() < LONGEST_LINE => return Ok(None),
                Ok(Status::Complete(_) | Status::Partial) | Err(_) => return Err(Malformed),
            },
            Chunk::Data(left) => {
                let here = arrived.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                write_chunk(&arrived[..here], out);
                arrived.advance(here);
                match left - here as u64 {
                    0 => Chunk::End,
                    left => Chunk::Data(left),
                }
            }
            Chunk::End => match take_line(arrived)? {
                Some(0) => Chunk::Size,
                Some(_) => return Err(Malformed),
                None => return Ok(None),
            },
            Chunk::Trailers => match take_line(arrived)? {
                Some(0) => {
                    out.extend_from_slice(b"0\r\n\r\n");
                    return Ok(Some(Body::Over));
                }
                Some(_) => Chunk::Trailers,
                None => return Ok(None),
            },
        };
        Ok(Some(Body::Chunks(next)))
    }
}

/// Passes on up to so many bytes, and says how many are left.
fn take(arrived: &mut BytesMut, left: u64, out: &mut Vec<u8>) -> u64 {
    let here = arrived.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    out.extend_from_slice(&arrived[..here]);
    arrived.advance(here);
    left - here as u64
}

fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    // Memory takes everything.
    let _ = write!(out, "{:x}\r\n", data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Takes a line out, and says how long it was without its end.
fn take_line(arrived: &mut BytesMut) -> Result<Option<usize>, Malformed> {
    match arrived.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && arrived[end - 1] == b'\r' => {
            arrived.advance(end + 1);
            Ok(Some(end - 1))
        }
        None if arrived.len() < LONGEST_LINE => Ok(None),
        Some(_) | None => Err(Malformed),
    }
}
