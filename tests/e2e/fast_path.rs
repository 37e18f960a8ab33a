//! The fast path and the Pingora path behave alike. Two gateways, with and without the fast path,
//! receive the same bytes. Both must send the same responses, count the same calls, forward the
//! same requests, write the same log lines, and close the connection in the same way.
//!
//! `RISKGATE_TEST_SEEDS=1000..2000` tests other random connections than the usual 400.
//! `scripts/differences` tests further seeds for a given time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use riskgate::keys::format_key_hash;

use crate::harness::{
    Gateway, MockUpstream, ReceivedRequest, Setup, Step, get, response_bytes, wait_for, wait_until,
};

const KEY: &str = "rg_comparison00000000000000000000001";
const ORIGIN_BOUND_KEY: &str = "rg_differences0000000000000000000002";
const REVOKED_KEY: &str = "rg_differences0000000000000000000003";
const CONNECTIONS: u64 = 400;

/// Generates what a client sends (splitmix64).
struct Random(u64);

impl Random {
    fn number(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    fn pick<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.number(of.len())]
    }

    /// Returns true once in `of` calls on average.
    fn one_in(&mut self, of: usize) -> bool {
        self.number(of) == 0
    }
}

/// The bytes of a client on one connection.
struct ClientInput {
    bytes: Vec<u8>,
    /// The offsets at which the client pauses.
    cuts: Vec<usize>,
    /// The number of plain requests at the beginning.
    plain: u64,
}

fn random_input(seed: u64) -> ClientInput {
    let mut random = Random(seed);
    let mut sent = ClientInput { bytes: Vec::new(), cuts: Vec::new(), plain: 0 };
    let mut all_plain = true;
    for _ in 0..=random.number(5) {
        let (request, is_plain) = if random.one_in(3) {
            non_plain_request(&mut random)
        } else {
            plain_request(&mut random)
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
    for _ in 0..random.number(4) * usize::from(random.one_in(4)) {
        sent.cuts.push(random.number(sent.bytes.len() + 1));
        sent.plain = 0;
    }
    sent.cuts.sort_unstable();
    sent
}

const DOMAINS: [&str; 12] = [
    "first.test",
    "mail.first.test",
    "unknown.example",
    "gmail.com",
    "a.b.c.second.test",
    "FIRST.test",
    "b%C3%BCcher.de",
    "first.test?x=1",
    "%",
    "one",
    "a_b.com",
    "xn--bcher-kva.de",
];

/// Targets of checks. Each determines how the upstream server answers.
const CHECKS: [&str; 28] = [
    "plain@first.test",
    "plain@first.test?a=b&c",
    "plain@",
    "first.test",
    "a/b",
    "%00",
    "b%C3%BCcher@a.test",
    "said",
    "201",
    "404",
    "429",
    "503",
    "204",
    "304",
    "empty",
    "long",
    "chunks",
    "chunks-in-parts",
    "until-close",
    "until-close-empty",
    "interim",
    "farewell",
    "broken-begin",
    "broken-length",
    "broken-chunks",
    "fold",
    "nominates-its-length",
    "broken-coding",
];

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
        "farewell" => {
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

/// A request that the fast path can serve.
fn plain_request(random: &mut Random) -> (String, bool) {
    let method = random.pick(&["GET", "GET", "GET", "HEAD"]);
    let path = match random.number(8) {
        0 => "/v1/public/top-domains".to_owned(),
        1 | 2 => format!("/v1/check/{}", random.pick(&CHECKS)),
        _ => format!("/v1/public/domain/{}", random.pick(&DOMAINS)),
    };
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: gate.test\r\n");
    request += &match random.number(12) {
        0 => String::new(),
        1 => "Authorization: Bearer nobody-knows-this-key\r\n".to_owned(),
        2 => format!("authorization: bearer  {KEY} \r\n"),
        3 => format!("Authorization: Bearer {REVOKED_KEY}\r\n"),
        4 => format!("Authorization: Bearer {ORIGIN_BOUND_KEY}\r\n"),
        _ => format!("Authorization: Bearer {KEY}\r\n"),
    };
    if random.one_in(3) {
        let origin = random.pick(&["https://app.example.com", "https://evil.test", "null", "a b"]);
        request += &format!("Origin: {origin}\r\n");
    }
    if random.one_in(3) {
        request += &format!(
            "X-Request-Id: {}\r\n",
            random.pick(&["abc", "a b", "x@y", "", &"i".repeat(129)])
        );
    }
    if random.one_in(3) {
        request += "User-Agent: curl/8.5.0\r\nAccept: */*\r\n";
    }
    if random.one_in(6) {
        request += random.pick(&["Connection: keep-alive\r\n", "connection: Close\r\n"]);
    }
    (request + "\r\n", true)
}

/// A request that the fast path can't serve, for one of several reasons.
fn non_plain_request(random: &mut Random) -> (String, bool) {
    let (request, _) = plain_request(random);
    let more = |line: &str| request.replacen("\r\n\r\n", &format!("\r\n{line}\r\n\r\n"), 1);
    let request = match random.number(22) {
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
            more(&format!("Connection: {}", random.pick(&words)))
        }
        10 => more(" folded"),
        11 => more("Keep-Alive: timeout=1"),
        12 => request.replacen("HTTP/1.1", "HTTP/1.0", 1),
        13 => request.replacen("GET", "POST", 1),
        14 => request.replacen("GET ", "GET http://gate.test", 1),
        15 => request.replacen("GET", "OPTIONS", 1),
        16 => request.replacen("/v1/public/domain/", "/v1/check/", 1),
        17 => request.replacen("/v1/public/domain/", "/nowhere/", 1),
        18 => request.replacen("Host: gate.test\r\n", "", 1),
        19 => format!("\r\n{request}"),
        20 => request.replace("\r\n", "\n"),
        _ => format!("GET /v1/usage HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n\r\n"),
    };
    (request, false)
}

/// Changes, drops or repeats a few bytes.
fn corrupt_bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.number(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.number(bytes.len());
        match random.number(4) {
            0 => bytes[at] = random.number(256) as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, b"\r\n :\0/%"[random.number(7)]),
        }
    }
}

