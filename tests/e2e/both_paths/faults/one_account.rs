//! A fault in one account or key affects only that account or key. riskgate serves all others, and
//! still applies changes of keys.

use crate::harness::{Gateway, Setup, get, wait_until};
use crate::redis_server::RedisServer;

const USAGE_TARGET: &str = "/v1/usage";
const DOMAIN: &str = "/v1/public/domain/first.test";

/// A setup with a long deadline, so that no call fails because the machine is loaded.
fn setup_with_long_deadline(server: &RedisServer) -> Setup {
    Setup::new().with_redis(server).set_text("store.deadline", "5s")
}

fn usage_status(gateway: &Gateway, key: &str) -> u16 {
    gateway.get(USAGE_TARGET, key).status
}

fn degraded_reasons(gateway: &Gateway) -> String {
    gateway.readyz().json()["degraded"].to_string()
}

/// Every call of the account gets a 500 on every route that needs a key.
#[track_caller]
fn assert_fail_open_500s(gateway: &Gateway, key: &str) {
    for target in [USAGE_TARGET, DOMAIN, "/v1/check/first.test"] {
        let refused = gateway.get(target, key).expect(500);
        assert_eq!(refused.header("X-Fail-Open"), Some("true"), "{target}");
        assert_eq!(refused.json()["error"], "internal_error", "{target}");
    }
    let browser = get(USAGE_TARGET).key(key).with_header("Origin", "https://app.example.com");
    let seen = gateway.send_request(&browser).expect(500);
    assert_eq!(seen.header("Access-Control-Allow-Origin"), Some("https://app.example.com"));
}

#[test]
fn an_account_with_an_unknown_plan_gets_500s_and_other_accounts_are_served() {
    let server = RedisServer::start();
    let gateway = setup_with_long_deadline(&server).start();
    let key = gateway.create_active_key("acme", &["--plan", "pro"]);
    let (other, other_id) = gateway.create_active_key_with_id("other", &[]);
    // Another node has a plan that this node's config lacks.
    let newer = setup_with_long_deadline(&server).set("plans.free", "100").set("plans.gold", "7");
    newer.cli(&["accounts", "set", "acme", "--plan", "gold"]).expect(0);
    let unknown = "keys: account acme: expected one of the plans business, free, pro, starter";
    wait_until("/readyz reports the plan", || degraded_reasons(&gateway).contains(unknown));
    assert_eq!(gateway.sum_of_samples("riskgate_reload_failing", &["part=\"keys\""]), 1.0);
    let reported = || gateway.stderr().matches("expected one of the plans").count();
    wait_until("standard error reports the plan", || reported() >= 1);
    assert_eq!(reported(), 1, "it is reported once: {}", gateway.stderr());
    assert_fail_open_500s(&gateway, &key);
    gateway.cli(&["keys", "revoke", &other_id]).expect(0);
    wait_until("a key of another account is refused", || usage_status(&gateway, &other) == 401);
    let later = gateway.create_active_key("another", &["--plan", "free"]);
    // A node can start with this fault, and `check` reports it.
    let gateway = gateway.restart();
    assert!(degraded_reasons(&gateway).contains(unknown), "{}", degraded_reasons(&gateway));
    assert_fail_open_500s(&gateway, &key);
    assert_eq!((usage_status(&gateway, &other), usage_status(&gateway, &later)), (401, 200));
    let printed = gateway.cli(&["check"]).expect(0).stderr;
    assert!(printed.contains("warning: account acme: expected one of the plans"), "{printed}");
    gateway.edit_config(|text| text + "[plans]\nfree = 100\ngold = 8\n");
    wait_until("the account is served by its plan", || usage_status(&gateway, &key) == 200);
    assert_eq!(gateway.get(USAGE_TARGET, &key).json()["monthly_limit"], 8);
    wait_until("no fault is reported", || degraded_reasons(&gateway) == "[]");
}

