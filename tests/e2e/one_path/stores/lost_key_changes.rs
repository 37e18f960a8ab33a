//! After a failover or a restored backup, the store has lost changes of keys or overrides that it
//! had acknowledged. Revocations and keys that a node knew stay in force, and the node writes them
//! back to the store.

use crate::harness::{Gateway, Setup, TEST_TIMEOUT, get, wait_until};
use crate::redis_server::RedisServer;

const USAGE: &str = "/v1/usage";
/// The Redis keys of the key ring and the overrides.
const KEY_RING_REDIS_KEYS: [&str; 6] =
    ["meta", "keys", "digests", "accounts", "changed", "overrides"];

fn usage_status(gateway: &Gateway, key: &str) -> u16 {
    gateway.get(USAGE, key).status
}

fn degraded_reasons(gateway: &Gateway) -> String {
    let reported = gateway.readyz().json()["degraded"].clone();
    let reported: Vec<&str> =
        reported.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    reported.join("\n")
}

fn keys_reload_failing_metric(gateway: &Gateway) -> f64 {
    gateway.sum_of_samples("riskgate_reload_failing", &["part=\"keys\""])
}

fn wait_until_healthy(gateway: &Gateway) {
    wait_until("/readyz and the metric report no fault", || {
        degraded_reasons(gateway).is_empty() && keys_reload_failing_metric(gateway) == 0.0
    });
}

fn get_monthly_limit(gateway: &Gateway, key: &str) -> u64 {
    gateway.get(USAGE, key).expect(200).json()["monthly_limit"].as_u64().unwrap()
}

/// The entry of a key in the output of `riskgate keys list`.
fn listed_key(setup: &Setup, id: &str) -> serde_json::Value {
    let rows = setup.cli(&["keys", "list", "--json"]).expect(0).json();
    let row = rows.as_array().unwrap().iter().find(|row| row["id"] == id);
    row.unwrap_or_else(|| panic!("{id} is not in {rows}")).clone()
}

/// A store that a test can set back to an earlier state while gateways use it.
enum RestorableStore {
    File(Setup),
    Server(RedisServer),
}

impl RestorableStore {
    fn new_gateway_setup(&self) -> Setup {
        match self {
            RestorableStore::File(first) => {
                let path = first.path("riskgate.db").display().to_string();
                Setup::new().set_text("store.url", &format!("sqlite:{path}"))
            }
            // With a long deadline no call fails because the machine is loaded.
            RestorableStore::Server(server) => {
                Setup::new().with_redis(server).set_text("store.deadline", "5s")
            }
        }
    }

    fn save_backup(&self) {
        match self {
            RestorableStore::File(first) => {
                let backup = first.path("backup.db").display().to_string();
                self.open_sqlite_file().execute("VACUUM INTO ?1", [backup]).unwrap();
            }
            RestorableStore::Server(server) => copy_key_ring(server, "riskgate:{ring}:", "backup:"),
        }
    }

    /// Sets the store back in one step, as a failover would.
    fn restore_backup(&self) {
        self.restore_backup_after(|| ());
    }

    /// Calls `prepare` while no other process can write to the file, and then sets the store back
    /// in one step.
    fn restore_backup_after(&self, prepare: impl FnOnce()) {
        match self {
            RestorableStore::File(first) => {
                let backup = first.path("backup.db").display().to_string();
                let file = self.open_sqlite_file();
                file.execute("ATTACH ?1 AS backup", [backup]).unwrap();
                let table = |name| {
                    format!("DELETE FROM {name}; INSERT INTO {name} SELECT * FROM backup.{name};")
                };
                let tables = ["api_key", "account", "domain_override", "meta"].map(table).concat();
                file.execute_batch("BEGIN IMMEDIATE").unwrap();
                prepare();
                file.execute_batch(&format!("{tables} COMMIT")).unwrap();
            }
            RestorableStore::Server(server) => {
                prepare();
                copy_key_ring(server, "backup:", "riskgate:{ring}:");
            }
        }
    }

