//! Real proxies that ask riskgate, each with its config of `conf/integrations`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{
    Connection, Gateway, IntegratedProxy, MockUpstream, ReceivedRequest, Request, Response,
    SetOnDrop, Setup, Step, get, request, response_bytes, run_command, start_integrated_proxy,
    wait_until,
};

const FORM: &str = "application/x-www-form-urlencoded";
const REQUEST_COUNT: usize = 1_000;
const REQUESTS_PER_CONNECTION: usize = 50;
/// Longer than a proxy waits for riskgate if it asks.
const PAUSE: Duration = Duration::from_secs(4);
const FACTS: [&str; 10] = [
    "Action",
    "Rule",
    "Inbox",
    "Score",
    "Reason",
    "Domain",
    "Suggestion",
    "Account",
    "Key-Id",
    "Plan",
];

/// The shipped config of riskgate for proxies, with another mode. The upstream server is the
/// backend.
fn start_riskgate(backend: &MockUpstream, mode: &str, checks: &str) -> Gateway {
    setup_riskgate(backend, mode, checks).start()
}

pub fn setup_riskgate(backend: &MockUpstream, mode: &str, checks: &str) -> Setup {
    let shipped = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/integrations/riskgate.toml"),
    )
    .unwrap();
    let (_, authz) = shipped.split_once("[authz]").unwrap();
    let (authz, rest) = authz.split_once("[upstream]").unwrap();
    let (_, route) = rest.split_once("[[upstream.route]]").unwrap();
    let rules = format!("[authz]{authz}\n[[upstream.route]]{route}");
    let rules = rules.replace("\"shadow\"", &format!("{mode:?}")).replace("[\"screen\"]", checks);
    let setup = Setup::with_bundled_table().with_upstreams(&[backend.address]);
    let setup = setup.set("listen.trusted_proxies", "[\"127.0.0.1\"]");
    setup.set_text("listen.client_address", "x-forwarded-for").append_toml(&rules)
}

/// The path on which the proxy asks riskgate. Below `/signup`, nginx and Caddy pass requests
/// through riskgate instead.
pub const ASKED_PATH: &str = "/api";

fn sends_body(proxy: IntegratedProxy) -> bool {
    !matches!(proxy, IntegratedProxy::Nginx | IntegratedProxy::Caddy)
}

/// A form that passes through riskgate behind nginx and Caddy.
fn form(email: &str) -> Request {
    let body = format!("email={}", email.replace('@', "%40"));
    request("POST", "/signup").with_header("Content-Type", FORM).body(&body)
}

/// The ways to pass an address with this proxy.
fn requests_with(proxy: IntegratedProxy, email: &str) -> Vec<Request> {
    let encoded = email.replace('@', "%40");
    let body = format!("name=x&email={encoded}");
    let post = |path: &str| request("POST", path).with_header("Content-Type", FORM).body(&body);
    let form = if sends_body(proxy) { post(ASKED_PATH) } else { post("/signup") };
    vec![
        get(format!("{ASKED_PATH}/a?x=1&email={encoded}")),
        get(ASKED_PATH).with_header("X-Email", email),
        request("POST", format!("{ASKED_PATH}?email={encoded}"))
            .with_header("Content-Type", FORM)
            .body("x=1"),
        form,
        request("PUT", ASKED_PATH)
            .with_header("X-Email", email)
            .with_header("Content-Type", "application/json")
            .body("{}"),
    ]
}

fn facts(seen: &ReceivedRequest) -> Vec<&str> {
    assert!(!seen.head.contains("forged"), "{}", seen.head);
    FACTS.iter().flat_map(|name| seen.header_values(&format!("X-Riskgate-{name}"))).collect()
}

