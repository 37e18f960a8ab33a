//! A client of raw HTTP/2 frames: it sends the exact frames of a test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::TEST_TIMEOUT;
pub use super::hpack::{decode_fields, encode_field};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn encode_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header without a body, in as many frames as it needs.
pub fn encode_header_frames(stream: u32, block: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = block.chunks(16_000).collect();
    let frames = parts.iter().enumerate().map(|(at, part)| {
        let (kind, flags) = if at == 0 { (HEADERS, END_STREAM) } else { (CONTINUATION, 0) };
        let end = if at + 1 == parts.len() { END_HEADERS } else { 0 };
        encode_frame(kind, flags | end, stream, part)
    });
    frames.collect::<Vec<_>>().concat()
}

pub fn encode_fields(all: &[(&str, &str)]) -> Vec<u8> {
    all.iter().flat_map(|(name, value)| encode_field(name, value)).collect()
}

pub fn encode_request_fields(
    method: &str,
    path: &str,
    key: &str,
    more: &[(&str, &str)],
) -> Vec<u8> {
    let mut all = encode_fields(&[
        (":method", method),
        (":scheme", "http"),
        (":authority", "gate.test"),
        (":path", path),
    ]);
    if !key.is_empty() {
        all.extend(encode_fields(&[("authorization", &format!("Bearer {key}"))]));
    }
    all.extend(encode_fields(more));
    all
}

/// A client that sends raw frames, by default over a connection without TLS.
pub struct FrameClient<S = TcpStream> {
    pub stream: S,
}

impl FrameClient {
    pub fn open(address: SocketAddr) -> FrameClient {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        FrameClient::start(stream)
    }
}

impl<S: Read + Write> FrameClient<S> {
    /// Sends the preface and the settings.
    pub fn start(mut stream: S) -> FrameClient<S> {
        // Without a dynamic table, each response's fields can be decoded alone.
        let settings = encode_frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
        stream.write_all(&[PREFACE, &settings].concat()).unwrap();
        FrameClient { stream }
    }

    /// Returns false if the bytes could not be sent.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The next frame: type, flags, stream, payload; None at the end of the connection.
    pub fn read_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head[3], head[4], stream, payload))
    }

    /// The status of the response on a stream, from an indexed or literal `:status`; 0 for a reset.
    pub fn read_status(&mut self, wanted: u32) -> u16 {
        while let Some((kind, _, stream, payload)) = self.read_frame() {
            match kind {
                HEADERS if stream == wanted => return decode_status(&payload),
                RST_STREAM if stream == wanted => return 0,
                _ => {}
            }
        }
        panic!("the connection ended before an answer on stream {wanted}");
    }

    /// The error code with which the peer closed the connection, if it sent one.
    pub fn read_goaway_error_code(&mut self) -> Option<u32> {
        while let Some((kind, _, _, payload)) = self.read_frame() {
            if kind == GOAWAY {
                return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        None
    }
}

/// The status of a response's field block.
pub fn decode_status(block: &[u8]) -> u16 {
    let fields = decode_fields(block);
    assert_eq!(fields[0].0, ":status");
    fields[0].1.parse().unwrap()
}
