//! A gateway with its upstream server, and everything about it that a test compares.

use std::net::TcpStream;

use riskgate::keys::format_key_hash;

use super::normalization::sorted_by_name;
use super::random_requests::{KEY, ORIGIN_BOUND_KEY, REVOKED_KEY};
use super::upstream_script::{must_be_retried, respond_by_target};
use crate::harness::{CertificateAuthority, Gateway, MockUpstream, Setup, Stream, TEST_TIMEOUT};

/// A whole site with a form, and paths with a key.
const ROUTES: &str = "
[[upstream.route]]
prefix = \"/\"
key = false

[upstream.route.screen]
fields = [\"email\"]
paths = [\"/form\"]
mode = \"block\"

[[upstream.route]]
prefix = \"/paid\"
methods = [\"GET\", \"POST\", \"PUT\"]
";

/// One of the two gateways, and its upstream server.
pub struct ComparedGateway {
    pub gateway: Gateway,
    pub upstream: MockUpstream,
    authority: CertificateAuthority,
}

impl ComparedGateway {
    pub fn start(fast_path: bool) -> ComparedGateway {
        let upstream = MockUpstream::with_script(respond_by_target);
        let setup = Setup::new().with_upstreams(&[upstream.address]).set("plans.free", "1000000");
        let setup = setup.set("listen.fast_path", if fast_path { "true" } else { "false" });
        let authority = CertificateAuthority::new(setup.path("").as_path());
        let certificate = authority.issue_certificate("gate", "DNS:gate.test");
        let setup = setup.with_certificates(&[certificate]).set("listen.h2c", "true");
        let setup = setup.append_toml(ROUTES);
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
        ComparedGateway { gateway, upstream, authority }
    }

    /// Opens a connection; over TLS for this version of HTTP, if `alpn` is set.
    pub fn connect(&self, alpn: Option<&str>) -> Box<dyn Stream> {
        let address = match alpn {
            Some(_) => self.gateway.https_address(),
            None => self.gateway.http,
        };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let Some(alpn) = alpn else {
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
            return Box::new(stream);
        };
        let stream = self.authority.try_tls_handshake(
            address,
            "gate.test",
            rustls::DEFAULT_VERSIONS,
            &[alpn],
            stream,
        );
        Box::new(stream.expect("a handshake"))
    }

    pub fn count(&self, metric: &str) -> u64 {
        self.gateway.sum_of_samples(metric, &[]) as u64
    }

    pub fn fast_path_request_count(&self) -> u64 {
        self.count("riskgate_fast_path_requests_total")
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
        let seen = seen.iter().filter(|seen| !must_be_retried(seen));
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
        seen.map(|seen| lines(&seen.head) + &String::from_utf8_lossy(&seen.body)).collect()
    }
}