fn with_forged_facts(mut request: Request) -> Request {
    for name in FACTS {
        // Some backends read _ in a name as -.
        let underscored = name.replace('-', "_");
        for spelling in [
            format!("X-Riskgate-{name}"),
            format!("X_Riskgate_{underscored}"),
            format!("x_riskgate-{name}"),
            format!("x-RISKGATE_{name}"),
            format!("X-Riskgate-{underscored}"),
        ] {
            request = request.with_header(&spelling, "forged");
        }
    }
    request
}

fn assert_admitted(answer: &Response, described: &str) {
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, r#"{"checked":true}"#),
        "{described}"
    );
}

/// Admits and refuses, and tells the backend the truth.
fn assert_verdicts_reach_client_and_backend(proxy: IntegratedProxy) {
    let backend = MockUpstream::start();
    let riskgate = start_riskgate(&backend, "block", "[\"screen\"]");
    let front = start_integrated_proxy(proxy, riskgate.http, backend.address);
    for asked in requests_with(proxy, "jane@gmail.com") {
        let described = format!("{proxy:?} {}", String::from_utf8_lossy(&asked.to_bytes()));
        let before = backend.request_count();
        assert_admitted(&with_forged_facts(asked.clone()).send(front.address), &described);
        let seen = backend.received_requests().split_off(before);
        assert_eq!(seen.len(), 1, "{described}");
        // riskgate did not get the posted body, which may have another address.
        let asked_line = String::from_utf8_lossy(&asked.to_bytes()).into_owned();
        let is_unread = !sends_body(proxy)
            && !asked_line.starts_with("GET ")
            && asked_line.split(' ').nth(1).is_some_and(|target| target.starts_with(ASKED_PATH));
        let expected = match is_unread {
            true => &["unscreened", "too_long"][..],
            false => &["pass", "0", "safe", "gmail.com"],
        };
        assert_eq!(facts(&seen[0]), expected, "{described}");
        assert!(asked.to_bytes().ends_with(&seen[0].body), "{described}");
    }
    let before = backend.request_count();
    for asked in requests_with(proxy, "x@mail.yopmail.com") {
        let described = format!("{proxy:?} {}", String::from_utf8_lossy(&asked.to_bytes()));
        let refused = with_forged_facts(asked).send(front.address);
        // A route of riskgate itself answers 422.
        assert!([403, 422].contains(&refused.status), "{described}: {}", refused.status);
        assert_eq!(refused.json()["error"], "email_refused", "{described}");
        assert_eq!(refused.json()["detail"], "disposable", "{described}");
        assert_eq!(refused.header("X-Riskgate-Account"), None, "{described}");
    }
    let typo = requests_with(proxy, "x@gmial.com")[1].send(front.address).expect(403);
    assert_eq!(typo.header("X-Did-You-Mean"), Some("gmail.com"), "{proxy:?}");
    assert_eq!(typo.json()["error"], "email_refused", "{proxy:?}");
    assert_eq!(backend.request_count(), before, "{proxy:?}");
    // Caddy removes the fields that `Connection` lists.
    let listed = FACTS.map(|name| format!("X-Riskgate-{name}")).join(", ");
    let unlisted = requests_with(proxy, "jane@gmail.com")[1].clone();
    let answer = unlisted.with_header("Connection", &listed).send(front.address);
    if answer.status == 200 {
        let seen = backend.last_request();
        assert_eq!(facts(&seen), ["pass", "0", "safe", "gmail.com"], "{proxy:?}");
    } else {
        assert_eq!(answer.status, 400, "{proxy:?}");
    }
    if matches!(proxy, IntegratedProxy::HaProxy) {
        // Many backends take this name for X-Email, which riskgate judges.
        let twice = requests_with(proxy, "jane@gmail.com")[1].clone();
        let twice = twice.with_header("X_Email", "x@mail.yopmail.com").send(front.address);
        assert_admitted(&twice, "X_Email");
        assert!(backend.last_request().header_values("X_Email").is_empty(), "{proxy:?}");
    }
    // Without an address, there is nothing to tell, and the forged fields are gone.
    assert_admitted(&with_forged_facts(get(ASKED_PATH)).send(front.address), "no address");
    assert!(facts(&backend.last_request()).is_empty(), "{:?}", facts(&backend.last_request()));
    assert_verdicts_stay_right(proxy, front.address, &backend);
}

