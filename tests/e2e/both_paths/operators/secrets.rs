//! No output shows a key, a password or a whole e-mail address, whatever went wrong.
//!
//! The test sends requests with secrets in right and wrong places. It then searches everything that
//! the gateway wrote. For every other test, the harness searches the logs.

use std::time::Duration;

use crate::harness::{
    Gateway, GatewaySecrets, MockUpstream, Request, Response, Setup, Step, get, request,
    response_bytes, wait_until,
};
use crate::redis_server::RedisServer;

const ADMIN_TOKEN: &str = "operator-s3cr3t-token";
const WRONG_ADMIN_TOKEN: &str = "operator-s3cr3t-tokem";
const STORE_PASSWORD: &str = "st0re-s3cr3t";
const NEW_STORE_PASSWORD: &str = "st0re-s3cr3t-2";
/// A key that another program created; the key file declares it by its hash.
const IMPORTED_KEY: &str = "sv_imported0123456789abcdefghijABCD";
const UNKNOWN_KEY: &str = "rg_0000000000000000000000000000000x";
const MAIL_ADDRESS: &str = "jane.doe@example.com";
const ENCODED_MAIL_ADDRESS: &str = "jane.doe%40example.com";

#[test]
fn no_output_shows_a_secret_after_bad_requests_upstream_faults_and_broken_files() {
    let server = RedisServer::start();
    let password = format!(">{STORE_PASSWORD}");
    server.run(&["ACL", "SETUSER", "me", "on", &password, "~*", "&*", "+@all"]);
    let upstream = MockUpstream::with_script(|seen| leaky_response(seen.request_line()));
    let setup =
        Setup::new().with_upstreams(&[upstream.address]).set_text("admin.token", ADMIN_TOKEN);
    let setup = setup.set_text("store.url", &server.url_as("me", STORE_PASSWORD));
    let setup = setup.set_text("upstream.deadline", "400ms");
    let keys = setup.path("keys.toml");
    std::fs::write(&keys, key_file_toml(&key_hash_line(IMPORTED_KEY))).unwrap();
    let setup = setup.set_text("keys.file", keys.to_str().unwrap());
    setup.cli(&["store", "init"]).expect(0);
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);

    let secrets = GatewaySecrets {
        prefixes: vec!["sv_".to_owned()],
        texts: [
            &key,
            ADMIN_TOKEN,
            WRONG_ADMIN_TOKEN,
            STORE_PASSWORD,
            IMPORTED_KEY,
            UNKNOWN_KEY,
            "jane",
        ]
        .map(str::to_owned)
        .to_vec(),
    };
    send_secrets_everywhere(&gateway, &key, &secrets);
    send_malformed_requests(&gateway, &key);
    break_reloaded_files(&gateway, &key, &secrets);
    change_store_password(&gateway, &server);

    for path in ["/", "/status", "/screening", "/metrics", "/readyz"] {
        let page = send_admin_request(&gateway, "GET", path, ADMIN_TOKEN);
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
    let echo = format!("{{\"email\":\"{MAIL_ADDRESS}\"}}");
    let header = format!("X-Echo: {MAIL_ADDRESS}\r\n");
    match line {
        _ if line.contains("garbage") => {
            vec![Step::Send(format!("{MAIL_ADDRESS}\r\n\r\n").into()), Step::Close]
        }
        _ if line.contains("half") => {
            vec![Step::Send(format!("HTTP/1.1 200 {MAIL_ADDRESS}\r\nX").into()), Step::Close]
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
        format!("/v1/check/{MAIL_ADDRESS}"),
        format!("/v1/check/{ENCODED_MAIL_ADDRESS}?from={MAIL_ADDRESS}&key={key}"),
        format!("/v1/check/garbage.{MAIL_ADDRESS}"),
        format!("/v1/check/half.{MAIL_ADDRESS}"),
        format!("/v1/check/closed.{MAIL_ADDRESS}"),
        format!("/v1/check/reset.{MAIL_ADDRESS}"),
        format!("/v1/check/silent.{MAIL_ADDRESS}"),
        format!("/v1/check/trickle.{MAIL_ADDRESS}"),
        format!("/v1/check/status.{MAIL_ADDRESS}"),
        format!("/v1/check/{ENCODED_MAIL_ADDRESS}%FF"),
        format!("/v1/check/{key}"),
        format!("/v1/check/{MAIL_ADDRESS}/{key}"),
        format!("/v1/public/domain/{MAIL_ADDRESS}"),
        format!("/v1/public/domain/{ENCODED_MAIL_ADDRESS}"),
        format!("/v1/public/domain/{key}"),
        format!("/v1/public/domain/first.test?key={key}&mail={MAIL_ADDRESS}"),
        format!("/v1/usage?api_key={key}"),
        format!("/v1/usage/{key}"),
        format!("/{key}"),
        format!("/{ENCODED_MAIL_ADDRESS}/x"),
        "/v1/jane.doe\u{ff20}example.com".to_owned(),
        format!("http://gate.test/{key}"),
    ] {
        for authorization in [
            key,
            IMPORTED_KEY,
            UNKNOWN_KEY,
            "",
            &format!("{key}, {key}"),
            &format!("{key} {MAIL_ADDRESS}"),
        ] {
            let asked =
                get(&target).with_header("Authorization", &format!("Bearer {authorization}"));
            assert_own_response_has_no_secret(&gateway.send_request(&asked), secrets, &target);
        }
    }
    let usage = || get("/v1/usage");
    for asked in [
        usage().with_header("Authorization", key),
        usage().with_header("Authorization", &format!("Basic {key}")),
        usage().key(key).key(UNKNOWN_KEY),
        usage()
            .with_header("X-Api-Key", key)
            .with_header("Cookie", &format!("key={key}; mail={MAIL_ADDRESS}")),
        usage()
            .key(key)
            .with_header("Referer", &format!("https://x/?{MAIL_ADDRESS}"))
            .with_header("User-Agent", MAIL_ADDRESS),
        usage().key(key).with_header("X-Request-Id", MAIL_ADDRESS),
        usage().key(key).with_header("X-Request-Id", &format!("Bearer,{key}")),
        usage().with_header("X-Request-Id", key),
        usage().key(IMPORTED_KEY).with_header("X-Request-Id", &format!("id-{IMPORTED_KEY}")),
        usage()
            .key(key)
            .with_header("X-Forwarded-For", MAIL_ADDRESS)
            .with_header("From", MAIL_ADDRESS),
        request(key, "/v1/usage"),
        request("POST", format!("/v1/check/{MAIL_ADDRESS}"))
            .key(key)
            .body(&format!("{key} {MAIL_ADDRESS}")),
    ] {
        assert_own_response_has_no_secret(&gateway.send_request(&asked), secrets, "a header");
    }
    // riskgate repeats a refused origin only to its client.
    gateway
        .send_request(&usage().key(key).with_header("Origin", &format!("https://{MAIL_ADDRESS}")));
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
        format!("GET /v1/check/{MAIL_ADDRESS} HTTP/1.1\nAuthorization: Bearer {key}\n\n"),
        format!("GET /v1/check/{MAIL_ADDRESS}?{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!(
            "GET /v1/check/{MAIL_ADDRESS} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}{wide}"
        ),
        format!("GET /{MAIL_ADDRESS} HTTP/1.1\r\nHost: {MAIL_ADDRESS}\r\n\r\n"),
        format!("{key} {MAIL_ADDRESS} {key}\r\n\r\n"),
        format!("CONNECT {MAIL_ADDRESS}:443 HTTP/1.1\r\nHost: a\r\nX: {key}\r\n\r\n"),
        format!("GET http://{MAIL_ADDRESS}/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        let mut connection = gateway.connect();
        // riskgate may refuse the request before the client has sent all of it.
        connection.try_send(bytes.as_bytes());
        let answer = connection.read_response().expect("a refusal");
        assert!(answer.status >= 400 && !answer.text().contains("jane"), "{}", answer.text());
    }
}

/// Writes secrets into wrong places of the key file and the config, and reloads. Asserts that no
/// response and no command shows a secret.
fn break_reloaded_files(gateway: &Gateway, key: &str, secrets: &GatewaySecrets) {
    let file = gateway.path("keys.toml");
    let good = std::fs::read_to_string(&file).unwrap();
    let config = std::fs::read_to_string(&gateway.config).unwrap();
    let reload = |status: u16| {
        let answer = send_admin_request(gateway, "POST", "/reload", ADMIN_TOKEN).expect(status);
        secrets.assert_no_secret_in("the answer to a reload", &answer.text());
        secrets.assert_no_secret_in(
            "/readyz",
            &send_admin_request(gateway, "GET", "/readyz", ADMIN_TOKEN).text(),
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
        (format!("\"{ADMIN_TOKEN}\""), format!("[\"{ADMIN_TOKEN}\"]")),
        (format!("\"{ADMIN_TOKEN}\""), "\"jane\"".to_owned()),
        (":st0re-s3cr3t@127.0.0.1:".to_owned(), ":st0re-s3cr3t@127.0.0.1:x".to_owned()),
        ("\"redis://me:".to_owned(), "\"me:".to_owned()),
    ] {
        assert!(config.contains(&written), "{written} is not in {config}");
        std::fs::write(&gateway.config, config.replacen(&written, &instead, 1)).unwrap();
        reload(422);
    }
    std::fs::write(&gateway.config, config).unwrap();
    reload(200);
    for path in ["/status", "/screening", "/metrics", "/api/v1/keys"] {
        send_admin_request(gateway, "GET", path, WRONG_ADMIN_TOKEN).expect(401);
    }
    for subcommand in [["keys", "list"], ["accounts", "list"], ["usage", "--account"]] {
        let more = if subcommand[0] == "usage" { &["acme", "--json"][..] } else { &["--json"] };
        let output = gateway.cli(&[&subcommand[..], more].concat()).expect(0);
        secrets.assert_no_secret_in(subcommand[0], &(output.stdout + &output.stderr));
    }
}

/// From now on the password differs from the gateway's config.
fn change_store_password(gateway: &Gateway, server: &RedisServer) {
    let other = format!(">{NEW_STORE_PASSWORD}");
    server.run(&["ACL", "SETUSER", "me", "resetpass", &other]);
    server.run(&["CLIENT", "KILL", "USER", "me"]);
    wait_until("/readyz reports it", || {
        send_admin_request(gateway, "GET", "/readyz", ADMIN_TOKEN).text().contains("redis://")
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

fn key_hash_line(key: &str) -> String {
    format!("hash = {:?}", riskgate::keys::format_key_hash(key))
}
