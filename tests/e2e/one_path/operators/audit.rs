//! The audit: each change has exactly one record, whoever makes it, and whenever the process is
//! killed.

mod audit_path;
mod edited_files;
mod replay;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Gateway, Setup, wait_for, wait_until};
use crate::one_path::operators::admin_api::{AdminTokens, api_request, call_api};
use crate::redis_server::RedisServer;

/// The records, the oldest first.
pub(super) fn read_records(gateway: &Gateway) -> Vec<Value> {
    let lines = gateway.cli(&["audit", "--json", "--limit", "10000"]).expect(0).stdout;
    lines.lines().rev().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn read_operations(gateway: &Gateway) -> Vec<String> {
    let text = |record: &Value, name: &str| record[name].as_str().unwrap().to_owned();
    let name = |record| {
        format!("{} {} {}", text(record, "via"), text(record, "operation"), text(record, "target"))
    };
    read_records(gateway).iter().map(name).collect()
}

#[test]
fn a_successor_that_never_serves_records_nothing() {
    let gateway = Setup::new().start();
    gateway.create_active_key("acme", &[]);
    let before = read_records(&gateway).len();
    let mut successor = gateway.spawn_successor_with(&[("RISKGATE__CHECK__ANSWER", "table")]);
    successor.wait_until_ready();
    successor.kill();
    gateway.cli(&["accounts", "set", "acme", "--limit", "7"]).expect(0);
    assert_eq!(read_records(&gateway).len(), before + 1);
}

#[test]
fn the_command_finds_a_record_behind_fifty_thousand_others() {
    let setup = Setup::new();
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let store = rusqlite::Connection::open(setup.path("riskgate.db")).unwrap();
    let author = r#"{"actor":"a","via":"cli","from":"b"}"#;
    let fill = "WITH RECURSIVE numbers(n) AS
             (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 60000)
         INSERT INTO audit (at, author, operation, target, before, after)
         SELECT at, ?1, 'account.set', n, 'null', 'null' FROM numbers, audit LIMIT 60000";
    assert_eq!(store.execute(fill, [author]).unwrap(), 60_000);
    let words = ["audit", "--json", "--operation", "key.create", "--limit", "1"];
    let found = setup.cli(&words).expect(0).stdout;
    assert_eq!(found.lines().count(), 1, "{found}");
    let all = setup.cli(&["audit", "--json", "--limit", "60001"]).expect(0).stdout;
    assert_eq!(all.lines().count(), 60_001);
}

#[test]
fn commands_and_the_api_leave_one_record_for_each_change() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let file = setup.path("audit.jsonl");
    let gateway = setup.set_text("audit.path", &file.display().to_string()).start();
    let made = gateway.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    let id = made["id"].as_str().unwrap();
    gateway.cli(&["accounts", "set", "acme", "--limit", "7"]).expect(0);
    gateway.cli(&["table", "deny", "bad.example.com"]).expect(0);
    call_api(&gateway, "POST", &format!("/keys/{id}/revoke"), &tokens.write, &Value::Null)
        .expect(200);
    let page = api_request("DELETE", "/overrides/bad.example.com", &tokens.write);
    page.with_header("X-Riskgate-Client", "page").send(gateway.admin).expect(200);
    let expected = [
        format!("cli key.create {id}"),
        "cli account.set acme".to_owned(),
        "cli override.set bad.example.com".to_owned(),
        format!("api key.revoke {id}"),
        "page override.clear bad.example.com".to_owned(),
    ];
    assert_eq!(read_operations(&gateway), expected);
    let records = read_records(&gateway);
    assert_eq!(records[1]["before"], json!({ "plan": null, "own_limit": null }));
    assert_eq!(records[1]["after"], json!({ "plan": null, "own_limit": 7 }));
    assert_eq!((&records[3]["actor"], &records[3]["from"]), (&json!("ops"), &json!("127.0.0.1")));
    assert_eq!(records[3]["before"]["revoked_at"], Value::Null);
    let written = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("the file has all records", || written().lines().count() == expected.len());
    let lines: Vec<Value> =
        written().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, records);
    let secret = made["key"].as_str().unwrap();
    assert!(!written().contains(secret) && !format!("{records:?}").contains(secret));
    let gateway = gateway.crash_and_restart();
    gateway.cli(&["accounts", "set", "acme", "--limit", "8"]).expect(0);
    // If another test has taken a port meanwhile, the gateway gets another one: a change of config.
    let changes = || written().lines().filter(|line| !line.contains("config.change")).count();
    wait_until("the file goes on", || changes() == expected.len() + 1);
}

