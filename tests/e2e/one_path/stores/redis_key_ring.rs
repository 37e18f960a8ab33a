//! Keys, accounts and commands with a Redis server: available, silent, empty, or wiped.

use crate::harness::{Gateway, Setup, get, request, wait_until};
use crate::redis_server::RedisServer;

const USAGE: &str = "/v1/usage";
const UNKNOWN_KEY: &str = "rg_0000000000000000000000000000000000";

fn setup_on_redis(server: &RedisServer) -> Setup {
    Setup::new().set_text("store.url", &server.url())
}

fn usage_status(gateway: &Gateway, key: &str) -> u16 {
    gateway.get(USAGE, key).status
}

fn degraded_reasons(gateway: &Gateway) -> String {
    let reported = gateway.readyz().json()["degraded"].clone();
    let reported: Vec<&str> =
        reported.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    reported.join("\n")
}

/// The gateway is not ready, and answers every call with a 500 that has `X-Fail-Open`.
#[track_caller]
fn assert_unready_with_500s(gateway: &Gateway) {
    assert_eq!(gateway.readyz().status, 503, "another process keeps serving");
    let refused = gateway.get(USAGE, UNKNOWN_KEY).expect(500);
    assert_eq!(refused.header("X-Fail-Open"), Some("true"));
    assert_eq!(refused.json()["error"], "internal_error");
    gateway.send_request(&get("/v1/public/top-domains")).expect(500);
    let browser = get(USAGE).key(UNKNOWN_KEY).with_header("Origin", "https://app.example.com");
    let seen = gateway.send_request(&browser).expect(500);
    assert_eq!(seen.header("Access-Control-Allow-Origin"), Some("https://app.example.com"));
}

#[test]
fn a_gateway_starts_without_redis_and_serves_once_redis_answers() {
    let mut server = RedisServer::start();
    server.kill();
    let gateway = setup_on_redis(&server).start();
    assert_unready_with_500s(&gateway);
    gateway.get("/nowhere", UNKNOWN_KEY).expect(404);
    assert!(
        degraded_reasons(&gateway).contains("keys: redis://"),
        "{}",
        degraded_reasons(&gateway)
    );
    wait_until("both the ledger and the reloader have told it", || {
        degraded_reasons(&gateway).contains("store: down")
            && gateway.stderr().contains("error: store is degraded: ")
    });
    let problems_of = |component: &str| {
        let problems = gateway.get_admin_page("/status").json()["problems"].take();
        let problems = problems.as_array().unwrap().clone();
        problems.into_iter().filter(|it| it["component"] == component).collect::<Vec<_>>()
    };
    assert_eq!(problems_of("store").len(), 1, "the same problem is told once");
    server.restart();
    wait_until("the server is there, and empty", || {
        degraded_reasons(&gateway).contains("keys: expected a store, but found an empty server")
    });
    assert_unready_with_500s(&gateway);
    let advice = problems_of("keys")[0]["advice"].to_string();
    assert!(
        advice.contains("Until then, riskgate answers each call with a key by 500"),
        "{advice}"
    );
    let checked = gateway.cli(&["doctor"]).stdout;
    let unready = checked.lines().find(|line| line.contains("not ready: 503")).unwrap_or(&checked);
    assert!(unready.ends_with("; mend what it names: /status has advice for each"), "{checked}");
    let key = gateway.create_key("acme", &[]);
    wait_until("the key is accepted", || gateway.get_domain("first.test", &key).status == 200);
    assert_eq!(usage_status(&gateway, UNKNOWN_KEY), 401);
    wait_until("no fault is reported", || degraded_reasons(&gateway).is_empty());
}

#[test]
fn before_the_store_is_initialised_a_preflight_gets_a_500_and_other_options_a_204() {
    let server = RedisServer::start();
    let gateway = setup_on_redis(&server).start();
    let options = || request("OPTIONS", USAGE);
    let preflight = options()
        .with_header("Origin", "https://app.example.com")
        .with_header("Access-Control-Request-Method", "GET");
    let refused = gateway.send_request(&preflight).expect(500);
    assert_eq!(refused.header("X-Fail-Open"), Some("true"));
    gateway.send_request(&options()).expect(204);
    gateway.cli(&["store", "init"]).expect(0);
    wait_until("the key ring is empty", || gateway.send_request(&preflight).status == 403);
    assert_eq!(usage_status(&gateway, UNKNOWN_KEY), 401);
}

