//! A server that closes idle connections, failovers to a replica by hand and by Sentinels, and a
//! lost replica.

use std::time::{Duration, Instant};

use crate::harness::{Gateway, LoadGenerator, Setup, get, wait_until};
use crate::redis_server::{RedisServer, Sentinels};

const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 3_000;

fn wait_until_replicating(replica: &RedisServer) {
    wait_until("the replica follows", || {
        replica.run(&["INFO", "replication"]).contains("master_link_status:up")
    });
}

fn readyz_reports(gateway: &Gateway, words: &str) -> bool {
    gateway.readyz().json()["degraded"].to_string().contains(words)
}

#[test]
fn a_redis_that_closes_idle_connections_fails_no_request() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server).set_text("store.deadline", "2s");
    // A node loads an account only when a request needs the account.
    let make = |account: u32| {
        let account = format!("account-{account}");
        let made = setup.cli(&["keys", "create", "--account", &account]).expect(0);
        made.stdout.trim_end().to_owned()
    };
    let keys: Vec<String> = (0..13).map(make).collect();
    let (first, keys) = keys.split_first().unwrap();
    let gateway = setup.start();
    gateway.get("/v1/usage", first).expect(200);
    let (at_once, later) = keys.split_at(10);
    for key in at_once {
        // As the setting `timeout` of Redis does, but sooner.
        server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
        gateway.get("/v1/usage", key).expect(200);
    }
    server.run(&["CONFIG", "SET", "timeout", "1"]);
    for key in later {
        let since = Instant::now();
        wait_until("connections were idle", || since.elapsed() > Duration::from_millis(2_200));
        gateway.get("/v1/usage", key).expect(200);
        gateway.get(DOMAIN, key).expect(200);
    }
    assert_eq!(gateway.sum_of_samples("riskgate_store_down", &[]), 0.0);
}

#[test]
fn v1_usage_is_answered_throughout_a_redis_failover() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    wait_until_replicating(&replica);
    let forwarder = crate::harness::TcpForwarder::start_to(&primary);
    let setup = Setup::new().set_text("store.url", &forwarder.url());
    let setup = setup.set_text("store.deadline", "300ms").set("store.wait_replicas", "1");
    let make = |account| {
        let made = setup.cli(&["keys", "create", "--account", account]).expect(0);
        made.stdout.trim_end().to_owned()
    };
    let (caller, reader) = (make("caller"), make("reader"));
    let gateway = setup.start();
    gateway.get(DOMAIN, &caller).expect(200);
    // One account makes calls, the other has only requested its usage.
    for key in [&caller, &reader] {
        gateway.get("/v1/usage", key).expect(200);
    }
    primary.kill();
    replica.run(&["REPLICAOF", "NO", "ONE"]);
    forwarder.switch_to(&replica);
    // The new primary has no replica, and `store.wait_replicas` is 1: no lease report succeeds.
    let begun = Instant::now();
    wait_until("four seconds are over", || {
        for key in [&caller, &reader] {
            let usage = gateway.get("/v1/usage", key);
            assert_eq!(usage.status, 200, "after {:?}: {}", begun.elapsed(), usage.text());
        }
        begun.elapsed() > Duration::from_secs(4)
    });
    assert_eq!(gateway.get_month_count(&caller), 1);
}