#[test]
fn removing_a_plan_from_the_config_does_not_stop_key_changes() {
    let setup = Setup::new().set("plans.free", "100").set("plans.gold", "7");
    let token = "sv_of_the_key_file_00";
    let file = setup.path("keys.toml");
    let declared = "[[key]]\nid = \"filed\"\naccount = \"filed\"\nplan = \"gold\"\nenv = \"KEY\"\n";
    std::fs::write(&file, declared).unwrap();
    let setup = setup.env("KEY", token).set_text("keys.file", &file.display().to_string());
    let gateway = setup.start();
    let gold = gateway.create_active_key("acme", &["--plan", "gold"]);
    let (other, id) = gateway.create_active_key_with_id("other", &[]);
    gateway.edit_config(|text| text.replace("gold = 7\n", ""));
    wait_until("/readyz reports one fault", || {
        degraded_reasons(&gateway).contains("account acme: expected")
    });
    assert!(
        degraded_reasons(&gateway).contains("account filed: expected"),
        "{}",
        degraded_reasons(&gateway)
    );
    for key in [gold.as_str(), token] {
        assert_fail_open_500s(&gateway, key);
    }
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("another key is refused", || usage_status(&gateway, &other) == 401);
    let (later, later_id) = gateway.create_active_key_with_id("other", &[]);
    assert_eq!(usage_status(&gateway, &later), 200);
    gateway.cli(&["keys", "revoke", &later_id]).expect(0);
    wait_until("and so is a later one", || usage_status(&gateway, &later) == 401);
    gateway.edit_config(|text| text.replace("free = 100\n", "free = 100\ngold = 9\n"));
    wait_until("both are served", || {
        [gold.as_str(), token].iter().all(|key| usage_status(&gateway, key) == 200)
    });
    wait_until("no fault is reported", || degraded_reasons(&gateway) == "[]");
}

#[test]
fn an_id_with_different_keys_in_store_and_key_file_does_not_stop_key_changes() {
    let setup = Setup::new();
    let token = "sv_of_the_key_file_00";
    let (file, import) = (setup.path("keys.toml"), setup.path("import.toml"));
    std::fs::write(&file, "[[key]]\nid = \"web\"\naccount = \"filed\"\nenv = \"KEY\"\n").unwrap();
    let hash = "0".repeat(64);
    let other = format!("[[key]]\nid = \"web\"\naccount = \"acme\"\nhash = \"sha256:{hash}\"\n");
    std::fs::write(&import, other).unwrap();
    let setup = setup.env("KEY", token).set_text("keys.file", &file.display().to_string());
    let gateway = setup.start();
    assert_eq!(usage_status(&gateway, token), 200);
    gateway.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
    wait_until("/readyz reports it", || {
        degraded_reasons(&gateway).contains("keys: key web: expected one key")
    });
    assert_fail_open_500s(&gateway, token);
    let (key, id) = gateway.create_active_key_with_id("acme", &[]);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("another key is refused", || usage_status(&gateway, &key) == 401);
    let gateway = gateway.restart();
    assert_fail_open_500s(&gateway, token);
    assert_eq!(usage_status(&gateway, &key), 401);
}

/// Bad values in an account's row, a key's row and the account's counts.
const GARBAGE_VALUES: [&str; 4] = ["", "garbage", "- nonsense {}", "\u{1}\u{2} \u{3} {\"a\": [}"];

