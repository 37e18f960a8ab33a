//! The admin API: who may do what, and that its changes are those of the commands.

mod changes;
mod on_redis;
mod served;

use serde_json::{Value, json};

use crate::harness::{Gateway, Request, Response, Setup, get, request, wait_until};
use crate::one_path::quota::keys::sha256_hex;
use crate::redis_server::RedisServer;

/// Tokens of the admin API, and the config that knows them.
pub struct AdminTokens {
    pub write: String,
    pub read: String,
    pub account: String,
    pub expired: String,
}

impl AdminTokens {
    /// Starts a gateway with tokens. Its store is on this server, which becomes a store.
    pub fn start_on_redis(server: &RedisServer) -> (Gateway, AdminTokens) {
        let (setup, tokens) = AdminTokens::add_to(Setup::new().with_redis(server));
        setup.cli(&["store", "init"]).expect(0);
        (setup.start(), tokens)
    }

    /// Makes tokens with the command, and adds them to the config. The token of the account is for
    /// `acme`.
    pub fn add_to(setup: Setup) -> (Setup, AdminTokens) {
        let mut toml = String::new();
        let mut make = |name: &str, scope: &str, expires: Option<&str>| {
            let arguments = ["admin-token", "create", "--name", name, "--scope", scope, "--json"];
            let made = crate::harness::run_command(
                std::process::Command::new(crate::harness::BINARY).args(arguments),
            );
            let made = made.expect(0).json();
            let text = |member: &str| made[member].as_str().unwrap().to_owned();
            let (hash, scope) = (text("hash"), text("scope"));
            toml += &format!(
                "[[admin.token]]\nname = \"{name}\"\nhash = \"{hash}\"\nscope = \"{scope}\"\n"
            );
            toml += &expires.map_or(String::new(), |at| format!("expires = \"{at}\"\n"));
            text("token")
        };
        let tokens = AdminTokens {
            write: make("ops", "write", Some("2100-01-01T00:00:00Z")),
            read: make("viewer", "read", None),
            account: make("customer", "account:acme", None),
            expired: make("former", "write", Some("2020-01-01T00:00:00Z")),
        };
        (setup.append_toml(&toml), tokens)
    }
}

pub fn api_request(method: &str, path: &str, token: &str) -> Request {
    let request = request(method, format!("/api/v1{path}")).with_header("Host", "localhost");
    if token.is_empty() { request } else { request.key(token) }
}

/// Sends a request to the admin API. A null body is none.
#[track_caller]
pub fn call_api(
    gateway: &Gateway,
    method: &str,
    path: &str,
    token: &str,
    body: &Value,
) -> Response {
    let request = api_request(method, path, token);
    let request = match body {
        Value::Null => request,
        body => request.with_header("Content-Type", "application/json").body(&body.to_string()),
    };
    request.send(gateway.admin)
}

fn start() -> (Gateway, AdminTokens) {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    (setup.start(), tokens)
}

#[track_caller]
fn create_key(gateway: &Gateway, tokens: &AdminTokens, body: Value) -> Value {
    call_api(gateway, "POST", "/keys", &tokens.write, &body).expect(201).json()
}

fn key_status(gateway: &Gateway, key: &Value) -> u16 {
    gateway.get_domain("first.test", key.as_str().unwrap()).status
}

