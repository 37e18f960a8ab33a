//! Counts and ids of several nodes, and across restarts.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::{RULES, is_counting, start_counting};
use crate::harness::{FakeClock, Gateway, Setup, TcpForwarder, request, wait_until};
use crate::random_numbers::{RandomNumbers, first_seed};
use crate::redis_server::RedisServer;

fn assess(gateway: &Gateway, key: &str, email: &str, count: bool) -> Value {
    let body = json!({"email": email, "count": count}).to_string();
    let answer =
        gateway.send_request(&request("POST", "/v1/assess").key(key).body(&body)).expect(200);
    serde_json::from_str(&answer.text()).unwrap()
}

/// A setup whose accounts may call often: these tests ask until something is so.
fn setup() -> Setup {
    Setup::with_bundled_table().set("plans.free", "100000").append_toml(RULES)
}

fn accounts(gateway: &Gateway, key: &str) -> Value {
    assess(gateway, key, "jane@gmail.com", false)["facts"]["inbox_accounts_30d"].clone()
}

fn inbox(gateway: &Gateway, key: &str) -> Value {
    assess(gateway, key, "jane@gmail.com", false)["inbox"].clone()
}

#[test]
fn ids_and_counts_survive_a_restart() {
    let gateway = start_counting(setup());
    let key = gateway.create_active_key("acme", &[]);
    let id = inbox(&gateway, &key);
    assess(&gateway, &key, "jane+a@gmail.com", true);
    let gateway = gateway.restart();
    wait_until("sign-ups are counted", || is_counting(&gateway));
    wait_until("the key is known", || gateway.get("/v1/usage", &key).status == 200);
    assert_eq!(inbox(&gateway, &key), id);
    assert_eq!(accounts(&gateway, &key), 1);
}

#[test]
fn a_crash_loses_no_id_and_only_the_latest_counts() {
    let gateway = start_counting(setup());
    let key = gateway.create_active_key("acme", &[]);
    let id = inbox(&gateway, &key);
    assess(&gateway, &key, "jane+a@gmail.com", true);
    wait_until("the store has the count", || {
        let shown = gateway.cli_with_input(&["sign-ups", "show", "-", "--json"], b"jane@gmail.com");
        serde_json::from_str(&shown.stdout).is_ok_and(|shown: Value| shown["sign_ups"] == 1)
    });
    let gateway = gateway.crash_and_restart();
    wait_until("sign-ups are counted", || is_counting(&gateway));
    assert_eq!(inbox(&gateway, &key), id);
    assert_eq!(accounts(&gateway, &key), 1);
}

#[test]
fn an_end_while_the_store_is_down_says_how_many_sign_ups_are_lost() {
    let mut gateway = start_counting(setup());
    let key = gateway.create_active_key("acme", &[]);
    assess(&gateway, &key, "jane@gmail.com", false);
    let locked = rusqlite::Connection::open(gateway.path("riskgate.db")).unwrap();
    locked.busy_timeout(crate::harness::TEST_TIMEOUT).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    for email in ["jane@gmail.com", "john@gmail.com", "jill@gmail.com"] {
        assess(&gateway, &key, email, true);
    }
    gateway.send_signal("TERM");
    assert!(gateway.wait_for_exit().success());
    let stderr = gateway.stderr();
    let expected = "the store did not take the last counts: 3 sign-ups and ";
    assert!(stderr.contains(expected), "{stderr}");
}

#[test]
fn nodes_of_one_store_share_ids_and_counts_within_two_seconds() {
    let redis = RedisServer::start();
    let setup = || setup().with_redis(&redis);
    let first = start_counting(setup());
    let second = start_counting(setup());
    let key = first.create_active_key("acme", &[]);
    wait_until("both nodes know the key", || second.get("/v1/usage", &key).status == 200);
    assert_eq!(inbox(&first, &key), inbox(&second, &key));
    for (number, tag) in ["a", "b", "c"].iter().enumerate() {
        assess(&first, &key, &format!("jane+{tag}@gmail.com"), true);
        let started = std::time::Instant::now();
        wait_until("the other node counts it", || accounts(&second, &key) == json!(number + 1));
        assert!(started.elapsed().as_secs_f64() < 2.0, "{:?}", started.elapsed());
    }
    assert_eq!(assess(&second, &key, "jane+d@gmail.com", false)["action"], "block");
}

