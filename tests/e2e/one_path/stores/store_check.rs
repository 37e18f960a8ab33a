//! `riskgate store check` against real servers and Sentinels.

use crate::harness::{Setup, wait_until};
use crate::redis_server::{RedisCluster, RedisServer, Sentinels};

/// The lines of `riskgate store check` that are no `good`.
pub fn find_problems(setup: &Setup) -> Vec<String> {
    let checked = setup.cli(&["store", "check"]);
    let faults = checked.stdout.lines().filter(|line| line.starts_with("fault")).count();
    assert_eq!(checked.exit_code, i32::from(faults > 0), "{}", checked.stdout);
    let lines = checked.stdout.lines().filter(|line| !line.starts_with("good "));
    lines.map(str::to_owned).collect()
}

#[test]
fn store_check_names_what_is_wrong_with_a_deployment() {
    let server = RedisServer::start_on_disk();
    let replica = RedisServer::replica_of(&server);
    let with = |url: &str, wait_replicas: &str, deadline: &str| {
        let setup = Setup::new().set_text("store.url", url).set_text("store.deadline", deadline);
        setup.set("store.wait_replicas", wait_replicas)
    };
    let setup = with(&server.url(), "1", "5s");
    wait_until("nothing is wrong", || find_problems(&setup).is_empty());
    let keys = server.matching_keys("*");
    assert!(keys.iter().all(|key| key == "riskgate:{check}:probe"), "{keys:?}");
    let json = setup.cli(&["store", "check", "--json"]).expect(0).json();
    let subjects: Vec<&str> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["subject"].as_str().unwrap())
        .collect();
    for subject in ["version", "eviction", "memory", "persistence", "replicas", "latency", "clock"]
    {
        assert!(subjects.contains(&subject), "{subjects:?}");
    }
    assert_eq!(json["findings"][0]["level"], "good");
    let expect = |setup: &Setup, expected: &str| {
        let problems = find_problems(setup);
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
    };
    server.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    expect(&setup, "fault    eviction: allkeys-lru; maxmemory-policy noeviction");
    server.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.run(&["CONFIG", "SET", "appendonly", "no"]);
    expect(&setup, "warning  persistence: appendonly no; appendonly yes");
    server.run(&["CONFIG", "SET", "appendonly", "yes"]);
    let lacks_replica = with(&server.url(), "2", "5s");
    expect(&lacks_replica, "fault    replicas: 1 in sync");
    // A gateway runs with it.
    let checked = lacks_replica.cli(&["check"]).expect(0).stderr;
    assert!(checked.contains(": replicas: 1 in sync, store.wait_replicas = 2; add"), "{checked}");
    expect(&with(&server.url(), "0", "5s"), "warning  replicas: 1 in sync");
    let problems = find_problems(&with(&replica.url(), "0", "5s"));
    assert!(
        problems.iter().any(|it| it.starts_with("fault    replicas: the server is a replica")),
        "{problems:?}"
    );
    // The next synchronization would delete what a gateway wrote there.
    replica.run(&["CONFIG", "SET", "replica-read-only", "no"]);
    let checked = with(&replica.url(), "0", "5s").cli(&["check"]).expect(78).stderr;
    assert!(checked.contains("replicas: the server is a replica itself; set"), "{checked}");
    assert!(!checked.contains(": good"), "{checked}");
}