/// Two gateways spend a limit. Once a third of the limit is spent, the only replica is killed.
/// Returns the gateways, the primary, the replica, the key, and the number of admitted calls.
fn spend_while_the_replica_is_lost(
    on_failure: &str,
) -> (Vec<Gateway>, RedisServer, RedisServer, String, u64) {
    let primary = RedisServer::start();
    let mut replica = RedisServer::replica_of(&primary);
    wait_until_replicating(&replica);
    let setup = || {
        let setup = Setup::new().with_redis(&primary).set("store.wait_replicas", "1");
        let setup = setup.set_text("store.on_failure", on_failure);
        setup.set("plans.free", &LIMIT.to_string())
    };
    let made = setup().cli(&["keys", "create", "--account", "acme"]).expect(0);
    let key = made.stdout.trim_end().to_owned();
    let gateways = vec![setup().start(), setup().start()];
    let clients = LoadGenerator::new(DOMAIN, &key);
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in &gateways {
            clients.spawn_clients(scope, gateway.http, 3);
        }
        wait_until("much is spent", || clients.response_counts().admitted > LIMIT / 3);
        replica.kill();
        wait_until("riskgate reports it", || {
            gateways.iter().all(|gateway| {
                gateway.sum_of_samples("riskgate_store_replicas_missing", &[]) == 1.0
                    && readyz_reports(gateway, "store: 1 of store.wait_replicas are missing")
            })
        });
        assert!(gateways.iter().all(|gateway| gateway.readyz().status == 200), "they serve");
        let counts = clients.response_counts();
        wait_until("one policy serves on, the other refuses", || {
            let now = clients.response_counts();
            match on_failure {
                "open" => now.quota_exceeded > counts.quota_exceeded + 100,
                _ => now.internal_errors > counts.internal_errors + 100,
            }
        });
    });
    let admitted = clients.response_counts().admitted;
    (gateways, primary, replica, key, admitted)
}

#[test]
fn with_on_failure_open_a_lost_replica_still_admits_exactly_the_limit() {
    let (gateways, primary, mut replica, key, admitted) = spend_while_the_replica_is_lost("open");
    assert_eq!(admitted, LIMIT);
    for gateway in &gateways {
        assert_eq!(gateway.sum_of_samples("riskgate_store_down", &[]), 0.0);
        assert_eq!(gateway.sum_of_samples("riskgate_store_unsettled_calls", &[]), 0.0);
        wait_until("all gateways report the spent calls", || {
            gateway.get_month_count(&key) == LIMIT
        });
    }
    replica.restart();
    for gateway in &gateways {
        wait_until("all is well", || !readyz_reports(gateway, "store"));
        assert_eq!(gateway.sum_of_samples("riskgate_store_replicas_missing", &[]), 0.0);
    }
    drop(primary);
}

#[test]
fn with_on_failure_closed_a_lost_replica_refuses_calls_until_it_is_back() {
    let (gateways, primary, mut replica, key, mut admitted) =
        spend_while_the_replica_is_lost("closed");
    assert!(admitted < LIMIT, "{admitted}");
    for gateway in &gateways {
        assert!(readyz_reports(gateway, "refused"), "{}", gateway.readyz().text());
        assert_eq!(gateway.sum_of_samples("riskgate_store_down", &[]), 1.0);
        let usage = gateway.get("/v1/usage", &key).expect(200).json();
        assert!(usage["month_count"].as_u64().unwrap() <= admitted);
    }
    replica.restart();
    let mut connections: Vec<_> = gateways.iter().map(Gateway::connect).collect();
    wait_until("the rest is spent", || {
        for connection in &mut connections {
            admitted += u64::from(connection.send_request(&get(DOMAIN).key(&key)).status == 200);
        }
        admitted >= LIMIT
    });
    for connection in &mut connections {
        for _ in 0..50 {
            assert_ne!(connection.send_request(&get(DOMAIN).key(&key)).status, 200);
        }
    }
    drop(primary);
}

#[test]
fn a_server_that_refuses_writes_is_told_before_the_next_call() {
    let server = RedisServer::start();
    let gateway = Setup::new().with_redis(&server).start();
    let key = gateway.create_active_key("acme", &[]);
    for (refuse, allow, words) in [
        (&["CONFIG", "SET", "maxmemory", "1"][..], &["CONFIG", "SET", "maxmemory", "0"][..], "OOM"),
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], "READONLY"),
    ] {
        server.run(refuse);
        wait_until("it is told", || gateway.readyz().text().contains(words));
        let refused = gateway.cli(&["check"]).expect(1).stderr;
        assert!(refused.contains(words), "{refused}");
        // The store can still be read, also for an account that has made no call yet.
        gateway.get("/v1/usage", &key).expect(200);
        server.run(allow);
        wait_until("all is well", || !gateway.readyz().text().contains(words));
        gateway.get(DOMAIN, &key).expect(200);
    }
}

