//! Changes by the admin API: in effect with the answer, recorded as what they are, repeatable.

use serde_json::{Value, json};

use super::{AdminTokens, api_request, call_api};
use crate::harness::{Connection, Gateway, Setup, wait_until};
use crate::redis_server::RedisServer;

fn read_operations(gateway: &Gateway) -> Vec<(String, String)> {
    let lines = gateway.cli(&["audit", "--json"]).expect(0).stdout;
    let records = lines.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    records.map(|record| (text(&record["operation"]), text(&record["target"]))).collect()
}

/// A setup whose table is refused if its disposable names change too much.
fn guarded_setup() -> (Setup, AdminTokens) {
    let (setup, tokens) = AdminTokens::add_to(Setup::new().set("plans.free", "\"unlimited\""));
    let manifest = setup.lists().path.join("manifest.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let text = text.replace("max_changed_share = 1.0", "max_changed_share = 0.3");
    std::fs::write(&manifest, text).unwrap();
    (setup, tokens)
}

#[test]
fn an_override_is_in_effect_while_the_lists_are_refused() {
    let many: String = (0..100).map(|n| format!("new-{n}.test\n")).collect();
    for (file, text, fault) in [
        ("disposable.txt", many.as_str(), "max_changed_share"),
        ("manifest.toml", "not a manifest", "manifest.toml"),
    ] {
        let (setup, tokens) = guarded_setup();
        let gateway = setup.start();
        let key = gateway.create_active_key("acme", &[]);
        let reason =
            |name: &str| gateway.get_domain(name, &key).expect(200).json()["reason"].clone();
        let change = |method: &str, name: &str, body: &Value| {
            call_api(&gateway, method, &format!("/overrides/{name}"), &tokens.write, body)
        };
        change("PUT", "before.example.com", &json!({ "action": "deny" })).expect(200);
        // The lists are kept within a moment after they were read.
        std::thread::sleep(std::time::Duration::from_secs(2));
        gateway.lists().replace_by_rename(file, text);
        let is_told = |part: &str| gateway.readyz().text().contains(&format!("\"{part}\""));
        wait_until("the table is refused", || is_told("table"));
        let forced = json!({ "action": "deny", "force": true });
        let changed = change("PUT", "bad.example.com", &forced).expect(200).json();
        assert_eq!(reason("bad.example.com"), "disposable");
        assert_eq!(reason("first.test"), "disposable", "the last good lists serve");
        assert_eq!(reason("new-1.test"), "safe", "no refused list serves");
        let is_faulty = fault == "manifest.toml";
        let warned = changed["warnings"].to_string();
        assert_eq!(warned.contains(fault), is_faulty, "{warned}");
        gateway.cli(&["table", "deny", "worse.example.com", "--force"]).expect(0);
        wait_until("that of the command", || reason("worse.example.com") == "disposable");
        change("DELETE", "bad.example.com", &Value::Null).expect(200);
        assert_eq!(reason("bad.example.com"), "safe");
        assert!(is_told("table") && !is_told("overrides"), "{}", gateway.readyz().text());
        // Without force, nobody can tell whether faulty lists protect the name.
        let denied = change("PUT", "other.example.com", &json!({ "action": "deny" }));
        assert_eq!(denied.status, if is_faulty { 409 } else { 200 }, "{}", denied.text());
        assert_eq!(denied.json()["error"] == "force_required", is_faulty, "{}", denied.text());
    }
}

#[test]
fn an_override_is_in_effect_with_the_answer() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let reason = |name: &str| gateway.get_domain(name, &key).expect(200).json()["reason"].clone();
    for n in 0..5 {
        let name = format!("bad-{n}.example.com");
        let path = format!("/overrides/{name}");
        assert_eq!(reason(&name), "safe");
        call_api(&gateway, "PUT", &path, &tokens.write, &json!({ "action": "deny" })).expect(200);
        assert_eq!(reason(&name), "disposable");
        call_api(&gateway, "DELETE", &path, &tokens.write, &Value::Null).expect(200);
        assert_eq!(reason(&name), "safe");
    }
}

#[test]
fn a_denial_that_needs_force_has_its_own_error() {
    let (setup, tokens) = AdminTokens::add_to(Setup::with_bundled_table());
    let gateway = setup.start();
    let deny =
        |body: Value| call_api(&gateway, "PUT", "/overrides/gmail.com", &tokens.write, &body);
    let refused = deny(json!({ "action": "deny" })).expect(409).json();
    assert_eq!(refused["error"], "force_required");
    deny(json!({ "action": "deny", "force": true })).expect(200);
}

#[test]
fn an_override_that_no_table_can_read_is_refused() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    for action in ["allow", "deny"] {
        for name in ["com", "xn--p1ai"] {
            let body = json!({ "action": action, "exact": true });
            let path = format!("/overrides/{name}");
            let refused = call_api(&gateway, "PUT", &path, &tokens.write, &body).expect(422);
            assert!(refused.text().contains("exact: expected an override that also covers"));
            let refused = gateway.cli(&["table", action, name, "--exact"]).expect(2).stderr;
            assert!(refused.contains("exact: expected an override that also covers"), "{refused}");
        }
    }
    let body = json!({ "action": "deny" });
    call_api(&gateway, "PUT", "/overrides/bad.example.com", &tokens.write, &body).expect(200);
    call_api(&gateway, "PUT", "/overrides/zw", &tokens.write, &body).expect(200);
}

