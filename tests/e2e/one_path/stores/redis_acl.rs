//! The ACL rules in docs/redis.md are sufficient for a gateway and for commands, on any database of
//! a Redis server.

use crate::harness::{Gateway, Setup, wait_until};
use crate::redis_server::RedisServer;

/// What servers say to a user without a right: Redis before 7 and outside of scripts, Redis within
/// a script, and Valkey.
const REFUSALS: [&str; 3] = ["NOPERM", "can't run this command", "ACL failure in script"];

/// The base rules in docs/redis.md, and the additional rules below them, in order.
fn documented_acl_rules() -> (Vec<String>, Vec<Vec<String>>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md");
    let document = std::fs::read_to_string(path).unwrap();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let line = document.lines().find_map(|line| line.strip_prefix("    ACL SETUSER "));
    let section =
        document.split_once("uses need further").unwrap().1.split_once("ACL SETUSER").unwrap().0;
    let further = section.split('`').skip(1).step_by(2).filter(|code| code.starts_with('+'));
    (words(line.expect("the ACL line")), further.map(words).collect())
}

struct AclUser<'s> {
    server: &'s RedisServer,
}

impl AclUser<'_> {
    fn set_rules(&self, words: &[String]) {
        let mut command = vec!["ACL", "SETUSER"];
        command.extend(words.iter().map(String::as_str));
        self.server.run(&command);
    }

    fn add_rules(&self, rights: &[String]) {
        self.set_rules(&[&["riskgate".to_owned()], rights].concat());
    }

    /// A config with this user, on a database other than 0.
    fn setup_as_user(&self) -> Setup {
        let url = format!("{}/2", self.server.url_as("riskgate", "PASSWORD"));
        Setup::new().set("plans.free", "1000000").set_text("store.url", &url)
    }
}

/// Uses everything that a gateway does, except changes of keys.
fn use_every_feature(gateway: &Gateway, key: &str) {
    wait_until("the key is accepted", || gateway.get("/v1/usage", key).status == 200);
    for _ in 0..20 {
        gateway.get_domain("first.test", key).expect(200);
    }
    gateway.get("/v1/public/top-domains", key).expect(200);
    wait_until("the store has the spent calls", || gateway.get_month_count(key) == 21);
    for subcommand in [&["check"][..], &["keys", "list"], &["accounts", "list"], &["usage"]] {
        gateway.cli(subcommand).expect(0);
    }
    assert!(!gateway.stderr().contains("NOPERM"), "{}", gateway.stderr());
}

#[test]
fn the_acl_rules_in_redis_md_suffice_for_a_gateway_and_for_commands() {
    let (line, further) = documented_acl_rules();
    let [changes, imports, repair, copies, waits, learns, sign_ups] = &further[..] else {
        panic!("{further:?}")
    };
    let server = RedisServer::start();
    let user = AclUser { server: &server };
    user.set_rules(&line);
    // Another user creates keys in the same database.
    let other = Setup::new().set_text("store.url", &format!("{}/2", server.url()));
    let key = other.cli(&["keys", "create", "--account", "acme"]).expect(0).stdout;
    let gateway = user.setup_as_user().start();
    use_every_feature(&gateway, key.trim_end());
    let refused = gateway.cli(&["keys", "create", "--account", "acme"]).expect(1).stderr;
    assert!(REFUSALS.iter().any(|words| refused.contains(words)), "{refused}");

    user.add_rules(changes);
    change_keys(&gateway);
    user.add_rules(imports);
    import_keys(&gateway);
    let setup = gateway.shut_down();

    user.set_rules(&[&["riskgate".to_owned(), "-del".to_owned()], &repair[..]].concat());
    repair_month(&server, &setup);

    user.set_rules(&["riskgate".to_owned(), "-del".to_owned()]);
    copy_store(&user, &setup, &line, [changes, copies]);

    let _replica = RedisServer::replica_of(&server);
    user.add_rules(waits);
    make_call_with_wait_replicas(&user);
    assert_eq!(learns[..], ["+zadd", "+zrem"], "the rules of the store's own test");
    assert_eq!(sign_ups[..], ["+xdel", "+xinfo"], "the rules of the store's own test");
}