#[test]
fn store_check_names_the_rights_that_a_user_lacks() {
    let server = RedisServer::start_on_disk();
    let with_user = |name: &str| {
        let setup = Setup::new().set_text("store.url", &server.url_as(name, "pass-pw"));
        setup.set_text("store.deadline", "5s")
    };
    let expect = |setup: &Setup, expected: &str| {
        let problems = find_problems(setup);
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
    };
    server.run(&[
        "ACL",
        "SETUSER",
        "me",
        "on",
        ">pass-pw",
        "~riskgate:*",
        "+@all",
        "-xadd",
        "-zadd",
    ]);
    let problems = find_problems(&with_user("me"));
    assert!(
        problems[0].starts_with("fault    rights of a gateway: the server does not run xadd; ACL"),
        "{problems:?}"
    );
    assert!(problems[1].starts_with("warning  rights to change keys: "), "{problems:?}");
    // Only the Redis keys whose names begin with other letters.
    let patterns = ["~riskgate:{ring}:*", "~riskgate:{[^ir]*", "~riskgate:[^{]*"];
    server.run(&[&["ACL", "SETUSER", "narrow", "on", ">pass-pw", "+@all"][..], &patterns].concat());
    expect(
        &with_user("narrow"),
        "warning  rights to Redis keys: the user may not write riskgate:{inbox}:*, \
         riskgate:{rates}:*; ACL SETUSER",
    );
    // Nor those of counts, which every gateway needs.
    server.run(&["ACL", "SETUSER", "ring", "on", ">pass-pw", "+@all", "~riskgate:{*"]);
    let narrow = with_user("ring");
    expect(
        &narrow,
        "fault    rights to Redis keys: the user may not write riskgate:ledger:{*}, \
         riskgate:recovering:{*}, riskgate:usage:{*}, riskgate:staged:*; ACL SETUSER",
    );
    let checked = narrow.cli(&["check"]).expect(78).stderr;
    assert!(checked.contains("rights to Redis keys: the user may not write"), "{checked}");
    assert!(!checked.contains(": good"), "{checked}");
    // A user who may not access the Redis key of the check lacks no command.
    let patterns = ["~riskgate:{[^c]*", "~riskgate:[^{]*"];
    server.run(&[&["ACL", "SETUSER", "others", "on", ">pass-pw", "+@all"][..], &patterns].concat());
    let others = with_user("others");
    expect(&others, "warning  rights to Redis keys: the user may not write riskgate:{check}:*");
    others.cli(&["check"]).expect(0);
}

#[test]
fn store_check_leaves_no_redis_key_for_ever_if_the_user_may_not_use_set() {
    let server = RedisServer::start_on_disk();
    let user = ["ACL", "SETUSER", "me", "on", ">pass-pw", "~riskgate:*", "+@all"];
    server.run(&[&user[..], &["-set", "-expire", "-del"]].concat());
    let setup = Setup::new().set_text("store.url", &server.url_as("me", "pass-pw"));
    let problems = find_problems(&setup.set_text("store.deadline", "5s"));
    assert!(
        problems[0]
            .starts_with("fault    rights of a gateway: the server does not run set, expire"),
        "{problems:?}"
    );
    assert_eq!(server.matching_keys("*"), [""; 0]);
}

#[test]
fn store_check_tells_what_it_can_not_reach_or_read() {
    let one_line = |url: &str, expected: &str| {
        let problems = find_problems(&Setup::new().set_text("store.url", url));
        assert!(problems.len() == 1 && problems[0].starts_with("fault    store: "), "{problems:?}");
        assert!(problems[0].contains(expected), "{problems:?}");
    };
    let server = RedisServer::start_on_disk();
    one_line(&server.url_as("nobody", "s3cr3t"), "connecting: ");
    one_line("sqlite:/no/such/folder/riskgate.db", "/no/such/folder");
    one_line("sqlite:missing.db", "but found no file; look whether store.url is right; ");
    // What is found says how to repair it, so no other advice follows.
    let setup = Setup::new().set_text("store.url", "sqlite:broken.db");
    std::fs::write(setup.path("broken.db"), "this is no database\n").unwrap();
    let problems = find_problems(&setup);
    assert!(problems.len() == 1 && !problems[0].contains("store.url"), "{problems:?}");
    server.pause();
    one_line(&server.url(), "no answer within");
    server.resume();
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let setup = Setup::new().with_redis(&server).set_text("store.deadline", "5s");
    let problems = find_problems(&setup);
    assert!(problems.iter().any(|it| it.starts_with("fault    memory: ")), "{problems:?}");
    // As at a service that does not offer INFO.
    let server = RedisServer::start_on_disk();
    server.run(&["ACL", "SETUSER", "me", "on", ">pass-pw", "~riskgate:*", "+@all", "-info"]);
    let setup = Setup::new().set_text("store.url", &server.url_as("me", "pass-pw"));
    let problems = find_problems(&setup.set_text("store.deadline", "5s"));
    for subject in ["version", "memory", "persistence", "replicas"] {
        let warning = format!("warning  {subject}: the server does not tell");
        assert!(problems.iter().any(|it| it.starts_with(&warning)), "{subject}: {problems:?}");
    }
}

