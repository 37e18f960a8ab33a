//! The end of a response body (RFC 9112 section 6), and how the body is forwarded.

use bytes::{Buf, BytesMut};

use crate::exchange::MalformedResponse;
use crate::message::chunks::{ChunkDecoder, LAST_CHUNK, MalformedChunks, write_chunk};

/// The part of a response body that has still to arrive from the upstream server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyState {
    /// Nothing.
    Complete,
    /// This many bytes.
    BytesLeft(u64),
    /// All bytes until the connection ends; the client gets them as chunks.
    UntilClose,
    /// Chunks.
    Chunks(ChunkDecoder),
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
                BodyState::Chunks(mut chunks) => {
                    let decoded = chunks.decode(arrived, |data| write_chunk(data, out));
                    decoded.map_err(|MalformedChunks| MalformedResponse)?;
                    if !chunks.is_complete() {
                        *self = BodyState::Chunks(chunks);
                        return Ok(());
                    }
                    out.extend_from_slice(LAST_CHUNK);
                    BodyState::Complete
                }
            };
        }
        Ok(())
    }

    /// Ends the body because the server has closed the connection. Returns an error if the body is
    /// incomplete.
    pub fn finish_at_eof(&mut self, out: &mut Vec<u8>) -> Result<(), MalformedResponse> {
        match self {
            BodyState::Complete => {}
            BodyState::UntilClose => out.extend_from_slice(LAST_CHUNK),
            BodyState::BytesLeft(_) | BodyState::Chunks(_) => return Err(MalformedResponse),
        }
        *self = BodyState::Complete;
        Ok(())
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
