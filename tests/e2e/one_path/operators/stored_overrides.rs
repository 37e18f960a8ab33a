//! Overrides in the store: in effect on all its nodes, kept while it is down, and taken over from
//! the default file of earlier versions.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::admin_api::{AdminTokens, call_api};
use super::audit::read_records;
use crate::harness::{Gateway, Setup, wait_until};
use crate::redis_server::RedisServer;

/// How soon an override is in effect on all nodes of a store.
const MAX_SPREAD_TIME: Duration = Duration::from_secs(2);
const FILE: &str = "\
domain,scope,reason,risk_score,is_free_provider,is_corporate_email,mx_provider_label
one.com,subtree,disposable,100,,,
two.com,exact,,,true,,
three.com,exact,disposable,100,,,
";

fn reason(gateway: &Gateway, key: &str, name: &str) -> Value {
    gateway.get_domain(name, key).expect(200).json()["reason"].clone()
}

fn is_denied(gateway: &Gateway, key: &str, name: &str) -> bool {
    reason(gateway, key, name) == "disposable"
}

#[test]
fn overrides_are_in_effect_at_once_here_and_within_two_seconds_on_other_nodes() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server).set("plans.free", "\"unlimited\"");
    let (setup, tokens) = AdminTokens::add_to(setup);
    setup.cli(&["store", "init"]).expect(0);
    let gateway = setup.start();
    let other = Setup::new().with_redis(&server).set("plans.free", "\"unlimited\"").start();
    let key = gateway.create_active_key("acme", &[]);
    wait_until("both know the key", || other.get("/v1/usage", &key).status == 200);
    let wait_for_both = |name: &str, is_wanted: bool, began: Instant| {
        assert_eq!(is_denied(&gateway, &key, name), is_wanted, "at once on the node that answered");
        while is_denied(&other, &key, name) != is_wanted {
            assert!(began.elapsed() < MAX_SPREAD_TIME, "{name}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for n in 0..3 {
        let name = format!("bad-{n}.example.com");
        let path = format!("/overrides/{name}");
        let (began, body) = (Instant::now(), json!({ "action": "deny", "note": "seen" }));
        call_api(&gateway, "PUT", &path, &tokens.write, &body).expect(200);
        wait_for_both(&name, true, began);
        let listed = call_api(&gateway, "GET", "/overrides", &tokens.write, &Value::Null);
        let listed = listed.expect(200).json()["items"][0].clone();
        assert_eq!((&listed["source"], &listed["note"]), (&json!("store"), &json!("seen")));
        assert!(listed["author"].is_string() && listed["created_at"].is_string(), "{listed}");
        let began = Instant::now();
        call_api(&gateway, "DELETE", &path, &tokens.write, &Value::Null).expect(200);
        wait_for_both(&name, false, began);
    }
    let copy = gateway.path("copy.db");
    gateway.cli(&["table", "deny", "kept.example.com"]).expect(0);
    let saved = gateway.cli(&["store", "backup", copy.to_str().unwrap(), "--json"]).expect(0);
    assert_eq!(saved.json()["overrides"], 1);
    let restored = Setup::new();
    restored.cli(&["store", "restore", copy.to_str().unwrap()]).expect(0);
    let printed = restored.cli(&["table", "lookup", "kept.example.com"]).expect(0).stdout;
    assert!(printed.contains("list     overrides of the store"), "{printed}");
}

#[test]
fn a_search_finds_an_international_name_in_both_forms() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    let names =
        ["xn--bcher-kva.de", "xn--bcher-kva.example.com", "other.de", "xn--pxavbq.example.com"];
    for name in names {
        let (path, body) = (format!("/overrides/{name}"), json!({ "action": "deny" }));
        call_api(&gateway, "PUT", &path, &tokens.write, &body).expect(200);
    }
    let find = |text: &str| {
        let path = format!("/overrides?search={text}");
        let found = call_api(&gateway, "GET", &path, &tokens.read, &Value::Null).expect(200).json();
        found["items"].as_array().unwrap().len()
    };
    // "BÜcher" and "bücher.de", as a URL has them.
    assert_eq!(["B%C3%9Ccher", "b%C3%BCcher.de", "xn--BCHER", "de"].map(find), [2, 1, 2, 2]);
    // The search is mapped as a name is: "bücher" with a combining mark, "ΟΔΟΣ", which ends in
    // another small letter at the end of a word, and parts of a name.
    let mapped = ["bu%CC%88cher", "%CE%9F%CE%94%CE%9F%CE%A3", "%CE%A3.Example", ".D", "--"];
    assert_eq!(mapped.map(find), [2, 1, 1, 2, 3]);
}

#[test]
fn the_last_good_overrides_stay_while_the_store_is_down() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server).set("plans.free", "\"unlimited\"");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.cli(&["table", "deny", "bad.example.com"]).expect(0);
    wait_until("it is denied", || is_denied(&gateway, &key, "bad.example.com"));
    let says_so = || gateway.readyz().text().contains("overrides");
    assert!(!says_so());
    server.pause();
    wait_until("the fault is told", says_so);
    assert!(is_denied(&gateway, &key, "bad.example.com"));
    server.resume();
    wait_until("the fault has ended", || !says_so());
    server.run(&["HDEL", "riskgate:{ring}:overrides", "bad.example.com subtree"]);
    wait_until("the loss is told", says_so);
    assert!(is_denied(&gateway, &key, "bad.example.com"), "lost rows stay in force here");
    gateway.cli(&["table", "deny", "worse.example.com"]).expect(0);
    wait_until("what the operator writes ends the fault", || !says_so());
    wait_until("what the store has counts again", || !is_denied(&gateway, &key, "bad.example.com"));
    assert!(is_denied(&gateway, &key, "worse.example.com"));
    server.run(&["FLUSHALL"]);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(is_denied(&gateway, &key, "worse.example.com"), "an empty server changes nothing");
}