#[test]
fn a_key_that_the_api_creates_rotates_and_revokes_is_in_effect_with_the_answer() {
    let (gateway, tokens) = start();
    let body = json!({
        "account": "acme", "plan": "pro", "label": "web", "origins": ["https://a.com"],
        "expires": "90d",
    });
    let made = create_key(&gateway, &tokens, body);
    assert_eq!(key_status(&gateway, &made["key"]), 200);
    let id = made["id"].as_str().unwrap();
    let listed = call_api(&gateway, "GET", "/keys?account=acme", &tokens.read, &Value::Null);
    let listed = listed.expect(200).json();
    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("key");
    assert_eq!(listed["items"], json!([shown]));
    let from_command = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    assert_eq!(from_command, listed["items"], "the command lists the same");

    let path = format!("/keys/{id}/rotate");
    let rotated = call_api(&gateway, "POST", &path, &tokens.write, &json!({ "overlap": "1h" }));
    let rotated = rotated.expect(201).json();
    assert_eq!(rotated["replaces"], id);
    assert_eq!(key_status(&gateway, &rotated["key"]), 200);
    assert_eq!(key_status(&gateway, &made["key"]), 200, "both work during the overlap");

    let path = format!("/keys/{id}/revoke");
    let revoked = call_api(&gateway, "POST", &path, &tokens.write, &Value::Null);
    assert_eq!(revoked.expect(200).json()["state"], "revoked");
    assert_eq!(key_status(&gateway, &made["key"]), 401);
    let page = gateway.get_admin_page("/api/v1/keys");
    page.expect(401);
}

#[test]
fn a_revocation_is_answered_though_the_lists_show_the_key_otherwise() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let made = ["keys", "create", "--account", "acme", "--json"];
    let [listed, damaged] = [0; 2].map(|_| setup.cli(&made).expect(0).json());
    let hash = sha256_hex(listed["key"].as_str().unwrap());
    let file = setup.path("keys.toml");
    let entry = format!("[[key]]\nid = \"filed\"\naccount = \"acme\"\nhash = \"sha256:{hash}\"\n");
    std::fs::write(&file, entry).unwrap();
    let store = rusqlite::Connection::open(setup.path("riskgate.db")).unwrap();
    let damage = "UPDATE api_key SET origins = 'no list' WHERE id = ?1";
    assert_eq!(store.execute(damage, [damaged["id"].as_str().unwrap()]).unwrap(), 1);
    drop(store);
    let gateway = setup.set_text("keys.file", &file.display().to_string()).start();
    assert_eq!(key_status(&gateway, &listed["key"]), 200);
    let revoke = |id: &Value| {
        let path = format!("/keys/{}/revoke", id.as_str().unwrap());
        call_api(&gateway, "POST", &path, &tokens.write, &Value::Null)
    };
    let revoked = revoke(&listed["id"]).expect(200).json();
    assert_eq!((&revoked["id"], &revoked["state"]), (&listed["id"], &json!("revoked")));
    assert_eq!(key_status(&gateway, &listed["key"]), 401);
    // The damaged row can't be shown, but is revoked.
    let answer = revoke(&damaged["id"]).expect(500).text();
    assert!(answer.contains("is revoked, but its row can't be read"), "{answer}");
}

#[test]
fn a_key_of_the_key_file_is_revoked_while_the_file_is_faulty() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let token = "sv_that_was_stolen_meanwhile";
    let key = format!(
        "[[key]]\nid = \"web-1\"\naccount = \"a\"\nhash = \"sha256:{}\"\n",
        sha256_hex(token)
    );
    let file = setup.path("keys.toml");
    std::fs::write(&file, &key).unwrap();
    let gateway = setup.set_text("keys.file", &file.display().to_string()).start();
    assert_eq!(key_status(&gateway, &token.into()), 200);
    std::fs::write(&file, key + "broken = [\n").unwrap();
    wait_until("the fault is told", || gateway.readyz().text().contains("\"keys\""));
    assert_eq!(key_status(&gateway, &token.into()), 200, "the last good file is in force");
    let revoke = |id: &str| {
        call_api(&gateway, "POST", &format!("/keys/{id}/revoke"), &tokens.write, &Value::Null)
    };
    let shown = call_api(&gateway, "GET", "/keys/web-1", &tokens.read, &Value::Null);
    assert_eq!(shown.expect(200).json()["created_at"], Value::Null, "the file does not say");
    revoke("nobody").expect(404);
    assert_eq!(revoke("web-1").expect(200).json()["state"], "revoked");
    assert_eq!(key_status(&gateway, &token.into()), 401);
}

