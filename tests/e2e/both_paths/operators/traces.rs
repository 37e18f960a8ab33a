//! Traces: what a collector gets, and what the upstream server gets. The collector reads OTLP with
//! the official Python packages.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{
    CertificateAuthority, MockUpstream, Setup, free_address, get, run_command, wait_until,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A running collector. Dropping this value ends it.
struct Collector {
    process: Child,
    lines: Arc<Mutex<Vec<Value>>>,
    ports: Value,
}

impl Collector {
    fn start() -> Collector {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let packages = root.join("target/tools/opentelemetry");
        assert!(
            packages.join("grpc").is_dir(),
            "expected the packages of OpenTelemetry in {}, but found none: scripts/setup --tests",
            packages.display()
        );
        let mut python = Command::new("python3");
        python
            .arg(root.join("tests/e2e/both_paths/operators/traces/collector.py"))
            .env("PYTHONPATH", packages);
        let mut process =
            python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut ports = String::new();
        output.read_line(&mut ports).unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                seen.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Collector { process, lines, ports: serde_json::from_str(&ports).unwrap() }
    }

    fn spans(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// The settings with which riskgate sends to this collector.
    fn add_to(&self, setup: Setup, protocol: &str) -> Setup {
        let endpoint = match protocol {
            "grpc" => format!("http://127.0.0.1:{}", self.ports["grpc"]),
            _ => format!("http://127.0.0.1:{}/v1/traces", self.ports["http"]),
        };
        let setup = setup.set_text("traces.endpoint", &endpoint);
        setup.set_text("traces.protocol", protocol).set("traces.sample_one_in", "1")
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_collector_with_a_certificate_of_the_authority_in_tls_ca_is_trusted() {
    // Another gateway stands for the collector: it counts the request, and takes no spans.
    let collector = Setup::new();
    let authority = CertificateAuthority::new(collector.path("").as_path());
    let authorities = authority.certificate_path().display().to_string();
    let certificate = authority.issue_certificate("collector", "IP:127.0.0.1");
    let collector = collector.with_certificates(&[certificate]).start();
    let request_count = || collector.sum_of_samples("riskgate_requests_total", &[]);
    let endpoint = format!("https://{}/v1/traces", collector.https_address());
    let setup =
        Setup::new().set_text("traces.endpoint", &endpoint).set("traces.sample_one_in", "1");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    wait_until("the span is lost", || {
        gateway.sum_of_samples("riskgate_trace_spans_total", &["outcome=\"dropped\""]) > 0.0
    });
    assert_eq!(request_count(), 0.0);
    let gateway = gateway.shut_down().set_text("traces.tls_ca", &authorities).start();
    gateway.get_domain("first.test", &key).expect(200);
    wait_until("the collector got a request", || request_count() > 0.0);
}

#[test]
fn a_request_and_each_attempt_have_a_span() {
    let collector = Collector::start();
    let upstream = MockUpstream::start();
    for (protocol, fast_path) in [("http/protobuf", "true"), ("grpc", "false")] {
        let setup = Setup::new().with_upstreams(&[upstream.address, free_address()]);
        let setup = collector.add_to(setup, protocol).set("listen.fast_path", fast_path);
        let log = setup.path("access.log").display().to_string();
        let setup = setup.set_text("log.path", &log);
        let gateway = setup.set("log.fields", "[\"path\", \"trace_id\"]").start();
        let key = gateway.create_active_key("acme", &[]);
        let before = collector.spans().len();
        let ask = || {
            let asked = get("/v1/check/jane%40gmail.com").key(&key);
            let asked = asked.with_header("traceparent", &format!("00-{TRACE}-{PARENT}-01"));
            gateway.send_request(&asked).expect(200);
            upstream.last_request().header("traceparent").to_owned()
        };
        // One of two requests asks the server that does not listen first.
        let sent = [ask(), ask()];
        let spans = || -> Vec<Value> {
            let mut spans = collector.spans().split_off(before);
            spans.retain(|span| span["trace_id"] == TRACE);
            spans
        };
        wait_until("all spans have arrived", || spans().len() >= 5);
        let spans = spans();
        assert_eq!(spans.len(), 5, "{spans:#?}");
        let of_kind = |kind: u64| spans.iter().filter(move |span| span["kind"] == kind);
        for request in of_kind(2) {
            assert_eq!(request["parent_id"], PARENT);
            assert_eq!(request["name"], "GET check");
            assert_eq!(request["service"], "riskgate");
            assert_eq!(request["attributes"]["url.path"], "/v1/check/…@gmail.com");
            assert_eq!(request["attributes"]["http.response.status_code"], 200);
            assert_eq!(request["attributes"]["riskgate.account"], "acme");
            assert_eq!(request["is_error"], false);
        }
        let requests: Vec<&Value> = of_kind(2).collect();
        let attempts: Vec<&Value> = of_kind(3).collect();
        assert_eq!((requests.len(), attempts.len()), (2, 3));
        for attempt in &attempts {
            let parent = requests.iter().find(|it| it["span_id"] == attempt["parent_id"]);
            let parent = parent.expect("the span of a request");
            let time = |span: &Value, name: &str| span[name].as_u64().unwrap();
            assert!(time(attempt, "start") >= time(parent, "start"));
            assert!(time(attempt, "end") <= time(parent, "end") + 1_000_000);
        }
        let failed: Vec<&&Value> =
            attempts.iter().filter(|span| span["is_error"] == true).collect();
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0]["attributes"]["riskgate.outcome"], "connect_failed");
        // The upstream server continues the trace below the attempt that reached it.
        for traceparent in &sent {
            let parts: Vec<&str> = traceparent.split('-').collect();
            assert_eq!((parts[0], parts[1], parts[3]), ("00", TRACE, "01"), "{traceparent}");
            let reached = attempts.iter().find(|span| span["span_id"] == parts[2]);
            assert_eq!(reached.expect("the attempt's span")["is_error"], false);
        }
        let transport = if protocol == "grpc" { "grpc" } else { "http" };
        assert!(spans.iter().all(|span| span["transport"] == transport));
        let logged = gateway.read_access_log();
        let check = logged.iter().find(|line| line["path"] == "/v1/check/…@gmail.com").unwrap();
        assert_eq!(check["trace_id"], TRACE);
        let exported = ["outcome=\"exported\""];
        wait_until("the spans are counted", || {
            gateway.sum_of_samples("riskgate_trace_spans_total", &exported) >= 5.0
        });
    }
}

#[test]
fn domains_are_traced_over_http2_too_and_the_last_spans_are_sent_at_the_end() {
    let collector = Collector::start();
    let setup = collector.add_to(Setup::new(), "grpc").set("listen.h2c", "true");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let mut curl = Command::new("curl");
    curl.args(["-s", "--http2-prior-knowledge", "-o", "/dev/null"]);
    curl.args(["-H", &format!("Authorization: Bearer {key}")]);
    curl.arg(format!("http://{}/v1/public/domain/gmail.com", gateway.http));
    run_command(&mut curl).expect(0);
    gateway.shut_down();
    wait_until("the span has arrived", || {
        collector.spans().iter().any(|span| span["name"] == "GET domain")
    });
    let spans = collector.spans();
    let domain: Vec<&Value> = spans.iter().filter(|span| span["name"] == "GET domain").collect();
    assert_eq!(domain.len(), 1, "{spans:#?}");
    assert_eq!((&domain[0]["parent_id"], &domain[0]["kind"]), (&json!(""), &json!(2)));
    assert_eq!(domain[0]["attributes"]["network.protocol.version"], "2");
}

#[test]
fn without_a_collector_requests_are_served_and_without_traces_a_traceparent_passes() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[upstream.address]);
    let endpoint = format!("http://{}/v1/traces", free_address());
    let setup = setup.set_text("traces.endpoint", &endpoint).set("traces.sample_one_in", "1");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let sent = format!("00-{TRACE}-{PARENT}-00");
    let ask = |gateway: &crate::harness::Gateway, key: &str| {
        let asked = get("/v1/check/a%40gmail.com").key(key).with_header("traceparent", &sent);
        gateway.send_request(&asked).expect(200);
        upstream.last_request().header("traceparent").to_owned()
    };
    assert_ne!(ask(&gateway, &key), sent);
    // A new trace has no state of another one.
    for (traceparent, expected) in [("00-x", vec![]), (sent.as_str(), vec!["a=b"])] {
        let asked = get("/v1/check/a%40gmail.com").key(&key).with_header("tracestate", "a=b");
        gateway.send_request(&asked.with_header("traceparent", traceparent)).expect(200);
        assert_eq!(upstream.last_request().header_values("tracestate"), expected, "{traceparent}");
    }
    wait_until("the failure is logged", || {
        gateway.stderr().contains("warn: traces.endpoint: expected a collector that takes spans")
    });
    let dropped = ["outcome=\"dropped\""];
    wait_until("the spans are counted", || {
        gateway.sum_of_samples("riskgate_trace_spans_total", &dropped) >= 2.0
    });
    let gateway = Setup::new().with_upstreams(&[upstream.address]).start();
    let key = gateway.create_active_key("acme", &[]);
    assert_eq!(ask(&gateway, &key), sent);
    for (protocol, endpoint) in [("grpc", "https://127.0.0.1:4317"), ("http/protobuf", "127.0.0.1")]
    {
        let setup = Setup::new().set_text("traces.protocol", protocol);
        let refused = setup.set_text("traces.endpoint", endpoint).cli(&["check"]).expect(78).stderr;
        assert!(refused.contains("traces.endpoint: expected a URL"), "{refused}");
    }
    let without_path = Setup::new().set_text("traces.endpoint", "http://127.0.0.1:4318");
    let checked = without_path.cli(&["check"]).expect(0).stderr;
    let expected = "traces.endpoint: expected a URL with a path, because collectors take spans only at one; \
                    write \"http://127.0.0.1:4318/v1/traces\"";
    assert!(checked.contains(expected), "{checked}");
    let with_user =
        Setup::new().set_text("traces.endpoint", "http://ops:pass-word-1@127.0.0.1:4318");
    let refused = with_user.cli(&["check"]).expect(78).stderr;
    let expected = "traces.endpoint: expected a URL without user and password";
    assert!(refused.contains(expected) && !refused.contains("pass-word-1"), "{refused}");
}