/// Sends many requests on a few connections: good and bad ones in turn.
fn assert_verdicts_stay_right(
    proxy: IntegratedProxy,
    front: std::net::SocketAddr,
    backend: &MockUpstream,
) {
    let (good, bad) =
        (requests_with(proxy, "jane@gmail.com"), requests_with(proxy, "x@yopmail.com"));
    let before = backend.request_count();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (good, bad) = (&good, &bad);
            scope.spawn(move || {
                for first in (0..REQUEST_COUNT / 4).step_by(REQUESTS_PER_CONNECTION) {
                    let mut connection = Connection::open(front);
                    for number in first..first + REQUESTS_PER_CONNECTION {
                        let (kinds, statuses) = match number % 2 {
                            0 => (good, &[200][..]),
                            _ => (bad, &[403, 422][..]),
                        };
                        let asked = &kinds[(number / 2 + thread) % kinds.len()];
                        let status = match connection.try_send_request(asked) {
                            Some(answer) => answer.status,
                            // The proxy has closed the connection after its last answer.
                            None => {
                                connection = Connection::open(front);
                                connection.send_request(asked).status
                            }
                        };
                        assert!(statuses.contains(&status), "{proxy:?} {number}: {status}");
                    }
                }
            });
        }
    });
    assert_eq!(backend.request_count() - before, REQUEST_COUNT / 2, "{proxy:?}");
}

/// riskgate ends while requests run: from then on, everybody passes.
fn assert_users_pass_without_riskgate(proxy: IntegratedProxy) {
    let backend = MockUpstream::start();
    let mut riskgate = start_riskgate(&backend, "block", "[\"screen\"]");
    let front = start_integrated_proxy(proxy, riskgate.http, backend.address);
    let good = requests_with(proxy, "jane@gmail.com");
    let is_over = AtomicBool::new(false);
    let counts = [const { AtomicUsize::new(0) }; 4];
    std::thread::scope(|scope| {
        let _stop_guard = SetOnDrop(&is_over);
        let (good, is_over, address) = (&good, &is_over, front.address);
        for count in &counts {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // A form that passes through riskgate can be cut off with it.
                    let asked = &good[count.load(Ordering::Relaxed) % 3];
                    let answer = asked.send(address);
                    assert_eq!(answer.status, 200, "{proxy:?} {}", answer.text());
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let wait_for_requests = |what: &str| {
            let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            wait_until(what, || {
                let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
                counts.zip(before).all(|(now, before)| now > before + 3)
            });
        };
        wait_for_requests("each user has passed");
        riskgate.kill();
        wait_for_requests("each user has passed without riskgate");
    });
    for asked in requests_with(proxy, "x@yopmail.com") {
        assert_admitted(&with_forged_facts(asked).send(front.address), &format!("{proxy:?}"));
        assert!(facts(&backend.last_request()).is_empty(), "{proxy:?}");
    }
}

/// riskgate hangs: the proxy waits two seconds, and the user passes.
fn assert_users_pass_while_riskgate_hangs(proxy: IntegratedProxy) {
    let backend = MockUpstream::start();
    let riskgate = start_riskgate(&backend, "block", "[\"screen\"]");
    let front = start_integrated_proxy(proxy, riskgate.http, backend.address);
    let asked = &requests_with(proxy, "x@yopmail.com")[0];
    assert_eq!(asked.send(front.address).status, 403, "{proxy:?}");
    riskgate.send_signal("STOP");
    let begun = std::time::Instant::now();
    assert_admitted(&asked.send(front.address), &format!("{proxy:?}"));
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(20), "{proxy:?} {waited:?}");
    if !sends_body(proxy) {
        // A form passes through riskgate, and waits for it.
        let before = backend.request_count();
        let answer = std::thread::scope(|scope| {
            let posted = scope.spawn(|| form("x@yopmail.com").send(front.address));
            std::thread::sleep(PAUSE);
            riskgate.send_signal("CONT");
            posted.join().unwrap()
        });
        assert_eq!(answer.status, 422, "{proxy:?} {}", answer.text());
        assert_eq!(backend.request_count(), before, "{proxy:?}");
    }
    riskgate.send_signal("CONT");
}

