//! Generates the bytes of a client that speaks HTTP/1.1: random requests, most of which the fast
//! path can serve.

use super::random_posts::random_post;
use super::random_requests::{KEY, random_plain_request};
use crate::random_numbers::RandomNumbers;

/// The bytes of a client on one connection.
pub struct Http1Input {
    pub bytes: Vec<u8>,
    /// The offsets at which the client pauses.
    pub cuts: Vec<usize>,
    /// The number of requests at the beginning that the fast path can serve.
    pub plain: u64,
}

pub fn random_http1_input(seed: u64) -> Http1Input {
    let mut random = RandomNumbers(seed);
    let mut sent = Http1Input { bytes: Vec::new(), cuts: Vec::new(), plain: 0 };
    let mut all_plain = true;
    for _ in 0..=random.number_below(5) {
        let (request, is_plain) = match random.number_below(12) {
            0..3 => (random_pingora_path_request(&mut random), false),
            3..7 => (random_post(&mut random), false),
            _ => (format_plain_request(&mut random), true),
        };
        all_plain &= is_plain;
        sent.plain += u64::from(all_plain);
        sent.bytes.extend_from_slice(request.as_bytes());
        // riskgate answers nothing after the end of the requests.
        all_plain &= !request.to_ascii_lowercase().contains("connection: close");
        all_plain &= !request.contains("/v1/check/broken");
    }
    if random.one_in(8) {
        corrupt_bytes(&mut random, &mut sent.bytes);
        sent.plain = 0;
    }
    for _ in 0..random.number_below(4) * usize::from(random.one_in(4)) {
        sent.cuts.push(random.number_below(sent.bytes.len() + 1));
        sent.plain = 0;
    }
    sent.cuts.sort_unstable();
    sent
}

/// A request that the fast path can serve.
fn format_plain_request(random: &mut RandomNumbers) -> String {
    let request = random_plain_request(random);
    let mut text = format!("{} {} HTTP/1.1\r\nHost: gate.test\r\n", request.method, request.target);
    for (name, value) in request.fields {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n"
}

/// A request that the fast path can't serve in most cases, for one of several reasons.
fn random_pingora_path_request(random: &mut RandomNumbers) -> String {
    let request = format_plain_request(random);
    let more = |line: &str| request.replacen("\r\n\r\n", &format!("\r\n{line}\r\n\r\n"), 1);
    match random.number_below(18) {
        0 => more("Expect: 100-continue"),
        1 => more("Upgrade: h2c"),
        2 => more("Content-Length: 0"),
        3 => more("Content-Length: 5"),
        4 => more("Transfer-Encoding: chunked"),
        5 => more(&format!("Authorization: Bearer {KEY}")),
        6 => more("Origin: https://app.example.com"),
        7 => more("Host: other.test"),
        8 => more("Connection: authorization"),
        9 => {
            let words = [
                "upgrade, keep-alive",
                "close, te",
                "te",
                "keep-alive; timeout=5",
                "close;",
                "a@b, close",
                "a,b,c,d,e,f,g,h,i,j",
            ];
            more(&format!("Connection: {}", random.pick_one(&words)))
        }
        10 => more(" folded"),
        11 => more("Keep-Alive: timeout=1"),
        12 => request.replacen("HTTP/1.1", "HTTP/1.0", 1),
        13 => request.replacen("GET", "POST", 1),
        14 => request.replacen("GET ", "GET http://gate.test", 1),
        15 => request.replacen("Host: gate.test\r\n", "", 1),
        16 => format!("\r\n{request}"),
        _ => request.replace("\r\n", "\n"),
    }
}

/// Changes, drops or repeats a few bytes.
fn corrupt_bytes(random: &mut RandomNumbers, bytes: &mut Vec<u8>) {
    for _ in 0..=random.number_below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.number_below(bytes.len());
        match random.number_below(4) {
            0 => bytes[at] = random.number_below(256) as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, b"\r\n :\0/%"[random.number_below(7)]),
        }
    }
}