#[test]
fn a_node_writes_its_secret_back_to_an_emptied_server() {
    let redis = RedisServer::start();
    let setup = || setup().with_redis(&redis);
    let first = start_counting(setup());
    let key = first.create_active_key("acme", &[]);
    let id = inbox(&first, &key);
    redis.run(&["FLUSHALL"]);
    wait_until("the secret is back", || {
        first.stderr().contains("wrote it back, so inbox ids stay")
    });
    let second = start_counting(setup());
    let key = second.create_active_key("other", &[]);
    assert_eq!(inbox(&second, &key), id);
}

#[test]
fn a_file_of_the_secret_makes_the_ids() {
    let setup = || {
        let setup = Setup::with_bundled_table();
        std::fs::write(setup.path("secret"), format!("{}\n", "s".repeat(32))).unwrap();
        let file = setup.path("secret").display().to_string();
        setup.set_text("inbox.secret_file", &file)
    };
    // printf jane@gmail.com | openssl dgst -sha256 -hmac ssssssssssssssssssssssssssssssss
    let expected = "1780b442e6690a32c824f76b52b3b3e7";
    for _ in 0..2 {
        let gateway = start_counting(setup());
        let key = gateway.create_active_key("acme", &[]);
        assert_eq!(inbox(&gateway, &key), expected);
        assert_eq!(assess(&gateway, &key, "ja.ne+x@gmail.com", false)["inbox"], expected);
    }
}

#[test]
fn nodes_with_different_secrets_or_scopes_are_told() {
    let redis = RedisServer::start();
    let setup = || setup().with_redis(&redis);
    let first = start_counting(setup());
    let differs = |gateway: &Gateway| gateway.readyz().text().contains("makes other inbox ids");
    let with_file = setup();
    std::fs::write(with_file.path("secret"), "s".repeat(32)).unwrap();
    let file = with_file.path("secret").display().to_string();
    let second = with_file.set_text("inbox.secret_file", &file).start();
    wait_until("the first node is told", || differs(&first));
    wait_until("the second node says so", || {
        second.stderr().contains("inbox ids are others from now on")
    });
    assert!(!differs(&second));
    drop(second);
    let first = first.restart();
    wait_until("its ids are those of the store again", || is_counting(&first));
    let third = setup().set_text("decide.scope", "account").start();
    wait_until("the first node is told again", || differs(&first));
    assert!(!differs(&third));
}

#[test]
fn accounts_of_riskgate_have_ids_of_their_own_if_the_scope_says_so() {
    let setup = Setup::with_bundled_table().set_text("decide.scope", "account");
    let gateway = start_counting(setup.append_toml(RULES));
    let [first, second] = ["one", "two"].map(|account| gateway.create_active_key(account, &[]));
    assert_ne!(inbox(&gateway, &first), inbox(&gateway, &second));
    assess(&gateway, &first, "jane+a@gmail.com", true);
    assert_eq!((accounts(&gateway, &first), accounts(&gateway, &second)), (json!(1), json!(0)));
}

#[test]
fn a_failover_changes_no_id_and_no_count() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let forwarder = TcpForwarder::start_to(&primary);
    let setup = || setup().set_text("store.url", &forwarder.url());
    let gateway = start_counting(setup());
    let key = gateway.create_active_key("acme", &[]);
    let id = inbox(&gateway, &key);
    assess(&gateway, &key, "jane+a@gmail.com", true);
    wait_until("the replica has it", || {
        replica.run(&["XLEN", "riskgate:{sign_ups}:stream"]).trim() == "1"
    });
    primary.kill();
    // CountedNoun while there is no server.
    assess(&gateway, &key, "jane+b@gmail.com", true);
    assert_eq!(accounts(&gateway, &key), 2);
    replica.run(&["REPLICAOF", "NO", "ONE"]);
    forwarder.switch_to(&replica);
    wait_until("the new primary has both", || {
        replica.run(&["XLEN", "riskgate:{sign_ups}:stream"]).trim() == "2"
    });
    assert_eq!((inbox(&gateway, &key), accounts(&gateway, &key)), (id.clone(), json!(2)));
    let later = start_counting(setup());
    wait_until("the later node knows the key", || later.get("/v1/usage", &key).status == 200);
    assert_eq!((inbox(&later, &key), accounts(&later, &key)), (id, json!(2)));
}