#[test]
fn store_check_asks_each_sentinel() {
    let server = RedisServer::start_on_disk();
    let mut sentinels = Sentinels::start(3, &server, "");
    let setup = Setup::new().set_text("store.url", &sentinels.url());
    let setup = setup.set_text("store.deadline", "5s");
    assert_eq!(find_problems(&setup), [""; 0]);
    sentinels.kill(1);
    let problems = find_problems(&setup);
    let host = format!("127.0.0.1:{}", sentinels.ports()[1]);
    assert!(problems.len() == 1 && problems[0].contains(&host), "{problems:?}");
    assert!(problems[0].starts_with("warning  sentinels: "), "{problems:?}");
}

/// What `riskgate store check` finds at an address.
fn find_problems_at(url: &str) -> String {
    find_problems(&Setup::new().set_text("store.url", url)).join("\n")
}

#[test]
fn an_address_of_another_kind_of_server_is_told() {
    let cluster = RedisCluster::start(3);
    // Also the one that has the slot of the keys.
    for member in &cluster.primaries {
        let setup = Setup::new().set_text("store.url", &member.url());
        for words in [&["check"][..], &["store", "init"], &["keys", "create", "--account", "acme"]]
        {
            let refused = setup.cli(words);
            assert_ne!(refused.exit_code, 0, "{words:?}");
            assert!(refused.stderr.contains("write redis+cluster://"), "{}", refused.stderr);
        }
        let problems = find_problems_at(&member.url());
        let expected = "fault    mode: a part of a Cluster; write redis+cluster";
        assert!(problems.contains(expected), "{problems}");
    }
    assert!(cluster.primaries.iter().all(|it| it.matching_keys("*").is_empty()));
    let server = RedisServer::start_on_disk();
    let sentinels = Sentinels::start(1, &server, "");
    let host = format!("127.0.0.1:{}", sentinels.ports()[0]);
    let problems = find_problems_at(&format!("redis://{host}"));
    assert!(problems.contains("mode: a Sentinel; write redis+sentinel://"), "{problems}");
    let url = server.url().replace("redis://", "redis+sentinel://") + "/main";
    let problems = find_problems_at(&url);
    assert!(problems.contains("it is no Sentinel: write redis:// for"), "{problems}");
}

#[test]
fn a_server_with_tls_at_an_address_of_another_kind_is_told() {
    let server = RedisServer::start_with_tls();
    for (kind, path) in [("+sentinel", "/main"), ("+cluster", "")] {
        let url = server.tls_url().replace("rediss://", &format!("redis{kind}://")) + path;
        let problems = find_problems_at(&url);
        assert!(problems.contains(&format!("write rediss{kind}:// for it")), "{problems}");
    }
}

#[test]
fn check_finds_a_server_on_which_a_gateway_can_not_count() {
    let server = RedisServer::start_on_disk();
    // As at a service that does not offer INFO.
    server.run(&["ACL", "SETUSER", "limited", "on", ">pass-pw", "~riskgate:*", "+@all", "-info"]);
    let setup = Setup::new().set_text("store.url", &server.url_as("limited", "pass-pw"));
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let checked = setup.cli(&["check"]).expect(78).stderr;
    let expected = "rights of a gateway: the server does not run info; ACL SETUSER";
    assert!(checked.contains(expected) && !checked.contains(": good"), "{checked}");
    server.run(&["ACL", "SETUSER", "me", "on", ">pass-pw", "~riskgate:*", "+@all", "-zadd"]);
    let refused = Setup::new().set_text("store.url", &server.url_as("me", "pass-pw"));
    let refused = refused.cli(&["keys", "create", "--account", "acme"]).expect(1).stderr;
    assert!(refused.contains("`riskgate store check` names what"), "{refused}");
}

/// Ways to make a server refuse writes and to end this, the code of its refusal, and the advice.
type WriteRefusal = (fn(&RedisServer), fn(&RedisServer), &'static str, &'static str);

