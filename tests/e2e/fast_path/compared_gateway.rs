//! A gateway with its upstream server, and everything about it that a test compares.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use riskgate::keys::format_key_hash;

use super::random_requests::{ClientInput, KEY, ORIGIN_BOUND_KEY, REVOKED_KEY};
use crate::harness::{Gateway, MockUpstream, ReceivedRequest, Setup, Step, response_bytes};

/// One of the two gateways, and its upstream server.
pub struct ComparedGateway {
    pub gateway: Gateway,
    pub upstream: MockUpstream,
}

impl ComparedGateway {
    pub fn start(fast_path: bool) -> ComparedGateway {
        let upstream = MockUpstream::with_script(respond_by_target);
        let setup = Setup::new().with_upstreams(&[upstream.address]).set("plans.free", "1000000");
        let setup = setup.set("listen.fast_path", if fast_path { "true" } else { "false" });
        // The top list is ranked once a second, so two gateways could show different lists.
        let setup = setup.set("top.min_accounts", "16");
        let key = |id: &str, key: &str, more: &str| {
            let hash = format_key_hash(key);
            format!("[[key]]\nid = \"{id}\"\naccount = \"acme\"\nhash = \"{hash}\"\n{more}")
        };
        let keys = key("one", KEY, "")
            + &key("bound", ORIGIN_BOUND_KEY, "origins = [\"https://app.example.com\"]\n")
            + &key("revoked", REVOKED_KEY, "revoked = \"2026-01-01T00:00:00Z\"\n");
        let file = setup.path("keys.toml");
        std::fs::write(&file, keys).unwrap();
        let gateway = setup.set_text("keys.file", &file.display().to_string()).start();
        // After these calls the account holds enough leased calls for several bursts of requests.
        for _ in 0..300 {
            gateway.get_domain("first.test", KEY).expect(200);
        }
        ComparedGateway { gateway, upstream }
    }

    /// Sends the bytes with pauses at `cuts`, closes the sending side, and reads all responses.
    pub fn send_and_read(&self, sent: &ClientInput) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.gateway.http).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut from = 0;
        for at in sent.cuts.iter().copied().chain([sent.bytes.len()]) {
            // riskgate may already have refused the request and closed the connection.
            let _ = stream.write_all(&sent.bytes[from..at]);
            if at < sent.bytes.len() {
                std::thread::sleep(Duration::from_millis(2));
            }
            from = at;
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers);
        answers
    }

    pub fn fast_path_request_count(&self) -> u64 {
        self.gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]) as u64
    }

    /// The log lines without times, durations and request ids, sorted. riskgate may write a line
    /// after its client has gone, so the order of the lines may differ between two gateways.
    pub fn sorted_log_lines(&self) -> Vec<String> {
        let without_times = |mut line: serde_json::Value| {
            for name in ["time", "duration_us", "request_id"] {
                line[name] = serde_json::Value::Null;
            }
            line.to_string()
        };
        let mut lines: Vec<String> =
            self.gateway.read_access_log().into_iter().map(without_times).collect();
        lines.sort_unstable();
        lines
    }

    /// The requests that reached the upstream server, without ids and the server's address.
    pub fn forwarded_requests(&self) -> Vec<String> {
        let seen = self.upstream.received_requests();
        let lines = |head: &str| {
            let (first, fields) = head.split_once("\r\n").unwrap();
            let fields = sorted_by_name(fields.split("\r\n").map(|field| {
                let (name, value) = field.split_once(':').unwrap_or((field, ""));
                format!("{}:{value}", name.to_ascii_lowercase())
            }));
            let other =
                |line: &String| !line.starts_with("x-request-id") && !line.starts_with("host:");
            let fields: Vec<String> = fields.into_iter().filter(other).collect();
            format!("{first}\n{}", fields.join("\n"))
        };
        seen.iter().map(|seen| lines(&seen.head) + &seen.body).collect()
    }
}

/// Sorts fields by name, because the order of fields with different names has no meaning (RFC 9110
/// section 5.3).
fn sorted_by_name(fields: impl Iterator<Item = String>) -> Vec<String> {
    let mut fields: Vec<String> = fields.collect();
    fields.sort_by_key(|field| field.split(':').next().unwrap_or_default().to_owned());
    fields
}