#[test]
fn gateways_follow_a_failover_of_sentinels_and_admit_exactly_the_limit() {
    let mut primary = RedisServer::start();
    let replicas = [(); 2].map(|()| RedisServer::replica_of(&primary));
    replicas.iter().for_each(wait_until_replicating);
    let sentinels = Sentinels::start(3, &primary, "");
    let setup = || {
        let setup = Setup::new().set_text("store.url", &sentinels.url());
        let setup = setup.set("store.wait_replicas", "1").set_text("store.on_failure", "closed");
        setup.set("plans.free", &LIMIT.to_string())
    };
    let made = setup().cli(&["keys", "create", "--account", "acme"]).expect(0);
    let key = made.stdout.trim_end().to_owned();
    let gateways = [setup().start(), setup().start()];
    let clients = LoadGenerator::new(DOMAIN, &key);
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in &gateways {
            clients.spawn_clients(scope, gateway.http, 2);
        }
        wait_until("much is spent", || clients.response_counts().admitted > LIMIT / 3);
        primary.kill();
        let begun = Instant::now();
        wait_until("all is spent", || clients.response_counts().quota_exceeded > 100);
        println!("all was spent {:?} after the primary was killed", begun.elapsed());
    });
    assert_eq!(clients.response_counts().admitted, LIMIT);
    for gateway in &gateways {
        wait_until("both report the spent calls", || gateway.get_month_count(&key) == LIMIT);
        wait_until("all is well", || !readyz_reports(gateway, "store"));
    }
    // Commands follow too.
    let usage = setup().cli(&["usage", "--account", "acme", "--json"]).expect(0);
    assert!(usage.stdout.contains(&LIMIT.to_string()), "{}", usage.stdout);
}

#[test]
fn check_names_what_is_wrong_with_the_settings_of_a_redis_store() {
    let sentinel = "redis+sentinel://127.0.0.1:1/main";
    for (url, name, words) in [
        ("redis://127.0.0.1:1", "store.sentinel_user = \"a\"", "sentinel_user: expected store.url"),
        (
            "redis://127.0.0.1:1",
            "store.sentinel_password_file = \"a\"",
            "sentinel_password_file: expected store.url to be redis+sentinel://",
        ),
        (sentinel, "store.sentinel_user = \"a\"", "sentinel_password_file: expected the password"),
        (sentinel, "store.tls_key = \"a\"", "tls_certificate: expected a path"),
        ("rediss://127.0.0.1:1", "store.tls_certificate = \"a\"", "tls_key: expected a path"),
        (
            sentinel,
            "store.tls_certificate = \"a\"\nstore.tls_key = \"b\"",
            "tls_key: expected store.url to be rediss://",
        ),
        ("redis+sentinel://127.0.0.1:1", "", "redis+sentinel://[USER:PASSWORD@]HOST:PORT"),
    ] {
        let mut setup = Setup::new().set_text("store.url", url);
        for line in name.lines() {
            let (key, value) = line.split_once(" = ").unwrap();
            setup = setup.set(key, value);
        }
        let checked = setup.cli(&["check"]).expect(78);
        assert!(checked.stderr.contains(words), "{url} {name}: {}", checked.stderr);
    }
}

#[test]
fn a_changed_password_file_of_the_sentinels_is_named_as_needing_a_restart() {
    let setup = Setup::new().set_text("store.url", "redis+sentinel://127.0.0.1:1/main");
    let setup = setup.set_text("store.sentinel_user", "riskgate");
    let setup = setup.set_text("store.sentinel_password_file", "sentinel.txt");
    let file = setup.path("sentinel.txt");
    std::fs::write(&file, "first\n").unwrap();
    let gateway = setup.start();
    let needs_restart = || gateway.get_admin_page("/status").json()["needs_restart"].to_string();
    assert_eq!(needs_restart(), "[]");
    std::fs::write(&file, "second\n").unwrap();
    wait_until("the file is named", || needs_restart().contains("store.sentinel_password_file"));
}
