//! Generates requests over HTTP/2 that the fast path usually can't serve, and frames that end the
//! connection.

use super::http2_input::{Http2Request, as_http2};
use super::random_requests::{KEY, random_plain_request};
use crate::harness::http2_frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, SETTINGS, encode_field,
    encode_fields, encode_frame,
};
use crate::random_numbers::RandomNumbers;

/// A request that differs from a plain one in one respect. The fast path can serve a few of them.
pub fn random_odd_request(random: &mut RandomNumbers) -> Http2Request {
    let mut request = as_http2(random_plain_request(random));
    match random.number_below(6) {
        0 => change_pseudo_header(random, &mut request),
        1 => change_path(random, &mut request),
        2 => change_method_or_body(random, &mut request),
        3 => add_special_field(random, &mut request),
        4 => repeat_field(random, &mut request),
        _ => exceed_limit(random, &mut request),
    }
    request
}

fn change_pseudo_header(random: &mut RandomNumbers, request: &mut Http2Request) {
    let names = [":method", ":scheme", ":authority", ":path"];
    match random.number_below(8) {
        0 => request.remove(random.pick_one(&names)),
        // An empty method closes the connection.
        1 => request.set(random.pick_one(&names[1..]), ""),
        2 => {
            let name = random.pick_one(&names);
            let value = request.value(name).to_owned();
            request.fields.insert(0, (name.to_owned(), value));
        }
        3 => {
            // A pseudo-header behind a field is malformed.
            let first = request.fields.remove(random.number_below(4));
            request.add("accept", "*/*");
            request.fields.push(first);
        }
        4 => request.set(random.pick_one(&[":status", ":protocol"]), "200"),
        5 => request.set(":scheme", random.pick_one(&["https", "ftp", "a b", "HTTP"])),
        _ => {
            let authorities = [
                "gate.test:443",
                "gate.test:99999",
                "user@gate.test",
                "[::1]:80",
                "[::1",
                "a b",
                "GATE.test",
                "..",
                "gate.test/",
            ];
            request.set(":authority", random.pick_one(&authorities));
        }
    }
}

fn change_path(random: &mut RandomNumbers, request: &mut Http2Request) {
    let usual = request.value(":path").to_owned();
    let path = match random.number_below(4) {
        0 => usual.replacen("/v1/public/domain/", "/nowhere/", 1),
        1 => "/v1/usage".to_owned(),
        2 => format!("http://gate.test{usual}"),
        _ => {
            let paths = [
                "*",
                "/",
                "v1/usage",
                "/v1/../v1/usage",
                "/v1/%2e%2e/usage",
                "//v1/usage",
                "/v1/usage/",
                "/v1/usage?",
                "/v1/usage#a",
                "/v1/public/domain/",
                "/v1/public/domain/a b",
                "/v1/public/domain/%zz",
                "/v1/public/domain/%00",
                "/v1/public/domain/b\u{fc}cher.de",
                "/v1/public/domain/a\u{1}.test",
                "/v1/public/domain/\"<>`{|}",
                "/v1/check/",
                "/v1/check",
            ];
            random.pick_one(&paths).to_owned()
        }
    };
    request.set(":path", &path);
}

fn change_method_or_body(random: &mut RandomNumbers, request: &mut Http2Request) {
    let method = random.pick_one(&["POST", "PUT", "OPTIONS", "OPTIONS", "DELETE", "GET", "HEAD"]);
    request.set(":method", method);
    match random.number_below(7) {
        0 => {
            let methods = ["TRACE", "CONNECT", "get", "BREW", "PRI", "PATCH", "QUERY"];
            request.set(":method", random.pick_one(&methods));
        }
        1 => {
            request.set(":method", "OPTIONS");
            request.add("access-control-request-method", "GET");
            if request.value("origin").is_empty() {
                request.add("origin", random.pick_one(&["https://app.example.com", "a b"]));
            }
        }
        2 => {
            request.add("content-length", "5");
            request.body = Some("hello".to_owned());
        }
        3 => request.body = Some(random.pick_one(&["", "unannounced"]).to_owned()),
        4 => {
            let length = random.pick_one(&["0", "5", "-1", "05", "1, 1", "9"]);
            request.add("content-length", length);
            // A length of 0 is valid until a body arrives. Whether riskgate judges the request, and
            // charges its call, before that is a race.
            request.body = Some("hello".to_owned()).filter(|_| random.one_in(2) && length != "0");
        }
        5 => {
            request.body = Some("hello".to_owned()).filter(|_| random.one_in(2));
            let name = random.pick_one(&["x-checksum", "authorization", ":path"]);
            request.trailers.push((name.to_owned(), "1".to_owned()));
        }
        _ => {}
    }
}