#[test]
fn a_revocation_of_a_declared_key_is_recorded_as_a_revocation() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let (setup, tokens) = AdminTokens::add_to(setup);
        let file = setup.path("keys.toml");
        let key = |n: u32| {
            format!("[[key]]\nid = \"f{n}\"\naccount = \"acme\"\nhash = \"sha256:{n:064x}\"\n")
        };
        std::fs::write(&file, key(1) + &key(2)).unwrap();
        let setup = setup.set_text("keys.file", &file.display().to_string());
        setup.cli(&["store", "init"]).expect(0);
        let gateway = setup.start();
        let revoked = call_api(&gateway, "POST", "/keys/f1/revoke", &tokens.write, &Value::Null);
        assert_eq!(revoked.expect(200).json()["state"], "revoked");
        gateway.cli(&["keys", "revoke", "f2"]).expect(0);
        let mut operations = read_operations(&gateway);
        operations.retain(|(operation, _)| operation.starts_with("key."));
        let revocation = |id: &str| ("key.revoke".to_owned(), id.to_owned());
        assert_eq!(operations, [revocation("f1"), revocation("f2")]);
    }
}

#[test]
fn a_repeated_creation_works_after_a_change_of_the_prefix_and_of_the_plan() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let (setup, tokens) = AdminTokens::add_to(setup.set("plans.gold", "50"));
        setup.cli(&["store", "init"]).expect(0);
        let gateway = setup.start();
        let send = |path: &str, body: &Value, idempotency_key: &str| {
            api_request("POST", path, &tokens.write)
                .with_header("Content-Type", "application/json")
                .with_header("Idempotency-Key", idempotency_key)
                .body(&body.to_string())
                .send(gateway.admin)
        };
        let body = json!({ "account": "acme", "plan": "gold" });
        let first = send("/keys", &body, "one").expect(201).json();
        let rotate = format!("/keys/{}/rotate", first["id"].as_str().unwrap());
        let rotated = send(&rotate, &json!({}), "two").expect(201).json();
        gateway.cli(&["accounts", "set", "acme", "--plan", "business"]).expect(0);
        gateway.edit_config(|text| {
            text.replace("gold = 50\n", "") + "[keys]\nprefix = \"changed_\"\n"
        });
        let makes_new_prefix = || {
            let made =
                call_api(&gateway, "POST", "/keys", &tokens.write, &json!({ "account": "b" }));
            made.expect(201).json()["key"].as_str().unwrap().starts_with("changed_")
        };
        wait_until("the prefix has changed", makes_new_prefix);
        let again = send("/keys", &body, "one").expect(201).json();
        assert_eq!((&again["id"], &again["key"]), (&first["id"], &first["key"]));
        let again = send(&rotate, &json!({}), "two").expect(201).json();
        assert_eq!((&again["id"], &again["key"]), (&rotated["id"], &rotated["key"]));
    }
}

#[test]
fn a_name_that_clients_remove_from_paths_is_refused() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    for name in [".", ".."] {
        gateway.cli(&["keys", "create", "--account", name]).expect(2);
        gateway.cli(&["accounts", "set", name, "--limit", "5"]).expect(2);
        let body = json!({ "account": name });
        call_api(&gateway, "POST", "/keys", &tokens.write, &body).expect(422);
        let file = gateway.path("import.toml");
        let hash = format!("sha256:{:064x}", 7);
        let text = format!("[[key]]\nid = \"i\"\naccount = \"{name}\"\nhash = \"{hash}\"\n");
        std::fs::write(&file, text).unwrap();
        gateway.cli(&["keys", "import", &file.display().to_string()]).expect(78);
    }
    gateway.cli(&["keys", "create", "--account", "..."]).expect(0);
}

#[test]
fn an_imported_label_controls_no_terminal() {
    let setup = Setup::new();
    let file = setup.path("import.toml");
    let text = |label: &str| {
        let hash = format!("sha256:{:064x}", 7);
        format!("[[key]]\nid = \"i\"\naccount = \"a\"\nlabel = \"{label}\"\nhash = \"{hash}\"\n")
    };
    for label in ["\\u001b]0;owned\\u0007", "two\\nlines", "\\u009b2J"] {
        std::fs::write(&file, text(label)).unwrap();
        let refused = setup.cli(&["keys", "import", &file.display().to_string()]).expect(78);
        let place = format!("{}: keys.i.label: expected", file.display());
        assert!(refused.stderr.contains(&place), "{}", refused.stderr);
    }
    // A key file is read as it is, and a list escapes what it prints.
    std::fs::write(&file, text("\\u001b]0;owned\\u0007")).unwrap();
    let setup = setup.set_text("keys.file", &file.display().to_string());
    let listed = setup.cli(&["keys", "list"]).expect(0).stdout;
    assert!(listed.contains("\\u{1b}]0;owned\\u{7}"), "{listed}");
    assert!(!listed.contains('\u{1b}') && !listed.contains('\u{7}'), "{listed}");
}