    fn open_sqlite_file(&self) -> rusqlite::Connection {
        let RestorableStore::File(first) = self else { panic!("a server has no file") };
        let file = rusqlite::Connection::open(first.path("riskgate.db")).unwrap();
        file.busy_timeout(TEST_TIMEOUT).unwrap();
        file
    }
}

fn copy_key_ring(server: &RedisServer, from: &str, to: &str) {
    let names: Vec<[String; 2]> = KEY_RING_REDIS_KEYS
        .iter()
        .map(|name| [format!("{from}{name}"), format!("{to}{name}")])
        .collect();
    let script =
        "for at = 1, #KEYS, 2 do redis.call('COPY', KEYS[at], KEYS[at + 1], 'REPLACE') end";
    let count = (2 * KEY_RING_REDIS_KEYS.len()).to_string();
    let words = ["EVAL", script, &count].into_iter();
    server.run(&words.chain(names.iter().flatten().map(String::as_str)).collect::<Vec<_>>());
}

/// Runs the test with SQLite and with Redis.
fn run_on_both_stores(test: impl Fn(&RestorableStore)) {
    println!("on SQLite");
    test(&RestorableStore::File(Setup::new()));
    println!("on Redis");
    test(&RestorableStore::Server(RedisServer::start()));
}

#[test]
fn a_revocation_that_the_store_lost_stays_in_force_and_is_written_back() {
    run_on_both_stores(|store| {
        store.new_gateway_setup().cli(&["store", "init"]).expect(0);
        let gateway = store.new_gateway_setup().start();
        let (first, first_id) = gateway.create_active_key_with_id("acme", &[]);
        let (second, second_id) = gateway.create_active_key_with_id("acme", &[]);
        store.save_backup();
        gateway.cli(&["keys", "revoke", &first_id]).expect(0);
        wait_until("the first key is refused", || usage_status(&gateway, &first) == 401);
        store.restore_backup();
        // This change gets the same number as the lost change.
        gateway.cli(&["keys", "revoke", &second_id]).expect(0);
        wait_until("the second key is refused", || usage_status(&gateway, &second) == 401);
        assert_eq!(usage_status(&gateway, &first), 401, "the known keys stay in force");
        wait_until("it is written back", || {
            listed_key(gateway.setup(), &first_id)["revoked_at"].is_string()
        });
        wait_until_healthy(&gateway);
        let reported = "keys is degraded: the store lost data that it had acknowledged";
        assert!(gateway.stderr().contains(reported), "{}", gateway.stderr());
        let other = store.new_gateway_setup().start();
        assert_eq!((usage_status(&other, &first), usage_status(&other, &second)), (401, 401));
        // The node still follows further changes.
        let third = gateway.create_active_key("acme", &[]);
        assert_eq!(usage_status(&gateway, &third), 200);
    });
}

#[test]
fn a_key_that_the_store_lost_is_still_accepted_and_is_written_back() {
    run_on_both_stores(|store| {
        store.new_gateway_setup().cli(&["store", "init"]).expect(0);
        let gateway = store.new_gateway_setup().start();
        let old = gateway.create_active_key("acme", &[]);
        store.save_backup();
        let (lost, lost_id) =
            gateway.create_active_key_with_id("late", &["--plan", "pro", "--expires", "90d"]);
        let row = listed_key(gateway.setup(), &lost_id);
        store.restore_backup();
        let other = store.new_gateway_setup().start();
        wait_until("a node that never knew the lost key accepts it", || {
            usage_status(&other, &lost) == 200
        });
        assert_eq!((usage_status(&gateway, &lost), usage_status(&gateway, &old)), (200, 200));
        assert_eq!(
            (get_monthly_limit(&other, &lost), get_monthly_limit(&gateway, &lost)),
            (10_000, 10_000)
        );
        assert_eq!(listed_key(gateway.setup(), &lost_id), row);
        wait_until_healthy(&gateway);
    });
}

