//! `riskgate store backup` and `restore`: while a gateway runs, and killed in the middle.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::{BINARY, Setup, TestDisk, wait_until};
use crate::one_path::quota::keys::sha256_hex;
use crate::redis_server::RedisServer;

/// A config of a gateway that does not run, whose store is another file.
fn setup_elsewhere() -> Setup {
    Setup::new().set("plans.free", "1000")
}

fn backup_and_restore(setup: Setup) {
    let gateway = setup.set("plans.free", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    let other = gateway.create_active_key("other", &[]);
    for _ in 0..25 {
        gateway.get_domain("a.com", &key).expect(200);
    }
    gateway.get_domain("a.com", &other).expect(200);
    wait_until("the calls are reported", || {
        let usage = gateway.cli(&["usage", "--json"]).expect(0).json();
        let counts = usage.as_array().unwrap().iter().map(|row| &row["month_count"]);
        counts.filter_map(serde_json::Value::as_u64).sum::<u64>() == 26
    });
    let file = gateway.path("saved.db");
    let file = file.to_str().unwrap();
    let saved = gateway.cli(&["store", "backup", file, "--json"]).expect(0).json();
    assert_eq!((saved["keys"].as_u64(), saved["usage"].as_u64()), (Some(2), Some(2)));
    // A later backup replaces the file.
    gateway.cli(&["store", "backup", file]).expect(0);
    // The gateway that runs has this store.
    gateway.cli(&["store", "restore", file]).expect(1);
    let elsewhere = setup_elsewhere();
    let restore = || elsewhere.cli(&["store", "restore", file]);
    assert!(restore().expect(0).stderr.contains("restored 2 keys"));
    // A store that is not empty stays as it is.
    restore().expect(1);
    let restored = elsewhere.start();
    assert_eq!(restored.get_month_count(&key), 25);
    restored.get_domain("a.com", &key).expect(200);
    assert_eq!(restored.get_month_count(&key), 26);
    assert_eq!(restored.get_month_count(&other), 1);
}

#[test]
fn a_backup_of_a_running_gateway_is_restored_elsewhere() {
    backup_and_restore(Setup::new());
}

#[test]
fn a_backup_of_redis_is_restored_into_a_file() {
    let server = RedisServer::start();
    backup_and_restore(Setup::new().with_redis(&server));
}

#[test]
fn a_killed_backup_or_restore_leaves_nothing_half_done() {
    let gateway = setup_elsewhere().start();
    let keys: Vec<String> =
        (0..20).map(|number| gateway.create_key(&format!("account-{number}"), &[])).collect();
    let file = gateway.path("saved.db");
    let run_and_kill = |config: &Path, command: &str, after: Duration| {
        let mut child = Command::new(BINARY)
            .args(["store", command])
            .arg(&file)
            .arg("-c")
            .arg(config)
            .current_dir(config.parent().unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(after);
        let _ = child.kill();
        child.wait().unwrap();
    };
    let config = gateway.config.clone();
    for step in 0..20 {
        run_and_kill(&config, "backup", Duration::from_millis(step));
        if file.exists() {
            let elsewhere = setup_elsewhere();
            let words = ["store", "restore", file.to_str().unwrap()];
            let restored = elsewhere.cli(&words).expect(0).stderr;
            assert!(restored.contains("restored 20 keys"), "{restored}");
        }
    }
    gateway.cli(&["store", "backup", file.to_str().unwrap()]).expect(0);
    let begun_backups = |folder: &Path| {
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("-backup-")).count()
    };
    assert_eq!(begun_backups(file.parent().unwrap()), 0, "the killed ones left nothing behind");
    for step in 0..20 {
        let elsewhere = setup_elsewhere();
        let other = elsewhere.write_config();
        run_and_kill(&other, "restore", Duration::from_millis(step));
        let words = ["store", "restore", file.to_str().unwrap()];
        let again = elsewhere.cli(&words);
        // The first restore may have come to its end before it was killed.
        assert!(again.exit_code == 0 || again.stderr.contains("empty"), "{}", again.stderr);
        let listed = elsewhere.cli(&["keys", "list", "--json"]).expect(0);
        assert_eq!(listed.json().as_array().unwrap().len(), keys.len());
    }
}

#[test]
fn a_backup_replaces_neither_the_store_nor_any_other_file() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    std::fs::write(gateway.path("notes.txt"), "notes").unwrap();
    std::os::unix::fs::symlink(gateway.path("riskgate.db"), gateway.path("link")).unwrap();
    for name in ["riskgate.db", "./riskgate.db", "riskgate.toml", "notes.txt", "link"] {
        let file = gateway.path("").join(name).display().to_string();
        let refused = gateway.cli(&["store", "backup", &file]).expect(1).stderr;
        assert!(refused.contains(": expected "), "{name}: {refused}");
    }
    assert_eq!(std::fs::read_to_string(gateway.path("notes.txt")).unwrap(), "notes");
    gateway.get("/v1/usage", &key).expect(200);
    gateway.restart().get("/v1/usage", &key).expect(200);
}

