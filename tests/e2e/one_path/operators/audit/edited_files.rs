//! Each edit of a file that riskgate reads has its record, whatever the edit changes, and a record
//! has its change.

use serde_json::{Value, json};

use super::read_records;
use crate::harness::{Gateway, Setup, wait_for, wait_until};
use crate::one_path::operators::admin_api::{AdminTokens, call_api};
use crate::redis_server::RedisServer;

fn count(gateway: &Gateway, operation: &str) -> usize {
    read_records(gateway).iter().filter(|record| record["operation"] == operation).count()
}

/// Waits until there is one more record of this operation than before, and returns the record.
#[track_caller]
fn next_record(gateway: &Gateway, operation: &str, before: usize) -> Value {
    wait_for("the record of the change", || {
        let records = read_records(gateway);
        let mut found = records.into_iter().filter(|record| record["operation"] == operation);
        found.nth(before)
    })
}

#[test]
fn an_edit_while_the_gateway_is_stopped_is_recorded_in_a_copied_store_too() {
    let gateway = Setup::new().start();
    gateway.create_active_key("acme", &[]);
    std::thread::sleep(std::time::Duration::from_millis(1_000));
    let (from, to) = (gateway.path("riskgate.db"), gateway.path("copy.db"));
    let [from, to] = [from, to].map(|path| format!("sqlite:{}", path.display()));
    let setup = gateway.shut_down();
    setup.cli(&["store", "copy", &from, &to]).expect(0);
    let gateway = setup.set_text("store.url", &to).set("top.limit", "77").start();
    let record = next_record(&gateway, "config.change", 0);
    assert_eq!(record["after"]["top.limit"], "77", "{record}");
    assert!(record["after"]["store.url"].to_string().contains("copy.db"), "{record}");
}

#[test]
fn every_change_of_a_declared_key_is_recorded() {
    let setup = Setup::new();
    let file = setup.path("keys.toml");
    let write = |digest: u32, more: &str| {
        let text = format!(
            "[[key]]\nid = \"f1\"\naccount = \"acme\"\nhash = \"sha256:{digest:064x}\"\n{more}"
        );
        std::fs::write(&file, text).unwrap();
    };
    write(1, "");
    let gateway = setup.set_text("keys.file", &file.display().to_string()).start();
    let revoked = "revoked = \"2026-01-02T00:00:00Z\"\n";
    let edits: [(&str, u32, &str); 6] = [
        ("another key under the same id", 2, ""),
        ("a revocation", 2, revoked),
        ("a removed revocation", 2, ""),
        ("a time of creation", 2, "created = \"2026-01-01T00:00:00Z\"\n"),
        (
            "another origin",
            2,
            "created = \"2026-01-01T00:00:00Z\"\norigins = [\"https://a.com\"]\n",
        ),
        ("a plan", 2, "plan = \"pro\"\n"),
    ];
    wait_until("the first state is known", || {
        gateway.cli(&["audit", "--json"]).expect(0);
        std::fs::metadata(gateway.path("riskgate.db")).is_ok()
    });
    std::thread::sleep(std::time::Duration::from_millis(700));
    for (at, (what, digest, more)) in edits.into_iter().enumerate() {
        write(digest, more);
        let record = next_record(&gateway, "key_file.change", at);
        assert_ne!(record["before"], record["after"], "{what}");
        assert!(!record.to_string().contains(&format!("{digest:064x}")), "no record has a digest");
    }
}

#[test]
fn a_take_over_records_no_change_that_the_serving_process_recorded() {
    let mut gateway = Setup::new().set("plans.free", "10").start();
    let list = gateway.path("lists/disposable.txt");
    let edit_list = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&list).unwrap();
        std::fs::write(&list, text.replacen(from, to, 1)).unwrap();
    };
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    gateway.edit_config(|text| text.replace("free = 10", "free = 20"));
    next_record(&gateway, "config.change", 0);
    edit_list("=exact.test", "=other.test");
    next_record(&gateway, "table.change", 0);
    // By then, the successor has read the list too.
    std::thread::sleep(std::time::Duration::from_secs(3));
    gateway.send_signal("QUIT");
    gateway.replace_process(successor);
    gateway.edit_config(|text| text.replace("free = 20", "free = 30"));
    let record = next_record(&gateway, "config.change", 1);
    assert_eq!(record["after"], json!({ "plans.free": "30" }), "{record}");
    edit_list("=other.test", "=third.test");
    let record = next_record(&gateway, "table.change", 1);
    // A false record would say that the first edit was undone, before this one.
    let of_last_edit = crate::harness::wait_for("the list is read", || {
        let records = read_records(&gateway);
        (count(&gateway, "table.change") >= 2).then(|| records.last().unwrap().clone())
    });
    assert_eq!(record, of_last_edit);
}

