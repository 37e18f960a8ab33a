//! A client of raw HTTP/2 frames: it sends the exact frames of a test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::TEST_TIMEOUT;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
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

/// A field in HPACK's simplest form: a literal that is never indexed, without Huffman coding.
pub fn encode_field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x10];
    for text in [name, value] {
        // Lengths of 127 and more continue in further bytes (RFC 7541 section 5.1).
        let mut rest = text.len();
        if rest < 127 {
            bytes.push(rest as u8);
        } else {
            bytes.push(127);
            rest -= 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn encode_fields(all: &[(&str, &str)]) -> Vec<u8> {
    all.iter().flat_map(|(name, value)| encode_field(name, value)).collect()
}

pub fn encode_request_fields(
    method: &str,
    path: &str,
    key: &str,
    more: &[(&str, &str)],
) -> Vec<u8> {
    let key = format!("Bearer {key}");
    let mut all = encode_fields(&[
        (":method", method),
        (":scheme", "http"),
        (":authority", "gate.test"),
        (":path", path),
        ("authorization", &key),
    ]);
    all.extend(encode_fields(more));
    all
}

/// A client that sends raw frames, over a connection without TLS.
pub struct FrameClient {
    pub stream: TcpStream,
}

impl FrameClient {
    pub fn open(address: SocketAddr) -> FrameClient {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(PREFACE).unwrap();
        // Without a dynamic table, each response's fields can be decoded alone.
        stream.write_all(&encode_frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0])).unwrap();
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

/// Decodes `:status` from the static table (RFC 7541 appendix A), or from a literal.
pub fn decode_status(block: &[u8]) -> u16 {
    const INDEXED_STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    let block = match block[0] {
        size if size & 0xe0 == 0x20 => &block[1..],
        _ => block,
    };
    match block[0] {
        index @ 0x88..=0x8e => INDEXED_STATUSES[usize::from(index - 0x88)],
        _ => {
            let huffman = block[1] & 0x80 != 0;
            let length = usize::from(block[1] & 0x7f);
            let text = &block[2..2 + length];
            if huffman {
                decode_huffman_digits(text)
            } else {
                std::str::from_utf8(text).unwrap().parse().unwrap()
            }
        }
    }
}

/// Decodes three digits in Huffman code (RFC 7541 appendix B). The codes of 0, 1 and 2 have five
/// bits, those of 3 to 9 have six.
fn decode_huffman_digits(code: &[u8]) -> u16 {
    let bits =
        code.iter().chain([0; 4].iter()).take(4).fold(0, |bits, byte| bits << 8 | u32::from(*byte));
    let (mut at, mut value) = (0, 0);
    for _ in 0..3 {
        let five = bits << at >> 27;
        if five < 3 {
            value = value * 10 + five;
            at += 5;
        } else {
            value = value * 10 + (bits << at >> 26) - 0x19 + 3;
            at += 6;
        }
    }
    value as u16
}