#[test]
fn the_end_of_a_month_and_steps_of_the_clock_change_no_count() {
    let clock = FakeClock::starting_at("2031-04-30T23:59:50Z");
    let gateway = start_counting(setup().with_clock(&clock));
    let key = gateway.create_active_key("acme", &[]);
    let in_hour = |gateway: &Gateway| {
        let facts = assess(gateway, &key, "person9@quelbrandt.com", false)["facts"].clone();
        facts["domain_accounts_1h"].clone()
    };
    for number in 0..3 {
        assess(&gateway, &key, &format!("person{number}@quelbrandt.com"), true);
    }
    assert_eq!(in_hour(&gateway), 3);
    clock.step(60);
    assert_eq!(in_hour(&gateway), 3);
    // A step back, by hand or by NTP.
    clock.step(-600);
    assert_eq!(in_hour(&gateway), 3);
    assess(&gateway, &key, "person3@quelbrandt.com", true);
    assert_eq!(in_hour(&gateway), 4);
    std::thread::sleep(Duration::from_secs(2));
    let gateway = gateway.restart();
    wait_until("sign-ups are counted", || is_counting(&gateway));
    wait_until("the key is known", || gateway.get("/v1/usage", &key).status == 200);
    assert_eq!(in_hour(&gateway), 4);
}

/// What three nodes should count: the addresses of each inbox.
#[derive(Default)]
struct Model(HashMap<u32, HashSet<u32>>);

impl Model {
    fn other_addresses(&self, inbox: u32, address: u32) -> usize {
        let addresses = self.0.get(&inbox).into_iter().flatten();
        addresses.filter(|other| **other != address).count()
    }
}

/// One of the spellings of an address, which is of that inbox.
fn address_text(inbox: u32, address: u32, spelling: usize) -> String {
    let (dots, domain) = match address % 2 {
        0 => ("person", "gmail.com"),
        _ => ("p.erson", "googlemail.com"),
    };
    let written = format!("{dots}{inbox}+{address}@{domain}");
    match spelling {
        0 => written,
        1 => written.to_ascii_uppercase(),
        _ => format!("\"{}", written.replace('@', "\"@")),
    }
}

#[test]
fn three_nodes_agree_with_a_model_also_after_one_was_killed() {
    let redis = RedisServer::start();
    let rule =
        "[[rule]]\nname = \"none\"\nif = [\"inbox_accounts_30d >= 1000\"]\nthen = \"block\"\n";
    let start = || {
        let setup = Setup::with_bundled_table().set("plans.free", "100000").with_redis(&redis);
        start_counting(setup.append_toml(rule))
    };
    let mut nodes = vec![start(), start(), start()];
    let key = nodes[0].create_active_key("acme", &[]);
    wait_until("all nodes know the key", || {
        nodes.iter().all(|node| node.get("/v1/usage", &key).status == 200)
    });
    let (mut model, mut random) = (Model::default(), RandomNumbers(first_seed()));
    for round in 0..3 {
        for _ in 0..60 {
            let (inbox, address) = (random.number_below(8) as u32, random.number_below(12) as u32);
            let node = &nodes[random.number_below(3)];
            let spelling = random.number_below(3);
            assess(node, &key, &address_text(inbox, address, spelling), true);
            model.0.entry(inbox).or_default().insert(address);
        }
        for node in &nodes {
            for (inbox, address) in (0..8).flat_map(|inbox| [(inbox, 0), (inbox, 99)]) {
                let expected = model.other_addresses(inbox, address) as u64;
                wait_until("the node counts all addresses", || {
                    let found = assess(node, &key, &address_text(inbox, address, 0), false);
                    let found = found["facts"]["inbox_accounts_30d"].as_u64().unwrap();
                    assert!(found <= expected, "{round} {inbox} {address}: {found} > {expected}");
                    found == expected
                });
            }
        }
        let killed = nodes.remove(0).crash_and_restart();
        wait_until("the node counts again", || is_counting(&killed));
        wait_until("the node knows the key", || killed.get("/v1/usage", &key).status == 200);
        nodes.push(killed);
    }
}
