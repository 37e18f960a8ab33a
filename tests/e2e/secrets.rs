//! No key, no password and no whole address comes out anywhere, whatever went wrong.
//!
//! One run of mixed traffic with secrets in right and wrong places, then a look at everything
//! that the gateway said. That each other test leaks nothing either is the harness's to see.

use std::time::Duration;

use crate::harness::{
    Answer, Gateway, Request, Secrets, Setup, StandIn, Step, answer, get, request, until_true,
};
use crate::redis_server::RedisServer;

const TOKEN: &str = "operator-s3cr3t-token";
const WRONG_TOKEN: &str = "operator-s3cr3t-tokem";
const PASSWORD: &str = "st0re-s3cr3t";
const NEW_PASSWORD: &str = "st0re-s3cr3t-2";
/// A key that was made elsewhere and stands in the key file by its hash.
const IMPORTED: &str = "sv_imported0123456789abcdefghijABCD";
const UNKNOWN: &str = "rg_0000000000000000000000000000000x";
const JANE: &str = "jane.doe@example.com";
const ENCODED: &str = "jane.doe%40example.com";

#[test]
fn no_secret_comes_out_of_a_run_in_which_all_goes_wrong() {
    let server = RedisServer::start();
    let password = format!(">{PASSWORD}");
    server.tell(&["ACL", "SETUSER", "me", "on", &password, "~*", "&*", "+@all"]);
    let upstream = StandIn::playing(|seen| misbehave(seen.line()));
    let setup = Setup::new().upstream(&[upstream.address]).text("admin.token", TOKEN);
    let setup = setup.text("store.url", &server.url_as("me", PASSWORD));
    let setup = setup.text("upstream.deadline", "400ms");
    let keys = setup.path("keys.toml");
    std::fs::write(&keys, key_file(&hash_of(IMPORTED))).unwrap();
    let setup = setup.text("keys.file", keys.to_str().unwrap());
    setup.cli(&["store", "init"]).expect(0);
    let gateway = setup.start();
    let key = gateway.key("acme", &[]);

    let secrets = Secrets {
        prefixes: vec!["sv_".to_owned()],
        texts: [&key, TOKEN, WRONG_TOKEN, PASSWORD, IMPORTED, UNKNOWN, "jane"]
            .map(str::to_owned)
            .to_vec(),
    };
    ask_in_every_way(&gateway, &key, &secrets);
    send_what_is_no_request(&gateway, &key);
    break_what_is_reloaded(&gateway, &key, &secrets);
    shut_out_of_the_store(&gateway, &server);

    for path in ["/", "/status", "/metrics", "/readyz"] {
        let page = admin(&gateway, "GET", path, TOKEN);
        secrets.assert_none_in(path, &page.text());
    }
    gateway.ask(&get("/v1/usage").with("X-Request-Id", "the-last-one"));
    until_true("all is logged", || log_of(&gateway).contains("the-last-one"));
    secrets.assert_none_in("the access log", &log_of(&gateway));
    secrets.assert_none_in("stderr", &gateway.stderr());
    let (log, said) = (log_of(&gateway), gateway.stderr());
    assert!(log.lines().count() > 50 && log.contains("…@example.com"), "little was logged");
    assert!(said.contains("keys.toml") && said.contains("redis://"), "little was said: {said}");
}

/// What the upstream answers, by the target that it is asked for.
fn misbehave(line: &str) -> Vec<Step> {
    let echo = format!("{{\"email\":\"{JANE}\"}}");
    let header = format!("X-Echo: {JANE}\r\n");
    match line {
        _ if line.contains("garbage") => {
            vec![Step::Send(format!("{JANE}\r\n\r\n").into()), Step::Close]
        }
        _ if line.contains("half") => {
            vec![Step::Send(format!("HTTP/1.1 200 {JANE}\r\nX").into()), Step::Close]
        }
        _ if line.contains("closed") => vec![Step::Close],
        _ if line.contains("reset") => vec![Step::Reset],
        _ if line.contains("silent") => vec![Step::Silence],
        _ if line.contains("trickle") => {
            vec![Step::Trickle(answer(200, "", &echo), Duration::from_millis(30))]
        }
        _ if line.contains("status") => vec![Step::Send(answer(500, &header, &echo))],
        _ => vec![Step::Send(answer(422, &header, &echo))],
    }
}

