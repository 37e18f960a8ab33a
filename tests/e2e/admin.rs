//! The operator's pages, the metrics, and the lines of the access log.

use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::time::Duration;

use crate::harness::{
    Answer, Connection, Gateway, Request, Setup, StandIn, free_port, get, request, stream_from,
    until_true,
};

fn ask(gateway: &Gateway, request: Request) -> Answer {
    request.send(gateway.admin)
}

fn local(method: &str, path: &str) -> Request {
    request(method, path).with("Host", "localhost")
}

#[test]
fn nobody_stays_at_the_operators_door_for_long() {
    let gateway = Setup::new().start();
    let mut trickles = std::net::TcpStream::connect(gateway.admin).unwrap();
    trickles.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    until_true("it is shown out", || {
        std::thread::sleep(Duration::from_millis(200));
        trickles.write_all(b"X: a\r\n").is_err()
    });
    // Whoever has an answer does not stay either.
    let mut kept = Connection::open(gateway.admin);
    kept.ask(&local("GET", "/healthz")).expect(200);
    assert!(kept.is_closed());
}

/// Whoever holds connections open and never sends a whole request.
#[test]
fn health_and_readiness_answer_while_one_address_holds_connections_open() {
    let gateway = Setup::new().start();
    for holder in ["127.0.0.2", "127.0.0.1"] {
        let hold = || {
            let mut stream = stream_from(holder.parse().unwrap(), gateway.admin);
            // It may be closed already.
            let _ = stream.write_all(b"G");
            stream
        };
        let mut held: VecDeque<_> = (0..80).map(|_| hold()).collect();
        for path in ["/healthz", "/readyz"].into_iter().cycle().take(40) {
            // They are renewed as they are closed.
            held.pop_front();
            held.push_back(hold());
            for prober in ["127.0.0.1", "127.0.0.3"] {
                let mut prober = Connection::open_from(prober.parse().unwrap(), gateway.admin);
                prober.ask(&local("GET", path)).expect(200);
            }
        }
    }
}

#[test]
fn every_page_answers_on_loopback() {
    let gateway = Setup::new().start();
    assert_eq!(gateway.admin("/healthz").expect(200).text(), "ok\n");
    let ready = gateway.readyz().expect(200).json();
    assert_eq!((&ready["ready"], &ready["draining"]), (&true.into(), &false.into()));
    assert_eq!(ready["degraded"].as_array().unwrap().len(), 0);
    let status = gateway.admin("/status").expect(200);
    assert_eq!(status.header("Content-Type"), Some("application/json"));
    assert_eq!(status.json()["draining"], false);
    assert!(status.json()["table"]["rows"].as_u64().unwrap() > 0);
    let page = gateway.admin("/").expect(200);
    assert!(page.header("Content-Type").unwrap().starts_with("text/html"));
    assert!(page.text().contains("riskgate"));
    let metrics = gateway.admin("/metrics").expect(200);
    assert!(metrics.header("Content-Type").unwrap().starts_with("text/plain"));
    gateway.admin("/nowhere").expect(404);
    gateway.admin("/v1/usage").expect(404);
    let document = gateway.admin("/openapi.yaml").expect(200);
    assert_eq!(document.header("Content-Type"), Some("application/yaml"));
    assert!(document.text() == include_str!("../../docs/openapi.yaml"));
    for path in ["/healthz", "/readyz", "/metrics", "/status", "/", "/openapi.yaml"] {
        let head = ask(&gateway, local("HEAD", path)).expect(200);
        assert!(head.body.is_empty(), "{path}");
        let refused = ask(&gateway, local("DELETE", path)).expect(405);
        assert_eq!(refused.header("Allow"), Some("GET, HEAD"), "{path}");
    }
    let refused = ask(&gateway, local("GET", "/reload")).expect(405);
    assert_eq!(refused.header("Allow"), Some("POST"));
}

#[test]
fn a_post_from_a_browser_is_refused() {
    let gateway = Setup::new().start();
    let reload = || local("POST", "/reload");
    ask(&gateway, reload()).expect(200);
    ask(&gateway, reload().with("Origin", "http://localhost:9090")).expect(403);
    ask(&gateway, reload().with("Origin", "null")).expect(403);
    ask(&gateway, reload().with("Sec-Fetch-Site", "cross-site")).expect(403);
}

#[test]
fn a_name_that_is_not_this_host_s_opens_only_health_and_readiness() {
    let gateway = Setup::new().start();
    for host in
        ["evil.example", "evil.example:9090", "localhost.evil.example", "10.0.0.1", "0.0.0.0"]
    {
        for path in ["/", "/status", "/metrics", "/openapi.yaml"] {
            let answer = ask(&gateway, get(path).with("Host", host));
            assert!(matches!(answer.status, 401 | 403 | 421), "{host} {path} {}", answer.status);
            assert!(!answer.text().contains("riskgate_"), "{host} {path}");
        }
        ask(&gateway, get("/healthz").with("Host", host)).expect(200);
        ask(&gateway, get("/readyz").with("Host", host)).expect(200);
        let reload = request("POST", "/reload").with("Host", host);
        assert!(ask(&gateway, reload).status >= 400, "{host}");
    }
    for host in ["127.0.0.1", "127.0.0.1:9090", "localhost:1", "[::1]:9090"] {
        ask(&gateway, get("/status").with("Host", host)).expect(200);
    }
}