#[test]
fn two_tokens_with_one_hash_are_refused() {
    let (setup, _) = AdminTokens::add_to(Setup::new());
    let hash = setup.toml().lines().find(|line| line.starts_with("hash = ")).unwrap().to_owned();
    let setup =
        setup.append_toml(&format!("[[admin.token]]\nname = \"twin\"\n{hash}\nscope = \"read\"\n"));
    let refused = setup.cli(&["check"]).expect(78);
    assert!(refused.stderr.contains("twin: expected a token of its own"), "{}", refused.stderr);
}

#[test]
fn a_request_with_two_lengths_changes_nothing() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    let body = "{\"account\":\"acme\"}";
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\ncontent-length: 18",
    ] {
        let mut connection = Connection::open(gateway.admin);
        let request = format!(
            "POST /api/v1/keys HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\n{fields}\r\n\r\n{chunked}",
            tokens.write
        );
        connection.send(request.as_bytes());
        assert_eq!(connection.read_response().unwrap().status, 400, "{fields}");
    }
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    assert_eq!(listed, json!([]));
}

#[test]
fn a_malformed_body_gets_an_answer() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    let mut connection = Connection::open(gateway.admin);
    let request = format!(
        "POST /api/v1/keys HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        tokens.write
    );
    connection.send(request.as_bytes());
    let answer = connection.read_response().unwrap();
    assert_eq!((answer.status, &*answer.text()), (400, "expected a well-formed body\n"));
}

#[test]
fn a_faulty_file_of_overrides_stops_no_change_of_the_store() {
    for is_default in [false, true] {
        let (setup, tokens) = AdminTokens::add_to(Setup::new().set("plans.free", "\"unlimited\""));
        let setup = if is_default { setup.unset("table.overrides") } else { setup };
        let file = setup.path(if is_default { "conf/overrides.csv" } else { "overrides.csv" });
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let gateway = setup.start();
        let key = gateway.create_active_key("acme", &[]);
        let reason =
            |name: &str| gateway.get_domain(name, &key).expect(200).json()["reason"].clone();
        let header = "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,\
                      mx_provider_label\n";
        std::fs::write(&file, format!("{header}a.example.com,everywhere,safe,0,,,\n")).unwrap();
        let fault = "overrides.csv:2: scope: expected exact or subtree";
        wait_until("riskgate reports it", || gateway.readyz().text().contains("\"table\""));
        let path = "/overrides/bad.example.com";
        let body = json!({ "action": "deny" });
        let changed = call_api(&gateway, "PUT", path, &tokens.write, &body).expect(200).json();
        assert!(changed["warnings"].to_string().contains(fault), "{changed}");
        assert_eq!(reason("bad.example.com"), "disposable");
        let listed = call_api(&gateway, "GET", "/overrides", &tokens.write, &Value::Null);
        assert_eq!(listed.expect(200).json()["items"][0]["domain"], "bad.example.com");
        let allowed = gateway.cli(&["table", "allow", "first.test"]).expect(0);
        assert!(allowed.stderr.contains("warning: ") && allowed.stderr.contains(fault));
        wait_until("it is allowed", || reason("first.test") == "safe");
        call_api(&gateway, "DELETE", path, &tokens.write, &Value::Null).expect(200);
        assert_eq!(reason("bad.example.com"), "safe");
        let cleared = gateway.cli(&["table", "clear", "first.test"]).expect(0).stderr;
        assert!(cleared.contains(fault), "{cleared}");
    }
}

#[test]
fn an_override_is_listed_with_the_fields_that_it_sets() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let rows = "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,\
                mx_provider_label\n\
                free.com,exact,,,true,,\nscored.com,subtree,,80,,false,Ours\n\
                plain.com,exact,,,,,-\ngood.com,subtree,safe,,,,\nrole.com,exact,role_account,90,,,\n";
    std::fs::write(setup.path("overrides.csv"), rows).unwrap();
    let gateway = setup.start();
    let listed = call_api(&gateway, "GET", "/overrides", &tokens.read, &Value::Null);
    let listed = listed.expect(200).json()["items"].take();
    let [free, company] = ["is_free_provider", "is_corporate_email"];
    let fields = ["action", "reason", "risk_score", free, company, "mx_provider_label"];
    let of_row = |row: &Value| fields.map(|name| row.get(name).expect(name).clone());
    let listed: Vec<[Value; 6]> = listed.as_array().unwrap().iter().map(of_row).collect();
    let row = |fields: Value| -> [Value; 6] { serde_json::from_value(fields).unwrap() };
    assert_eq!(
        listed,
        [
            row(json!(["set", null, null, true, null, null])),
            row(json!(["allow", "safe", null, null, null, null])),
            row(json!(["set", null, null, null, null, ""])),
            row(json!(["deny", "role_account", 90, null, null, null])),
            row(json!(["set", null, 80, null, false, "Ours"])),
        ]
    );
}