#[test]
fn a_repeated_creation_gives_the_same_key_and_adds_none() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let (setup, tokens) = AdminTokens::add_to(setup);
        setup.cli(&["store", "init"]).expect(0);
        let gateway = setup.start();
        let send = |path: &str, body: &str| {
            api_request("POST", path, &tokens.write)
                .with_header("Content-Type", "application/json")
                .with_header("Idempotency-Key", "7f0a")
                .body(body)
                .send(gateway.admin)
        };
        let body = "{\"account\":\"acme\"}";
        let first = send("/keys", body).expect(201).json();
        let second = send("/keys", body).expect(201).json();
        assert_eq!(first, second);
        send("/keys", "{\"account\":\"other\"}").expect(422);
        let id = first["id"].as_str().unwrap();
        send(&format!("/keys/{id}/rotate"), "{}").expect(422);
        assert_eq!(
            gateway.cli(&["keys", "list", "--json"]).expect(0).json().as_array().unwrap().len(),
            1
        );
        let other_token = api_request("POST", "/keys", &tokens.read)
            .with_header("Idempotency-Key", "7f0a")
            .body(body);
        other_token.send(gateway.admin).expect(403);
        let gateway = gateway.crash_and_restart();
        let again = api_request("POST", "/keys", &tokens.write)
            .with_header("Content-Type", "application/json")
            .with_header("Idempotency-Key", "7f0a")
            .body(body)
            .send(gateway.admin);
        assert_eq!(again.expect(201).json()["key"], first["key"], "also after a crash");
    }
}

/// The reads that a token with the scope `account:NAME` may not do.
const READS: [&str; 16] = [
    "/status",
    "/history",
    "/verdicts",
    "/top-domains",
    "/screening",
    "/accounts",
    "/audit",
    "/overrides",
    "/lists",
    "/feeds",
    "/lookup?domain=a.com",
    "/servers",
    "/routes",
    "/certificates",
    "/refused-forms",
    "/rule-decisions",
];

#[test]
fn each_token_may_do_what_its_scope_says() {
    let (gateway, tokens) = start();
    for account in ["acme", "other"] {
        create_key(&gateway, &tokens, json!({ "account": account }));
    }
    let shared = ["/keys", "/plans", "/usage", "/accounts/acme"];
    let status =
        |path: &str, token: &str| call_api(&gateway, "GET", path, token, &Value::Null).status;
    for path in READS.iter().chain(&shared) {
        for (token, expected) in [
            (&tokens.write[..], 200),
            (&tokens.read, 200),
            (&tokens.expired, 401),
            ("", 401),
            ("rga_0000000000000000000000000000000", 401),
        ] {
            assert_eq!(status(path, token), expected, "{path}");
        }
        let expected = if shared.contains(path) { 200 } else { 403 };
        assert_eq!(status(path, &tokens.account), expected, "{path}");
    }
    for foreign in ["/accounts/other", "/keys?account=other", "/usage?account=other"] {
        assert_eq!(status(foreign, &tokens.account), 403, "{foreign}");
    }
    let own = call_api(&gateway, "GET", "/keys", &tokens.account, &Value::Null).expect(200).json();
    assert_eq!((&own["total"], &own["items"][0]["account"]), (&json!(1), &json!("acme")));
    let changes = [
        ("POST", "/keys", json!({ "account": "acme" })),
        ("PATCH", "/accounts/acme", json!({ "limit": 5 })),
        ("PUT", "/overrides/a.com", json!({ "action": "deny" })),
        ("DELETE", "/overrides/a.com", Value::Null),
        ("POST", "/reload", Value::Null),
    ];
    for (method, path, body) in &changes {
        for (token, expected) in
            [(&tokens.read[..], 403), (&tokens.account, 403), (&tokens.expired, 401), ("", 401)]
        {
            let answer = call_api(&gateway, method, path, token, body);
            assert_eq!(answer.status, expected, "{method} {path}");
        }
    }
    let reload = |token: &str| request("POST", "/reload").key(token).send(gateway.admin).status;
    assert_eq!(
        [&tokens.write, &tokens.read, &tokens.account, &tokens.expired].map(|it| reload(it)),
        [200, 403, 403, 401]
    );
    for page in ["/status", "/metrics", "/screening", "/openapi.yaml", "/api/openapi.yaml"] {
        let status = |token: &str| request("GET", page).key(token).send(gateway.admin).status;
        let tokens = [&tokens.write, &tokens.read, &tokens.account, &tokens.expired];
        assert_eq!(tokens.map(|it| status(it)), [200, 200, 403, 401], "{page}");
    }
    assert_eq!(status("/session", ""), 200, "the page asks what it may do");
    let session = call_api(&gateway, "GET", "/session", &tokens.expired, &Value::Null).json();
    assert_eq!((&session["state"], &session["token"]), (&json!("expired"), &json!("former")));
}

