//! `riskgate store backup` and `restore`: while a gateway runs, and killed in the middle.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{BINARY, Setup, wait_until};
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
    assert!(!Path::new(&format!("{file}.partial")).exists());
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