const WRITE_REFUSALS: [WriteRefusal; 4] = [
    (
        |server| drop(server.run(&["CONFIG", "SET", "maxmemory", "1"])),
        |server| drop(server.run(&["CONFIG", "SET", "maxmemory", "0"])),
        "OOM",
        "raise maxmemory",
    ),
    (
        |server| drop(server.run(&["CONFIG", "SET", "min-replicas-to-write", "1"])),
        |server| drop(server.run(&["CONFIG", "SET", "min-replicas-to-write", "0"])),
        "NOREPLICAS",
        "add replicas, or lower min-replicas-to-write",
    ),
    (
        |server| drop(server.run(&["REPLICAOF", "127.0.0.1", "1"])),
        |server| drop(server.run(&["REPLICAOF", "NO", "ONE"])),
        "READONLY",
        "set store.url to the primary server",
    ),
    (
        |server| {
            server.run(&["CONFIG", "SET", "save", "3600 1"]);
            // The server can't replace a folder by a file.
            let _ = std::fs::remove_file(snapshot_path(server));
            std::fs::create_dir(snapshot_path(server)).unwrap();
            save_snapshot(server, "err");
        },
        |server| {
            std::fs::remove_dir(snapshot_path(server)).unwrap();
            save_snapshot(server, "ok");
        },
        "MISCONF",
        "see that its disk has space",
    ),
];

fn snapshot_path(server: &RedisServer) -> std::path::PathBuf {
    let folder = server.run(&["CONFIG", "GET", "dir"]);
    std::path::Path::new(folder.lines().last().unwrap()).join("dump.rdb")
}

fn save_snapshot(server: &RedisServer, status: &str) {
    server.run(&["BGSAVE"]);
    wait_until("the snapshot has ended", || {
        server
            .run(&["INFO", "persistence"])
            .contains(&format!("rdb_last_bgsave_status:{status}\r\n"))
    });
}

#[test]
fn check_tells_that_a_server_refuses_writes() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server).set_text("store.deadline", "5s");
    for is_store in [false, true] {
        if is_store {
            setup.cli(&["store", "init"]).expect(0);
        }
        for (begin, end, code, advice) in WRITE_REFUSALS {
            begin(&server);
            let checked = setup.cli(&["check"]).expect(1).stderr;
            let told = format!("store.url: {}: writing: {code} ", server.url());
            assert!(checked.contains(&told) && checked.contains(advice), "{checked}");
            assert_eq!(checked.trim_end().lines().count(), 1, "{checked}");
            let problems = find_problems(&setup);
            let of_writes = problems.iter().find(|it| it.starts_with("fault    writes: "));
            let of_writes = of_writes.unwrap_or_else(|| panic!("{problems:?}"));
            assert!(of_writes.contains(code) && of_writes.contains(advice), "{of_writes}");
            end(&server);
            setup.cli(&["check"]).expect(0);
        }
    }
}

#[test]
fn a_cluster_of_one_server_is_a_server_if_it_has_all_slots() {
    let cluster = RedisCluster::start(1);
    let member = &cluster.primaries[0];
    let setup = Setup::new().set_text("store.url", &member.url());
    let key = setup.cli(&["keys", "create", "--account", "acme"]).expect(0).stdout;
    setup.cli(&["check"]).expect(0);
    let gateway = setup.start();
    gateway.get_domain("first.test", key.trim_end()).expect(200);
    let setup = gateway.shut_down();
    let set_full_coverage =
        |value: &str| drop(member.run(&["CONFIG", "SET", "cluster-require-full-coverage", value]));
    set_full_coverage("no");
    member.run_for_slots("DELSLOTS", 8_192, 16_383);
    let refused = setup.cli(&["check"]).expect(78).stderr;
    assert!(refused.contains("found a part of a Cluster; write redis+cluster://"), "{refused}");
    // The server then serves no slot. It looks at its state once it loses another one.
    set_full_coverage("yes");
    member.run(&["CLUSTER", "DELSLOTS", "8191"]);
    wait_until("the Cluster is down", || {
        member.run(&["CLUSTER", "INFO"]).contains("cluster_state:fail")
    });
    let refused = setup.cli(&["check"]).expect(1).stderr;
    assert!(refused.contains("writing: CLUSTERDOWN "), "{refused}");
    assert!(refused.contains("; ask the server for CLUSTER INFO"), "{refused}");
}