/// The responses without values that differ between two moments or two gateways.
pub fn normalized_responses(answers: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(answers);
    let own_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let line = |line: &str| match line.split_once(": ") {
        Some(("Date", _)) => "Date: …".to_owned(),
        Some(("x-request-id", id)) if own_id(id.trim_end()) => "x-request-id: …".to_owned(),
        Some(("ratelimit", value)) => {
            let until = value.rsplit_once(";t=").map_or(value, |(until, _)| until);
            format!("ratelimit: {until};t=…")
        }
        Some(("retry-after", _)) => "retry-after: …".to_owned(),
        _ => line.to_owned(),
    };
    let answer = |answer: &str| {
        let Some((header, body)) = answer.split_once("\r\n\r\n") else { return answer.to_owned() };
        let fields = header.split("\r\n").map(line);
        if header.contains("x-riskgate-source") {
            let is_chunked = header.contains("Transfer-Encoding: chunked") && !body.is_empty();
            let body = if is_chunked { joined_chunks_and_end(body) } else { body.to_owned() };
            format!("{}\n\n{body}", sorted_by_name(fields).join("\n"))
        } else {
            format!("{}\n\n{body}", fields.collect::<Vec<_>>().join("\n"))
        }
    };
    text.split("HTTP/1.1 ").map(answer).collect()
}

/// The joined data of all chunks, and how the chunks ended.
fn joined_chunks_and_end(mut chunks: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n")
        && let Ok(size) = usize::from_str_radix(size, 16)
        && let Some((data, rest)) = rest.split_at_checked(size)
        && let Some(rest) = rest.strip_prefix("\r\n")
    {
        whole += data;
        chunks = rest;
        if size == 0 {
            return format!("{whole} (whole){chunks}");
        }
    }
    format!("{whole} (cut){chunks}")
}

/// The upstream server of both gateways: the target alone determines its reaction.
fn respond_by_target(seen: &ReceivedRequest) -> Vec<Step> {
    let target = seen.request_line().split(' ').nth(1).unwrap_or_default();
    let name = target.trim_start_matches("/v1/check/").split(['?', '%']).next().unwrap_or_default();
    let is_head = seen.request_line().starts_with("HEAD");
    let send = |text: &str| Step::Send(text.as_bytes().to_vec());
    let body = |text: &str| if is_head { String::new() } else { text.to_owned() };
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n".to_owned();
    let late = |text: &str| Step::Trickle(text.as_bytes().to_vec(), Duration::from_millis(1));
    match name {
        "said" => vec![Step::Send(response_bytes(
            200,
            "Server: x\r\nDate: then\r\nSet-Cookie: a=1\r\nVary: Accept\r\nX-Hop: 1\r\nX-B: 1\r\n\
             Connection: X-Hop, keep-alive\r\nX-Riskgate-Plan: all\r\nRateLimit: \"x\";r=1\r\n\
             Access-Control-Allow-Origin: *\r\nX-B: 2\r\nCache-Control: max-age=5\r\n",
            &body("{}"),
        ))],
        "201" | "404" | "429" | "503" => {
            vec![Step::Send(response_bytes(name.parse().unwrap(), "", &body("said")))]
        }
        "204" => vec![send("HTTP/1.1 204 None\r\nX-A: 1\r\n\r\n")],
        "304" => vec![send("HTTP/1.1 304 Same\r\nETag: \"a\"\r\n\r\n")],
        "empty" => vec![send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
        "long" => vec![Step::Send(response_bytes(200, "", &body(&"long".repeat(50_000))))],
        "chunks" => vec![send(&(chunked + &body("2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n")))],
        "chunks-in-parts" => {
            vec![send(&chunked), late(&body("2\r\nhe\r\n3\r\nllo\r\n0\r\nA: b\r\n\r\n"))]
        }
        "until-close" => {
            vec![send(&format!("HTTP/1.0 200 OK\r\n\r\n{}", body("all"))), Step::Close]
        }
        "until-close-empty" => vec![send("HTTP/1.1 200 OK\r\n\r\n"), Step::Close],
        "interim" => vec![
            send("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
            late(&String::from_utf8(response_bytes(200, "", &body("then"))).unwrap()),
        ],
        "closed-after" => {
            vec![
                Step::Send(response_bytes(200, "Connection: close\r\n", &body("bye"))),
                Step::Close,
            ]
        }
        "broken-begin" => vec![send("HTTP/1.1 200 OK\r\nContent-Le"), Step::Close],
        "broken-length" => {
            vec![send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), Step::Close]
        }
        "broken-chunks" => vec![send(&(chunked + "5\r\nhello\r\nx\r\n")), Step::Close],
        "nominates-its-length" => {
            vec![Step::Send(response_bytes(200, "Connection: content-length\r\n", &body("hello")))]
        }
        "broken-coding" => vec![
            send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            Step::Close,
        ],
        "fold" => vec![send("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n")],
        _ => vec![Step::Send(response_bytes(200, "", &body(r#"{"checked":true}"#)))],
    }
}