#[test]
fn a_lost_limit_is_reported_and_the_limit_in_the_store_applies() {
    run_on_both_stores(|store| {
        store.new_gateway_setup().cli(&["store", "init"]).expect(0);
        let gateway = store.new_gateway_setup().start();
        let key = gateway.create_active_key("acme", &[]);
        store.save_backup();
        gateway.cli(&["accounts", "set", "acme", "--limit", "7"]).expect(0);
        wait_until("the limit is in force", || get_monthly_limit(&gateway, &key) == 7);
        store.restore_backup();
        wait_until("the store's limit is followed", || get_monthly_limit(&gateway, &key) == 100);
        let reported = "account acme: the store lost the limit 7";
        wait_until("/readyz reports it", || degraded_reasons(&gateway).contains(reported));
        assert!(
            degraded_reasons(&gateway).contains("riskgate accounts set acme"),
            "{}",
            degraded_reasons(&gateway)
        );
        // The new key of the account sets no limit.
        let other = gateway.create_active_key("acme", &[]);
        assert_eq!(
            (get_monthly_limit(&gateway, &other), keys_reload_failing_metric(&gateway)),
            (100, 1.0)
        );
        assert!(degraded_reasons(&gateway).contains(reported), "{}", degraded_reasons(&gateway));
        // The node also follows a lowered limit whose change has the number of the lost change.
        gateway.cli(&["accounts", "set", "acme", "--limit", "5"]).expect(0);
        wait_until("the new limit is in force", || get_monthly_limit(&gateway, &key) == 5);
        wait_until_healthy(&gateway);
    });
}

#[test]
fn lost_overrides_are_named_until_their_names_are_set_or_cleared_again() {
    run_on_both_stores(|store| {
        let new_setup = || store.new_gateway_setup().set("plans.free", "\"unlimited\"");
        new_setup().cli(&["store", "init"]).expect(0);
        let gateway = new_setup().start();
        let key = gateway.create_active_key("acme", &[]);
        let is_denied = |name: &str| {
            let verdict = gateway.get_domain(&format!("{name}.example.com"), &key).expect(200);
            verdict.json()["reason"] == "disposable"
        };
        let change = |words: &[&str]| {
            let domain = format!("{}.example.com", words[1]);
            let words = [&["table", words[0], &domain], &words[2..]].concat();
            gateway.cli(&words).expect(0);
        };
        change(&["deny", "changed"]);
        change(&["deny", "cleared"]);
        wait_until("both are denied", || is_denied("changed") && is_denied("cleared"));
        store.save_backup();
        change(&["deny", "lost", "--exact", "--until", "2099-12-31"]);
        change(&["allow", "changed"]);
        change(&["clear", "cleared"]);
        wait_until("the changes are in force", || {
            is_denied("lost") && !is_denied("changed") && !is_denied("cleared")
        });
        store.restore_backup();
        let commands = [
            "table deny lost.example.com --exact --until 2099-12-31",
            "table allow changed.example.com",
            "table clear cleared.example.com",
        ];
        let named = || {
            let reasons = degraded_reasons(&gateway);
            commands.map(|command| reasons.contains(&format!("`riskgate {command}`")))
        };
        wait_until("/readyz names all commands", || named() == [true; 3]);
        wait_until("what the store has is in force", || {
            !is_denied("lost") && is_denied("changed") && is_denied("cleared")
        });
        let logged = "the store lost changes of overrides: version 5 was known";
        assert_eq!(gateway.stderr().matches(logged).count(), 1, "{}", gateway.stderr());
        change(&["deny", "other"]);
        wait_until("the other one is denied", || is_denied("other"));
        assert_eq!(named(), [true; 3]);
        for (repaired, command) in commands.iter().enumerate() {
            gateway.cli(&command.split(' ').collect::<Vec<_>>()).expect(0);
            let left = [0, 1, 2].map(|at| at > repaired);
            wait_until("the rest is named", || named() == left);
        }
        wait_until_healthy(&gateway);
    });
}