#[test]
fn every_change_of_the_lists_is_recorded() {
    let gateway = Setup::new().start();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let lists = gateway.path("lists");
    let edit = |file: &str, from: &str, to: &str| {
        let path = lists.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}: {text}");
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    let edits = [
        ("disposable.txt", "=exact.test", "=other.test"),
        ("manifest.toml", "max_changed_share = 1.0", "max_changed_share = 0.9"),
        ("protected.txt", "safe-corp.com", "other-corp.com"),
    ];
    for (at, (file, from, to)) in edits.into_iter().enumerate() {
        edit(file, from, to);
        let record = next_record(&gateway, "table.change", at);
        assert!(record["after"].to_string().contains(file), "{record}");
        assert_ne!(record["before"], record["after"]);
        assert_eq!(record["via"], "file", "{record}");
        assert!(record["actor"].as_str().unwrap().starts_with("owner uid "), "{record}");
    }
}

#[test]
fn an_entry_of_an_array_is_recorded_by_its_name() {
    let route = |prefix: &str| format!("[[upstream.route]]\nprefix = \"{prefix}\"\nkey = false\n");
    let setup = Setup::new().append_toml(&format!("{}{}", route("/one"), route("/two")));
    let (setup, _tokens) = AdminTokens::add_to(setup);
    let gateway = setup.start();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let without_first_token = |text: &str| {
        let tokens: Vec<&str> = text.split("[[admin.token]]").collect();
        text.replacen(&format!("[[admin.token]]{}", tokens[1]), "", 1)
    };
    gateway.edit_config(|text| without_first_token(&text).replacen(&route("/one"), "", 1));
    let record = next_record(&gateway, "admin_token.change", 0);
    let before = record["before"].as_object().unwrap();
    assert!(before.keys().all(|name| name.starts_with("admin.token \"ops\": ")), "{record}");
    assert_eq!(before["admin.token \"ops\": scope"], "\"write\"", "{record}");
    assert_eq!(record["after"], json!({}), "{record}");
    let record = next_record(&gateway, "config.change", 0);
    let before = record["before"].as_object().unwrap();
    assert!(before.keys().all(|name| name.starts_with("upstream.route \"/one\": ")), "{record}");
    assert_eq!(record["after"], json!({}), "{record}");
}

#[test]
fn every_part_of_an_address_in_the_config_is_recorded_and_no_secret() {
    let setup = Setup::new()
        .set_text("webhook.url", "https://93.184.216.34/hooks/first")
        .set_text("webhook.secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let gateway = setup.start();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let changes = [
        ("/hooks/first", "/hooks/second", "second"),
        ("https://93", "https://user:pass-word-1@93", "pass-word-1"),
        ("user:pass-word-1@", "user:pass-word-2@", "pass-word-2"),
        ("user:", "other-user:", "other-user"),
    ];
    for (before, (from, to, secret)) in (count(&gateway, "config.change")..).zip(changes) {
        gateway.edit_config(|text| text.replace(from, to));
        let record = next_record(&gateway, "config.change", before);
        assert_ne!(record["before"], record["after"]);
        assert!(record["after"].to_string().contains("webhook.url"), "{record}");
        assert!(!record.to_string().contains(secret), "{record}");
    }
}

#[test]
fn a_change_and_its_undoing_while_the_store_is_down_have_two_records() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server).set("plans.pro", "1000");
    setup.cli(&["store", "init"]).expect(0);
    let gateway = setup.start();
    gateway.create_active_key("acme", &[]);
    std::thread::sleep(std::time::Duration::from_millis(700));
    server.pause();
    for (from, to) in [("pro = 1000", "pro = 2000"), ("pro = 2000", "pro = 1000")] {
        let reloads = || gateway.sum_of_samples("riskgate_reloads_total", &["part=\"config\""]);
        let before = reloads();
        gateway.edit_config(|text| text.replace(from, to));
        wait_until("the change is in force", || reloads() > before);
        let is_waiting = || gateway.readyz().text().contains("expected to record changes");
        wait_until("the change waits for the store", is_waiting);
    }
    server.resume();
    wait_until("both changes are recorded", || count(&gateway, "config.change") >= 2);
    let records = read_records(&gateway);
    let changes = records.iter().filter(|record| record["operation"] == "config.change");
    let plans: Vec<(Value, Value)> =
        changes.map(|record| (record["before"].clone(), record["after"].clone())).collect();
    let (low, high) = (json!({ "plans.pro": "1000" }), json!({ "plans.pro": "2000" }));
    assert_eq!(plans, [(low.clone(), high.clone()), (high, low)]);
}