/// A setup whose default file of overrides has the rows of [`FILE`], as earlier versions wrote it.
fn setup_with_default_file(setup: Setup) -> Setup {
    let setup = setup.unset("table.overrides").set("plans.free", "\"unlimited\"");
    let file = setup.path("conf/overrides.csv");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, FILE).unwrap();
    setup
}

fn take_over_records(gateway: &Gateway) -> Vec<Value> {
    let mut records = read_records(gateway);
    records.retain(|record| record["operation"] == "override.take_over");
    records
}

#[test]
fn rows_of_the_default_file_are_taken_over_once() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let setup = setup_with_default_file(setup);
        setup.cli(&["store", "init"]).expect(0);
        let gateway = setup.start();
        let key = gateway.create_active_key("acme", &[]);
        assert!(is_denied(&gateway, &key, "one.com"), "from the beginning");
        wait_until("the rows are taken over", || !take_over_records(&gateway).is_empty());
        let path = gateway.path("conf/overrides.csv");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), FILE, "the file stays as it was");
        assert!(is_denied(&gateway, &key, "one.com"));
        assert_eq!(gateway.get_domain("two.com", &key).json()["is_free_provider"], true);
        gateway.cli(&["table", "clear", "one.com"]).expect(0);
        wait_until("it is cleared", || !is_denied(&gateway, &key, "one.com"));
        let gateway = gateway.restart();
        assert!(!is_denied(&gateway, &key, "one.com"));
        assert!(is_denied(&gateway, &key, "three.com"));
        std::fs::write(&path, FILE.replace("one.com", "late.com")).unwrap();
        let is_told = || gateway.readyz().text().contains("another text, which is not read");
        wait_until("the edited file is told", is_told);
        assert!(!is_denied(&gateway, &key, "late.com"));
        let records = take_over_records(&gateway);
        assert_eq!(records.len(), 1, "{records:?}");
        assert_eq!(records[0]["after"]["rows_in_file"], 3);
        assert_eq!(records[0]["via"], "riskgate");
    }
}

#[test]
fn a_kill_during_the_take_over_loses_no_override() {
    let server = RedisServer::start();
    let setup = setup_with_default_file(Setup::new().with_redis(&server));
    setup.cli(&["store", "init"]).expect(0);
    let key = setup.cli(&["keys", "create", "--account", "acme"]).expect(0).stdout;
    let (key, mut setup) = (key.trim().to_owned(), setup);
    for delay in [0, 60, 150, 250, 400, 700] {
        let mut gateway = setup.start();
        assert!(is_denied(&gateway, &key, "one.com"), "{delay}");
        std::thread::sleep(Duration::from_millis(delay));
        gateway.kill();
        setup = gateway.into_setup();
    }
    let gateway = setup.start();
    assert!(is_denied(&gateway, &key, "one.com"));
    wait_until("the rows are taken over", || !take_over_records(&gateway).is_empty());
    assert_eq!(take_over_records(&gateway).len(), 1);
    let stored = server.run(&["HLEN", "riskgate:{ring}:overrides"]);
    assert_eq!(stored.trim(), "3");
}

#[test]
fn a_store_with_an_override_that_cannot_be_read_is_not_copied_until_it_is_cleared() {
    let server = RedisServer::start();
    for (setup, is_server) in [(Setup::new(), false), (Setup::new().with_redis(&server), true)] {
        setup.cli(&["store", "init"]).expect(0);
        setup.cli(&["table", "deny", "bad.example.com"]).expect(0);
        let good = setup.path("good.db").display().to_string();
        setup.cli(&["store", "backup", &good]).expect(0);
        let damage = |path: &str| {
            let store = rusqlite::Connection::open(path).unwrap();
            store.execute("UPDATE domain_override SET author = 'x'", []).unwrap();
        };
        match is_server {
            true => {
                let overrides = "riskgate:{ring}:overrides";
                server.run(&["HSET", overrides, "bad.example.com subtree", "garbage"]);
            }
            false => damage(&setup.path("riskgate.db").display().to_string()),
        }
        let named = "expected rows that can be read, but found another for bad.example.com";
        let saved = setup.path("saved.db").display().to_string();
        let refused = setup.cli(&["store", "backup", &saved]).expect(1).stderr;
        assert!(refused.contains(named), "{refused}");
        assert!(!setup.path("saved.db").exists());
        setup.cli(&["table", "clear", "bad.example.com"]).expect(0);
        setup.cli(&["store", "backup", &saved]).expect(0);
        setup.cli(&["table", "clear", "bad.example.com"]).expect(1);
        damage(&good);
        let refused = Setup::new().cli(&["store", "restore", &good]).expect(1).stderr;
        assert!(refused.contains(named), "{refused}");
    }
}
