//! A client that sends the rounds of a connection over HTTP/2, and reads how each stream ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::http2_input::Http2Input;
use super::normalization::{normalized_field, sorted_by_name};
use crate::harness::Stream;
use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    decode_fields, encode_frame,
};

const WINDOW_UPDATE: u8 = 8;
/// 4 is SETTINGS_INITIAL_WINDOW_SIZE. The windows hold all responses of a connection.
const LARGE_STREAM_WINDOWS: [u8; 6] = [0, 4, 1, 0, 0, 0];
const LARGER_CONNECTION_WINDOW: [u8; 4] = [0x10, 0, 0, 0];

/// What a client has read on one connection.
#[derive(Default)]
struct ReadFrames {
    /// What arrived on each stream.
    streams: BTreeMap<u32, StreamText>,
    ended: BTreeSet<u32>,
    /// The reasons of the GOAWAY frames.
    goaway_reasons: Vec<u32>,
    /// Whether the streams of the current round are served at the same time.
    is_concurrent: bool,
}

/// What arrived on one stream, as text.
#[derive(Default)]
struct StreamText {
    /// The header, and the trailers if there are any.
    fields: String,
    body: String,
    end: String,
}

/// Sends each round, and waits until its streams have ended. Then closes the sending side, unless
/// riskgate has to close the connection, and reads to the end. Returns a text for each stream, and
/// the reasons of GOAWAY.
pub fn send_and_read_streams(stream: Box<dyn Stream>, input: &Http2Input) -> Vec<String> {
    let mut frames = FrameClient::start(stream);
    // riskgate may have closed the connection because of an earlier round.
    frames.try_send(&encode_frame(SETTINGS, 0, 0, &LARGE_STREAM_WINDOWS));
    frames.try_send(&encode_frame(WINDOW_UPDATE, 0, 0, &LARGER_CONNECTION_WINDOW));
    let mut read = ReadFrames::default();
    for round in &input.rounds {
        read.is_concurrent = round.is_concurrent;
        frames.try_send(&round.bytes);
        while !round.streams.iter().all(|stream| read.ended.contains(stream)) {
            let Some(frame) = frames.read_frame() else { break };
            read.add_frame(frame);
        }
        if round.is_concurrent {
            read.read_until_pong(&mut frames);
        }
    }
    // After an error, riskgate closes the connection by itself.
    if !input.ends_with_error {
        frames.stream.shutdown_write();
    }
    while let Some(frame) = frames.read_frame() {
        read.add_frame(frame);
    }
    let mut outcomes: Vec<String> =
        read.streams.iter().map(|(stream, text)| format!("{stream}: {text}")).collect();
    outcomes.push(format!("GOAWAY {:?}", read.goaway_reasons));
    outcomes
}

impl ReadFrames {
    /// Waits until riskgate has read all frames. riskgate drops a request that it reads together
    /// with the end of the connection.
    fn read_until_pong(&mut self, frames: &mut FrameClient<Box<dyn Stream>>) {
        frames.try_send(&encode_frame(PING, 0, 0, b"accepted"));
        while let Some(frame) = frames.read_frame() {
            if frame.0 == PING {
                break;
            }
            self.add_frame(frame);
        }
    }

    fn add_frame(&mut self, (kind, flags, stream, payload): (u8, u8, u32, Vec<u8>)) {
        let has_end = matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
        let fields = match kind {
            HEADERS => {
                assert!(flags & END_HEADERS != 0, "a header longer than a frame");
                self.normalized_block(&payload)
            }
            DATA | RST_STREAM => String::new(),
            GOAWAY => {
                self.goaway_reasons.push(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
                return;
            }
            _ => return,
        };
        let seen = self.streams.entry(stream).or_default();
        seen.fields.push_str(&fields);
        if kind == DATA {
            seen.body.push_str(&without_count(&payload, self.is_concurrent));
        }
        if has_end {
            seen.end.push_str(" (end)");
        }
        if kind == RST_STREAM {
            if seen.end.is_empty() {
                // A reset overtakes the rest of the body, at any byte.
                seen.body.clear();
            }
            write!(seen.end, " (reset {payload:?})").unwrap();
        }
        if has_end || kind == RST_STREAM {
            self.ended.insert(stream);
        }
    }

    /// The fields of a block, one a line, with an empty line behind them.
    fn normalized_block(&self, block: &[u8]) -> String {
        let fields = decode_fields(block);
        let field = |(name, value): &(String, String)| match name.as_str() {
            // Requests that are served at the same time are charged in any order. So the usage may
            // differ by some calls, and then its length by a digit.
            "ratelimit" | "content-length" if self.is_concurrent => format!("{name}: …"),
            name => normalized_field(name, value),
        };
        let fields = sorted_by_name(fields.iter().map(field));
        format!("{}\n\n", fields.join("\n"))
    }
}

impl fmt::Display for StreamText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.fields, self.body, self.end)
    }
}

/// The count of calls depends on the order in which requests are charged, too.
fn without_count(data: &[u8], is_concurrent: bool) -> String {
    let text = String::from_utf8_lossy(data).into_owned();
    match text.split_once("\"month_count\":") {
        Some((before, after)) if is_concurrent => {
            let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{before}…{after}")
        }
        _ => text,
    }
}
