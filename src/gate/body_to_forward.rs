//! The client's body on its way to the upstream server, on the Pingora path.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora::Result;
use pingora::http::RequestHeader;

/// What the server gets of the client's body.
#[derive(Debug, Default)]
pub(crate) enum BodyToForward {
    /// Nothing: the client sent no body.
    #[default]
    Nothing,
    /// This many bytes, which Pingora keeps.
    Whole(usize),
    /// A longer body, as it arrives.
    Streamed {
        /// What was read before the exchange began, and Pingora has not kept.
        unsent_start: Bytes,
        /// The bytes that passed in the current attempt.
        received_bytes: AtomicUsize,
    },
}

impl BodyToForward {
    /// A longer body, of which `unsent_start` was read and is not kept by Pingora.
    pub fn streamed(unsent_start: Bytes) -> BodyToForward {
        BodyToForward::Streamed { unsent_start, received_bytes: AtomicUsize::new(0) }
    }

    /// Begins a further attempt.
    pub fn restart(&self) {
        if let BodyToForward::Streamed { received_bytes, .. } = self {
            received_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Tells the server in the header how the body ends.
    pub fn set_framing(&self, request: &mut RequestHeader) -> Result<()> {
        match self {
            BodyToForward::Nothing => Ok(()),
            BodyToForward::Whole(length) => {
                request.remove_header(&TRANSFER_ENCODING);
                request.insert_header(CONTENT_LENGTH, *length)
            }
            // HTTP/2 has no transfer codings (RFC 9113 section 8.2.2).
            BodyToForward::Streamed { .. } if request.version == http::Version::HTTP_2 => Ok(()),
            BodyToForward::Streamed { .. } => match request.headers.contains_key(CONTENT_LENGTH) {
                true => Ok(()),
                false => request.insert_header(TRANSFER_ENCODING, "chunked"),
            },
        }
    }

    /// Adds the unsent start to a part of a longer body. Returns the bytes that have passed in the
    /// attempt so far; `None` unless the body is streamed.
    pub fn pass_part(&mut self, part: &mut Option<Bytes>, is_last: bool) -> Option<usize> {
        let BodyToForward::Streamed { unsent_start, received_bytes } = self else { return None };
        if !unsent_start.is_empty() {
            let parts = [&unsent_start[..], part.as_deref().unwrap_or_default()];
            *part = Some(parts.concat().into());
            *unsent_start = Bytes::new();
        }
        // Pingora would write an empty part at the end as a last chunk, and then another one.
        *part = part.take().filter(|part| !(is_last && part.is_empty()));
        let received_bytes = received_bytes.get_mut();
        *received_bytes += part.as_ref().map_or(0, Bytes::len);
        Some(*received_bytes)
    }
}