fn ask_in_every_way(gateway: &Gateway, key: &str, secrets: &Secrets) {
    for target in [
        format!("/v1/check/{JANE}"),
        format!("/v1/check/{ENCODED}?from={JANE}&key={key}"),
        format!("/v1/check/garbage.{JANE}"),
        format!("/v1/check/half.{JANE}"),
        format!("/v1/check/closed.{JANE}"),
        format!("/v1/check/reset.{JANE}"),
        format!("/v1/check/silent.{JANE}"),
        format!("/v1/check/trickle.{JANE}"),
        format!("/v1/check/status.{JANE}"),
        format!("/v1/check/{ENCODED}%FF"),
        format!("/v1/check/{key}"),
        format!("/v1/check/{JANE}/{key}"),
        format!("/v1/public/domain/{JANE}"),
        format!("/v1/public/domain/{ENCODED}"),
        format!("/v1/public/domain/{key}"),
        format!("/v1/public/domain/first.test?key={key}&mail={JANE}"),
        format!("/v1/usage?api_key={key}"),
        format!("/v1/usage/{key}"),
        format!("/{key}"),
        format!("/{ENCODED}/x"),
        "/v1/jane.doe\u{ff20}example.com".to_owned(),
        format!("http://gate.test/{key}"),
    ] {
        for authorization in
            [key, IMPORTED, UNKNOWN, "", &format!("{key}, {key}"), &format!("{key} {JANE}")]
        {
            let asked = get(&target).with("Authorization", &format!("Bearer {authorization}"));
            assert_ours_is_silent(&gateway.ask(&asked), secrets, &target);
        }
    }
    let usage = || get("/v1/usage");
    for asked in [
        usage().with("Authorization", key),
        usage().with("Authorization", &format!("Basic {key}")),
        usage().key(key).key(UNKNOWN),
        usage().with("X-Api-Key", key).with("Cookie", &format!("key={key}; mail={JANE}")),
        usage().key(key).with("Referer", &format!("https://x/?{JANE}")).with("User-Agent", JANE),
        usage().key(key).with("X-Request-Id", JANE),
        usage().key(key).with("X-Request-Id", &format!("Bearer,{key}")),
        usage().with("X-Request-Id", key),
        usage().key(IMPORTED).with("X-Request-Id", &format!("id-{IMPORTED}")),
        usage().key(key).with("X-Forwarded-For", JANE).with("From", JANE),
        request(key, "/v1/usage"),
        request("POST", format!("/v1/check/{JANE}")).key(key).body(&format!("{key} {JANE}")),
    ] {
        assert_ours_is_silent(&gateway.ask(&asked), secrets, "a header");
    }
    // What a caller says of its origin is told to the caller alone.
    gateway.ask(&usage().key(key).with("Origin", &format!("https://{JANE}")));
}

/// Our own answers repeat nothing; an upstream's are its own.
fn assert_ours_is_silent(answer: &Answer, secrets: &Secrets, asked: &str) {
    if answer.has("X-Riskgate-Source") {
        return;
    }
    secrets.assert_none_in(&format!("the answer to {asked}"), &answer.text());
}

