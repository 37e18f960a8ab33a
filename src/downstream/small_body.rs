//! The body of a request on the fast path of HTTP/1.1. The body is short, and riskgate receives it
//! whole before it forwards the request.

use bytes::{Bytes, BytesMut};
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::client_io::ClientIo;
use crate::exchange::BodyFault;
use crate::gate::{BodyOptions, HeldBytesGuard};
use crate::message::chunks::{ChunkDecoder, ChunkSyntax};
use crate::message::request_head::RequestBodyFraming;
use crate::proxy::request_body::{HoldError, MAX_HELD_BODY_BYTES};

/// A body at the front of the bytes of a connection, of which some may still have to arrive.
#[derive(Debug)]
pub enum SmallBody {
    /// A body of this many bytes.
    Length(usize),
    /// A chunked body that has arrived whole.
    Chunks {
        /// The length of the chunks with their sizes and line ends, in bytes.
        encoded_length: usize,
        data: Bytes,
    },
}

impl SmallBody {
    /// Returns the body behind a header. `arrived` are the bytes that have arrived behind the
    /// header. Returns `None` if the body is not for the fast path:
    /// - it is longer than [`MAX_HELD_BODY_BYTES`] or `max_bytes`, or
    /// - it is chunked, and malformed or not whole in `arrived`.
    pub fn find(
        framing: RequestBodyFraming,
        arrived: &[u8],
        max_bytes: usize,
    ) -> Option<SmallBody> {
        let max_bytes = max_bytes.min(MAX_HELD_BODY_BYTES);
        match framing {
            RequestBodyFraming::Length(length) => {
                (length <= max_bytes).then_some(SmallBody::Length(length))
            }
            RequestBodyFraming::Chunked => {
                let (mut decoder, mut data) = (ChunkDecoder::new(ChunkSyntax::Strict), Vec::new());
                let mut left = BytesMut::from(arrived);
                decoder.decode(&mut left, |part| data.extend_from_slice(part)).ok()?;
                let is_short = decoder.is_complete() && data.len() <= max_bytes;
                let encoded_length = arrived.len() - left.len();
                is_short.then(|| SmallBody::Chunks { encoded_length, data: data.into() })
            }
        }
    }

    /// Receives the body, and removes it from the front of the connection's bytes. The body counts
    /// in `held` only if riskgate has to wait for the client.
    pub async fn receive(
        self,
        client_io: &mut ClientIo,
        held: &mut HeldBytesGuard,
        options: &BodyOptions,
    ) -> Result<Bytes, HoldError> {
        match self {
            SmallBody::Length(length) => {
                if client_io.read_buf.len() < length {
                    let deadline = Instant::now() + options.timeout;
                    receive_bytes(length, client_io, held, deadline).await?;
                }
                Ok(client_io.read_buf.split_to(length).freeze())
            }
            SmallBody::Chunks { encoded_length, data } => {
                drop(client_io.read_buf.split_to(encoded_length));
                Ok(data)
            }
        }
    }

    /// Receives the body and drops it. Returns false if the whole body has not arrived by the
    /// deadline.
    pub async fn discard(self, client_io: &mut ClientIo, deadline: Instant) -> bool {
        let (SmallBody::Length(mut left) | SmallBody::Chunks { encoded_length: mut left, .. }) =
            self;
        loop {
            let arrived = client_io.read_buf.len().min(left);
            drop(client_io.read_buf.split_to(arrived));
            left -= arrived;
            if left == 0 || !client_io.read_more(deadline).await {
                return left == 0;
            }
        }
    }
}

async fn receive_bytes(
    length: usize,
    client_io: &mut ClientIo,
    held: &mut HeldBytesGuard,
    deadline: Instant,
) -> Result<(), HoldError> {
    while client_io.read_buf.len() < length {
        if !held.grow_to(client_io.read_buf.len().max(1)) {
            return Err(HoldError::TooManyHeld);
        }
        if !client_io.read_more(deadline).await {
            return Err(match Instant::now() >= deadline {
                true => HoldError::Fault(BodyFault::TooSlow),
                false => HoldError::Gone(Error::new_down(ErrorType::ConnectionClosed)),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