#[test]
fn a_wiped_redis_removes_no_known_key_before_a_restart() {
    let server = RedisServer::start();
    let gateway = setup_on_redis(&server).start();
    let key = gateway.create_active_key("acme", &[]);
    server.run(&["FLUSHALL"]);
    let lost = "keys: the store is another one or was emptied: expected version";
    wait_until("/readyz reports it", || degraded_reasons(&gateway).contains(lost));
    assert_eq!(usage_status(&gateway, &key), 200);
    // riskgate refuses another store in place of the known store too.
    let elsewhere = setup_on_redis(&server);
    let other = elsewhere.cli(&["keys", "create", "--account", "other"]).expect(0).stdout;
    let other = other.trim().to_owned();
    wait_until("/readyz reports the other store", || {
        degraded_reasons(&gateway).contains("but found version 2 of")
    });
    assert_eq!((usage_status(&gateway, &key), usage_status(&gateway, &other)), (200, 401));
    assert_eq!(gateway.sum_of_samples("riskgate_reload_failing", &["part=\"keys\""]), 1.0);
    let reported = || gateway.stderr().matches("the store is another one or was emptied").count();
    wait_until("standard error reports both states", || reported() >= 2);
    assert_eq!(reported(), 2, "each state is reported once: {}", gateway.stderr());
    // By restarting riskgate, the operator confirms the new store.
    let gateway = gateway.restart();
    assert_eq!((usage_status(&gateway, &key), usage_status(&gateway, &other)), (401, 200));
}

#[test]
fn a_redis_that_lost_key_rows_removes_no_known_key() {
    let server = RedisServer::start();
    let gateway = setup_on_redis(&server).start();
    let key = gateway.create_active_key("acme", &[]);
    server.run(&["COPY", "riskgate:{ring}:keys", "kept"]);
    server.run(&["DEL", "riskgate:{ring}:keys"]);
    let lost = "keys: redis://";
    wait_until("/readyz reports lost rows", || degraded_reasons(&gateway).contains(lost));
    assert!(
        degraded_reasons(&gateway).contains("but found 0 keys and 1 accounts"),
        "{}",
        degraded_reasons(&gateway)
    );
    assert_eq!(usage_status(&gateway, &key), 200);
    server.run(&["RENAME", "kept", "riskgate:{ring}:keys"]);
    wait_until("the restored store is read", || degraded_reasons(&gateway).is_empty());
}

#[test]
fn known_keys_are_accepted_while_redis_is_down() {
    let mut server = RedisServer::start_on_disk();
    let gateway = setup_on_redis(&server).start();
    let (key, id) = gateway.create_active_key_with_id("acme", &[]);
    server.kill();
    wait_until("/readyz reports it", || degraded_reasons(&gateway).contains("store: redis://"));
    wait_until("calls are served", || gateway.get_domain("first.test", &key).status == 200);
    assert_eq!(gateway.get_domain("first.test", UNKNOWN_KEY).status, 401);
    gateway.cli(&["keys", "revoke", &id]).expect(1);
    server.restart();
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("the key is refused", || usage_status(&gateway, &key) == 401);
    wait_until("no fault is reported", || degraded_reasons(&gateway).is_empty());
}

