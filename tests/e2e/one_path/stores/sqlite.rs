//! The SQLite store after kills, and in folders that riskgate can't write.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::harness::{
    BINARY, Gateway, LoadGenerator, Setup, TestDisk, max_held_calls, run_command,
    unprivileged_command_prefix, wait_until,
};
use crate::one_path::quota::keys::sha256_hex;

const DOMAIN: &str = "/v1/public/domain/first.test";

#[test]
fn fifty_kills_lose_at_most_fifty_leases_and_never_exceed_the_limit() {
    const KILL_COUNT: u64 = 50;
    const CLIENT_COUNT: u64 = 4;
    const LIMIT: u64 = 15_000;
    let begun = Instant::now();
    // A commit may be slow on a disk that other processes use; this test is not about commit times.
    let setup =
        Setup::new().set("plans.free", &LIMIT.to_string()).set_text("store.deadline", "20s");
    let mut gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let mut admitted = 0;
    for kill in 0..KILL_COUNT {
        // The calls come slowly enough that some are left at the last kill.
        let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(1));
        std::thread::scope(|scope| {
            let ending = clients.stop_on_drop();
            clients.spawn_clients(scope, gateway.http, CLIENT_COUNT as usize);
            wait_until("calls are under way", || {
                clients.response_counts().admitted > 20 + kill % 7
            });
            gateway.kill();
            drop(ending);
        });
        gateway = gateway.start_after_exit();
        let counts = clients.response_counts();
        assert_eq!(counts.internal_errors, 0, "{counts:?}");
        admitted += counts.admitted;
    }
    let under_kills = admitted;
    let clients = LoadGenerator::new(DOMAIN, &key);
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        clients.spawn_clients(scope, gateway.http, CLIENT_COUNT as usize);
        wait_until("all is spent", || clients.response_counts().quota_exceeded > 50);
    });
    admitted += clients.response_counts().admitted;
    println!("{under_kills} under {KILL_COUNT} kills, {admitted} in all, {:?}", begun.elapsed());
    assert!(admitted <= LIMIT, "{admitted}");
    // Each kill loses the lease, and the responses to calls in progress.
    assert!(admitted + KILL_COUNT * (max_held_calls(LIMIT) + CLIENT_COUNT) >= LIMIT, "{admitted}");
    let setup = gateway.shut_down();
    let store = Connection::open(setup.path("riskgate.db")).unwrap();
    let intact: String = store.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(intact, "ok");
}

#[test]
fn an_unwritable_store_is_reported_and_not_changed() {
    let setup = Setup::new();
    let (folder, file) = (setup.path("state"), setup.path("state/store.db"));
    let setup = setup.set_text("store.url", &format!("sqlite:{}", file.display()));
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let before = std::fs::read(&file).unwrap();
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let config = setup.write_config();
    set(&setup.path(""), 0o777);
    let words = [unprivileged_command_prefix(), &[BINARY]].concat();
    for (of_folder, of_file) in [(0o555, 0o444), (0o755, 0o444), (0o555, 0o644)] {
        set(&folder, of_folder);
        set(&file, of_file);
        for subcommand in [&["run"][..], &["keys", "list"]] {
            let mut command = Command::new(words[0]);
            let ran =
                run_command(command.args(&words[1..]).args(subcommand).arg("-c").arg(&config));
            let expected = format!("{}: expected a file that we may write", file.display());
            assert!(ran.stderr.contains(&expected), "{of_folder:o} {of_file:o} {ran:?}");
            assert_eq!(
                (ran.exit_code, ran.stderr.lines().count()),
                (78, 1),
                "{subcommand:?} {ran:?}"
            );
        }
        assert!(std::fs::read(&file).unwrap() == before, "{of_folder:o} {of_file:o}");
    }
    set(&folder, 0o755);
}

#[test]
fn a_backup_restored_under_a_running_gateway_is_reported_with_the_remedy() {
    for in_place in [true, false] {
        let gateway = Setup::new().start();
        let (key, other) =
            (gateway.create_active_key("acme", &[]), gateway.create_active_key("other", &[]));
        let (file, backup) = (gateway.path("riskgate.db"), gateway.path("backup.db"));
        let store = Connection::open(&file).unwrap();
        store.busy_timeout(Duration::from_secs(5)).unwrap();
        let to = [backup.to_str().unwrap()];
        store.execute("VACUUM INTO ?1", to).unwrap();
        for key in [&key, &other] {
            gateway.get_domain("first.test", key).expect(200);
        }
        wait_until("the spent calls are reported", || {
            [&key, &other].iter().all(|key| gateway.get_month_count(key) == 1)
        });
        if in_place {
            store.execute("ATTACH ?1 AS backup", to).unwrap();
            let table = |name| {
                format!("DELETE FROM {name}; INSERT INTO {name} SELECT * FROM backup.{name};")
            };
            let tables = ["api_key", "account", "meta", "ledger"].map(table).concat();
            store.execute_batch(&format!("BEGIN IMMEDIATE; {tables} COMMIT")).unwrap();
        } else {
            std::fs::rename(&backup, &file).unwrap();
        }
        let degraded = || gateway.readyz().json()["degraded"].to_string();
        let remedy = if in_place { "restart riskgate to " } else { "stop riskgate, move " };
        wait_until("/readyz says what to do", || {
            gateway.get_domain("first.test", &key);
            degraded().contains(remedy)
        });
        assert!(degraded().contains("riskgate.db: expected "), "{}", degraded());
        let setup = gateway.shut_down();
        if !in_place {
            for words in [&["keys", "list"][..], &["run"]] {
                let refused = setup.cli(words).expect(78).stderr;
                assert!(refused.contains("the file to which the log beside it"), "{refused}");
            }
            move_log_away(&setup);
        }
        assert_eq!(setup.start().readyz().json()["degraded"].to_string(), "[]");
    }
}

