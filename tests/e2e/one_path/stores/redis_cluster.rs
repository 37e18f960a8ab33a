//! Gateways whose store is a Cluster: failovers, slots that move, and `riskgate store check`.

use std::time::{Duration, Instant};

use super::store_check::find_problems;
use crate::harness::{Gateway, LoadGenerator, Setup, wait_until};
use crate::redis_server::{RedisCluster, RedisServer};

const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 3_000;
const ACME_LEDGER_KEYS: &str = "riskgate:ledger:{acme}:x";

fn create_key(setup: &Setup) -> String {
    let made = setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    made.stdout.trim_end().to_owned()
}

fn index_of_primary(cluster: &RedisCluster, redis_key: &str) -> usize {
    let port = cluster.primary_of(redis_key).port();
    cluster.primaries.iter().position(|primary| primary.port() == port).unwrap()
}

/// Waits until all gateways report the whole limit as spent, and a command does so too.
fn assert_all_is_spent(setup: &Setup, gateways: &[Gateway], key: &str) {
    for gateway in gateways {
        wait_until("all report the spent calls", || gateway.get_month_count(key) == LIMIT);
        wait_until("all is well", || {
            !gateway.readyz().json()["degraded"].to_string().contains("store")
        });
    }
    let usage = setup.cli(&["usage", "--account", "acme", "--json"]).expect(0);
    assert!(usage.stdout.contains(&LIMIT.to_string()), "{}", usage.stdout);
}

/// Waits until the clients have spent the limit. One gateway may refuse calls while another one
/// holds some, and can't report them yet.
fn wait_until_all_is_spent(clients: &LoadGenerator) {
    wait_until("all is spent", || {
        let counts = clients.response_counts();
        counts.admitted >= LIMIT && counts.quota_exceeded > 100
    });
}

/// Three gateways spend a limit, while the primary that has its totals fails.
fn spend_during_a_failover(fail: impl Fn(&mut RedisServer), come_back: impl Fn(&mut RedisServer)) {
    let mut cluster = RedisCluster::start_with_replicas(3);
    let url = cluster.url();
    let setup = || {
        let setup = Setup::new().set_text("store.url", &url);
        let setup = setup.set("store.wait_replicas", "1").set_text("store.on_failure", "closed");
        setup.set("plans.free", &LIMIT.to_string())
    };
    let key = create_key(&setup());
    let gateways = [setup().start(), setup().start(), setup().start()];
    let clients = LoadGenerator::new(DOMAIN, &key);
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in &gateways {
            clients.spawn_clients(scope, gateway.http, 2);
        }
        wait_until("much is spent", || clients.response_counts().admitted > LIMIT / 3);
        let failed = index_of_primary(&cluster, ACME_LEDGER_KEYS);
        fail(&mut cluster.primaries[failed]);
        let begun = Instant::now();
        wait_until("the replica is promoted", || {
            let info = cluster.replicas[failed].run(&["INFO", "replication"]);
            info.contains("role:master")
        });
        println!("the replica was promoted after {:?}", begun.elapsed());
        // The former primary becomes the replica of the new one.
        come_back(&mut cluster.primaries[failed]);
        wait_until_all_is_spent(&clients);
        println!("all was spent {:?} after the primary failed", begun.elapsed());
    });
    assert_eq!(clients.response_counts().admitted, LIMIT);
    assert_all_is_spent(&setup(), &gateways, &key);
}

#[test]
fn gateways_follow_a_failover_of_a_cluster_and_admit_exactly_the_limit() {
    spend_during_a_failover(RedisServer::kill, RedisServer::restart);
}

#[test]
fn a_primary_that_hung_and_wakes_up_admits_nothing_beyond_the_limit() {
    spend_during_a_failover(|server| server.pause(), |server| server.resume());
}

#[test]
fn gateways_serve_on_while_slots_move() {
    let cluster = RedisCluster::start(3);
    let setup = || {
        let setup = Setup::new().set_text("store.url", &cluster.url());
        let setup = setup.set_text("store.on_failure", "closed").set_text("store.deadline", "2s");
        setup.set("plans.free", &LIMIT.to_string())
    };
    let key = create_key(&setup());
    let gateways = [setup().start(), setup().start()];
    let clients = LoadGenerator::new(DOMAIN, &key);
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        for gateway in &gateways {
            clients.spawn_clients(scope, gateway.http, 2);
        }
        wait_until("something is spent", || clients.response_counts().admitted > LIMIT / 10);
        // The slots of the account and of the keys go around all primaries.
        for step in 0..6 {
            for redis_key in [ACME_LEDGER_KEYS, "riskgate:{ring}:meta"] {
                let slot = cluster.primaries[0].run(&["CLUSTER", "KEYSLOT", redis_key]);
                let from = index_of_primary(&cluster, redis_key);
                let to = (from + 1) % 3;
                cluster.move_slot(&slot, &cluster.primaries[from], &cluster.primaries[to]);
            }
            let admitted = clients.response_counts().admitted;
            wait_until("calls pass", || {
                let counts = clients.response_counts();
                counts.admitted > admitted || counts.quota_exceeded > 0
            });
            println!("step {step}: {:?}", clients.response_counts());
        }
        wait_until_all_is_spent(&clients);
    });
    let counts = clients.response_counts();
    assert_eq!((counts.admitted, counts.internal_errors), (LIMIT, 0));
    assert_all_is_spent(&setup(), &gateways, &key);
}