fn change_keys(gateway: &Gateway) {
    let made = gateway.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    let id = made["id"].as_str().unwrap();
    for subcommand in [
        &["store", "init"][..],
        &["keys", "rotate", id],
        &["keys", "revoke", id],
        &["accounts", "set", "acme", "--limit", "50000"],
    ] {
        gateway.cli(subcommand).expect(0);
    }
}

fn import_keys(gateway: &Gateway) {
    let file = gateway.path("import.toml");
    let key =
        |n: u32| format!("[[key]]\nid = \"i{n}\"\naccount = \"old\"\nhash = \"sha256:{n:064x}\"\n");
    std::fs::write(&file, (0..1_500).map(key).collect::<String>()).unwrap();
    gateway.cli(&["keys", "import", file.to_str().unwrap()]).expect(0);
    // A refused import removes the keys that it had already written.
    std::fs::write(&file, (1_000..3_000).map(key).rev().collect::<String>()).unwrap();
    let refused = gateway.cli(&["keys", "import", file.to_str().unwrap()]).expect(1).stderr;
    assert!(refused.contains("expected a new key"), "{refused}");
    assert!(!gateway.stderr().contains("NOPERM"), "{}", gateway.stderr());
}

fn repair_month(server: &RedisServer, setup: &Setup) {
    let script = "redis.call('SELECT', 2) redis.call('HINCRBY', 'riskgate:{ring}:meta', 'month', 9) \
                  return redis.call('HSET', 'riskgate:ledger:{acme}:2099-01', 'leased', '1')";
    server.run(&["EVAL", script, "0"]);
    let month = jiff::Timestamp::now().to_string()[..7].to_owned();
    let repaired = setup.cli(&["store", "repair-month", &month, "--json"]).expect(0).json();
    assert_eq!((&repaired["changed"], &repaired["dropped"]), (&true.into(), &1.into()));
    server.run(&["EVAL", script, "0"]);
    let told = setup.cli(&["store", "repair-month", &month]).expect(0).stderr;
    assert!(told.contains("; 1 count deleted; the time"), "{told}");
}

/// Copies the store to another server, where the user first lacks the additional rules.
fn copy_store(user: &AclUser, setup: &Setup, rules: &[String], more: [&Vec<String>; 2]) {
    let target = RedisServer::start();
    let other = AclUser { server: &target };
    other.set_rules(rules);
    let [from, to] =
        [user.server, &target].map(|it| format!("{}/2", it.url_as("riskgate", "PASSWORD")));
    let lacks = setup.cli(&["store", "copy", &from, &to]).expect(1).stderr;
    assert!(lacks.contains("can't run this command") || lacks.contains("NOPERM"), "{lacks}");
    more.iter().for_each(|rules| other.add_rules(rules));
    setup.cli(&["store", "copy", &from, &to]).expect(0);
    setup.cli(&["store", "copy", &from, &to]).expect(1);
    let listed = |setup: &Setup| setup.cli(&["keys", "list"]).expect(0).stdout;
    assert_eq!(listed(&other.setup_as_user()), listed(setup));
}

fn make_call_with_wait_replicas(user: &AclUser) {
    let gateway =
        user.setup_as_user().set("store.wait_replicas", "1").set("store.deadline", "\"2s\"");
    let gateway = gateway.start();
    wait_until("the replica follows", || {
        gateway.cli(&["keys", "create", "--account", "late"]).exit_code == 0
    });
    let key = gateway.create_active_key("late", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    wait_until("the spent calls are reported", || gateway.get_month_count(&key) == 1);
    assert_eq!(
        gateway.sum_of_samples("riskgate_store_failures_total", &[]),
        0.0,
        "{}",
        gateway.stderr()
    );
    assert!(!gateway.stderr().contains("NOPERM"), "{}", gateway.stderr());
}
