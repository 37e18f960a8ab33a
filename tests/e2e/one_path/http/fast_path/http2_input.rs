//! Generates the frames of a client that speaks HTTP/2: random requests on one connection, one
//! after another and many at once. The fast path can serve most of them.

use std::fmt;

use super::http2_odd_requests::{random_connection_error, random_odd_request};
use super::random_posts::{POST_TARGETS, random_form};
use super::random_requests::{KEY, RandomRequest, random_plain_request};
use crate::harness::http2_frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, encode_field, encode_frame,
};
use crate::random_numbers::RandomNumbers;

/// The largest payload of a frame that a server must accept.
const MAX_FRAME_BYTES: usize = 16_384;

/// The frames of a client on one connection.
pub struct Http2Input {
    pub rounds: Vec<Round>,
    /// The number of requests that the fast path can serve.
    pub plain: u64,
    /// Whether riskgate closes the connection because of the last round.
    pub ends_with_error: bool,
}

/// Frames that the client sends at once. It waits for all their responses before the next round.
#[derive(Default)]
pub struct Round {
    pub bytes: Vec<u8>,
    /// The streams that get a response or a reset.
    pub streams: Vec<u32>,
    /// Whether riskgate may serve several requests at a time. A request whose stream was reset may
    /// go on during the next rounds.
    pub is_concurrent: bool,
    /// The requests as text, for a failed comparison.
    shown: Vec<String>,
}

impl fmt::Display for Http2Input {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for round in &self.rounds {
            writeln!(out, "at once:")?;
            round.shown.iter().try_for_each(|request| writeln!(out, "  {request}"))?;
        }
        Ok(())
    }
}

/// A request over HTTP/2. Its fields are in the order in which they are sent.
#[derive(Clone, Debug)]
pub struct Http2Request {
    pub fields: Vec<(String, String)>,
    pub body: Option<String>,
    pub trailers: Vec<(String, String)>,
    /// Whether the client resets the stream right after the request.
    pub is_reset: bool,
}

impl fmt::Display for Http2Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.fields.iter().chain(&self.trailers) {
            let shown = value.get(..60).unwrap_or(value);
            write!(out, "{name}: {shown:?} ({}); ", value.len())?;
        }
        write!(out, "body {:?}, reset {}", self.body, self.is_reset)
    }
}