#[test]
fn without_a_configured_token_loopback_may_read_and_nobody_may_change() {
    let gateway = Setup::new().start();
    call_api(&gateway, "GET", "/accounts", "", &Value::Null).expect(200);
    let rebound = get("/api/v1/accounts").with_header("Host", "evil.example");
    rebound.send(gateway.admin).expect(401);
    let answer = call_api(&gateway, "POST", "/keys", "", &json!({ "account": "acme" })).expect(401);
    assert!(answer.text().contains("riskgate admin-token create"), "{}", answer.text());
}

#[test]
fn a_page_of_another_origin_can_change_nothing() {
    let (gateway, tokens) = start();
    let own = format!("http://{}", gateway.admin);
    let host = gateway.admin.to_string();
    let send = |fields: &[(&str, &str)]| {
        let mut request = request("POST", "/api/v1/keys").with_header("Host", &host);
        request = request.key(&tokens.write).with_header("Content-Type", "application/json");
        for (name, value) in fields {
            request = request.with_header(name, value);
        }
        request.body("{\"account\":\"acme\"}").send(gateway.admin)
    };
    let preflight = request("OPTIONS", "/api/v1/keys").with_header("Host", &host);
    let preflight = preflight.with_header("Origin", "https://evil.example");
    let preflight = preflight.with_header("Access-Control-Request-Method", "POST");
    let answer = preflight.send(gateway.admin);
    assert!(!answer.has_header("Access-Control-Allow-Origin"));
    for fields in [
        &[("Origin", "https://evil.example")][..],
        &[("Origin", "null")],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Origin", &own), ("Sec-Fetch-Site", "same-site")],
    ] {
        send(fields).expect(403);
    }
    send(&[("Origin", &own), ("Sec-Fetch-Site", "same-origin")]).expect(201);
    send(&[]).expect(201);
    let form = request("POST", "/api/v1/keys").with_header("Host", &host).key(&tokens.write);
    let form = form.with_header("Content-Type", "text/plain").body("{\"account\":\"acme\"}");
    form.send(gateway.admin).expect(415);
}

#[test]
fn no_error_shows_an_address() {
    let (gateway, tokens) = start();
    let cases = [
        ("GET", "/lookup?domain=secret@gmail.com", Value::Null, "found a text with an @"),
        ("GET", "/lookup?domain=secret%2540gmail.com", Value::Null, "found a text with a %"),
        ("GET", "/lookup?secret@gmail.com=1", Value::Null, "but found …"),
        (
            "PUT",
            "/overrides/secret@gmail.com",
            json!({ "action": "deny" }),
            "found a text with an @",
        ),
        (
            "POST",
            "/sign-ups/delete",
            json!({ "secret@gmail.com": 1 }),
            "unknown field … expected `email`",
        ),
        ("POST", "/keys", json!({ "origins": "secret@gmail.com" }), "expected a sequence"),
        ("GET", "/usage?month=secret@gmail.com", Value::Null, "month: expected"),
        ("GET", "/accounts?cursor=secret@gmail.com", Value::Null, "cursor: expected"),
        ("GET", "/keys?limit=secret@gmail.com", Value::Null, "limit: expected"),
        ("POST", "/keys", json!({ "account": "secret@gmail.com" }), "found one with @"),
    ];
    for (method, path, body, named) in cases {
        let answer = call_api(&gateway, method, path, &tokens.write, &body).expect(422);
        assert!(answer.text().contains(named), "{method} {path}: {}", answer.text());
        assert!(!answer.text().contains("secret"), "{method} {path}: {}", answer.text());
    }
    for (path, found) in [
        ("/accounts/secret%40gmail.com", "found a text with an @"),
        ("/accounts/rg_secret0123456789abcdef", "found what may be a key"),
        ("/keys/secret%40gmail.com", "found a text with an @"),
        ("/accounts/a-long-name-of-an-account", "found \\\"a-long-name-of-an-account\\\""),
    ] {
        let answer = call_api(&gateway, "GET", path, &tokens.write, &Value::Null).expect(404);
        assert!(answer.text().contains(found), "{path}: {}", answer.text());
        assert!(!answer.text().contains("secret"), "{path}: {}", answer.text());
    }
}