/// One of the two gateways, and its upstream server.
struct ComparedGateway {
    gateway: Gateway,
    upstream: MockUpstream,
}

impl ComparedGateway {
    fn start(fast_path: bool) -> ComparedGateway {
        let upstream = MockUpstream::with_script(respond_by_target);
        let setup = Setup::new().upstream(&[upstream.address]).set("plans.free", "1000000");
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
        // Makes calls until the account holds enough leased calls for one burst after the other.
        for _ in 0..300 {
            gateway.get_domain("first.test", KEY).expect(200);
        }
        ComparedGateway { gateway, upstream }
    }

    /// Reads all bytes until the connection ends; the client does not close its side first.
    fn ask(&self, sent: &ClientInput) -> Vec<u8> {
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

    fn fast_path_requests(&self) -> u64 {
        self.gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]) as u64
    }

    /// The log lines without times and durations. A client may be gone before its line is written,
    /// so lines of later clients may precede it.
    fn log(&self) -> Vec<String> {
        let told = |mut line: serde_json::Value| {
            for name in ["time", "duration_us", "request_id"] {
                line[name] = serde_json::Value::Null;
            }
            line.to_string()
        };
        let mut told: Vec<String> = self.gateway.read_access_log().into_iter().map(told).collect();
        told.sort_unstable();
        told
    }

    /// The requests that reached the upstream server, without ids and the server's address.
    fn forwarded_requests(&self) -> Vec<String> {
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

/// The sorted fields: the order of fields with different names has no meaning (RFC 9110 section
/// 5.3).
fn sorted_by_name(fields: impl Iterator<Item = String>) -> Vec<String> {
    let mut fields: Vec<String> = fields.collect();
    fields.sort_by_key(|field| field.split(':').next().unwrap_or_default().to_owned());
    fields
}

/// The responses without values that differ between two moments or two gateways.
fn normalized_responses(answers: &[u8]) -> Vec<String> {
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
            let body = if is_chunked { join_chunks(body) } else { body.to_owned() };
            format!("{}\n\n{body}", sorted_by_name(fields).join("\n"))
        } else {
            format!("{}\n\n{body}", fields.collect::<Vec<_>>().join("\n"))
        }
    };
    text.split("HTTP/1.1 ").map(answer).collect()
}