#[test]
fn with_a_token_everything_but_health_and_readiness_needs_it() {
    let token = "a-token-of-the-operator";
    let gateway = Setup::new().text("admin.token", token).start();
    let with = |path: &str, token: &str| {
        ask(&gateway, local("GET", path).with("Authorization", &format!("Bearer {token}")))
    };
    for path in ["/", "/status", "/metrics", "/openapi.yaml"] {
        gateway.admin(path).expect(401);
        with(path, "another-token-altogether").expect(401);
        with(path, "").expect(401);
        with(path, &token[..token.len() - 1]).expect(401);
        with(path, token).expect(200);
    }
    gateway.admin("/healthz").expect(200);
    gateway.readyz().expect(200);
    ask(&gateway, local("POST", "/reload")).expect(401);
    let authorised = local("POST", "/reload").with("Authorization", &format!("Bearer {token}"));
    ask(&gateway, authorised.clone()).expect(200);
    ask(&gateway, authorised.with("Origin", "http://localhost")).expect(403);
    assert!(!gateway.stderr().contains(token));
}

#[test]
fn a_header_that_nobody_can_read_is_refused_and_its_token_told_to_nobody() {
    let token = "a-token-of-the-operator";
    let mut gateway = Setup::new().text("admin.token", token).start();
    let header = format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n");
    for more in ["X-Null: \0\r\n\r\n", "Host: localhost\r\n\r\n", "Content-Length: x\r\n\r\n"] {
        let mut connection = Connection::open(gateway.admin);
        connection.send(format!("{header}{more}").as_bytes());
        let answer = connection.read().expect("an answer").expect(400);
        assert!(!answer.text().contains(token), "{more:?}: {}", answer.text());
        assert!(connection.is_closed(), "{more:?}");
    }
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert!(!gateway.stderr().contains(token), "{}", gateway.stderr());
}

#[test]
fn connections_that_end_in_the_middle_of_a_header_do_not_fill_the_log() {
    let mut gateway = Setup::new().start();
    let before = gateway.stderr();
    for _ in 0..50 {
        let mut connection = Connection::open(gateway.admin);
        connection.send(b"G");
        connection.finish_sending();
        assert!(connection.is_closed());
    }
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let all = gateway.stderr();
    let lines: Vec<&str> = all[before.len()..].lines().collect();
    assert!(lines.len() < 5, "{lines:?}");
}

#[test]
fn a_reload_is_answered_however_many_connections_come_after_it() {
    let setup = Setup::new();
    // A table that is read for a while.
    let names: String = (0..150_000).map(|at| format!("name-{at}.test\n")).collect();
    setup.lists().write("role.txt", &names);
    let gateway = setup.start();
    let mut reloads = Connection::open(gateway.admin);
    reloads.send(&local("POST", "/reload").bytes());
    let hold = |_| {
        let mut stream = std::net::TcpStream::connect(gateway.admin).unwrap();
        // It may be closed already.
        let _ = stream.write_all(b"G");
        stream
    };
    let held: Vec<_> = (0..80).map(hold).collect();
    let answer = reloads.read_to("POST").expect("an answer").expect(200);
    assert_eq!(answer.json()["table"], "ok");
    drop(held);
}

#[test]
fn metrics_can_be_opened_by_a_setting() {
    let setup = Setup::new().text("admin.token", "a-token-of-the-operator");
    let gateway = setup.set("admin.metrics_public", "true").start();
    gateway.admin("/metrics").expect(200);
    gateway.admin("/status").expect(401);
}

#[test]
fn metrics_have_their_names_and_count_what_happened() {
    let gateway = Setup::new().set("plans.free", "2").upstream(&[free_port()]).start();
    let key = gateway.key("acme", &[]);
    let outcome = |route: &str, outcome: &str| {
        let labels = [format!("route=\"{route}\""), format!("outcome=\"{outcome}\"")];
        gateway.metric("riskgate_requests_total", &[&labels[0], &labels[1]])
    };
    gateway.domain("first.test", &key).expect(200);
    gateway.domain("a..b", &key).expect(422);
    gateway.domain("first.test", &key).expect(429);
    gateway.ask(&get("/v1/public/top-domains")).expect(401);
    gateway.get("/nowhere", &key).expect(404);
    until_true("all of it was counted", || {
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
fn the_access_log_names_the_key_s_id_and_account_and_never_a_key_or_a_local_part() {
    let stand_in = StandIn::start();
    let gateway = Setup::new().upstream(&[stand_in.address]).start();
    let (key, id) = gateway.key_with_id("acme", &[]);
    let numbered = |at: usize, request: Request| {
        gateway.ask(&request.with("X-Request-Id", &format!("logged-{at}"))).status
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
        (get("/v1/usage").key(&key).with("Referer", "https://x/?jane.doe"), 200),
    ];
    let count = requests.len();
    for (at, (request, status)) in requests.into_iter().enumerate() {
        assert_eq!(numbered(at, request), status, "{at}");
    }
    until_true("all lines are written", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).unwrap_or_default();
        (0..count).all(|at| text.contains(&format!("\"logged-{at}\"")))
    });
    let lines = gateway.log();
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
fn the_access_log_tells_what_the_door_refused() {
    let gateway = Setup::new().start();
    let mut connection = gateway.connect();
    connection.send(b"NONSENSE\r\n\r\n");
    assert_eq!(connection.read().unwrap().status, 400);
    until_true("the refusal is logged", || gateway.log().iter().any(|line| line["status"] == 400));
}