#[test]
fn an_error_names_the_plans_of_the_config_and_the_corrected_value() {
    let setup = Setup::new().set("plans.enterprise-yearly", "7");
    let (setup, tokens) = AdminTokens::add_to(setup);
    let gateway = setup.start();
    for (body, told) in [
        (
            json!({ "plan": "enterprise-yearli" }),
            "but found \"enterprise-yearli\"; write enterprise-yearly",
        ),
        (json!({ "plan": "gold" }), "one of business, enterprise-yearly, free,"),
        (json!({ "limit": 9_007_199_254_740_992_u64 }), "but found 9007199254740992"),
        (json!({ "limit": 18_446_744_073_709_551_616.0 }), "found 18446744073709551616"),
        (json!({ "limit": "unlimitd" }), "but found \"unlimitd\"; write unlimited"),
        (json!({ "limit": "5" }), "(2^53 - 1), \"unlimited\" or \"plan\", but found \"5\""),
        (json!({ "requests_per_month": 1 }), "unknown field `requests_per_month`"),
    ] {
        let answer = call_api(&gateway, "PATCH", "/accounts/acme", &tokens.write, &body);
        let detail = answer.expect(422).json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(told), "{detail}");
    }
}

#[test]
fn faulty_requests_get_a_clear_error_and_change_nothing() {
    let (gateway, tokens) = start();
    let cases = [
        ("POST", "/keys", json!({}), 422, "account"),
        ("POST", "/keys", json!({ "account": "a", "nope": 1 }), 422, "nope"),
        ("POST", "/keys", json!({ "account": "a b" }), 422, "account"),
        ("POST", "/keys", json!({ "account": "a", "plan": "gold" }), 422, "plan"),
        ("POST", "/keys", json!({ "account": "a", "origins": ["a.com"] }), 422, "origin"),
        ("POST", "/keys", json!({ "account": "a", "expires": "soon" }), 422, "expires"),
        (
            "POST",
            "/keys",
            json!({ "account": "a", "expires": "2020-01-01T00:00:00Z" }),
            422,
            "a time in the future",
        ),
        ("POST", "/keys", json!({ "account": "a", "label": "a\nb" }), 422, "label"),
        ("POST", "/keys", json!({ "account": "a", "label": "a\u{202e}b" }), 422, "visible"),
        (
            "PUT",
            "/overrides/a.com",
            json!({ "action": "deny", "note": "a\u{200b}b" }),
            422,
            "invisible",
        ),
        ("PATCH", "/accounts/acme", json!({}), 422, "a plan or a limit"),
        ("PATCH", "/accounts/acme", json!({ "limit": -1 }), 422, "limit"),
        ("PATCH", "/accounts/acme", json!({ "limit": 1.5 }), 422, "limit"),
        ("PATCH", "/accounts/a%20b", json!({ "limit": 1 }), 422, "account"),
        ("POST", "/keys/nope/rotate", json!({}), 404, "nope"),
        ("POST", "/keys/nope/revoke", json!({}), 404, "nope"),
        ("PUT", "/overrides/not_valid", json!({ "action": "deny" }), 422, "domain"),
        ("PUT", "/overrides/a.com", json!({ "action": "maybe" }), 422, "maybe"),
        (
            "PUT",
            "/overrides/a.com",
            json!({ "action": "deny", "until": "2020-01-01" }),
            422,
            "until",
        ),
        ("DELETE", "/overrides/a.com", Value::Null, 404, "a.com"),
        ("GET", "/keys?limit=0", Value::Null, 422, "limit"),
        ("GET", "/keys?limit=501", Value::Null, 422, "limit"),
        ("GET", "/keys?cursor=x", Value::Null, 422, "cursor"),
        ("GET", "/keys?state=dead", Value::Null, 422, "state"),
        ("GET", "/keys?nope=1", Value::Null, 422, "nope"),
        ("GET", "/keys?limit=1&limit=2", Value::Null, 422, "limit"),
        ("GET", "/usage?month=2026-13", Value::Null, 422, "month"),
        ("GET", "/lookup", Value::Null, 422, "domain"),
        ("GET", "/nope", Value::Null, 404, "endpoint"),
        ("GET", "/keys//rotate", Value::Null, 404, "endpoint"),
        ("DELETE", "/keys", Value::Null, 405, "method"),
    ];
    for (method, path, body, status, named) in cases {
        let answer = call_api(&gateway, method, path, &tokens.write, &body);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert!(answer.text().contains(named), "{method} {path}: {}", answer.text());
        assert!(answer.json()["error"].is_string());
    }
    let broken = api_request("POST", "/keys", &tokens.write)
        .with_header("Content-Type", "application/json")
        .body("{\"account\"");
    broken.send(gateway.admin).expect(400);
    let large = api_request("POST", "/keys", &tokens.write)
        .with_header("Content-Type", "application/json")
        .body(&format!("{{\"account\":\"a\",\"label\":\"{}\"}}", "x".repeat(70_000)));
    large.send(gateway.admin).expect(413);
    let records = gateway.cli(&["audit", "--json"]).expect(0).stdout;
    assert_eq!(records, "", "nothing was changed");
}

