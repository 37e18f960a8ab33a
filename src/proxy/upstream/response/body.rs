//! The body of a response on its way to the client: where it ends (RFC 9112 section 6), and how
//! riskgate writes it.

use bytes::{Buf, BytesMut};

use crate::exchange::{BodyFraming, MalformedResponse};
use crate::message::chunks::{ChunkDecoder, ChunkSyntax, LAST_CHUNK, MalformedChunks, write_chunk};

/// The body of a response that riskgate is forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseBody {
    rest: RestOfBody,
    has_chunks: bool,
    forwarded_bytes: u64,
}

/// The part of a response body that has still to arrive from the upstream server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestOfBody {
    /// Nothing.
    None,
    /// This many bytes.
    Bytes(u64),
    /// All bytes until the connection ends.
    UntilClose,
    /// Chunks.
    Chunks(ChunkDecoder),
}

impl ResponseBody {
    /// Makes a body of which nothing has arrived. If `is_chunked_if_unbounded`, the client gets a
    /// body of unknown length in chunks.
    pub(super) fn new(framing: BodyFraming, is_chunked_if_unbounded: bool) -> ResponseBody {
        let rest = match framing {
            BodyFraming::Empty => RestOfBody::None,
            BodyFraming::Chunked => RestOfBody::Chunks(ChunkDecoder::new(ChunkSyntax::PaddedSizes)),
            BodyFraming::Length(length) => RestOfBody::Bytes(length),
            BodyFraming::UntilClose => RestOfBody::UntilClose,
        };
        let is_unbounded = matches!(rest, RestOfBody::Chunks(_) | RestOfBody::UntilClose);
        let has_chunks = is_chunked_if_unbounded && is_unbounded;
        ResponseBody { rest, has_chunks, forwarded_bytes: 0 }
    }

    /// The bytes of the body that riskgate has forwarded, without the framing of chunks.
    pub fn forwarded_bytes(&self) -> u64 {
        self.forwarded_bytes
    }

    /// Returns true if the whole body has been forwarded.
    pub fn is_complete(&self) -> bool {
        self.rest == RestOfBody::None
    }

    /// Returns true if the client gets the body in chunks.
    pub fn has_chunks(&self) -> bool {
        self.has_chunks
    }

    /// Moves the body from `arrived` to `out`, as far as it has arrived. Bytes after the end of the
    /// body stay in `arrived`.
    ///
    /// # Errors
    /// Returns an error if a chunk is malformed. The part of the body before it is in `out`.
    pub fn forward_arrived_bytes(
        &mut self,
        arrived: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedResponse> {
        while !arrived.is_empty() {
            match self.rest {
                RestOfBody::None => return Ok(()),
                RestOfBody::Bytes(left) => {
                    let length = arrived.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.write_part(&arrived[..length], out);
                    arrived.advance(length);
                    self.rest = match left - length as u64 {
                        0 => RestOfBody::None,
                        left => RestOfBody::Bytes(left),
                    };
                }
                RestOfBody::UntilClose => {
                    self.write_part(arrived, out);
                    arrived.clear();
                }
                RestOfBody::Chunks(mut chunks) => {
                    let decoded = chunks.decode(arrived, |data| self.write_part(data, out));
                    decoded.map_err(|MalformedChunks| MalformedResponse::Chunk)?;
                    if !chunks.is_complete() {
                        self.rest = RestOfBody::Chunks(chunks);
                        return Ok(());
                    }
                    self.end(out);
                }
            }
        }
        Ok(())
    }

    /// Ends the body because the server has closed the connection.
    ///
    /// # Errors
    /// Returns an error if the body is incomplete.
    pub fn finish_at_eof(&mut self, out: &mut Vec<u8>) -> Result<(), MalformedResponse> {
        match self.rest {
            RestOfBody::None => Ok(()),
            RestOfBody::UntilClose => {
                self.end(out);
                Ok(())
            }
            RestOfBody::Bytes(_) | RestOfBody::Chunks(_) => Err(MalformedResponse::Incomplete),
        }
    }

    fn write_part(&mut self, data: &[u8], out: &mut Vec<u8>) {
        self.forwarded_bytes += data.len() as u64;
        match self.has_chunks {
            true => write_chunk(data, out),
            false => out.extend_from_slice(data),
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.rest = RestOfBody::None;
        if self.has_chunks {
            out.extend_from_slice(LAST_CHUNK);
        }
    }
}
