//! The client's body on its way to the upstream server, on the Pingora path.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora::Result;
use pingora::http::RequestHeader;

use crate::message::request_head::parse_content_length;

/// What the server gets of the client's body.
#[derive(Debug, Default)]
pub(crate) enum BodyToForward {
    /// No body: the client announced none.
    #[default]
    Nothing,
    /// A body of this many bytes, which Pingora keeps for a retry.
    Whole(usize),
    /// A body as it arrives, because riskgate did not read the whole body before the exchange.
    Streamed {
        /// The start that riskgate read before the exchange, if Pingora does not keep the start.
        unsent_start: Bytes,
        /// Whether riskgate had to pass on a start that Pingora does not keep. Then the body can't
        /// be sent twice.
        had_unsent_start: bool,
        /// The bytes of the body that the current attempt has forwarded.
        forwarded_bytes: AtomicUsize,
    },
}

impl BodyToForward {
    /// Makes a streamed body. riskgate has read `unsent_start`, and Pingora does not keep these
    /// bytes.
    pub fn new_streamed(unsent_start: Bytes) -> BodyToForward {
        let had_unsent_start = !unsent_start.is_empty();
        let forwarded_bytes = AtomicUsize::new(0);
        BodyToForward::Streamed { unsent_start, had_unsent_start, forwarded_bytes }
    }

    /// Whether Pingora keeps the whole body, as far as Pingora keeps bodies, and can send it again.
    pub fn is_kept_by_pingora(&self) -> bool {
        !matches!(self, BodyToForward::Streamed { had_unsent_start: true, .. })
    }

    /// Forgets how many bytes the last attempt has forwarded, because a new attempt begins.
    pub fn reset_byte_count(&self) {
        if let BodyToForward::Streamed { forwarded_bytes, .. } = self {
            forwarded_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Sets `Content-Length` or `Transfer-Encoding`, if the server finds the body's end by it.
    pub fn set_framing(&self, request: &mut RequestHeader) -> Result<()> {
        match self {
            BodyToForward::Nothing => Ok(()),
            BodyToForward::Whole(length) => {
                request.remove_header(&TRANSFER_ENCODING);
                request.insert_header(CONTENT_LENGTH, *length)
            }
            BodyToForward::Streamed { .. } => {
                let announced = request.headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
                match announced.and_then(parse_content_length) {
                    Some(length) => request.insert_header(CONTENT_LENGTH, length),
                    // HTTP/2 has no transfer codings (RFC 9113 section 8.2.2).
                    None if request.version == http::Version::HTTP_2 => Ok(()),
                    None => request.insert_header(TRANSFER_ENCODING, "chunked"),
                }
            }
        }
    }

    /// Puts the unsent start, if there is one, before a part of a streamed body. Returns how many
    /// bytes of the body the attempt has forwarded so far; `None` unless the body is streamed.
    pub fn pass_part(&mut self, part: &mut Option<Bytes>, is_last: bool) -> Option<usize> {
        let BodyToForward::Streamed { unsent_start, forwarded_bytes, .. } = self else {
            return None;
        };
        if !unsent_start.is_empty() {
            let parts = [&unsent_start[..], part.as_deref().unwrap_or_default()];
            *part = Some(parts.concat().into());
            *unsent_start = Bytes::new();
        }
        // Pingora would write an empty part as the last chunk, and then write a second last chunk.
        *part = part.take().filter(|part| !(is_last && part.is_empty()));
        let forwarded_bytes = forwarded_bytes.get_mut();
        *forwarded_bytes += part.as_ref().map_or(0, Bytes::len);
        Some(*forwarded_bytes)
    }
}