#[test]
fn an_edited_file_is_recorded_also_if_it_was_edited_while_no_gateway_ran() {
    let setup = Setup::new().set("plans.pro", "1000");
    let keys = setup.path("keys.toml");
    let declare = |numbers: &[u32]| {
        let key = |n: &u32| {
            format!("[[key]]\nid = \"f{n}\"\naccount = \"acme\"\nhash = \"sha256:{n:064x}\"\n")
        };
        std::fs::write(&keys, numbers.iter().map(key).collect::<String>()).unwrap();
    };
    declare(&[0]);
    let gateway = setup.set_text("keys.file", &keys.display().to_string()).start();
    let find = |gateway: &Gateway, operation: &str, named: &str| {
        let found = |record: &&Value| {
            record["operation"] == operation && record["after"].to_string().contains(named)
        };
        read_records(gateway).iter().find(found).cloned()
    };
    // The states that a gateway finds first are no changes.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(read_records(&gateway), Vec::<Value>::new());
    gateway.edit_config(|text| text.replace("pro = 1000", "pro = 2000"));
    let record = wait_for("the change of the config", || find(&gateway, "config.change", "2000"));
    assert_eq!(record["before"], json!({ "plans.pro": "1000" }));
    assert_eq!(record["after"], json!({ "plans.pro": "2000" }));
    assert_eq!(record["via"], "file");
    declare(&[0, 1]);
    wait_for("the change of the key file", || find(&gateway, "key_file.change", "f1"));
    let overrides = "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,\
                     mx_provider_label\nbad.test,subtree,disposable,100,,,\n";
    std::fs::write(gateway.path("overrides.csv"), overrides).unwrap();
    wait_for("the change of the overrides", || find(&gateway, "override_file.change", "bad.test"));
    let setup = gateway.shut_down();
    declare(&[0]);
    let gateway = setup.start();
    let was_removed = |gateway: &Gateway| {
        let records = read_records(gateway);
        records.iter().any(|it| {
            it["operation"] == "key_file.change" && it["before"].to_string().contains("f1")
        })
    };
    wait_until("the change that happened meanwhile", || was_removed(&gateway));
    // The harness gives each gateway other ports.
    let others = |gateway: &Gateway| {
        let mut records = read_records(gateway);
        records.retain(|record| record["operation"] != "config.change");
        records
    };
    let before = others(&gateway);
    let gateway = gateway.restart();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(others(&gateway), before, "each change is recorded once");
}

#[test]
fn a_change_without_its_record_does_not_happen() {
    let server = RedisServer::start();
    let (gateway, tokens) = AdminTokens::start_on_redis(&server);
    let key = gateway.create_active_key("acme", &[]);
    // The records can't be written any more.
    server.run(&["DEL", "riskgate:{ring}:audit"]);
    server.run(&["SET", "riskgate:{ring}:audit", "no stream"]);
    let refused = call_api(&gateway, "POST", "/keys", &tokens.write, &json!({ "account": "acme" }));
    assert_eq!(refused.status, 503, "{}", refused.text());
    gateway.cli(&["accounts", "set", "acme", "--limit", "0"]).expect(1);
    gateway.cli(&["table", "deny", "first.test"]).expect(1);
    let overrides = server.run(&["EXISTS", "riskgate:{ring}:overrides"]);
    assert_eq!(overrides.trim(), "0");
    gateway.get_domain("first.test", &key).expect(200);
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    server.run(&["DEL", "riskgate:{ring}:audit"]);
    call_api(&gateway, "POST", "/keys", &tokens.write, &json!({ "account": "acme" })).expect(201);
}

/// Kills the gateway at a hundred moments while it makes changes. Then each change must be there
/// with its record, or neither.
#[test]
fn a_kill_at_any_moment_leaves_a_change_whole_or_not_at_all() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let (setup, tokens) = AdminTokens::add_to(setup);
        setup.cli(&["store", "init"]).expect(0);
        let mut gateway = setup.start();
        for round in 0..12u64 {
            let admin = gateway.admin;
            let token = tokens.write.clone();
            let answered = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&answered);
            let writer = std::thread::spawn(move || {
                for n in 0..200 {
                    let name = format!("{round}-{n}");
                    let body = json!({ "account": format!("account-{name}"), "plan": "pro" });
                    let request = api_request("POST", "/keys", &token)
                        .with_header("Content-Type", "application/json")
                        .body(&body.to_string());
                    let mut connection = match crate::harness::Connection::try_open(admin) {
                        Some(connection) => connection,
                        None => return,
                    };
                    if connection.try_send_request(&request).is_none() {
                        return;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            wait_until("some keys are made", || answered.load(Ordering::Relaxed) > round);
            gateway.kill();
            writer.join().unwrap();
            gateway = gateway.start_after_exit();
        }
        let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
        let keys = listed.as_array().unwrap();
        let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
        let ids: BTreeSet<String> = keys.iter().map(|key| text(key, "id")).collect();
        assert!(
            keys.iter().all(|key| key["plan"] == "pro"),
            "no key without the plan of its account"
        );
        let records = read_records(&gateway);
        let created = records.iter().filter(|record| record["operation"] == "key.create");
        let recorded: Vec<String> = created.map(|record| text(record, "target")).collect();
        assert!(ids.len() > 12, "{}", ids.len());
        assert_eq!(recorded.len(), ids.len(), "each key has one record");
        assert_eq!(recorded.into_iter().collect::<BTreeSet<_>>(), ids);
    }
}