#[test]
fn a_redis_with_an_eviction_policy_is_refused_at_the_start_and_reported_later() {
    let server = RedisServer::start_with_arguments(&["--maxmemory-policy", "allkeys-lru"]);
    let setup = setup_on_redis(&server);
    for subcommand in ["run", "check"] {
        let printed = setup.cli(&[subcommand]).expect(78).stderr;
        assert!(printed.contains("maxmemory-policy noeviction, because"), "{printed}");
    }
    server.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    server.run(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    wait_until("/readyz reports it", || {
        degraded_reasons(&gateway).contains("but found volatile-ttl")
    });
    assert_eq!(usage_status(&gateway, &key), 200);
    server.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    wait_until("no fault is reported", || degraded_reasons(&gateway).is_empty());
}

#[test]
fn a_node_that_starts_beside_a_full_server_knows_the_keys() {
    let server = RedisServer::start();
    let gateway = setup_on_redis(&server).start();
    let key = gateway.create_active_key("acme", &[]);
    assert_eq!(usage_status(&gateway, &key), 200);
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let gateway = gateway.crash_and_restart();
    assert_eq!(usage_status(&gateway, &key), 200);
    gateway.get(USAGE, UNKNOWN_KEY).expect(401);
    for command in [&["keys", "list"][..], &["accounts", "list"]] {
        let listed = gateway.cli(command).expect(0).stdout;
        assert!(listed.contains("acme"), "{listed}");
    }
    gateway.cli(&["usage"]).expect(0);
}

#[test]
fn check_reports_whether_redis_is_empty_filled_or_down() {
    let mut server = RedisServer::start();
    let setup = setup_on_redis(&server);
    let printed = setup.cli(&["check"]).expect(0).stderr;
    assert!(
        printed.contains("warning: the server is empty") && printed.contains("0 keys"),
        "{printed}"
    );
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let printed = setup.cli(&["check"]).expect(0).stderr;
    assert!(!printed.contains("server is empty") && printed.contains(" 1 key\n"), "{printed}");
    server.kill();
    let printed = setup.cli(&["check"]).expect(1).stderr;
    let expected = format!("store.url: {}: connecting: ", server.url());
    assert!(printed.contains(&expected), "{printed}");
}

#[test]
fn no_output_shows_the_redis_password() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "me", "on", ">other", "~*", "+@all"]);
    let setup = Setup::new().set_text("store.url", &server.url_as("me", "s3cr3t"));
    for arguments in [&["check"][..], &["keys", "list"], &["store", "init"]] {
        let ran = setup.cli(arguments).expect(1);
        assert!(!ran.stderr.contains("s3cr3t") && ran.stderr.contains("redis://127"), "{ran:?}");
    }
    let to = server.url_as("me", "s3cr3t");
    let ran = setup.cli(&["store", "copy", &to, &to]).expect(1);
    assert!(!ran.stderr.contains("s3cr3t"), "{ran:?}");
    let gateway = setup.start();
    assert!(
        !degraded_reasons(&gateway).contains("s3cr3t")
            && degraded_reasons(&gateway).contains("keys: ")
    );
    assert!(!gateway.stderr().contains("s3cr3t"));
    let broken = Setup::new().set_text("store.url", "redis://me:s3cr3t@host:none/0");
    let ran = broken.cli(&["check"]).expect(78);
    assert!(!ran.stderr.contains("s3cr3t") && ran.stderr.contains("store.url: "), "{ran:?}");
}

/// Runs the test with SQLite and with Redis, each beside a gateway.
fn run_on_both_stores(test: impl Fn(Setup)) {
    println!("on SQLite");
    test(Setup::new());
    println!("on Redis");
    let server = RedisServer::start();
    test(setup_on_redis(&server));
}

#[test]
fn every_command_about_keys_and_accounts_works_on_both_stores() {
    run_on_both_stores(|setup| {
        setup.cli(&["store", "init"]).expect(0);
        let gateway = setup.start();
        let (key, id) =
            gateway.create_active_key_with_id("acme", &["--plan", "pro", "--label", "web"]);
        assert_eq!(gateway.get(USAGE, &key).json()["monthly_limit"], 10_000);
        gateway.cli(&["accounts", "set", "acme", "--limit", "7"]).expect(0);
        wait_until("the limit is in force", || {
            gateway.get(USAGE, &key).json()["monthly_limit"] == 7
        });
        gateway.get_domain("first.test", &key).expect(200);
        wait_until("the call is published", || {
            let usage = gateway.cli(&["usage", "--account", "acme", "--json"]).expect(0).json();
            usage[0]["month_count"] == 1
        });
        let rotated = gateway.cli(&["keys", "rotate", &id, "--overlap", "0"]).expect(0).stdout;
        wait_until("the old key is refused", || usage_status(&gateway, &key) == 401);
        let rotated = rotated.trim_end();
        assert_eq!(usage_status(&gateway, rotated), 200);
        for (at, name) in ["zoe", "bob", "amy"].iter().enumerate() {
            let import = gateway.path("import.toml");
            let hash = format!("{at:064x}");
            let key = format!(
                "[[key]]\nid = \"{name}\"\naccount = \"{name}\"\nhash = \"sha256:{hash}\"\n"
            );
            std::fs::write(&import, key).unwrap();
            gateway.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
        }
        let again = gateway.cli(&["keys", "import", gateway.path("import.toml").to_str().unwrap()]);
        assert!(again.expect(1).stderr.contains("key amy: expected a new key"));
        let names = |arguments: &[&str], field: &str| -> Vec<String> {
            let listed = gateway.cli(arguments).expect(0).json();
            let listed = listed.as_array().unwrap().iter();
            listed.map(|row| row[field].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&["accounts", "list", "--json"], "name"), ["acme", "amy", "bob", "zoe"]);
        let times = names(&["keys", "list", "--json"], "created_at");
        assert!(times.len() == 5 && times.is_sorted(), "{times:?}");
        let revoked = gateway.cli(&["keys", "revoke", "zoe", "--json"]).expect(0).json();
        assert_eq!(revoked["id"], "zoe");
        gateway.cli(&["keys", "revoke", "nobody"]).expect(1);
        gateway.cli(&["keys", "rotate", "nobody"]).expect(1);
        gateway.cli(&["check"]).expect(0);
    });
}