/// Refused at the door, before there is a request.
fn send_what_is_no_request(gateway: &Gateway, key: &str) {
    let long = "x".repeat(3_000);
    let wide = "x".repeat(20_000);
    for bytes in [
        format!("GET /v1/check/{JANE} HTTP/1.1\nAuthorization: Bearer {key}\n\n"),
        format!("GET /v1/check/{JANE}?{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET /v1/check/{JANE} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}{wide}"),
        format!("GET /{JANE} HTTP/1.1\r\nHost: {JANE}\r\n\r\n"),
        format!("{key} {JANE} {key}\r\n\r\n"),
        format!("CONNECT {JANE}:443 HTTP/1.1\r\nHost: a\r\nX: {key}\r\n\r\n"),
        format!("GET http://{JANE}/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        let mut connection = gateway.connect();
        // It may be refused before all of it was sent.
        connection.try_send(bytes.as_bytes());
        let answer = connection.read().expect("a refusal");
        assert!(answer.status >= 400 && !answer.text().contains("jane"), "{}", answer.text());
    }
}

/// Files with secrets where they do not belong, and tokens that are nearly right.
fn break_what_is_reloaded(gateway: &Gateway, key: &str, secrets: &Secrets) {
    let file = gateway.path("keys.toml");
    let good = std::fs::read_to_string(&file).unwrap();
    let config = std::fs::read_to_string(&gateway.config).unwrap();
    let reload = |status: u16| {
        let answer = admin(gateway, "POST", "/reload", TOKEN).expect(status);
        secrets.assert_none_in("the answer to a reload", &answer.text());
        secrets.assert_none_in("/readyz", &admin(gateway, "GET", "/readyz", TOKEN).text());
        let check = gateway.cli(&["check"]).expect(if status == 200 { 0 } else { 78 });
        secrets.assert_none_in("check", &check.stderr);
    };
    for text in [
        key_file(&format!("env = {key:?}")),
        key_file(&format!("hash = {key:?}")),
        format!("key = {key:?}\n"),
        format!("{good}{key} = 1\n"),
        format!("{good}require_origin = {key:?}\n"),
        format!("{good}origins = {key:?}\n"),
        format!("{good}label = \"{key}\n"),
    ] {
        std::fs::write(&file, text).unwrap();
        reload(422);
    }
    std::fs::write(&file, &good).unwrap();
    for (written, instead) in [
        (format!("\"{TOKEN}\""), format!("[\"{TOKEN}\"]")),
        (format!("\"{TOKEN}\""), "\"jane\"".to_owned()),
        (":st0re-s3cr3t@127.0.0.1:".to_owned(), ":st0re-s3cr3t@127.0.0.1:x".to_owned()),
        ("\"redis://me:".to_owned(), "\"me:".to_owned()),
    ] {
        assert!(config.contains(&written), "{written} is not in {config}");
        std::fs::write(&gateway.config, config.replacen(&written, &instead, 1)).unwrap();
        reload(422);
    }
    std::fs::write(&gateway.config, config).unwrap();
    reload(200);
    for path in ["/", "/status", "/metrics"] {
        admin(gateway, "GET", path, WRONG_TOKEN).expect(401);
    }
    for verb in [["keys", "list"], ["accounts", "list"], ["usage", "--account"]] {
        let more = if verb[0] == "usage" { &["acme", "--json"][..] } else { &["--json"] };
        let told = gateway.cli(&[&verb[..], more].concat()).expect(0);
        secrets.assert_none_in(verb[0], &(told.stdout + &told.stderr));
    }
}

/// The password is another one from now on, and nobody told the gateway.
fn shut_out_of_the_store(gateway: &Gateway, server: &RedisServer) {
    let other = format!(">{NEW_PASSWORD}");
    server.tell(&["ACL", "SETUSER", "me", "resetpass", &other]);
    server.tell(&["CLIENT", "KILL", "USER", "me"]);
    until_true("/readyz tells", || {
        admin(gateway, "GET", "/readyz", TOKEN).text().contains("redis://")
    });
    until_true("stderr tells", || gateway.stderr().contains("redis://"));
}

fn admin(gateway: &Gateway, method: &str, path: &str, token: &str) -> Answer {
    let asked: Request = request(method, path).with("Host", "localhost");
    asked.with("Authorization", &format!("Bearer {token}")).send(gateway.admin)
}

fn log_of(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("access.log")).unwrap_or_default()
}

fn key_file(rest: &str) -> String {
    format!("[[key]]\nid = \"imported\"\naccount = \"elsewhere\"\n{rest}\n")
}

fn hash_of(key: &str) -> String {
    format!("hash = {:?}", riskgate::keys::hash_text(key))
}