#[test]
fn a_request_that_two_readers_could_read_differently_is_refused() {
    let (gateway, tokens) = start();
    let create =
        api_request("POST", "/keys", &tokens.write).with_header("Content-Type", "application/json");
    let twice = create.clone().body(r#"{"account":"a","account":"b"}"#);
    assert!(twice.send(gateway.admin).expect(422).text().contains("duplicate field"));
    let two_types = create.with_header("Content-Type", "text/plain").body(r#"{"account":"a"}"#);
    two_types.send(gateway.admin).expect(415);
}

#[test]
fn lists_are_read_in_pages_and_miss_nothing() {
    let (gateway, tokens) = start();
    let file = gateway.path("import.toml");
    let key = |n: u32| {
        let account = n % 40;
        format!("[[key]]\nid = \"k{n}\"\naccount = \"a{account}\"\nhash = \"sha256:{n:064x}\"\n")
    };
    std::fs::write(&file, (0..230).map(key).collect::<String>()).unwrap();
    gateway.cli(&["keys", "import", file.to_str().unwrap()]).expect(0);
    wait_until("the keys are in force", || {
        let list = call_api(&gateway, "GET", "/keys?limit=1", &tokens.read, &Value::Null).json();
        list["total"] == 230
    });
    for (list, name, expected) in
        [("keys", "id", 230), ("accounts", "name", 40), ("accounts?sort=use", "name", 40)]
    {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let separator = if list.contains('?') { '&' } else { '?' };
            let path = format!("/{list}{separator}limit=17{cursor}");
            let page = call_api(&gateway, "GET", &path, &tokens.read, &Value::Null);
            let page = page.expect(200).json();
            assert_eq!(page["total"], expected, "{list}");
            let items = page["items"].as_array().unwrap();
            seen.extend(items.iter().map(|item| item[name].as_str().unwrap().to_owned()));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={}", next.replace(' ', "%20"));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), expected, "{list}");
    }
    let found =
        call_api(&gateway, "GET", "/keys?search=K22&account=a29", &tokens.read, &Value::Null);
    assert_eq!(found.expect(200).json()["items"][0]["id"], "k229");
}

/// Reads a page of a list, and returns what the items are called, and the parameter of the next
/// page.
fn read_page(
    gateway: &Gateway,
    tokens: &AdminTokens,
    list: &str,
    cursor: &str,
) -> (Vec<String>, Option<String>) {
    let path = format!("/{list}limit=2{cursor}");
    let page = call_api(gateway, "GET", &path, &tokens.read, &Value::Null).expect(200).json();
    let name = if list.starts_with("overrides") { "domain" } else { "name" };
    let items = page["items"].as_array().unwrap().iter();
    let names = items.map(|item| item[name].as_str().unwrap().to_owned()).collect();
    let next = page["next_cursor"].as_str();
    (names, next.map(|next| format!("&cursor={}", next.replace(' ', "%20"))))
}

#[test]
fn items_that_come_or_go_between_two_pages_move_no_others() {
    let (gateway, tokens) = start();
    let domains = ["a", "b", "c", "d", "e"].map(|name| format!("{name}.example.com"));
    for domain in &domains {
        let path = format!("/overrides/{domain}");
        call_api(&gateway, "PUT", &path, &tokens.write, &json!({ "action": "deny" })).expect(200);
    }
    let (mut deleted, mut cursor) = (Vec::new(), Some(String::new()));
    while let Some(of_page) = cursor {
        let (names, next) = read_page(&gateway, &tokens, "overrides?", &of_page);
        for name in &names {
            let path = format!("/overrides/{name}");
            call_api(&gateway, "DELETE", &path, &tokens.write, &Value::Null).expect(200);
        }
        deleted.extend(names);
        cursor = next;
    }
    assert_eq!(deleted, domains);

    for list in ["accounts?", "accounts?sort=use&"] {
        let first = format!("0-before-{}", list.len());
        let mut names = vec!["b", "c", "d"];
        for name in &names {
            create_key(&gateway, &tokens, json!({ "account": name }));
        }
        let (shown, next) = read_page(&gateway, &tokens, &format!("{list}plan=free&"), "");
        assert_eq!(shown.len(), 2, "{shown:?}");
        create_key(&gateway, &tokens, json!({ "account": first }));
        let (rest, _) = read_page(&gateway, &tokens, &format!("{list}plan=free&"), &next.unwrap());
        names.retain(|name| !shown.iter().any(|it| it == name));
        assert!(rest.iter().all(|it| !shown.contains(it)), "{list}: {shown:?} {rest:?}");
        assert_eq!(rest[0], names[0], "{list}");
    }
}

#[test]
fn a_row_that_comes_to_the_file_of_overrides_moves_no_others() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let file = setup.path("overrides.csv");
    let write_rows = |names: &[&str]| {
        let rows = names.iter().map(|name| format!("{name},subtree,disposable,100,,,\n"));
        let header = "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,\
                      mx_provider_label\n";
        std::fs::write(&file, format!("{header}{}", rows.collect::<String>())).unwrap();
    };
    write_rows(&["d.com", "a.com", "c.com"]);
    let gateway = setup.start();
    let (first, next) = read_page(&gateway, &tokens, "overrides?", "");
    assert_eq!(first, ["a.com", "c.com"]);
    write_rows(&["b.com", "d.com", "a.com", "c.com"]);
    let (rest, _) = read_page(&gateway, &tokens, "overrides?", &next.unwrap());
    assert_eq!(rest, ["d.com"]);
}

#[test]
fn no_new_name_label_or_note_has_a_key_and_no_new_name_an_address() {
    let setup = Setup::new();
    let file = setup.path("keys.toml");
    let hash = sha256_hex("sv_a_key_of_the_file");
    let entry = format!("[[key]]\nid = \"k\"\naccount = \"old@a.com\"\nhash = \"sha256:{hash}\"\n");
    std::fs::write(&file, entry).unwrap();
    let setup = setup.set_text("keys.file", &file.display().to_string());
    let (setup, tokens) = AdminTokens::add_to(setup);
    let gateway = setup.start();
    let made = create_key(&gateway, &tokens, json!({ "account": "acme" }));
    let key = made["key"].as_str().unwrap();
    for (method, path, body) in [
        ("POST", "/keys", json!({ "account": key })),
        ("POST", "/keys", json!({ "account": "acme", "label": format!("web ({key})") })),
        ("POST", "/keys", json!({ "account": "acme", "origins": [format!("https://{key}")] })),
        ("POST", "/keys", json!({ "account": "new@a.com" })),
        ("PATCH", "/accounts/new@a.com", json!({ "limit": 5 })),
        ("PUT", "/overrides/a.com", json!({ "action": "deny", "note": key })),
    ] {
        let answer = call_api(&gateway, method, path, &tokens.write, &body).expect(422).text();
        assert!(!answer.contains(key) && !answer.contains("new@"), "{path}: {answer}");
        assert!(answer.contains("write "), "{path}: {answer}");
    }
    // An account that exists stays usable.
    create_key(&gateway, &tokens, json!({ "account": "old@a.com" }));
    let path = "/accounts/old@a.com";
    call_api(&gateway, "PATCH", path, &tokens.write, &json!({ "limit": 5 })).expect(200);
}

#[test]
fn a_limit_that_no_client_can_read_is_refused() {
    let (gateway, tokens) = start();
    let set = |limit: u64| {
        let body = json!({ "limit": limit });
        call_api(&gateway, "PATCH", "/accounts/acme", &tokens.write, &body)
    };
    let refused = set(9_007_199_254_740_992).expect(422).json();
    let refused = refused["detail"].as_str().unwrap();
    assert!(refused.contains("up to 9,007,199,254,740,991"), "{refused}");
    assert!(refused.ends_with(", but found 9007199254740992"), "{refused}");
    set(9_007_199_254_740_991).expect(200);
    let change = |limit: &str| {
        let patch = api_request("PATCH", "/accounts/acme", &tokens.write);
        let patch = patch.with_header("Content-Type", "application/json");
        patch.body(&format!("{{\"limit\":{limit}}}")).send(gateway.admin)
    };
    change("1e3").expect(200);
    // The parser reads 0.0, which would refuse all calls.
    for limit in ["1e-400", "-0.0", "1.5", "1e300"] {
        let refused = change(limit).expect(422).json()["detail"].as_str().unwrap().to_owned();
        assert!(refused.contains("limit: expected"), "{limit}: {refused}");
    }
    let body = json!({ "limit": "x".repeat(5_000) });
    let refused = call_api(&gateway, "PATCH", "/accounts/acme", &tokens.write, &body).expect(422);
    let refused = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(refused.ends_with("xxx…") && refused.len() < 250, "{refused}");
}

#[test]
fn a_mistyped_id_leads_to_the_key_that_the_token_may_see() {
    let setup = Setup::new();
    let file = setup.path("keys.toml");
    let entry = |account: &str| {
        let hash = sha256_hex(&format!("sv_a_key_of_{account}"));
        format!(
            "[[key]]\nid = \"Web-Key-Of-{account}-1\"\naccount = \"{account}\"\nhash = \"sha256:{hash}\"\n"
        )
    };
    std::fs::write(&file, entry("acme") + &entry("other")).unwrap();
    let setup = setup.set_text("keys.file", &file.display().to_string());
    let (setup, tokens) = AdminTokens::add_to(setup);
    let gateway = setup.start();
    let get_detail = |account: &str, token: &str| {
        let path = format!("/keys/Web-Key-Of-{account}-2");
        let answer = call_api(&gateway, "GET", &path, token, &Value::Null).expect(404);
        answer.json()["detail"].as_str().unwrap().to_owned()
    };
    for account in ["acme", "other"] {
        let told = get_detail(account, &tokens.read);
        assert!(told.ends_with(&format!("; write Web-Key-Of-{account}-1")), "{told}");
    }
    let told = get_detail("acme", &tokens.account);
    assert!(told.ends_with("; write Web-Key-Of-acme-1"), "{told}");
    let told = get_detail("other", &tokens.account);
    assert!(!told.contains("Web-Key"), "{told}");
}