#[test]
fn a_node_without_write_rights_keeps_a_lost_revocation_and_reports_the_command() {
    let server = RedisServer::start();
    let store = RestorableStore::Server(server);
    let RestorableStore::Server(server) = &store else { unreachable!() };
    store.new_gateway_setup().cli(&["store", "init"]).expect(0);
    let rights = "on >pass-pw ~riskgate:* +@all -zadd -hincrby -hsetnx";
    let user: Vec<&str> = ["ACL", "SETUSER", "node"].into_iter().chain(rights.split(' ')).collect();
    server.run(&user);
    let gateway = Setup::new().set_text("store.url", &server.url_as("node", "pass-pw"));
    let gateway = gateway.set_text("store.deadline", "5s").start();
    let setup = store.new_gateway_setup();
    let made = setup.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    wait_until("the key is accepted", || usage_status(&gateway, key) == 200);
    store.save_backup();
    setup.cli(&["keys", "revoke", id]).expect(0);
    wait_until("the key is refused", || usage_status(&gateway, key) == 401);
    store.restore_backup();
    let command = format!("riskgate keys revoke {id}");
    wait_until("/readyz reports what to do", || degraded_reasons(&gateway).contains(&command));
    assert_eq!((usage_status(&gateway, key), keys_reload_failing_metric(&gateway)), (401, 1.0));
    let asked = get(USAGE).key(key);
    // The node follows other changes meanwhile.
    let other = setup.cli(&["keys", "create", "--account", "acme"]).expect(0).stdout;
    wait_until("a new key is accepted", || usage_status(&gateway, other.trim_end()) == 200);
    gateway.send_request(&asked).expect(401);
    setup.cli(&["keys", "revoke", id]).expect(0);
    wait_until_healthy(&gateway);
    gateway.send_request(&asked).expect(401);
}

#[test]
fn a_node_follows_a_store_without_change_ids_from_an_older_riskgate() {
    run_on_both_stores(|store| {
        store.new_gateway_setup().cli(&["store", "init"]).expect(0);
        let gateway = store.new_gateway_setup().start();
        let (first, id) = gateway.create_active_key_with_id("acme", &[]);
        let (second, second_id) = gateway.create_active_key_with_id("acme", &[]);
        // Removes the ids of all changes, as in a store from before changes had ids.
        let forget = || match store {
            RestorableStore::File(_) => {
                store
                    .open_sqlite_file()
                    .execute("DELETE FROM meta WHERE key LIKE 'change:%'", [])
                    .unwrap();
            }
            RestorableStore::Server(server) => {
                let names = server.run(&["HKEYS", "riskgate:{ring}:meta"]);
                for name in names.lines().filter(|name| name.starts_with("change")) {
                    server.run(&["HDEL", "riskgate:{ring}:meta", name]);
                }
            }
        };
        forget();
        gateway.cli(&["keys", "revoke", &id]).expect(0);
        wait_until("the first key is refused", || usage_status(&gateway, &first) == 401);
        gateway.cli(&["accounts", "set", "acme", "--limit", "7"]).expect(0);
        wait_until("the limit is in force", || get_monthly_limit(&gateway, &second) == 7);
        forget();
        let fresh = store.new_gateway_setup().start();
        fresh.cli(&["keys", "revoke", &second_id]).expect(0);
        for gateway in [&gateway, &fresh] {
            wait_until("the second key is refused", || usage_status(gateway, &second) == 401);
            assert_eq!(
                (degraded_reasons(gateway), keys_reload_failing_metric(gateway)),
                (String::new(), 0.0)
            );
        }
    });
}

/// Writes a key file with one key whose text is in the environment variable; returns the path.
fn write_key_file(setup: &Setup, id: &str, variable: &str) -> String {
    let path = setup.path(&format!("{id}-{variable}.toml"));
    let key = format!("[[key]]\nid = \"{id}\"\naccount = \"acme\"\nenv = \"{variable}\"\n");
    std::fs::write(&path, key).unwrap();
    path.display().to_string()
}