#[test]
fn a_gateway_tells_why_a_cluster_is_down() {
    let mut cluster = RedisCluster::start(3);
    let setup = Setup::new().set_text("store.url", &cluster.url());
    let key = create_key(&setup);
    let gateway = setup.start();
    gateway.get(DOMAIN, &key).expect(200);
    let failed = index_of_primary(&cluster, "riskgate:{other}:x");
    cluster.primaries[failed].kill();
    wait_until("it is told", || gateway.readyz().text().contains("cluster_state is fail"));
    cluster.primaries[failed].restart();
    wait_until("all is well", || {
        !gateway.readyz().json()["degraded"].to_string().contains("store")
    });
    gateway.get(DOMAIN, &key).expect(200);
}

#[test]
fn store_check_checks_each_primary() {
    let on_disk = ["--appendonly", "yes"];
    let mut cluster = RedisCluster::start_with_replicas_and_arguments(3, &on_disk);
    let with = |url: &str| {
        let setup = Setup::new().set_text("store.url", url).set_text("store.deadline", "5s");
        setup.set("store.wait_replicas", "1")
    };
    let setup = with(&cluster.url());
    assert_eq!(find_problems(&setup), [""; 0]);
    cluster.primaries[1].run(&["CONFIG", "SET", "appendonly", "no"]);
    let problems = find_problems(&setup);
    let told = format!("127.0.0.1:{}: appendonly no", cluster.primaries[1].port());
    assert!(problems.len() == 1 && problems[0].contains(&told), "{problems:?}");
    assert!(problems[0].starts_with("warning  persistence: "), "{problems:?}");
    cluster.primaries[1].run(&["CONFIG", "SET", "appendonly", "yes"]);
    let acl = |server: &RedisServer, further: &str| {
        server.run(&["ACL", "SETUSER", "me", "on", ">pass-pw", "~riskgate:*", "+@all", further]);
    };
    cluster.primaries.iter().for_each(|primary| acl(primary, "+@all"));
    acl(&cluster.primaries[2], "-asking");
    let problems = find_problems(&with(&cluster.url().replace("://", "://me:pass-pw@")));
    let expected = "fault    rights on a Cluster: ";
    assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
    let told = format!("127.0.0.1:{}: the server does not run asking", cluster.primaries[2].port());
    assert!(problems[0].contains(&told), "{problems:?}");
    acl(&cluster.primaries[2], "+@all");
    cluster.primaries[0].run(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    cluster.replicas[1].kill();
    let expect = |setup: &Setup, level_and_subject: &str, server: usize, words: &str| {
        let told = format!("127.0.0.1:{}: {words}", cluster.primaries[server].port());
        wait_until("it is told", || {
            let problems = find_problems(setup);
            println!("{problems:?}");
            let is_told = |it: &String| it.starts_with(level_and_subject) && it.contains(&told);
            problems.iter().any(is_told)
        });
    };
    expect(&setup, "fault    writes: ", 0, "NOREPLICAS");
    expect(&setup, "fault    replicas: ", 1, "0 in sync");
    let without_wait = Setup::new().set_text("store.url", &cluster.url());
    expect(&without_wait, "warning  replicas: ", 1, "0 in sync");
}

#[test]
fn a_store_is_copied_to_a_cluster_and_back() {
    let (cluster, setup) = (RedisCluster::start(3), Setup::new());
    let [file, back] =
        ["file.db", "back.db"].map(|name| format!("sqlite:{}", setup.path(name).display()));
    let setup = setup.set_text("store.url", &file);
    let key = create_key(&setup);
    let gateway = setup.start();
    gateway.get(DOMAIN, &key).expect(200);
    let setup = gateway.shut_down();
    let begun = Instant::now();
    setup.cli(&["store", "copy", &file, &cluster.url()]).expect(0);
    setup.cli(&["store", "copy", &cluster.url(), &back]).expect(0);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let gateway = setup.set_text("store.url", &cluster.url()).start();
    gateway.get(DOMAIN, &key).expect(200);
    assert_eq!(gateway.get_month_count(&key), 2);
}
