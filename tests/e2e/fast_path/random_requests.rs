//! Generates random requests, most of which the fast path can serve.

pub const KEY: &str = "rg_comparison00000000000000000000001";
pub const ORIGIN_BOUND_KEY: &str = "rg_differences0000000000000000000002";
pub const REVOKED_KEY: &str = "rg_differences0000000000000000000003";

/// Generates pseudo-random numbers (splitmix64).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn number_below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    fn pick_one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.number_below(of.len())]
    }

    /// Returns true once in `of` calls on average.
    fn one_in(&mut self, of: usize) -> bool {
        self.number_below(of) == 0
    }
}

/// The bytes of a client on one connection.
pub struct ClientInput {
    pub bytes: Vec<u8>,
    /// The offsets at which the client pauses.
    pub cuts: Vec<usize>,
    /// The number of requests at the beginning that the fast path can serve.
    pub plain: u64,
}

pub fn random_client_input(seed: u64) -> ClientInput {
    let mut random = RandomNumbers(seed);
    let mut sent = ClientInput { bytes: Vec::new(), cuts: Vec::new(), plain: 0 };
    let mut all_plain = true;
    for _ in 0..=random.number_below(5) {
        let (request, is_plain) = if random.one_in(3) {
            random_pingora_path_request(&mut random)
        } else {
            random_fast_path_request(&mut random)
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

const DOMAIN_TARGETS: [&str; 12] = [
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
const CHECK_TARGETS: [&str; 28] = [
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
    "closed-after",
    "broken-begin",
    "broken-length",
    "broken-chunks",
    "fold",
    "nominates-its-length",
    "broken-coding",
];

/// A request that the fast path can serve, and `true`.
fn random_fast_path_request(random: &mut RandomNumbers) -> (String, bool) {
    let method = random.pick_one(&["GET", "GET", "GET", "HEAD"]);
    let path = match random.number_below(8) {
        0 => "/v1/public/top-domains".to_owned(),
        1 | 2 => format!("/v1/check/{}", random.pick_one(&CHECK_TARGETS)),
        _ => format!("/v1/public/domain/{}", random.pick_one(&DOMAIN_TARGETS)),
    };
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: gate.test\r\n");
    request += &match random.number_below(12) {
        0 => String::new(),
        1 => "Authorization: Bearer nobody-knows-this-key\r\n".to_owned(),
        2 => format!("authorization: bearer  {KEY} \r\n"),
        3 => format!("Authorization: Bearer {REVOKED_KEY}\r\n"),
        4 => format!("Authorization: Bearer {ORIGIN_BOUND_KEY}\r\n"),
        _ => format!("Authorization: Bearer {KEY}\r\n"),
    };
    if random.one_in(3) {
        let origin =
            random.pick_one(&["https://app.example.com", "https://evil.test", "null", "a b"]);
        request += &format!("Origin: {origin}\r\n");
    }
    if random.one_in(3) {
        request += &format!(
            "X-Request-Id: {}\r\n",
            random.pick_one(&["abc", "a b", "x@y", "", &"i".repeat(129)])
        );
    }
    if random.one_in(3) {
        request += "User-Agent: curl/8.5.0\r\nAccept: */*\r\n";
    }
    if random.one_in(6) {
        request += random.pick_one(&["Connection: keep-alive\r\n", "connection: Close\r\n"]);
    }
    (request + "\r\n", true)
}

/// A request that the fast path usually can't serve, for one of several reasons, and `false`.
fn random_pingora_path_request(random: &mut RandomNumbers) -> (String, bool) {
    let (request, _) = random_fast_path_request(random);
    let more = |line: &str| request.replacen("\r\n\r\n", &format!("\r\n{line}\r\n\r\n"), 1);
    let request = match random.number_below(22) {
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