/// Moves the files away that SQLite has beside the store.
fn move_log_away(setup: &Setup) {
    for suffix in ["-wal", "-shm"] {
        let file = setup.path(&format!("riskgate.db{suffix}"));
        std::fs::rename(&file, setup.path(&format!("away{suffix}"))).unwrap();
    }
}

/// Starts a gateway, and returns an active key with a call, and a key that was revoked since.
fn start_with_changes_in_log() -> (Gateway, [String; 2]) {
    let setup = Setup::new();
    setup.cli(&["keys", "create", "--account", "other"]).expect(0);
    let gateway = setup.start();
    let active = gateway.create_active_key("acme", &[]);
    let (revoked, id) = gateway.create_active_key_with_id("left", &[]);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("the key is revoked", || gateway.get_domain("first.test", &revoked).status == 401);
    gateway.get_domain("first.test", &active).expect(200);
    wait_until("the call is reported", || {
        let usage = gateway.cli(&["usage", "--account", "acme", "--json"]).expect(0).stdout;
        usage.contains("\"month_count\":1,")
    });
    (gateway, [active, revoked])
}

#[test]
fn a_restart_after_the_log_was_removed_loses_no_change() {
    for is_killed in [false, true] {
        let (mut gateway, [active, revoked]) = start_with_changes_in_log();
        std::fs::remove_file(gateway.path("riskgate.db-wal")).unwrap();
        wait_until("/readyz says that the changes are saved", || {
            gateway.readyz().text().contains("its changes are saved in the store")
        });
        // A command would change a store that the gateway no longer reads. No thread of the gateway
        // opens the store again, so that stays so.
        for words in [&["keys", "create", "--account", "acme"][..], &["keys", "list"]].repeat(3) {
            let refused = gateway.cli(words).expect(1).stderr;
            assert!(refused.contains("but found no -wal or no -shm beside it"), "{refused}");
            std::thread::sleep(Duration::from_millis(500));
        }
        assert!(gateway.readyz().text().contains("its changes are saved in the store"));
        let gateway = match is_killed {
            true => {
                gateway.kill();
                gateway.start_after_exit()
            }
            false => gateway.restart(),
        };
        assert_eq!(gateway.readyz().json()["degraded"].to_string(), "[]");
        gateway.get_domain("first.test", &revoked).expect(401);
        // A killed process has spent what it leased.
        assert!(gateway.get_month_count(&active) >= 1);
    }
}

#[test]
fn a_restart_beside_the_log_of_a_replaced_file_changes_nothing() {
    for is_killed in [false, true] {
        let (mut gateway, [_, revoked]) = start_with_changes_in_log();
        let (file, aside) = (gateway.path("riskgate.db"), gateway.path("aside.db"));
        gateway.cli(&["store", "backup", "saved.db"]).expect(0);
        std::fs::rename(&file, &aside).unwrap();
        std::fs::copy(gateway.path("saved.db"), &file).unwrap();
        wait_until("/readyz says what to do", || {
            gateway.readyz().text().contains("another one; put it back, or stop riskgate, move ")
        });
        let setup = match is_killed {
            true => {
                gateway.kill();
                gateway.into_setup()
            }
            false => gateway.shut_down(),
        };
        for words in [&["keys", "list"][..], &["check"], &["store", "check"], &["run"]] {
            let refused = setup.cli(words);
            let told = format!("{}{}", refused.stdout, refused.stderr);
            assert_ne!(refused.exit_code, 0, "{words:?}");
            assert!(told.contains("the file to which the log beside it belongs"), "{told}");
        }
        let saved = std::fs::read(setup.path("saved.db")).unwrap();
        assert!(std::fs::read(&file).unwrap() == saved, "the backup is unchanged");
        // The former file has all changes once it is back.
        std::fs::rename(&aside, &file).unwrap();
        let gateway = setup.start();
        assert_eq!(gateway.readyz().json()["degraded"].to_string(), "[]");
        gateway.get_domain("first.test", &revoked).expect(401);
    }
}

