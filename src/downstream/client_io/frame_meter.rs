//! Limits the HTTP/2 frames that a client sends on a connection, and the bytes of its DATA frames.
//!
//! All frames count, apart from DATA with [`MIN_DATA_BYTES`] or more, and DATA that ends its
//! stream. A long frame may count as several: see [`PAYLOAD_BYTES_PER_FRAME`]. The limit holds even
//! if requests are active on the connection.
//!
//! **Why no client in good faith reaches the limit.** A client sends such a frame for one of four
//! reasons:
//! - *It opens the connection, or keeps it alive.* That is a handful of frames at once, and a few
//!   PINGs each second. [`FRAMES_AT_ONCE`] and [`FRAMES_PER_SECOND`] are a hundred times as many.
//! - *It sends a request*: it widens the stream's window, changes its priority, cancels it, and
//!   divides a long header. [`FRAMES_EARNED_PER_REQUEST`] is twice what these need.
//! - *It reads a response.* Most clients send a WINDOW_UPDATE once half of a window is used, Go's
//!   client sends two for each 4 KiB, and gRPC adds a PING for each round trip. A client with a
//!   window of only 1 KiB, for the stream and for the connection, sends a frame for each 256 bytes;
//!   these bytes earn it two frames ([`SENT_BYTES_PER_EARNED_FRAME`]). If the server sends shorter
//!   pieces, and the client confirms each piece twice, [`FRAMES_PER_SECOND`] is enough for 500
//!   pieces a second.
//! - *It sends a body.* Its DATA frames have data, apart from the last one.
//!
//! A client may confirm late what it received long ago. So frames that it has earned remain, until
//! it has [`MAX_FRAMES_LEFT`] frames left, which riskgate handles in a few milliseconds.

use std::sync::Mutex;

use tokio::time::Instant;

use crate::support::lock::lock;

/// The frames that a client may send at once.
const FRAMES_AT_ONCE: i64 = 1_024;
/// The further frames that a client may send each second.
const FRAMES_PER_SECOND: i64 = 1_024;
/// The further frames that a client may send for each request.
const FRAMES_EARNED_PER_REQUEST: i64 = 16;
/// Each time riskgate has sent this number of bytes, the client may send a further frame. An answer
/// to PING has 17 bytes, and a DATA frame with one byte has 10, so no frame earns the next frame.
const SENT_BYTES_PER_EARNED_FRAME: i64 = 128;
/// The most frames that a client may have left to send, however many frames it has earned.
const MAX_FRAMES_LEFT: i64 = 65_536;
/// A frame counts as one more for this number of bytes in its payload, unless it is DATA, HEADERS
/// or CONTINUATION.
const PAYLOAD_BYTES_PER_FRAME: usize = 256;
/// DATA with fewer bytes than this counts as a frame without data, unless it ends its stream.
const MIN_DATA_BYTES: usize = 64;

/// The bytes of DATA that a client may send beyond those that its requests announce: on streams
/// that riskgate refused because too many were open, and on streams that it has not accepted yet.
/// A client in good faith sends at most a window of 65,535 bytes on each such stream, before it
/// learns how many streams it may open.
const MAX_UNANNOUNCED_BYTES: i64 = 2 << 20;
/// The bytes of DATA that a client may send for a request beyond its Content-Length. If riskgate
/// refuses a request, it discards up to 64 KiB of the body, and the client may send another window
/// before it learns of the refusal.
const LATE_BODY_BYTES: i64 = 2 * 65_535;

/// The length of the preface, which precedes the first frame (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;
/// The length of a frame's header (RFC 9113 section 4.1).
const FRAME_HEADER_BYTES: usize = 9;
/// The types and flags of frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// Counts the frames and the DATA bytes that a client sends on one connection.
#[derive(Debug)]
pub struct FrameMeter(Mutex<FrameBudget>);

impl FrameMeter {
    pub(super) fn new() -> FrameMeter {
        FrameMeter(Mutex::new(FrameBudget::new(Instant::now())))
    }

    /// Finds the frames in bytes that the client sent, and counts each of them.
    pub(super) fn count_frames_in(&self, bytes: &[u8]) {
        lock(&self.0).count_frames_in(bytes);
    }

    /// Counts bytes that riskgate sent.
    pub(super) fn count_sent(&self, bytes: usize) {
        lock(&self.0).count_sent(bytes);
    }

    /// Counts a request that riskgate accepted or found malformed. `body_bytes` are the most bytes
    /// that its body may have; `None` if it has no body.
    pub fn count_request(&self, body_bytes: Option<usize>) {
        lock(&self.0).count_request(body_bytes);
    }

    /// Returns true if the client has exceeded the limit once.
    pub fn is_exceeded(&self) -> bool {
        lock(&self.0).is_exceeded
    }

    /// Returns what the frames tell about the client now.
    pub fn read_state(&self) -> FrameState {
        let budget = lock(&self.0);
        FrameState { is_exceeded: budget.is_exceeded, open_header: budget.open_header }
    }
}

/// What the frames that a client sent tell about it.
#[derive(Clone, Copy, Debug)]
pub struct FrameState {
    /// Whether the client has exceeded the limit once.
    pub is_exceeded: bool,
    /// The header whose end has not arrived; `None` if there is none.
    pub open_header: Option<OpenHeader>,
}