#[test]
fn an_override_that_a_hanging_server_did_not_record_leaves_no_record() {
    let server = RedisServer::start();
    let (gateway, tokens) = AdminTokens::start_on_redis(&server);
    gateway.create_active_key("acme", &[]);
    call_api(
        &gateway,
        "PUT",
        "/overrides/kept.example.com",
        &tokens.write,
        &json!({ "action": "deny" }),
    )
    .expect(200);
    server.pause();
    let body = json!({ "action": "deny" });
    let refused = call_api(&gateway, "PUT", "/overrides/bad.example.com", &tokens.write, &body);
    assert_eq!(refused.status, 503, "{}", refused.text());
    gateway.cli(&["table", "deny", "worse.example.com"]).expect(1);
    server.resume();
    wait_until("the store answers", || gateway.cli(&["audit"]).exit_code == 0);
    let rows = server.run(&["HKEYS", "riskgate:{ring}:overrides"]);
    assert!(!rows.contains("bad.example.com") && !rows.contains("worse.example.com"), "{rows}");
    let body = json!({ "action": "allow" });
    wait_until("overrides work again", || {
        call_api(&gateway, "PUT", "/overrides/last.example.com", &tokens.write, &body).status == 200
    });
    let operations: Vec<(Value, Value)> = read_records(&gateway)
        .iter()
        .map(|record| (record["operation"].clone(), record["target"].clone()))
        .filter(|(operation, _)| operation.as_str().unwrap().starts_with("override"))
        .collect();
    assert_eq!(
        operations,
        [
            (json!("override.set"), json!("kept.example.com")),
            (json!("override.set"), json!("last.example.com")),
        ]
    );
}

#[test]
fn two_processes_with_one_config_file_record_no_false_changes() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server);
    setup.cli(&["store", "init"]).expect(0);
    let first = setup.start();
    let run = first.path("run-2").display().to_string();
    let config = first.path("riskgate.toml").display().to_string();
    let start_second = |limit: &str| {
        let mut command = std::process::Command::new(crate::harness::BINARY);
        command.args(["run", "-c", &config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.2:0"]);
        command.env("RISKGATE__PROCESS__RUNTIME_DIR", &run);
        command.env("RISKGATE__PLANS__PRO", limit);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let states = || server.run(&["HKEYS", "riskgate:{ring}:sources"]);
    wait_until("the first process has recorded its state", || states().contains("config"));
    let mut second = start_second("77");
    wait_until("the second process has recorded its state", || states().contains("127.0.0.2"));
    // Both read the changed file.
    first.edit_config(|text| format!("{text}\n[plans]\nstarter = 7\n"));
    let record = next_record(&first, "config.change", 0);
    assert_eq!(record["after"], json!({ "plans.starter": "7" }));
    std::thread::sleep(std::time::Duration::from_secs(2));
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(count(&first, "config.change"), 1, "{:?}", read_records(&first));
    // What a process has beside the file is a source of its own.
    let mut second = start_second("78");
    let record = next_record(&first, "config.change", 1);
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(record["after"], json!({ "plans.pro": "78" }));
}

#[test]
fn another_inbox_secret_in_the_file_is_recorded_without_the_secret() {
    let setup = Setup::new();
    let file = setup.path("secret");
    let [first, second] = ["1", "2"].map(|digit| digit.repeat(64));
    std::fs::write(&file, &first).unwrap();
    let gateway = setup.set_text("inbox.secret_file", &file.display().to_string()).start();
    // The record says what has changed since the state before, which has to be known.
    std::thread::sleep(std::time::Duration::from_millis(1_000));
    let before = count(&gateway, "config.change");
    std::fs::write(&file, &second).unwrap();
    let record = next_record(&gateway, "config.change", before);
    let [old, new] =
        ["before", "after"].map(|side| record[side]["inbox.secret_file"].as_str().unwrap());
    assert_ne!(old, new, "{record}");
    assert!(!record.to_string().contains(&second[..8]), "{record}");
}
