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

#[test]
fn an_override_that_does_not_serve_is_told() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let manifest = setup.lists().path.join("manifest.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let text = text.replace("max_changed_share = 1.0", "max_changed_share = 0.3");
    std::fs::write(&manifest, text).unwrap();
    let gateway = setup.start();
    gateway.create_active_key("acme", &[]);
    let many: String = (0..100).map(|n| format!("new-{n}.test\n")).collect();
    gateway.lists().replace_by_rename("disposable.txt", &many);
    wait_until("the table is refused", || gateway.readyz().text().contains("\"table\""));
    let path = "/overrides/bad.example.com";
    for (method, body) in [("PUT", json!({ "action": "deny" })), ("DELETE", Value::Null)] {
        let answer = call_api(&gateway, method, path, &tokens.write, &body).expect(409);
        assert!(answer.text().contains("is written and recorded"), "{}", answer.text());
        assert!(answer.text().contains("max_changed_share"), "{}", answer.text());
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