/// Whatever clients and the backend do, each form passes through riskgate while riskgate takes
/// connections.
fn assert_forms_stay_screened(proxy: IntegratedProxy) {
    let backend = MockUpstream::with_script(|seen| {
        let has = |text: &str| memchr::memmem::find(&seen.body, text.as_bytes()).is_some();
        let long = format!("X-Long: {}\r\n", "x".repeat(20_000));
        let answer = |fields: &str| Step::Send(response_bytes(200, fields, r#"{"checked":true}"#));
        match (has("slow"), has("long")) {
            (true, _) => vec![Step::Pause(PAUSE), answer("")],
            (_, true) => vec![answer(&long)],
            _ => vec![answer("")],
        }
    });
    let mut riskgate = start_riskgate(&backend, "block", "[\"screen\"]");
    let front = start_integrated_proxy(proxy, riskgate.http, backend.address);
    let assert_refuses = |after: &str| {
        let answer = form("x@yopmail.com").send(front.address);
        assert_eq!(answer.status, 422, "{proxy:?} after {after}: {}", answer.text());
    };
    assert_refuses("nothing");
    assert_admitted(&form("slow@gmail.com").send(front.address), &format!("{proxy:?}"));
    assert_refuses("a slow answer of the backend");
    // nginx takes no header of this length, and Caddy takes it.
    let (long_status, malformed_status) = match proxy {
        IntegratedProxy::Nginx => (502, 400),
        _ => (200, 502),
    };
    form("long@gmail.com").send(front.address).expect(long_status);
    assert_refuses("a long answer of the backend");
    let head = format!("POST /signup HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM}\r\n");
    let mut connection = Connection::open(front.address);
    connection.send(format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n").as_bytes());
    assert_eq!(connection.read_response().unwrap().status, malformed_status, "{proxy:?}");
    assert_refuses("a malformed chunk");
    let mut connection = Connection::open(front.address);
    connection.send(format!("{head}Content-Length: 50\r\n\r\nemail").as_bytes());
    drop(connection);
    assert_refuses("a form that ends too early");
    // Without riskgate, a faulty answer of the backend locks nobody out.
    riskgate.kill();
    // A form is cut off with riskgate if its connection still looks open to the proxy.
    wait_until("forms pass without riskgate", || {
        form("long@gmail.com").send(front.address).status == long_status
    });
    assert_admitted(&form("x@yopmail.com").send(front.address), &format!("{proxy:?}"));
}

/// riskgate checks keys for the proxy, and the backend learns whose they are.
fn assert_keys_are_checked(proxy: IntegratedProxy) {
    let backend = MockUpstream::start();
    let riskgate = start_riskgate(&backend, "block", "[\"key\", \"origin\", \"quota\"]");
    let (key, id) =
        riskgate.create_active_key_with_id("acme", &["--origin", "https://app.example.com"]);
    let front = start_integrated_proxy(proxy, riskgate.http, backend.address);
    let refused = get(ASKED_PATH).send(front.address);
    assert_eq!(refused.status, 401, "{proxy:?}");
    // A body that riskgate does not read hides no missing key.
    let head = format!("POST {ASKED_PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM}\r\n");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\na=b\r\n0\r\n\r\n");
    let mut connection = Connection::open(front.address);
    connection.send(chunked.as_bytes());
    assert_eq!(connection.read_response().unwrap().status, 401, "{proxy:?}");
    // Nor does a question that riskgate, or the proxy itself, calls malformed.
    let many = (0..260).map(|number| format!("X-{number}: a\r\n")).collect::<String>();
    let mut connection = Connection::open(front.address);
    connection.send(format!("GET {ASKED_PATH} HTTP/1.1\r\nHost: a\r\n{many}\r\n").as_bytes());
    let refused = connection.read_response().unwrap().status;
    assert!([400, 401, 431, 500].contains(&refused), "{proxy:?}: {refused}");
    assert_eq!(backend.request_count(), 0, "{proxy:?}");
    let with_key = get(ASKED_PATH).with_header("X-Riskgate-Key", &key);
    let elsewhere = with_key.clone().with_header("Origin", "https://evil.test");
    assert_eq!(elsewhere.send(front.address).status, 403, "{proxy:?}");
    let used = with_forged_facts(with_key.with_header("Authorization", "Basic dTpw"));
    assert_admitted(&used.send(front.address), &format!("{proxy:?}"));
    let seen = backend.last_request();
    assert_eq!(facts(&seen), ["acme", &id, "free"], "{proxy:?}");
    assert_eq!(seen.header("Authorization"), "Basic dTpw", "{proxy:?}");
    assert!(!seen.head.contains(&key), "{proxy:?} {}", seen.head);
}

/// riskgate refuses one client that sends too many requests: the proxy names the client.
fn assert_rates_are_enforced(proxy: IntegratedProxy) {
    let backend = MockUpstream::start();
    let setup = setup_riskgate(&backend, "block", "[\"key\"]");
    let riskgate = setup.set_text("keys.max_per_client", "2/h").start();
    let key = riskgate.create_active_key("acme", &["--origin", "https://app.example.com"]);
    let front = start_integrated_proxy(proxy, riskgate.http, backend.address);
    // The test's own address is that of a trusted proxy.
    let ask_from = |client: &str| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-si", "--max-time", "20", "--interface", client, "-H"]);
        curl.arg(format!("X-Riskgate-Key: {key}"));
        curl.arg(format!("http://{}{ASKED_PATH}", front.address));
        run_command(&mut curl).expect(0).stdout
    };
    for _ in 0..2 {
        let admitted = ask_from("127.0.0.2");
        assert!(admitted.contains("{\"checked\":true}"), "{proxy:?} {admitted}");
    }
    let refused = ask_from("127.0.0.2").to_ascii_lowercase();
    for expected in [" 403 ", "\nretry-after: ", "\"error\":\"too_many_requests\""] {
        assert!(refused.contains(expected), "{proxy:?} {refused}");
    }
    let admitted = ask_from("127.0.0.3");
    assert!(admitted.contains("{\"checked\":true}"), "{proxy:?} {admitted}");
}

fn assert_works(proxy: IntegratedProxy) {
    assert_verdicts_reach_client_and_backend(proxy);
    assert_users_pass_without_riskgate(proxy);
    assert_users_pass_while_riskgate_hangs(proxy);
    assert_keys_are_checked(proxy);
    assert_rates_are_enforced(proxy);
    if !sends_body(proxy) {
        assert_forms_stay_screened(proxy);
    }
}

#[test]
fn nginx_asks_riskgate() {
    assert_works(IntegratedProxy::Nginx);
}

#[test]
fn haproxy_asks_riskgate() {
    assert_works(IntegratedProxy::HaProxy);
}

#[test]
fn envoy_asks_riskgate() {
    assert_works(IntegratedProxy::Envoy);
}

#[test]
fn traefik_asks_riskgate() {
    assert_works(IntegratedProxy::Traefik);
}

#[test]
fn caddy_asks_riskgate() {
    assert_works(IntegratedProxy::Caddy);
}