/// A header that is divided into several frames (RFC 9113 section 4.3), while its last frame is
/// missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHeader {
    /// When its first frame began.
    pub begun_at: Instant,
    /// The bytes in the payloads of its frames so far, as the headers of the frames announce.
    pub arrived_bytes: usize,
}

/// What a client may still send.
#[derive(Debug)]
struct FrameBudget {
    frames_left: i64,
    frames_refilled_at: Instant,
    /// The bytes that riskgate has sent and that have not earned a frame yet.
    sent_bytes: i64,
    body_bytes_left: i64,
    is_exceeded: bool,
    open_header: Option<OpenHeader>,
    /// The bytes until the next frame header.
    bytes_to_skip: usize,
    /// The part of a frame header that has arrived, with the length of the padding of DATA.
    frame_header: Vec<u8>,
}

impl FrameBudget {
    fn new(now: Instant) -> FrameBudget {
        FrameBudget {
            frames_left: FRAMES_AT_ONCE,
            frames_refilled_at: now,
            sent_bytes: 0,
            body_bytes_left: MAX_UNANNOUNCED_BYTES,
            is_exceeded: false,
            open_header: None,
            bytes_to_skip: PREFACE_BYTES,
            frame_header: Vec::with_capacity(FRAME_HEADER_BYTES + 1),
        }
    }

    fn count_frames_in(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = self.bytes_to_skip.min(bytes.len());
            self.bytes_to_skip -= skipped;
            let Some((first, rest)) = bytes[skipped..].split_first() else { return };
            self.frame_header.push(*first);
            bytes = rest;
            if let Some(frame) = ReceivedFrame::parse(&self.frame_header) {
                self.bytes_to_skip =
                    FRAME_HEADER_BYTES + frame.payload_bytes - self.frame_header.len();
                self.frame_header.clear();
                self.count_frame(&frame);
            }
        }
    }

    fn count_frame(&mut self, frame: &ReceivedFrame) {
        if frame.kind == DATA {
            self.body_bytes_left -= as_i64(frame.data_bytes);
        }
        if matches!(frame.kind, HEADERS | CONTINUATION) {
            self.note_header_frame(frame);
        }
        self.frames_left -= frame.cost();
        if self.frames_left < 0 {
            self.refill(Instant::now());
        }
        self.is_exceeded |= self.frames_left < 0 || self.body_bytes_left < 0;
    }

    fn note_header_frame(&mut self, frame: &ReceivedFrame) {
        let begun = self.open_header.take();
        if !frame.is_end_headers {
            let new = || OpenHeader { begun_at: Instant::now(), arrived_bytes: 0 };
            let mut header = begun.unwrap_or_else(new);
            header.arrived_bytes += frame.payload_bytes;
            self.open_header = Some(header);
        }
    }

    /// Adds the frames that the client earned by the time since the last refill. The caller reads
    /// the clock only if no frame is left.
    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.frames_refilled_at);
        let added = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX / FRAMES_PER_SECOND);
        let added = added.min(1_000) * FRAMES_PER_SECOND / 1_000;
        if added > 0 {
            self.frames_left = (self.frames_left + added).min(FRAMES_AT_ONCE);
            self.frames_refilled_at = now;
        }
    }

    fn count_sent(&mut self, bytes: usize) {
        self.sent_bytes += as_i64(bytes);
        self.add_frames(self.sent_bytes / SENT_BYTES_PER_EARNED_FRAME);
        self.sent_bytes %= SENT_BYTES_PER_EARNED_FRAME;
    }

    fn count_request(&mut self, body_bytes: Option<usize>) {
        self.add_frames(FRAMES_EARNED_PER_REQUEST);
        if let Some(announced) = body_bytes {
            self.body_bytes_left += as_i64(announced) + LATE_BODY_BYTES;
        }
    }

    fn add_frames(&mut self, frames: i64) {
        self.frames_left = (self.frames_left + frames).min(MAX_FRAMES_LEFT);
    }
}

/// What the header of a frame says.
#[derive(Debug)]
struct ReceivedFrame {
    kind: u8,
    is_end_stream: bool,
    is_end_headers: bool,
    payload_bytes: usize,
    /// The bytes of the payload without padding.
    data_bytes: usize,
}

impl ReceivedFrame {
    /// Parses the header of a frame, and the length of its padding if it is padded DATA. Returns
    /// `None` while bytes are missing.
    fn parse(header: &[u8]) -> Option<ReceivedFrame> {
        let [first, second, third, kind, flags, _, _, _, _, rest @ ..] = header else {
            return None;
        };
        let payload_bytes = u32::from_be_bytes([0, *first, *second, *third]) as usize;
        let is_padded = *kind == DATA && flags & PADDED != 0 && payload_bytes > 0;
        let padding = match (is_padded, rest) {
            (false, _) => 0,
            (true, [length, ..]) => 1 + usize::from(*length),
            (true, []) => return None,
        };
        Some(ReceivedFrame {
            kind: *kind,
            is_end_stream: flags & END_STREAM != 0,
            is_end_headers: flags & END_HEADERS != 0,
            payload_bytes,
            data_bytes: payload_bytes.saturating_sub(padding),
        })
    }

    /// The number of frames as which this frame counts.
    fn cost(&self) -> i64 {
        match self.kind {
            DATA => i64::from(self.data_bytes < MIN_DATA_BYTES && !self.is_end_stream),
            HEADERS | CONTINUATION => 1,
            _ => 1 + as_i64(self.payload_bytes / PAYLOAD_BYTES_PER_FRAME),
        }
    }
}

fn as_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