#[test]
fn check_and_store_check_tell_a_full_disk() {
    let disk = TestDisk::in_memory("1m");
    let prefix = disk.namespace_command_prefix();
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let store = disk.path().join("riskgate.db").display().to_string();
    let setup = Setup::new().run_under(&prefix).set_text("store.url", &format!("sqlite:{store}"));
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    setup.cli(&["check"]).expect(0);
    assert!(setup.cli(&["store", "check"]).expect(0).stdout.contains("can be written to"));
    let gateway = setup.start();
    disk.fill_up();
    let found = gateway.cli(&["store", "check"]).expect(1).stdout;
    assert!(found.contains("fault    file: "), "{found}");
    assert!(found.contains("expected free space on the disk, but found none"), "{found}");
    let refused = gateway.cli(&["check"]).expect(1).stderr;
    assert!(refused.contains("expected free space on the disk, but found none"), "{refused}");
    disk.remove_filler();
    gateway.cli(&["check"]).expect(0);
}

#[test]
fn a_gateway_whose_shared_memory_was_removed_grants_no_more_calls_and_says_so() {
    let (limit, key) = (500, "sv_the_key_of_both_gateways");
    let setup = |store: &std::path::Path| {
        let url = format!("sqlite:{}", store.display());
        let setup = Setup::new().set("plans.free", &limit.to_string());
        let keys = setup.path("keys.toml");
        let hash = sha256_hex(key);
        let entry = format!("[[key]]\nid = \"k\"\naccount = \"a\"\nhash = \"sha256:{hash}\"\n");
        std::fs::write(&keys, entry).unwrap();
        let setup = setup.set_text("keys.file", &keys.display().to_string());
        setup.set_text("store.url", &url).set_text("store.on_failure", "closed")
    };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("shared.db");
    let first = setup(&store).start();
    let mut admitted = 0;
    for _ in 0..50 {
        admitted += u64::from(first.get(DOMAIN, key).status == 200);
    }
    assert_eq!(admitted, 50);
    std::fs::remove_file(folder.path().join("shared.db-shm")).unwrap();
    wait_until("the removed file is told", || first.readyz().text().contains("shared.db-shm"));
    let second = setup(&store).start();
    for gateway in [&first, &second] {
        for _ in 0..limit + 100 {
            let status = gateway.get(DOMAIN, key).status;
            admitted += u64::from(status == 200);
            assert!([200, 429, 500].contains(&status), "{status}");
        }
    }
    assert!(admitted <= limit, "{admitted}");
}

#[test]
fn commands_that_only_read_leave_a_store_of_an_older_version_as_it_is() {
    let setup = Setup::new();
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let file = setup.path("riskgate.db");
    let store = Connection::open(&file).unwrap();
    let statements = "DROP TABLE quota_event; DROP TABLE audit; DROP TABLE source_state; \
                      DROP TABLE request; DROP TABLE daily_usage; PRAGMA user_version = 2";
    store.execute_batch(statements).unwrap();
    store.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    store.close().unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let state = || {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        (std::fs::read(&file).unwrap(), mode, file.with_extension("db-wal").exists())
    };
    let before = state();
    let copy = format!("sqlite:{}", setup.path("copy.db").display());
    let from = format!("sqlite:{}", file.display());
    for words in [
        &["check"][..],
        &["keys", "list"],
        &["accounts", "list"],
        &["usage", "--account", "acme"],
        &["audit"],
        &["table", "lookup", "first.test"],
        &["store", "copy", &from, &copy],
        &["store", "backup", "saved.db"],
    ] {
        setup.cli(words).expect(0);
        assert!(state() == before, "{words:?} changed the store");
    }
    assert!(setup.cli(&["keys", "list"]).expect(0).stdout.contains("acme"));
}

#[test]
fn a_backup_on_a_read_only_disk_is_restored() {
    let source = Setup::new();
    source.cli(&["keys", "create", "--account", "acme"]).expect(0);
    source.cli(&["store", "backup", "saved.db"]).expect(0);
    let disk = TestDisk::file_backed("16m");
    let prefix = disk.namespace_command_prefix();
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let saved = disk.path().join("saved.db").display().to_string();
    let written = source.path("saved.db").display().to_string();
    let copy = [&prefix[1..], &["cp", &written, &saved]];
    run_command(Command::new(prefix[0]).args(copy.concat())).expect(0);
    disk.refuse_writes();
    let setup = Setup::new().run_under(&prefix);
    let restored = setup.cli(&["store", "restore", &saved]).expect(0);
    assert!(restored.stderr.contains("restored 1 key, 1 account, "), "{}", restored.stderr);
}