fn add_special_field(random: &mut RandomNumbers, request: &mut Http2Request) {
    let fields = [
        ("expect", "100-continue"),
        ("expect", "else"),
        ("content-length", "0"),
        ("content-length", "5"),
        ("te", "trailers"),
        ("te", "gzip"),
        ("transfer-encoding", "chunked"),
        ("connection", "keep-alive"),
        ("connection", "close"),
        ("proxy-connection", "keep-alive"),
        ("keep-alive", "timeout=1"),
        ("upgrade", "h2c"),
        ("host", "other.test"),
        ("host", "gate.test"),
        ("host", ""),
        ("cookie", "a=1"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-host", "other.test"),
        ("x-riskgate-plan", "all"),
        ("x-original-url", "/v1/usage"),
        ("x_underscore", "1"),
        ("forwarded", "for=192.0.2.1"),
        ("traceparent", "00-1-2-3"),
        ("access-control-request-method", "GET"),
        ("x-text", "b\u{fc}cher"),
        ("x-blank", " a "),
        ("x-empty", ""),
    ];
    let (name, value) = fields[random.number_below(fields.len())];
    request.add(name, value);
}

fn repeat_field(random: &mut RandomNumbers, request: &mut Http2Request) {
    let fields = [
        ("authorization", "Bearer x"),
        ("authorization", ""),
        ("origin", "https://app.example.com"),
        ("x-request-id", "second"),
        ("cookie", "b=2"),
        ("host", "gate.test"),
        ("content-length", "0"),
        ("access-control-request-method", "GET"),
        ("expect", "100-continue"),
        ("user-agent", "again"),
    ];
    let (name, value) = fields[random.number_below(fields.len())];
    for _ in 0..=random.number_below(2) {
        request.add(name, value);
    }
}

/// Adds more bytes or fields than riskgate accepts, or just as many.
fn exceed_limit(random: &mut RandomNumbers, request: &mut Http2Request) {
    match random.number_below(4) {
        0 => {
            let length = [2_000, 2_048, 2_049, 3_000][random.number_below(4)];
            let path = format!("/v1/public/domain/{}", "a".repeat(length));
            request.set(":path", &path[..length]);
        }
        1 => request.add("x-big", &"b".repeat([15_000, 16_384, 20_000][random.number_below(3)])),
        2 => {
            let count = [60, 61, 62, 63, 64, 65, 100][random.number_below(7)];
            (0..count).for_each(|at| request.add(&format!("x-{at}"), "1"));
        }
        _ => request.set("authorization", &format!("Bearer {KEY}{}", "k".repeat(5_000))),
    }
}

/// Frames after which the server closes the connection, and their description. `stream` is the next
/// unused stream.
pub fn random_connection_error(random: &mut RandomNumbers, stream: u32) -> (&'static str, Vec<u8>) {
    let usual = encode_fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "gate.test"),
        (":path", "/v1/usage"),
    ]);
    let headers =
        |stream, block: &[u8]| encode_frame(HEADERS, END_HEADERS | END_STREAM, stream, block);
    match random.number_below(12).saturating_sub(2) {
        0 => {
            let (name, value) = [
                ("Upper", "1"),
                ("a b", "1"),
                ("a:b", "1"),
                ("", "1"),
                (":unknown", "1"),
                ("x-control", "a\u{1}b"),
                ("x-control", "a\r\nb: c"),
                (":method", "G T"),
                (":method", ""),
            ][random.number_below(9)];
            ("a bad field", headers(stream, &[usual, encode_field(name, value)].concat()))
        }
        1 => ("an unknown index", headers(stream, &[0xff, 0x7f])),
        2 => ("a cut block", headers(stream, &usual[..usual.len() - 2])),
        3 => ("an even stream", headers(stream + 1, &usual)),
        4 => ("stream 0", headers(0, &usual)),
        5 => ("data on an idle stream", encode_frame(DATA, END_STREAM, stream, b"a")),
        6 => ("lone continuation", encode_frame(CONTINUATION, END_HEADERS, stream, &usual)),
        7 => ("settings of a bad length", encode_frame(SETTINGS, 0, 0, b"a")),
        8 => ("ping of a bad length", encode_frame(PING, 0, 0, b"a")),
        _ => ("goaway", encode_frame(GOAWAY, 0, 0, &[0; 8])),
    }
}
