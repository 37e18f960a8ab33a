//! No output shows a key, a password or a whole e-mail address, whatever went wrong.
//!
//! The test sends mixed traffic with secrets in right and wrong places, then searches everything
//! that the gateway wrote. The harness checks the output of every other test.

use std::time::Duration;

use crate::harness::{
    Gateway, GatewaySecrets, MockUpstream, Request, Response, Setup, Step, get, request,
    response_bytes, wait_until,
};
use crate::redis_server::RedisServer;

const TOKEN: &str = "operator-s3cr3t-token";
const WRONG_TOKEN: &str = "operator-s3cr3t-tokem";
const PASSWORD: &str = "st0re-s3cr3t";
const NEW_PASSWORD: &str = "st0re-s3cr3t-2";
/// A key that another program created; the key file declares it by its hash.
const IMPORTED: &str = "sv_imported0123456789abcdefghijABCD";
const UNKNOWN: &str = "rg_0000000000000000000000000000000x";
const JANE: &str = "jane.doe@example.com";
const ENCODED: &str = "jane.doe%40example.com";

#[test]
fn no_output_shows_a_secret_after_bad_requests_upstream_faults_and_broken_files() {
    let server = RedisServer::start();
    let password = format!(">{PASSWORD}");
    server.run(&["ACL", "SETUSER", "me", "on", &password, "~*", "&*", "+@all"]);
    let upstream = MockUpstream::with_script(|seen| leaky_response(seen.request_line()));
    let setup = Setup::new().with_upstreams(&[upstream.address]).set_text("admin.token", TOKEN);
    let setup = setup.set_text("store.url", &server.url_as("me", PASSWORD));
    let setup = setup.set_text("upstream.deadline", "400ms");
    let keys = setup.path("keys.toml");
    std::fs::write(&keys, key_file_toml(&hash_line(IMPORTED))).unwrap();
    let setup = setup.set_text("keys.file", keys.to_str().unwrap());
    setup.cli(&["store", "init"]).expect(0);
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);

    let secrets = GatewaySecrets {
        prefixes: vec!["sv_".to_owned()],
        texts: [&key, TOKEN, WRONG_TOKEN, PASSWORD, IMPORTED, UNKNOWN, "jane"]
            .map(str::to_owned)
            .to_vec(),
    };
    send_secrets_everywhere(&gateway, &key, &secrets);
    send_malformed_requests(&gateway, &key);
    break_reloaded_files(&gateway, &key, &secrets);
    change_store_password(&gateway, &server);

    for path in ["/", "/status", "/metrics", "/readyz"] {
        let page = send_admin_request(&gateway, "GET", path, TOKEN);
        secrets.assert_no_secret_in(path, &page.text());
    }
    gateway.send_request(&get("/v1/usage").with_header("X-Request-Id", "the-last-one"));
    wait_until("all is logged", || read_access_log_text(&gateway).contains("the-last-one"));
    secrets.assert_no_secret_in("the access log", &read_access_log_text(&gateway));
    secrets.assert_no_secret_in("stderr", &gateway.stderr());
    let (log, stderr) = (read_access_log_text(&gateway), gateway.stderr());
    assert!(log.lines().count() > 50 && log.contains("…@example.com"), "too few lines were logged");
    assert!(
        stderr.contains("keys.toml") && stderr.contains("redis://"),
        "standard error lacks the expected faults: {stderr}"
    );
}

/// The upstream server's response to each target.
fn leaky_response(line: &str) -> Vec<Step> {
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
        _ if line.contains("silent") => vec![Step::StaySilent],
        _ if line.contains("trickle") => {
            vec![Step::Trickle(response_bytes(200, "", &echo), Duration::from_millis(30))]
        }
        _ if line.contains("status") => vec![Step::Send(response_bytes(500, &header, &echo))],
        _ => vec![Step::Send(response_bytes(422, &header, &echo))],
    }
}