/// Stops the gateway's process with SIGSTOP, restores the backup of the store, runs `change`, and
/// continues the process. The gateway then sees the restored and changed store at once.
fn restore_while_gateway_is_stopped(
    gateway: &Gateway,
    store: &RestorableStore,
    change: impl FnOnce(),
) {
    // A process that is stopped within a transaction would keep the file locked.
    store.restore_backup_after(|| gateway.send_signal("STOP"));
    change();
    gateway.send_signal("CONT");
}

#[test]
fn a_revoked_key_stays_refused_if_the_restored_store_has_it_under_another_id() {
    run_on_both_stores(|store| {
        let token = "sv_of_an_imported_key";
        let setup = || store.new_gateway_setup().env("KEY", token);
        setup().cli(&["store", "init"]).expect(0);
        let gateway = setup().start();
        gateway.create_active_key("acme", &[]);
        store.save_backup();
        let [old, new] = ["old", "new"].map(|id| write_key_file(gateway.setup(), id, "KEY"));
        gateway.cli(&["keys", "import", &old]).expect(0);
        wait_until("the key is accepted", || usage_status(&gateway, token) == 200);
        gateway.cli(&["keys", "revoke", "old"]).expect(0);
        wait_until("the key is refused", || usage_status(&gateway, token) == 401);
        restore_while_gateway_is_stopped(&gateway, store, || {
            setup().cli(&["keys", "import", &new]).expect(0);
        });
        wait_until("the revocation is written back", || {
            assert_eq!(usage_status(&gateway, token), 401);
            listed_key(gateway.setup(), "new")["revoked_at"].is_string()
        });
        wait_until_healthy(&gateway);
        let reported = "that key new was revoked; or run `riskgate keys revoke new`";
        assert!(gateway.stderr().contains(reported), "{}", gateway.stderr());
        assert_eq!(usage_status(&setup().start(), token), 401);
    });
}

#[test]
fn a_key_whose_id_the_restored_store_gave_to_another_key_still_works() {
    run_on_both_stores(|store| {
        let (first, second) = ("sv_of_the_first_key", "sv_of_the_second_key");
        let setup = || store.new_gateway_setup().env("FIRST", first).env("SECOND", second);
        setup().cli(&["store", "init"]).expect(0);
        let gateway = setup().start();
        gateway.create_active_key("acme", &[]);
        store.save_backup();
        let files = ["FIRST", "SECOND"].map(|token| write_key_file(gateway.setup(), "web", token));
        gateway.cli(&["keys", "import", &files[0]]).expect(0);
        wait_until("the first key is accepted", || usage_status(&gateway, first) == 200);
        restore_while_gateway_is_stopped(&gateway, store, || {
            setup().cli(&["keys", "import", &files[1]]).expect(0);
        });
        wait_until("the second key is accepted", || usage_status(&gateway, second) == 200);
        assert_eq!(usage_status(&gateway, first), 200, "the known keys still work");
        let own_ids = || {
            let rows = setup().cli(&["keys", "list", "--json"]).expect(0).json();
            let ids = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap());
            ids.filter(|id| id.starts_with("web-")).map(str::to_owned).collect::<Vec<_>>()
        };
        wait_until("the first key is written back under an id of its own", || own_ids().len() == 1);
        wait_until_healthy(&gateway);
        let [kept] = &own_ids()[..] else { panic!("the first key has one id") };
        assert!(gateway.stderr().contains("(its id web is another key's now)"));
        let other = setup().start();
        assert_eq!((usage_status(&other, first), usage_status(&other, second)), (200, 200));
        gateway.cli(&["keys", "revoke", kept]).expect(0);
        wait_until("only this key is refused", || usage_status(&gateway, first) == 401);
        assert_eq!(usage_status(&gateway, second), 200);
    });
}