#[test]
fn a_backup_replaces_no_database_but_an_older_backup() {
    let setup = setup_with_keys(1);
    let other_store = setup_with_keys(2);
    let database = setup.path("other ?#.db");
    rusqlite::Connection::open(&database).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    for file in [&database, &other_store.path("riskgate.db")] {
        let before = std::fs::read(file).unwrap();
        let refused = setup.cli(&["store", "backup", file.to_str().unwrap()]).expect(1).stderr;
        let expected = "expected no file, or an older backup, but found a store in use, or";
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(std::fs::read(file).unwrap(), before);
    }
    let backup = setup.path("saved ?#.db");
    for _ in 0..2 {
        setup.cli(&["store", "backup", backup.to_str().unwrap()]).expect(0);
    }
}

#[test]
fn a_backup_is_not_put_beside_the_log_of_another_store() {
    let (gateway, other) = (Setup::new().start(), Setup::new().start());
    gateway.create_active_key("acme", &[]);
    other.create_active_key("foreign", &[]);
    let file = other.path("riskgate.db");
    // The killed process leaves the log of its store behind.
    let mut other = other;
    other.kill();
    assert!(std::fs::metadata(other.path("riskgate.db-wal")).unwrap().len() > 0);
    let backup = || gateway.cli(&["store", "backup", file.to_str().unwrap()]);
    let refused = backup().expect(1).stderr;
    assert!(refused.contains("riskgate.db-wal beside it"), "{refused}");
    std::fs::remove_file(other.path("riskgate.db-wal")).unwrap();
    let refused = backup().expect(1).stderr;
    assert!(refused.contains("found a store in use"), "{refused}");
}

/// A setup whose store has this many keys.
fn setup_with_keys(count: usize) -> Setup {
    let setup = setup_elsewhere();
    let path = setup.path("import.toml");
    let mut text = String::new();
    for n in 0..count {
        let hash = sha256_hex(&format!("sv_imported_key_{n}"));
        writeln!(text, "[[key]]\nid = \"k{n}\"\naccount = \"a\"\nhash = \"sha256:{hash}\"")
            .unwrap();
    }
    std::fs::write(&path, text).unwrap();
    setup.cli(&["keys", "import", path.to_str().unwrap()]).expect(0);
    setup
}

#[test]
fn a_backup_beyond_the_limit_of_file_sizes_is_told_and_leaves_nothing() {
    let setup = setup_with_keys(2_000).run_under(&["prlimit", "--fsize=200000"]);
    let file = setup.path("saved.db");
    let refused = setup.cli(&["store", "backup", file.to_str().unwrap()]).expect(1).stderr;
    assert!(refused.contains("filling the store: disk I/O error"), "{refused}");
    let names = std::fs::read_dir(setup.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("backup")).collect();
    assert!(left.is_empty() && !file.exists(), "{left:?}");
}

fn restored_words(file: &Path) -> String {
    setup_elsewhere().cli(&["store", "restore", file.to_str().unwrap()]).expect(0).stderr
}