fn send_secrets_everywhere(gateway: &Gateway, key: &str, secrets: &GatewaySecrets) {
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
            let asked =
                get(&target).with_header("Authorization", &format!("Bearer {authorization}"));
            assert_own_response_has_no_secret(&gateway.send_request(&asked), secrets, &target);
        }
    }
    let usage = || get("/v1/usage");
    for asked in [
        usage().with_header("Authorization", key),
        usage().with_header("Authorization", &format!("Basic {key}")),
        usage().key(key).key(UNKNOWN),
        usage()
            .with_header("X-Api-Key", key)
            .with_header("Cookie", &format!("key={key}; mail={JANE}")),
        usage()
            .key(key)
            .with_header("Referer", &format!("https://x/?{JANE}"))
            .with_header("User-Agent", JANE),
        usage().key(key).with_header("X-Request-Id", JANE),
        usage().key(key).with_header("X-Request-Id", &format!("Bearer,{key}")),
        usage().with_header("X-Request-Id", key),
        usage().key(IMPORTED).with_header("X-Request-Id", &format!("id-{IMPORTED}")),
        usage().key(key).with_header("X-Forwarded-For", JANE).with_header("From", JANE),
        request(key, "/v1/usage"),
        request("POST", format!("/v1/check/{JANE}")).key(key).body(&format!("{key} {JANE}")),
    ] {
        assert_own_response_has_no_secret(&gateway.send_request(&asked), secrets, "a header");
    }
    // riskgate repeats a refused origin only to its client.
    gateway.send_request(&usage().key(key).with_header("Origin", &format!("https://{JANE}")));
}

/// riskgate's own responses repeat no secret; the upstream server's responses may.
fn assert_own_response_has_no_secret(answer: &Response, secrets: &GatewaySecrets, asked: &str) {
    if answer.has_header("X-Riskgate-Source") {
        return;
    }
    secrets.assert_no_secret_in(&format!("the answer to {asked}"), &answer.text());
}

/// The connection handler refuses these bytes before they form a request.
fn send_malformed_requests(gateway: &Gateway, key: &str) {
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
        // riskgate may refuse the request before the client has sent all of it.
        connection.try_send(bytes.as_bytes());
        let answer = connection.read_response().expect("a refusal");
        assert!(answer.status >= 400 && !answer.text().contains("jane"), "{}", answer.text());
    }
}

/// Files with secrets in wrong places, and tokens that are nearly valid.
fn break_reloaded_files(gateway: &Gateway, key: &str, secrets: &GatewaySecrets) {
    let file = gateway.path("keys.toml");
    let good = std::fs::read_to_string(&file).unwrap();
    let config = std::fs::read_to_string(&gateway.config).unwrap();
    let reload = |status: u16| {
        let answer = send_admin_request(gateway, "POST", "/reload", TOKEN).expect(status);
        secrets.assert_no_secret_in("the answer to a reload", &answer.text());
        secrets.assert_no_secret_in(
            "/readyz",
            &send_admin_request(gateway, "GET", "/readyz", TOKEN).text(),
        );
        let check = gateway.cli(&["check"]).expect(if status == 200 { 0 } else { 78 });
        secrets.assert_no_secret_in("check", &check.stderr);
    };
    for text in [
        key_file_toml(&format!("env = {key:?}")),
        key_file_toml(&format!("hash = {key:?}")),
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
        send_admin_request(gateway, "GET", path, WRONG_TOKEN).expect(401);
    }
    for subcommand in [["keys", "list"], ["accounts", "list"], ["usage", "--account"]] {
        let more = if subcommand[0] == "usage" { &["acme", "--json"][..] } else { &["--json"] };
        let output = gateway.cli(&[&subcommand[..], more].concat()).expect(0);
        secrets.assert_no_secret_in(subcommand[0], &(output.stdout + &output.stderr));
    }
}

/// From now on the password differs from the gateway's config.
fn change_store_password(gateway: &Gateway, server: &RedisServer) {
    let other = format!(">{NEW_PASSWORD}");
    server.run(&["ACL", "SETUSER", "me", "resetpass", &other]);
    server.run(&["CLIENT", "KILL", "USER", "me"]);
    wait_until("/readyz reports it", || {
        send_admin_request(gateway, "GET", "/readyz", TOKEN).text().contains("redis://")
    });
    wait_until("stderr reports it", || gateway.stderr().contains("redis://"));
}

fn send_admin_request(gateway: &Gateway, method: &str, path: &str, token: &str) -> Response {
    let asked: Request = request(method, path).with_header("Host", "localhost");
    asked.with_header("Authorization", &format!("Bearer {token}")).send(gateway.admin)
}

fn read_access_log_text(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("access.log")).unwrap_or_default()
}

fn key_file_toml(rest: &str) -> String {
    format!("[[key]]\nid = \"imported\"\naccount = \"elsewhere\"\n{rest}\n")
}

fn hash_line(key: &str) -> String {
    format!("hash = {:?}", riskgate::keys::format_key_hash(key))
}