impl Http2Request {
    /// Replaces the value of a field, or adds the field in front.
    pub fn set(&mut self, name: &str, value: &str) {
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some(field) => field.1 = value.to_owned(),
            None => self.fields.insert(0, (name.to_owned(), value.to_owned())),
        }
    }

    pub fn add(&mut self, name: &str, value: &str) {
        self.fields.push((name.to_owned(), value.to_owned()));
    }

    pub fn remove(&mut self, name: &str) {
        self.fields.retain(|(known, _)| known != name);
    }

    pub fn value(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// The frames of this request. The header has at least `frame_count` frames.
    fn encode(&self, stream: u32, frame_count: usize) -> Vec<u8> {
        let has_end = self.body.is_none() && self.trailers.is_empty();
        let mut bytes = encode_block(&self.fields, stream, has_end, frame_count);
        if let Some(body) = &self.body {
            let flags = if self.trailers.is_empty() { END_STREAM } else { 0 };
            bytes.extend(encode_frame(DATA, flags, stream, body.as_bytes()));
        }
        if !self.trailers.is_empty() {
            bytes.extend(encode_block(&self.trailers, stream, true, 1));
        }
        if self.is_reset {
            // 8 is CANCEL.
            bytes.extend(encode_frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        }
        bytes
    }
}

fn encode_block(
    fields: &[(String, String)],
    stream: u32,
    has_end: bool,
    frame_count: usize,
) -> Vec<u8> {
    let block: Vec<u8> =
        fields.iter().flat_map(|(name, value)| encode_field(name, value)).collect();
    let frame_bytes = block.len().div_ceil(frame_count).min(MAX_FRAME_BYTES);
    let parts: Vec<&[u8]> = block.chunks(frame_bytes).collect();
    let frame = |(at, part): (usize, &&[u8])| {
        let kind = if at == 0 { HEADERS } else { CONTINUATION };
        let end_stream = if at == 0 && has_end { END_STREAM } else { 0 };
        let end_headers = if at + 1 == parts.len() { END_HEADERS } else { 0 };
        encode_frame(kind, end_stream | end_headers, stream, part)
    };
    parts.iter().enumerate().flat_map(frame).collect()
}

pub fn random_http2_input(seed: u64) -> Http2Input {
    let mut random = RandomNumbers(seed);
    let mut input = Http2Input { rounds: Vec::new(), plain: 0, ends_with_error: false };
    let mut stream = 1;
    let mut has_reset = false;
    for _ in 0..=random.number_below(5) {
        let mut round = Round::default();
        let request_count = [1, 1, 1, 2, 4, 12, 30][random.number_below(7)];
        for _ in 0..request_count {
            let (mut request, is_plain) = match random.number_below(9) {
                0..3 => (random_odd_request(&mut random), false),
                3 => (random_form_request(&mut random), false),
                _ => (as_http2(random_plain_request(&mut random)), true),
            };
            // Whether the upstream server gets a request whose stream was reset is a race.
            let path = request.value(":path");
            request.is_reset = random.one_in(40) && path.starts_with("/v1/public/");
            has_reset |= request.is_reset;
            input.plain += u64::from(is_plain && !request.is_reset);
            let frame_count = if random.one_in(10) { 3 } else { 1 };
            round.bytes.extend(request.encode(stream, frame_count));
            round.shown.push(format!("{stream}: {request}"));
            if !request.is_reset {
                round.streams.push(stream);
            }
            stream += 2;
        }
        round.is_concurrent = request_count > 1 || has_reset;
        input.rounds.push(round);
    }
    if random.one_in(6) {
        input.ends_with_error = true;
        let (shown, bytes) = random_connection_error(&mut random, stream);
        let shown = vec![shown.to_owned()];
        input.rounds.push(Round { bytes, shown, ..Round::default() });
    }
    input
}

/// A request with a form. Most announce the length of their body.
fn random_form_request(random: &mut RandomNumbers) -> Http2Request {
    let method = random.pick_one(&["POST", "POST", "POST", "PUT", "PATCH", "DELETE", "GET"]);
    let (content_type, body) = random_form(random, "");
    let target = random.pick_one(&POST_TARGETS).to_owned();
    let mut request = as_http2(RandomRequest { method, target, fields: Vec::new() });
    if !content_type.is_empty() {
        request.add("content-type", content_type);
    }
    if random.one_in(3) {
        request.add("authorization", &format!("Bearer {KEY}"));
    }
    if random.one_in(4) {
        let accepted = ["text/html,*/*;q=0.8", "application/json", "application/problem+json"];
        request.add("accept", random.pick_one(&accepted));
    }
    if random.one_in(8) {
        request.add("x-riskgate-action", "pass");
    }
    if !random.one_in(5) {
        request.add("content-length", &body.len().to_string());
    }
    if !(body.is_empty() && random.one_in(2)) {
        request.body = Some(body);
    }
    request
}

/// The same request in HTTP/2, which has no `Connection`.
pub fn as_http2(request: RandomRequest) -> Http2Request {
    let mut fields = vec![
        (":method".to_owned(), request.method.to_owned()),
        (":scheme".to_owned(), "http".to_owned()),
        (":authority".to_owned(), "gate.test".to_owned()),
        (":path".to_owned(), request.target),
    ];
    let own = request.fields.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    fields.extend(own.filter(|(name, _)| name != "connection"));
    Http2Request { fields, body: None, trailers: Vec::new(), is_reset: false }
}
