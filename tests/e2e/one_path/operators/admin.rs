//! The admin pages, the metrics, and the lines of the access log.

use std::collections::{BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::time::Duration;

use crate::harness::{
    Connection, Gateway, MockUpstream, Request, Response, Setup, free_address, get, request,
    stream_from, wait_until,
};

fn send_to_admin(gateway: &Gateway, request: Request) -> Response {
    request.send(gateway.admin)
}

fn localhost_request(method: &str, path: &str) -> Request {
    request(method, path).with_header("Host", "localhost")
}

#[test]
fn a_client_that_waits_for_100_continue_is_told_to_send_its_body() {
    let gateway = Setup::new().start();
    let open = |version: &str, length: usize| {
        let mut stream = std::net::TcpStream::connect(gateway.admin).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(9))).unwrap();
        let header = format!(
            "POST /reload HTTP/{version}\r\nHost: localhost\r\nExpect: 100-Continue\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(header.as_bytes()).unwrap();
        stream
    };
    let read = |stream: &mut std::net::TcpStream, length: usize| {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let mut waiting = open("1.1", 2);
    let told = "HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(read(&mut waiting, told.len()), told);
    waiting.write_all(b"{}").unwrap();
    assert_eq!(read(&mut waiting, 12), "HTTP/1.1 200");
    assert_eq!(read(&mut open("1.1", 70_000), 12), "HTTP/1.1 413", "too long to be sent");
    let mut old = open("1.0", 2);
    old.write_all(b"{}").unwrap();
    assert!(read(&mut old, 12).ends_with(" 200"), "HTTP/1.0 has no 100");
    let mut empty = open("1.1", 0);
    assert_eq!(read(&mut empty, 12), "HTTP/1.1 200", "there is no body to wait for");
}

#[test]
fn the_admin_listener_closes_slow_clients_and_every_answered_connection() {
    let gateway = Setup::new().start();
    let announced = [(10, 408), (70_000, 413)].map(|(length, status)| {
        let mut connection = Connection::open(gateway.admin);
        let header =
            format!("POST /reload HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        connection.send(header.as_bytes());
        (connection, status)
    });
    let mut trickles = std::net::TcpStream::connect(gateway.admin).unwrap();
    // One field whose value never ends, because the number of fields has a limit of its own.
    trickles.write_all(b"GET /healthz HTTP/1.1\r\nX: ").unwrap();
    wait_until("riskgate closes the connection", || {
        std::thread::sleep(Duration::from_millis(200));
        trickles.write_all(b"a").is_err()
    });
    // The admin listener closes the connection after its response.
    let mut kept = Connection::open(gateway.admin);
    kept.send_request(&localhost_request("GET", "/healthz")).expect(200);
    assert!(kept.ends_without_more_bytes());
    for (mut connection, status) in announced {
        connection.read_response().expect("a response").expect(status);
    }
}

/// One client holds 80 connections open and never sends a complete request.
#[test]
fn healthz_and_readyz_answer_while_one_address_holds_connections_open() {
    let gateway = Setup::new().start();
    for holder in ["127.0.0.2", "127.0.0.1"] {
        let hold = || {
            let mut stream = stream_from(holder.parse().unwrap(), gateway.admin);
            // The listener may already have closed the connection.
            let _ = stream.write_all(b"G");
            stream
        };
        let mut held: VecDeque<_> = (0..80).map(|_| hold()).collect();
        for path in ["/healthz", "/readyz"].into_iter().cycle().take(40) {
            // The client replaces connections that the listener closes.
            held.pop_front();
            held.push_back(hold());
            for prober in ["127.0.0.1", "127.0.0.3"] {
                let mut prober = Connection::open_from(prober.parse().unwrap(), gateway.admin);
                prober.send_request(&localhost_request("GET", path)).expect(200);
            }
        }
    }
}

#[test]
fn readiness_status_and_a_metric_say_how_old_the_knowledge_is() {
    let gateway = Setup::with_bundled_table().start();
    let knowledge = gateway.readyz().expect(200).json()["knowledge"].clone();
    let newest_at = knowledge[0]["newest_evidence_at"].as_str().unwrap().to_owned();
    assert!(newest_at.as_str() >= "2026-11-09T00:00:00Z", "{knowledge}");
    assert_eq!(knowledge[0]["source"], "table");
    assert!(knowledge[0]["age_days"].as_i64().is_some_and(|days| days >= 0), "{knowledge}");
    let status = gateway.get_admin_page("/status").expect(200).json();
    assert_eq!(status["table"]["newest_evidence_at"], newest_at.as_str());
    let metric = "riskgate_table_newest_evidence_timestamp_seconds";
    wait_until("the metric has a day", || gateway.sum_of_samples(metric, &[]) > 1.7e9);
}

#[test]
fn every_admin_page_answers_get_and_head_and_refuses_other_methods() {
    let gateway = Setup::new().start();
    assert_eq!(gateway.get_admin_page("/healthz").expect(200).text(), "ok\n");
    let ready = gateway.readyz().expect(200).json();
    assert_eq!((&ready["ready"], &ready["draining"]), (&true.into(), &false.into()));
    assert_eq!(ready["degraded"].as_array().unwrap().len(), 0);
    let status = gateway.get_admin_page("/status").expect(200);
    assert_eq!(status.header("Content-Type"), Some("application/json"));
    assert_eq!(status.json()["draining"], false);
    assert_eq!(status.json()["not_ready"], serde_json::Value::Null);
    assert!(status.json()["table"]["rows"].as_u64().unwrap() > 0);
    let with_token = localhost_request("GET", "/").with_header("Authorization", "Bearer any");
    let refused = with_token.send(gateway.admin).expect(401).text();
    assert_eq!(refused, "expected no Authorization, because no admin token is configured\n");
    let page = gateway.get_admin_page("/").expect(200);
    assert!(page.header("Content-Type").unwrap().starts_with("text/html"));
    assert!(page.text().contains("riskgate"));
    let metrics = gateway.get_admin_page("/metrics").expect(200);
    assert!(metrics.header("Content-Type").unwrap().starts_with("text/plain"));
    gateway.get_admin_page("/nowhere").expect(404);
    gateway.get_admin_page("/v1/usage").expect(404);
    let document = gateway.get_admin_page("/openapi.yaml").expect(200);
    assert_eq!(document.header("Content-Type"), Some("application/yaml"));
    assert!(document.text() == include_str!("../../../../docs/openapi.yaml"));
    for path in ["/healthz", "/readyz", "/metrics", "/status", "/screening", "/", "/openapi.yaml"] {
        let head = send_to_admin(&gateway, localhost_request("HEAD", path)).expect(200);
        assert!(head.body.is_empty(), "{path}");
        let refused = send_to_admin(&gateway, localhost_request("DELETE", path)).expect(405);
        assert_eq!(refused.header("Allow"), Some("GET, HEAD"), "{path}");
    }
    let refused = send_to_admin(&gateway, localhost_request("GET", "/reload")).expect(405);
    assert_eq!(refused.header("Allow"), Some("POST"));
}

#[test]
fn the_admin_listener_refuses_a_post_from_a_browser() {
    let gateway = Setup::new().start();
    let reload = || localhost_request("POST", "/reload");
    send_to_admin(&gateway, reload()).expect(200);
    send_to_admin(&gateway, reload().with_header("Origin", "http://localhost:9090")).expect(403);
    send_to_admin(&gateway, reload().with_header("Origin", "null")).expect(403);
    send_to_admin(&gateway, reload().with_header("Sec-Fetch-Site", "cross-site")).expect(403);
}

#[test]
fn admin_requests_for_a_foreign_host_reach_only_healthz_and_readyz() {
    let gateway = Setup::new().start();
    for host in
        ["evil.example", "evil.example:9090", "localhost.evil.example", "10.0.0.1", "0.0.0.0"]
    {
        for path in ["/", "/status", "/screening", "/metrics", "/openapi.yaml", "/page/main.js"] {
            let answer = send_to_admin(&gateway, get(path).with_header("Host", host));
            assert!(matches!(answer.status, 401 | 403 | 421), "{host} {path} {}", answer.status);
            assert!(!answer.text().contains("riskgate_"), "{host} {path}");
        }
        send_to_admin(&gateway, get("/healthz").with_header("Host", host)).expect(200);
        send_to_admin(&gateway, get("/readyz").with_header("Host", host)).expect(200);
        let reload = request("POST", "/reload").with_header("Host", host);
        assert!(send_to_admin(&gateway, reload).status >= 400, "{host}");
    }
    for host in ["127.0.0.1", "127.0.0.1:9090", "localhost:1", "[::1]:9090"] {
        send_to_admin(&gateway, get("/status").with_header("Host", host)).expect(200);
    }
}

#[test]
fn with_an_admin_token_everything_that_shows_data_needs_the_token() {
    let token = "a-token-of-the-operator";
    let gateway = Setup::new().set_text("admin.token", token).start();
    let with = |path: &str, token: &str| {
        send_to_admin(
            &gateway,
            localhost_request("GET", path).with_header("Authorization", &format!("Bearer {token}")),
        )
    };
    // The page has no data. Its script asks the API, which needs a token.
    let page = gateway.get_admin_page("/").expect(200);
    assert!(!page.text().contains("127.0.0.1"), "{}", page.text());
    for path in ["/status", "/screening", "/metrics", "/openapi.yaml", "/api/openapi.yaml"] {
        gateway.get_admin_page(path).expect(401);
        with(path, "another-token-altogether").expect(401);
        with(path, "").expect(401);
        with(path, &token[..token.len() - 1]).expect(401);
        with(path, token).expect(200);
    }
    gateway.get_admin_page("/healthz").expect(200);
    gateway.readyz().expect(200);
    send_to_admin(&gateway, localhost_request("POST", "/reload")).expect(401);
    let authorised = localhost_request("POST", "/reload")
        .with_header("Authorization", &format!("Bearer {token}"));
    send_to_admin(&gateway, authorised.clone()).expect(200);
    send_to_admin(&gateway, authorised.with_header("Origin", "http://localhost")).expect(403);
    assert!(!gateway.stderr().contains(token));
}

#[test]
fn a_malformed_admin_request_gets_a_400_and_its_token_is_not_shown() {
    let token = "a-token-of-the-operator";
    let mut gateway = Setup::new().set_text("admin.token", token).start();
    let header = format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n");
    for more in ["X-Null: \0\r\n\r\n", "Host: localhost\r\n\r\n", "Content-Length: x\r\n\r\n"] {
        let mut connection = Connection::open(gateway.admin);
        connection.send(format!("{header}{more}").as_bytes());
        let answer = connection.read_response().expect("an answer").expect(400);
        assert!(!answer.text().contains(token), "{more:?}: {}", answer.text());
        assert!(connection.ends_without_more_bytes(), "{more:?}");
    }
    gateway.send_signal("TERM");
    assert!(gateway.wait_for_exit().success());
    assert!(!gateway.stderr().contains(token), "{}", gateway.stderr());
}

#[test]
fn admin_connections_that_end_within_a_header_do_not_fill_the_log() {
    let mut gateway = Setup::new().start();
    let before = gateway.stderr();
    for _ in 0..50 {
        let mut connection = Connection::open(gateway.admin);
        connection.send(b"G");
        connection.shutdown_write();
        assert!(connection.ends_without_more_bytes());
    }
    gateway.send_signal("TERM");
    assert!(gateway.wait_for_exit().success());
    let all = gateway.stderr();
    let lines: Vec<&str> = all[before.len()..].lines().collect();
    assert!(lines.len() < 5, "{lines:?}");
}

#[test]
fn post_reload_is_answered_even_if_many_admin_connections_follow() {
    let setup = Setup::new();
    // Reading this table takes a while.
    let names: String = (0..150_000).map(|at| format!("name-{at}.test\n")).collect();
    setup.lists().write("role.txt", &names);
    let gateway = setup.start();
    let mut reloads = Connection::open(gateway.admin);
    reloads.send(&localhost_request("POST", "/reload").to_bytes());
    let hold = |_| {
        let mut stream = std::net::TcpStream::connect(gateway.admin).unwrap();
        // The listener may already have closed the connection.
        let _ = stream.write_all(b"G");
        stream
    };
    let held: Vec<_> = (0..80).map(hold).collect();
    let answer = reloads.read_response_to("POST").expect("an answer").expect(200);
    assert_eq!(answer.json()["table"], "ok");
    drop(held);
}

#[test]
fn admin_metrics_public_serves_metrics_without_a_token() {
    let setup = Setup::new().set_text("admin.token", "a-token-of-the-operator");
    let gateway = setup.set("admin.metrics_public", "true").start();
    gateway.get_admin_page("/metrics").expect(200);
    gateway.get_admin_page("/status").expect(401);
}

#[test]
fn requests_are_counted_by_route_and_outcome_and_no_label_names_an_account() {
    let gateway = Setup::new().set("plans.free", "2").with_upstreams(&[free_address()]).start();
    let key = gateway.create_active_key("acme", &[]);
    let outcome = |route: &str, outcome: &str| {
        let labels = [format!("route=\"{route}\""), format!("outcome=\"{outcome}\"")];
        gateway.sum_of_samples("riskgate_requests_total", &[&labels[0], &labels[1]])
    };
    gateway.get_domain("first.test", &key).expect(200);
    gateway.get_domain("a..b", &key).expect(422);
    gateway.get_domain("first.test", &key).expect(429);
    gateway.send_request(&get("/v1/public/top-domains")).expect(401);
    gateway.get("/nowhere", &key).expect(404);
    wait_until("all five requests are counted", || {
        outcome("domain", "ok") == 1.0
            && outcome("domain", "validation_error") == 1.0
            && outcome("domain", "quota_exceeded") == 1.0
            && outcome("top_domains", "unauthorized") == 1.0
            && outcome("none", "not_found") == 1.0
    });
    let text = gateway.metrics();
    let names: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect();
    assert!(names.iter().all(|name| name.starts_with("riskgate_")), "{names:?}");
    assert!(names.iter().any(|name| name.contains("reload")), "{names:?}");
    assert!(names.iter().any(|name| name.contains("store")), "{names:?}");
    assert!(names.contains("riskgate_requests_total"));
    assert!(!text.contains("acme") && !text.contains("first.test"), "labels are closed sets");
}

#[test]
fn the_access_log_shows_key_id_and_account_but_no_key_and_no_local_part() {
    let upstream = MockUpstream::start();
    let gateway = Setup::new().with_upstreams(&[upstream.address]).start();
    let (key, id) = gateway.create_active_key_with_id("acme", &[]);
    let numbered = |at: usize, request: Request| {
        gateway.send_request(&request.with_header("X-Request-Id", &format!("logged-{at}"))).status
    };
    let requests = [
        (get("/v1/public/domain/first.test?secret=1").key(&key), 200),
        (get("/v1/check/jane.doe@example.com?from=jane.doe").key(&key), 200),
        (get("/v1/check/jane.doe%40example.com").key(&key), 200),
        (get("/v1/check/jane%2Edoe%40example.com").key(&key), 200),
        (get("/v1/check/jane.doe%FF%40example.com").key(&key), 422),
        (get("/v1/public/domain/jane.doe@example.com").key(&key), 422),
        (get("/v1/public/domain/jane.doe%40example.com").key(&key), 422),
        (get("/jane.doe%40example.com"), 404),
        (get("/v1/usage").key("rg_jane.doe_not_a_key_at_all"), 401),
        (get("/v1/usage").key(&key).with_header("Referer", "https://x/?jane.doe"), 200),
    ];
    let count = requests.len();
    for (at, (request, status)) in requests.into_iter().enumerate() {
        assert_eq!(numbered(at, request), status, "{at}");
    }
    wait_until("all lines are written", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).unwrap_or_default();
        (0..count).all(|at| text.contains(&format!("\"logged-{at}\"")))
    });
    let lines = gateway.read_access_log();
    for at in 0..count {
        let id_of = format!("logged-{at}");
        let found: Vec<_> = lines.iter().filter(|l| l.to_string().contains(&id_of)).collect();
        assert_eq!(found.len(), 1, "{at}: one line for each request");
        let line = found[0].to_string();
        assert_eq!(line.contains(&id), !matches!(at, 7 | 8), "{line}");
        assert_eq!(line.contains("acme"), !matches!(at, 7 | 8), "{line}");
    }
    let text = std::fs::read_to_string(gateway.path("access.log")).unwrap();
    for secret in [key.as_str(), "jane", "doe", "secret=1"] {
        assert!(!text.contains(secret), "{secret} stands in the log:\n{text}");
    }
    assert!(!gateway.stderr().contains("jane"), "{}", gateway.stderr());
}

#[test]
fn the_access_log_records_requests_refused_while_parsing() {
    let gateway = Setup::new().start();
    let mut connection = gateway.connect();
    connection.send(b"NONSENSE\r\n\r\n");
    assert_eq!(connection.read_response().unwrap().status, 400);
    wait_until("the refusal is logged", || {
        gateway.read_access_log().iter().any(|line| line["status"] == 400)
    });
}
