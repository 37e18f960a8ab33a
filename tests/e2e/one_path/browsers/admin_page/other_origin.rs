//! Pages of others in the operator's browser: they change nothing and read nothing.

use serde_json::{Value, json};

use crate::harness::{
    Browser, Gateway, MockUpstream, REBOUND_HOST, Request, Step, request, response_bytes,
    wait_until,
};

use super::operator::{Tokens, add_tokens, setup};

/// What a hostile page tries. Each attempt tells what its script learns of the answer.
const ATTEMPTS: &str = r#"
const [admin, token] = arguments;
const attempt = (path, options) => fetch(admin + path, options)
    .then((answer) => `${answer.type} ${answer.status}`, () => "failed");
const json = { "Content-Type": "application/json" };
const plain = { "Content-Type": "text/plain" };
const bearer = { Authorization: `Bearer ${token}` };
const key = JSON.stringify({ account: "attacker" });
const post = { method: "POST", body: key };
return (async () => [
    await attempt("/api/v1/keys", { ...post, headers: { ...json, ...bearer } }),
    await attempt("/api/v1/keys", { ...post, headers: json }),
    await attempt("/api/v1/keys", { ...post, headers: plain, mode: "no-cors" }),
    await attempt("/api/v1/reload", { method: "POST", mode: "no-cors" }),
    await attempt("/reload", { method: "POST", mode: "no-cors" }),
    await attempt("/api/v1/overrides/gmail.com", {
        method: "PUT", headers: { ...json, ...bearer }, body: '{"action":"deny","force":true}',
    }),
    await attempt("/api/v1/keys", { headers: bearer }),
    await attempt("/api/v1/keys", { mode: "no-cors", credentials: "include" }),
    await attempt("/api/v1/session", {}),
])()"#;

/// A page of another origin, with a form for each way to send one.
fn start_hostile_site(gateway: &Gateway) -> MockUpstream {
    let admin = format!("http://{}", gateway.admin);
    let form = |id: &str, path: &str, encoding: &str, name: &str| {
        format!(
            "<form id={id} method=post action='{admin}{path}' enctype='{encoding}'>\
             <input name='{name}' value='\"}}'><button>Win a prize</button></form>"
        )
    };
    let key = "{\"account\":\"attacker\",\"label\":\"";
    let page = [
        "<!doctype html><title>A prize</title>".to_owned(),
        form("keys", "/api/v1/keys", "text/plain", key),
        form("api-reload", "/api/v1/reload", "application/x-www-form-urlencoded", "a"),
        form("reload", "/reload", "multipart/form-data", "a"),
        format!("<iframe id=frame src='{admin}/'></iframe>"),
    ]
    .concat();
    MockUpstream::with_script(move |_| {
        vec![Step::Send(response_bytes(200, "Content-Type: text/html\r\n", &page))]
    })
}

/// What the gateway has: what a hostile page would like to change.
fn read_state(gateway: &Gateway) -> (Value, usize, String, f64) {
    let keys = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let overrides = gateway.cli(&["table", "lookup", "gmail.com"]).expect(0).stdout;
    (
        keys,
        super::operator::read_audit(gateway).len(),
        overrides,
        gateway.sum_of_samples("riskgate_reloads_total", &[]),
    )
}

/// Opens the hostile page under this host, and has it try everything.
fn attack(browser: &Browser, site: &str, gateway: &Gateway, token: &str) {
    let admin = format!("http://{}", gateway.admin);
    browser.open(site);
    let tried = browser.run_script(ATTEMPTS, &[admin.as_str().into(), token.into()]);
    let unread = json!("opaque 0");
    let expected =
        json!(["failed", "failed", unread, unread, unread, "failed", "failed", unread, "failed"]);
    assert_eq!(tried, expected, "{site}");
    for form in ["keys", "api-reload", "reload"] {
        browser.open(site);
        browser.click(&format!("#{form} button"));
        wait_until("the answer is shown", || browser.url().starts_with(&admin));
        let answer = browser.text("body");
        assert!(answer.contains("token is required") || answer.contains("browsers"), "{answer}");
    }
    // The attempts arrived. The frame was not shown: it would have loaded the script of the page.
    let requested = browser.take_requested_urls();
    let count =
        |path: &str| requested.iter().filter(|url| **url == format!("{admin}{path}")).count();
    assert!(
        count("/api/v1/keys") >= 3 && count("/reload") >= 2 && count("/") >= 1,
        "{requested:?}"
    );
    assert_eq!(count("/page/main.js"), 0, "{requested:?}");
}

/// The request that the hostile page would like to send, by a program instead of a browser.
fn create_key_request(gateway: &Gateway, token: &str) -> Request {
    request("POST", "/api/v1/keys")
        .with_header("Host", &gateway.admin.to_string())
        .with_header("Authorization", &format!("Bearer {token}"))
        .with_header("Content-Type", "application/json")
        .body("{\"account\":\"attacker\"}")
}

fn start(has_tokens: bool) -> (Gateway, Tokens) {
    let (with_tokens, tokens) = add_tokens(setup());
    let gateway = if has_tokens { with_tokens.start() } else { setup().start() };
    gateway.create_active_key("acme", &[]);
    (gateway, tokens)
}

#[test]
fn a_page_of_another_origin_changes_nothing_even_if_it_knows_the_token() {
    for has_tokens in [true, false] {
        let (gateway, tokens) = start(has_tokens);
        let site = start_hostile_site(&gateway);
        let browser = Browser::start();
        let before = read_state(&gateway);
        for host in ["127.0.0.1", "localhost"] {
            let url = format!("http://{host}:{}/", site.address.port());
            attack(&browser, &url, &gateway, &tokens.write);
        }
        assert_eq!(read_state(&gateway), before);
        if has_tokens {
            let accepted = create_key_request(&gateway, &tokens.write).send(gateway.admin);
            assert_eq!(accepted.status, 201, "the same request by a program");
            let site = format!("http://{}", site.address);
            let by_browser =
                create_key_request(&gateway, &tokens.write).with_header("Origin", &site);
            by_browser.send(gateway.admin).expect(403);
        }
    }
}

#[test]
fn a_page_that_reaches_the_listener_by_dns_rebinding_reads_and_changes_nothing() {
    for (has_tokens, shown) in [(false, "expected a Host that names loopback"), (true, "Sign in")] {
        let (gateway, _) = start(has_tokens);
        let browser = Browser::start();
        let before = read_state(&gateway);
        browser.open(&format!("http://{REBOUND_HOST}:{}/", gateway.admin.port()));
        wait_until("the page is shown", || browser.text("body").contains(shown));
        let script = r#"const ask = (method, path) => fetch(path, { method })
                .then(async (answer) => `${answer.status} ${await answer.text()}`);
            return Promise.all([ask("GET", "/api/v1/session"), ask("GET", "/api/v1/keys"),
                ask("GET", "/status"), ask("GET", "/screening"), ask("POST", "/api/v1/reload"),
                ask("POST", "/reload")])"#;
        let answers = browser.run_script(script, &[]);
        let answers = answers.as_array().unwrap().iter().map(|answer| answer.as_str().unwrap());
        let answers: Vec<&str> = answers.collect();
        assert!(answers[0].starts_with("200") && answers[0].contains("missing"), "{answers:?}");
        let refused = answers[1..].iter().filter(|answer| answer.starts_with("401")).count();
        assert_eq!(refused, 5, "{answers:?}");
        assert_eq!(read_state(&gateway), before);
    }
}