#[test]
fn store_copy_moves_keys_and_counts_from_sqlite_to_redis_and_back() {
    let gateway = Setup::new().start();
    let (key, id) = gateway.create_active_key_with_id("acme", &["--plan", "pro"]);
    let (old, ended) = gateway.create_active_key_with_id("acme", &[]);
    gateway.cli(&["keys", "revoke", &ended]).expect(0);
    for _ in 0..5 {
        gateway.get_domain("first.test", &key).expect(200);
    }
    let setup = gateway.shut_down();
    let server = RedisServer::start();
    let file = format!("sqlite:{}", setup.path("riskgate.db").display());
    let copied = setup.cli(&["store", "copy", &file, &server.url(), "--json"]).expect(0).json();
    assert_eq!(
        (&copied["keys"], &copied["accounts"], &copied["usage"]),
        (&2.into(), &1.into(), &1.into())
    );
    let gateway = setup.set_text("store.url", &server.url()).start();
    assert_eq!(gateway.get_month_count(&key), 5);
    assert_eq!(usage_status(&gateway, &old), 401);
    gateway.get_domain("first.test", &key).expect(200);
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let setup = gateway.shut_down();

    let back = format!("sqlite:{}", setup.path("back.db").display());
    setup.cli(&["store", "copy", &server.url(), &back]).expect(0);
    let gateway = setup.set_text("store.url", &back).start();
    assert_eq!(gateway.get_month_count(&key), 6);
    assert_eq!(gateway.cli(&["keys", "list", "--json"]).expect(0).json(), listed);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("the key is refused", || usage_status(&gateway, &key) == 401);
}

#[test]
fn store_copy_needs_an_existing_source_and_an_empty_target() {
    let setup = Setup::new();
    let server = RedisServer::start();
    let absent = setup.path("absent.db");
    let from = format!("sqlite:{}", absent.display());
    let refused = setup.cli(&["store", "copy", &from, &server.url()]).expect(78);
    assert!(refused.stderr.contains("expected a store, but found no file"), "{}", refused.stderr);
    assert!(!absent.exists());
    let no_folder = setup.path("no-folder");
    let from = format!("sqlite:{}/absent.db", no_folder.display());
    setup.cli(&["store", "copy", &from, &server.url()]).expect(78);
    assert!(!no_folder.exists());
    let file = format!("sqlite:{}", setup.path("riskgate.db").display());
    let refused = setup.cli(&["store", "copy", &server.url(), &file]).expect(1);
    assert!(refused.stderr.contains("found an empty server"), "{}", refused.stderr);
    assert!(!setup.path("riskgate.db").exists());
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    setup.cli(&["store", "copy", &file, &server.url()]).expect(0);
    let keys = server.matching_keys("*");
    for (from, to) in [(&file, &server.url()), (&server.url(), &file), (&file, &file)] {
        let refused = setup.cli(&["store", "copy", from, to]).expect(1);
        assert!(refused.stderr.contains("expected an empty store"), "{}", refused.stderr);
    }
    assert_eq!(server.matching_keys("*").len(), keys.len());
    setup.cli(&["store", "copy", "localhost:6379", &file]).expect(2);
}

#[test]
fn while_redis_is_down_readyz_and_metrics_report_the_keys_as_failing() {
    let mut server = RedisServer::start_on_disk();
    let gateway = setup_on_redis(&server).start();
    let key = gateway.create_active_key("acme", &[]);
    let failing = || gateway.sum_of_samples("riskgate_reload_failing", &["part=\"keys\""]);
    gateway.get_domain("first.test", &key).expect(200);
    assert_eq!(failing(), 0.0);
    server.kill();
    wait_until("riskgate reports it", || {
        failing() == 1.0 && degraded_reasons(&gateway).contains("keys: ")
    });
    // The gateway still serves the keys that it knows.
    gateway.get_domain("first.test", &key).expect(200);
    server.restart();
    wait_until("no fault is reported", || {
        failing() == 0.0 && degraded_reasons(&gateway).is_empty()
    });
}