/// The joined data of all chunks, and how the chunks ended.
fn join_chunks(mut chunks: &str) -> String {
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

/// Panics with the first difference only.
#[track_caller]
fn assert_all_equal(one: &[String], other: &[String]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert_eq!(one, other);
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(told) = std::env::var("RISKGATE_TEST_SEEDS") else { return 0..CONNECTIONS };
    let (first, end) = told.split_once("..").expect("FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn the_fast_path_and_the_pingora_path_respond_alike() {
    let (with, without) = (ComparedGateway::start(true), ComparedGateway::start(false));
    let (mut plain, mut answered) = (0, 0);
    for seed in seeds() {
        let sent = random_input(seed);
        let before = with.fast_path_requests();
        let (one, other) = (with.ask(&sent), without.ask(&sent));
        assert_eq!(
            normalized_responses(&one),
            normalized_responses(&other),
            "seed {seed}, with the lane and without: {}",
            String::from_utf8_lossy(&sent.bytes)
        );
        plain += sent.plain;
        answered += (with.fast_path_requests() - before).min(sent.plain);
    }
    assert_eq!(without.fast_path_requests(), 0);
    assert!(plain > 0 && answered * 100 >= plain * 95, "{answered} of {plain} plain requests");
    assert_all_equal(&with.forwarded_requests(), &without.forwarded_requests());
    wait_until("all is logged", || with.log().len() == without.log().len());
    assert_all_equal(&with.log(), &without.log());
    let used = |side: &ComparedGateway| side.gateway.get("/v1/usage", KEY).expect(200).text();
    assert_eq!(used(&with), used(&without));
    for metric in ["domain", "top_domains", "check", "none"] {
        for outcome in ["ok", "unauthorized", "forbidden", "validation_error", "bad_request"] {
            let count = |side: &ComparedGateway| {
                let labels = [format!("route=\"{metric}\""), format!("outcome=\"{outcome}\"")];
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                side.gateway.sum_of_samples("riskgate_requests_total", &labels)
            };
            assert_eq!(count(&with), count(&without), "{metric} {outcome}");
        }
    }
}

#[test]
fn a_connection_returns_to_the_fast_path_with_the_keepalive_timeout() {
    let setup = Setup::new().set("listen.fast_path", "true");
    let setup = setup.set_text("listen.keepalive_timeout", "1s");
    let gateway = setup.set_text("listen.header_timeout", "1h").start();
    let key = gateway.create_active_key("acme", &[]);
    let answers = || gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]);
    let mut connection = gateway.connect();
    connection.ask(&get("/v1/usage").key(&key)).expect(200);
    let before = answers();
    connection.ask(&get("/v1/public/top-domains")).expect(401);
    assert_eq!(answers(), before + 1.0);
    // An idle connection closes after the keep-alive time-out of one second, not after the header
    // time-out of one hour.
    assert!(connection.is_closed_by_peer());
}

#[test]
fn an_upstream_connection_with_unexpected_bytes_is_not_reused() {
    let unasked = response_bytes(200, "", "nobody asked");
    let upstream = MockUpstream::with_script(move |seen| {
        let behind = if seen.request_line().contains("/0 ") {
            Step::Send(unasked.clone())
        } else {
            Step::Close
        };
        vec![Step::Send(response_bytes(200, "", seen.request_line())), behind]
    });
    for fast_path in ["true", "false"] {
        let setup = Setup::new().upstream(&[upstream.address]).set("listen.fast_path", fast_path);
        let gateway = setup.set("plans.free", "1000000").start();
        let key = gateway.create_warm_key("acme");
        let before = wait_for("clients are gone", || {
            (gateway.sum_of_samples("riskgate_connections", &[]) == 0.0)
                .then(|| gateway.open_descriptors())
        });
        for number in 0..3 {
            let own = gateway.get(format!("/v1/check/{number}"), &key).expect(200).text();
            assert_eq!(own, format!("GET /v1/check/{number} HTTP/1.1"), "lane = {fast_path}");
            wait_until("it is dropped", || gateway.open_descriptors() <= before);
        }
    }
}

/// An account of a small plan holds one leased call or none, so each connection alternates between
/// both paths.
#[test]
fn every_plan_can_be_spent_exactly_on_both_paths() {
    for fast_path in ["true", "false"] {
        let setup = Setup::new().set("listen.fast_path", fast_path);
        let plans = [("free", 1), ("few", 3), ("some", 120), ("more", 1_500)];
        let setup = plans.iter().fold(setup, |setup, (plan, limit)| {
            setup.set(&format!("plans.{plan}"), &limit.to_string())
        });
        let gateway = setup.start();
        for (plan, limit) in plans {
            let key = gateway.create_active_key(plan, &["--plan", plan]);
            let mut left: Vec<u64> = std::thread::scope(|scope| {
                let spend = || spend_all(&gateway, &key);
                let clients: Vec<_> = (0..6).map(|_| scope.spawn(spend)).collect();
                clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
            });
            left.sort_unstable();
            assert_eq!(left, (0..limit).collect::<Vec<_>>(), "{plan}, lane = {fast_path}");
            assert_eq!(gateway.get_month_count(&key), limit);
        }
        let answers = gateway.sum_of_samples("riskgate_fast_path_requests_total", &[]);
        assert_eq!(answers > 0.0, fast_path == "true");
    }
}

/// The remaining calls of the month after each call, until none is left.
fn spend_all(gateway: &Gateway, key: &str) -> Vec<u64> {
    let mut connection = gateway.connect();
    let mut left = Vec::new();
    loop {
        let answer = connection.ask(&get("/v1/public/domain/first.test").key(key));
        if answer.status == 429 {
            return left;
        }
        left.push(answer.expect(200).rate_limit_remaining());
    }
}