#[test]
fn overlapping_backups_to_one_file_are_each_complete() {
    let setup = setup_with_keys(20_000);
    let config = setup.write_config();
    let folder = setup.path("backups");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("saved.db");
    let start = || {
        let mut command = Command::new(BINARY);
        command.args(["store", "backup"]).arg(&file).arg("-c").arg(&config);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let signal = |child: &Child, name: &str| {
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    // The first backup stops while it writes, the second one overtakes it.
    let mut first = start();
    wait_until("the first backup has begun a file", || {
        std::fs::read_dir(&folder).unwrap().next().is_some()
    });
    signal(&first, "-STOP");
    // The times of backups are compared to the second.
    std::thread::sleep(Duration::from_secs(1));
    setup.cli(&["keys", "create", "--account", "later"]).expect(0);
    assert!(start().wait().unwrap().success());
    assert!(restored_words(&file).contains("restored 20001 keys"));
    assert!(first.try_wait().unwrap().is_none(), "the first backup is under way");
    signal(&first, "-CONT");
    assert!(first.wait().unwrap().success());
    assert!(restored_words(&file).contains("restored 20001 keys"), "the later backup stays");
    let mut many: Vec<Child> = (0..4).map(|_| start()).collect();
    assert!(many.iter_mut().all(|child| child.wait().unwrap().success()));
    assert!(restored_words(&file).contains("restored 20001 keys"));
    let left: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["saved.db"]);
}

#[test]
fn nothing_is_restored_or_created_beside_the_log_of_a_killed_gateway() {
    let mut gateway = setup_with_keys(400).start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.cli(&["store", "backup", "saved.db"]).expect(0);
    gateway.get_domain("a.com", &key).expect(200);
    wait_until("the call is reported", || gateway.get_month_count(&key) == 1);
    gateway.kill();
    let setup = gateway.into_setup();
    let file = setup.path("riskgate.db");
    let read_log = || std::fs::read(setup.path("riskgate.db-wal")).unwrap();
    let log = read_log();
    assert!(!log.is_empty());
    std::fs::rename(&file, setup.path("gone.db")).unwrap();
    for words in [
        &["store", "restore", "saved.db"][..],
        &["store", "init"],
        &["keys", "create", "--account", "acme"],
        &["keys", "list"],
        &["check"],
        &["run"],
    ] {
        let refused = setup.cli(words).expect(78).stderr;
        assert!(refused.contains("but found only its log "), "{words:?} {refused}");
        assert!(refused.contains("riskgate.db-wal"), "{words:?} {refused}");
        assert!(!file.exists() && read_log() == log, "{words:?}");
    }
    for suffix in ["-wal", "-shm"] {
        let [from, to] = ["riskgate.db", "gone.db"].map(|name| format!("{name}{suffix}"));
        std::fs::rename(setup.path(&from), setup.path(&to)).unwrap();
    }
    setup.cli(&["store", "restore", "saved.db"]).expect(0);
    let gone = format!("sqlite:{}", setup.path("gone.db").display());
    let copied = format!("sqlite:{}", setup.path("copied.db").display());
    let told = setup.cli(&["store", "copy", &gone, &copied]).expect(0).stderr;
    assert!(told.contains("copied 401 keys") && told.contains("1 account in"), "{told}");
    let gateway = setup.start();
    assert_eq!(gateway.readyz().json()["degraded"].to_string(), "[]");
    assert_eq!(gateway.get_month_count(&key), 0);
}

#[test]
fn a_restore_of_an_empty_backup_is_refused_with_words() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let file = setup.path("saved.db").display().to_string();
        setup.cli(&["store", "init"]).expect(0);
        setup.cli(&["store", "backup", &file]).expect(0);
        let elsewhere = setup_elsewhere();
        let refused = elsewhere.cli(&["store", "restore", &file]).expect(1).stderr;
        assert!(refused.contains("but found an empty one"), "{refused}");
        assert!(!elsewhere.path("riskgate.db").exists());
    }
}

#[test]
fn a_backup_into_a_missing_folder_creates_nothing() {
    let setup = setup_with_keys(1);
    let file = setup.path("missing").join("saved.db");
    let refused = setup.cli(&["store", "backup", file.to_str().unwrap()]).expect(1).stderr;
    assert!(refused.contains("saved.db: expected to write it"), "{refused}");
    assert!(!setup.path("missing").exists());
}

#[test]
fn a_restore_onto_a_disk_that_is_too_small_leaves_no_broken_store() {
    let source = setup_with_keys(3);
    let file = source.path("saved.db");
    source.cli(&["store", "backup", file.to_str().unwrap()]).expect(0);
    let mut too_small = 0;
    for size in (16..).step_by(16) {
        let disk = TestDisk::in_memory(&format!("{size}k"));
        let store = format!("sqlite:{}", disk.path().join("riskgate.db").display());
        let prefix = disk.namespace_command_prefix();
        let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
        let setup = setup_elsewhere().run_under(&prefix).set_text("store.url", &store);
        let restore = || setup.cli(&["store", "restore", file.to_str().unwrap()]);
        let first = restore();
        if first.exit_code == 0 {
            let keys = setup.cli(&["keys", "list", "--json"]).expect(0).json();
            assert_eq!(keys.as_array().unwrap().len(), 3);
            break;
        }
        too_small += 1;
        for failed in [first, restore()] {
            println!("{size} KiB: {}", failed.stderr);
            assert!(!failed.stderr.contains("intact"), "{size} KiB: {}", failed.stderr);
        }
    }
    assert!(too_small > 5, "{too_small}");
}

#[test]
fn an_empty_store_replaces_no_backup() {
    let setup = Setup::new();
    let file = setup.path("saved.db").display().to_string();
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    setup.cli(&["store", "backup", &file]).expect(0);
    std::fs::remove_file(setup.path("riskgate.db")).unwrap();
    setup.cli(&["store", "init"]).expect(0);
    let refused = setup.cli(&["store", "backup", &file]).expect(1).stderr;
    assert!(refused.contains("the older backup") && refused.contains("is kept"), "{refused}");
    let elsewhere = setup_elsewhere();
    elsewhere.cli(&["store", "restore", &file]).expect(0);
    assert_eq!(
        elsewhere.cli(&["keys", "list", "--json"]).expect(0).json().as_array().unwrap().len(),
        1
    );
}