#[test]
fn unreadable_rows_of_one_account_or_key_fail_only_that_account_or_key() {
    let server = RedisServer::start();
    let setup = setup_with_long_deadline(&server);
    let make = |account: &str| {
        let words = ["keys", "create", "--account", account, "--origin", "https://app.example.com"];
        let made = setup.cli(&[&words[..], &["--json"]].concat()).expect(0).json();
        (made["key"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned())
    };
    let (by_account, _) = make("broken-account");
    let (by_key, key_id) = make("broken-key");
    let (good, good_id) = make("good");
    for garbage in GARBAGE_VALUES {
        server.run(&["HSET", "riskgate:{ring}:accounts", "broken-account", garbage]);
        server.run(&["HSET", "riskgate:{ring}:keys", &key_id, garbage]);
        let gateway = setup_with_long_deadline(&server).start();
        assert_fail_open_500s(&gateway, &by_account);
        assert_fail_open_500s(&gateway, &by_key);
        assert_eq!(usage_status(&gateway, &good), 200);
        for what in ["account broken-account: ", &format!("key {key_id}: ")] {
            assert!(degraded_reasons(&gateway).contains(what), "{}", degraded_reasons(&gateway));
        }
        let (later, later_id) = gateway.create_active_key_with_id("good", &[]);
        gateway.cli(&["keys", "revoke", &later_id]).expect(0);
        wait_until("another key is refused", || usage_status(&gateway, &later) == 401);
        // Other readers of rows still list the other accounts.
        let listed = gateway.cli(&["keys", "list"]).expect(0);
        assert!(listed.stdout.contains(&good_id), "{}", listed.stdout);
        assert!(listed.stderr.contains(&key_id), "{}", listed.stderr);
        let listed = gateway.cli(&["accounts", "list"]).expect(0);
        assert!(listed.stdout.contains("good"), "{}", listed.stdout);
        assert!(listed.stderr.contains("broken-account"), "{}", listed.stderr);
        gateway.cli(&["check"]).expect(0);
        // Setting the account again repairs its row.
        gateway.cli(&["accounts", "set", "broken-account", "--limit", "7"]).expect(0);
        wait_until("the account is served", || usage_status(&gateway, &by_account) == 200);
    }
}

#[test]
fn bad_counts_of_one_account_fail_only_that_account() {
    let server = RedisServer::start();
    let setup = setup_with_long_deadline(&server).set_text("store.on_failure", "closed");
    let gateway = setup.start();
    let good = gateway.create_active_key("good", &[]);
    let broken: Vec<(String, String)> = (0..11)
        .map(|n| format!("broken-{n}"))
        .map(|a| (gateway.create_active_key(&a, &[]), a))
        .collect();
    for (key, _) in broken.iter().chain([&(good.clone(), String::new())]) {
        gateway.get_domain("first.test", key).expect(200);
    }
    wait_until("all numbers are in the store", || {
        server.matching_keys("riskgate:ledger:*").len() == broken.len() + 1
    });
    for (n, (_, account)) in broken.iter().enumerate() {
        let name = server.matching_keys(&format!("riskgate:ledger:{{{account}}}:*")).remove(0);
        let fields = server.run(&["HKEYS", &name]);
        let node = fields.lines().find(|field| field.len() == 32).unwrap();
        let corrupting_command: &[&str] = match n {
            0 => &["SET", &name, "garbage"],
            1 => &["HSET", &name, node, "garbage"],
            2 => &["HSET", &name, node, "1 nan -7"],
            3 => &["HSET", &name, "leased", "garbage"],
            4 => &["HSET", &name, "spent", "-5"],
            5 => &["HSET", &name, "revision", "1e999"],
            6 => &["HSET", &name, "claim", "a b"],
            7 => &["HSET", &name, "base", "nan"],
            8 => &["HSET", &name, "leased", "0"],
            // Numbers that can be read, and that make the script grant too many calls or too few.
            9 => &["HSET", &name, node, "9000000000 5000 0", "leased", "5000"],
            _ => &["HSET", &name, node, "9000000000 0 0"],
        };
        server.run(corrupting_command);
    }
    let failures = || gateway.sum_of_samples("riskgate_store_failures_total", &[]);
    let before = failures();
    // An account with spoilt counts spends its lease; after that its calls get a 500.
    for (key, account) in &broken {
        wait_until("its calls get a 500", || {
            let answer = gateway.get_domain("first.test", key);
            assert!(matches!(answer.status, 200 | 500), "{account}: {}", answer.text());
            answer.status == 500
        });
        assert_eq!(gateway.get_domain("first.test", &good).status, 200, "beside {account}");
    }
    assert_eq!(failures(), before, "bad data is no failure of the store");
    assert_eq!(gateway.sum_of_samples("riskgate_store_down", &[]), 0.0);
    wait_until("the good account's calls are counted", || {
        let listed = gateway.cli(&["usage"]);
        let counted = format!("{}", broken.len() + 1);
        listed.stdout.lines().any(|line| line.starts_with("good") && line.ends_with(&counted))
    });
    let listed = gateway.cli(&["usage"]).expect(1);
    assert!(listed.stderr.contains("broken-0"), "{}", listed.stderr);
    assert_eq!(gateway.cli(&["usage", "--account", "good"]).expect(0).stderr, "");
}

#[test]
fn a_lost_row_of_one_account_stops_the_reports_of_no_other() {
    let gateway = Setup::new().set_text("store.on_failure", "closed").start();
    let [lost, good] = ["lost", "good"].map(|account| gateway.create_active_key(account, &[]));
    for key in [&lost, &good] {
        gateway.get_domain("first.test", key).expect(200);
    }
    let store = rusqlite::Connection::open(gateway.path("riskgate.db")).unwrap();
    store.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    let spent = |account: &str| -> i64 {
        let total = "SELECT coalesce(sum(spent), 0) FROM ledger WHERE account = ?1";
        store.query_row(total, [account], |row| row.get(0)).unwrap()
    };
    wait_until("both are reported", || spent("lost") == 1 && spent("good") == 1);
    store.execute("DELETE FROM ledger WHERE account = 'lost'", []).unwrap();
    wait_until("the account without its totals gets a 500", || {
        gateway.get_domain("first.test", &lost).status == 500
    });
    let told = "store: account lost: ";
    assert!(degraded_reasons(&gateway).contains(told), "{}", degraded_reasons(&gateway));
    assert_eq!(gateway.stderr().matches("account lost: ").count(), 1, "{}", gateway.stderr());
    // Other accounts are served, those that this process does not know yet too, and counted.
    let later = gateway.create_active_key("later", &[]);
    for key in [&good, &later] {
        for _ in 0..30 {
            assert_eq!(gateway.get_domain("first.test", key).status, 200);
        }
    }
    wait_until("their calls are counted", || spent("good") == 31 && spent("later") == 30);
    assert_eq!(gateway.sum_of_samples("riskgate_store_down", &[]), 0.0);
    let gateway = gateway.restart();
    assert_eq!(gateway.get_domain("first.test", &lost).status, 200);
    assert_eq!(degraded_reasons(&gateway), "[]");
}

#[test]
fn an_account_with_bad_counts_takes_no_unsettled_calls_from_others() {
    let mut server = RedisServer::start();
    let setup = setup_with_long_deadline(&server).set("store.max_unsettled", "50");
    let gateway = setup.set("plans.free", "100000").start();
    let [broken, good] = ["broken", "good"].map(|name| gateway.create_active_key(name, &[]));
    gateway.get_domain("first.test", &broken).expect(200);
    let totals = || server.matching_keys("riskgate:ledger:{broken}:*");
    wait_until("the totals are in the store", || totals().len() == 1);
    server.run(&["SET", &totals()[0], "garbage"]);
    wait_until("it has used all that it may", || {
        gateway.get_domain("first.test", &broken).status == 500
    });
    assert!(degraded_reasons(&gateway).contains("store: account broken: "));
    gateway.get_domain("first.test", &good).expect(200);
    server.kill();
    let is_down = || gateway.sum_of_samples("riskgate_store_down", &[]) == 1.0;
    wait_until("the store counts as down", || {
        gateway.get_domain("first.test", &good);
        is_down()
    });
    let admitted =
        (0..100).take_while(|_| gateway.get_domain("first.test", &good).status == 200).count();
    assert!(admitted >= 30, "{admitted}");
}

#[test]
fn an_unreadable_row_of_the_top_list_is_ignored_and_replaced() {
    let server = RedisServer::start();
    let gateway = Setup::with_bundled_table().with_redis(&server).start();
    let key = gateway.create_active_key("acme", &[]);
    let flagged = ["yopmail.com", "mailinator.com"];
    for name in flagged {
        gateway.get_domain(name, &key).expect(200);
    }
    let rows = || server.run(&["HKEYS", "riskgate:{top}:rows"]);
    // riskgate saves the counts at its stop at the latest.
    let gateway = gateway.restart();
    assert!(rows().lines().count() >= 1);
    let row = rows().lines().next().unwrap().to_owned();
    server.run(&["HSET", "riskgate:{top}:rows", &row, "garbage"]);
    let gateway = gateway.restart();
    assert!(!gateway.stderr().contains("garbage"), "{}", gateway.stderr());
    gateway.get_domain(&row, &gateway.create_active_key("other", &[])).expect(200);
    drop(gateway.shut_down());
    assert!(!server.run(&["HGET", "riskgate:{top}:rows", &row]).contains("garbage"));
}

#[test]
fn foreign_entries_in_the_store_are_reported_and_keys_and_counts_still_work() {
    let server = RedisServer::start();
    let gateway = setup_with_long_deadline(&server).start();
    let key = gateway.create_active_key("good", &[]);
    let bytes = "'\\255\\254'";
    for line in [
        format!("redis.call('HSET', 'riskgate:{{ring}}:imports', {bytes}, {bytes})"),
        "redis.call('HSET', 'riskgate:{ring}:keys', 'extra', 'x')".to_owned(),
        format!("redis.call('ZADD', 'riskgate:{{ring}}:changed', 9, {bytes})"),
        format!("redis.call('HSET', 'riskgate:{{ring}}:meta', 'began', {bytes})"),
        format!("redis.call('SET', 'riskgate:ledger:{{'..{bytes}..'}}:2099-01', 'x')"),
    ] {
        server.run(&["EVAL", &line, "0"]);
    }
    for name in ["imports", "keys", "changed"] {
        let entry = format!("keys: riskgate:{{ring}}:{name}: expected only what riskgate wrote");
        let reported = || degraded_reasons(&gateway).replace("\\n", "\nkeys: ");
        wait_until("/readyz reports it", || reported().contains(&entry));
    }
    let (other, id) = gateway.create_active_key_with_id("other", &[]);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("the other key is refused", || usage_status(&gateway, &other) == 401);
    wait_until("calls are counted", || {
        gateway.get_domain("first.test", &key).status == 200 && gateway.get_month_count(&key) > 0
    });
    let listed = gateway.cli(&["keys", "list"]).expect(0);
    assert!(listed.stderr.contains("riskgate:{ring}:keys: expected"), "{}", listed.stderr);
    assert!(gateway.cli(&["usage"]).expect(0).stdout.contains("good"));
    // A node can start with this fault, and the report ends once the fault is gone.
    let gateway = gateway.restart();
    assert_eq!((usage_status(&gateway, &key), usage_status(&gateway, &other)), (200, 401));
    server.run(&["DEL", "riskgate:{ring}:imports"]);
    server.run(&["HDEL", "riskgate:{ring}:keys", "extra"]);
    server.run(&["ZREMRANGEBYSCORE", "riskgate:{ring}:changed", "9", "9"]);
    wait_until("no fault is reported", || degraded_reasons(&gateway) == "[]");
}
