//! `audit.path` has each record once, whatever happens to the store and to the file.

use std::path::Path;

use serde_json::Value;

use crate::harness::{Gateway, Setup, TestDisk, wait_until};
use crate::redis_server::RedisServer;

/// Makes changes of accounts with these numbers.
fn make_changes(setup: &Setup, numbers: std::ops::Range<u32>) {
    for n in numbers {
        setup.cli(&["accounts", "set", &format!("account-{n}"), "--limit", "5"]).expect(0);
    }
}

/// The changes of accounts in a file, in their order. The last line may still be being written.
fn read_numbers(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let records = complete.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let number = |record: Value| record["target"].as_str()?.strip_prefix("account-")?.parse().ok();
    records.filter_map(number).collect()
}

/// Waits until the file has exactly these changes, each once and in their order.
#[track_caller]
fn expect_numbers(path: &Path, numbers: std::ops::Range<u32>) {
    wait_until("the file has the last change", || {
        read_numbers(path).last().copied() == Some(numbers.end - 1)
    });
    assert_eq!(read_numbers(path), numbers.collect::<Vec<_>>());
}

fn set_audit_path(setup: Setup) -> Setup {
    let path = setup.path("audit.jsonl").display().to_string();
    setup.set_text("audit.path", &path)
}

fn set_store(setup: Setup, url: &str) -> Setup {
    setup.set_text("store.url", url)
}

fn stop_after(gateway: Gateway, numbers: std::ops::Range<u32>) -> Setup {
    expect_numbers(&gateway.path("audit.jsonl"), numbers);
    gateway.shut_down()
}

#[test]
fn a_restore_of_an_older_backup_leaves_no_gap_and_repeats_nothing() {
    let setup = set_audit_path(Setup::new());
    make_changes(&setup, 0..5);
    let gateway = setup.start();
    let backup = gateway.path("saved.db").display().to_string();
    gateway.cli(&["store", "backup", &backup]).expect(0);
    make_changes(gateway.setup(), 5..8);
    let setup = stop_after(gateway, 0..8);
    for name in ["riskgate.db", "riskgate.db-wal", "riskgate.db-shm"] {
        let _ = std::fs::remove_file(setup.path(name));
    }
    setup.cli(&["store", "restore", &backup]).expect(0);
    let gateway = setup.start();
    make_changes(gateway.setup(), 8..16);
    expect_numbers(&gateway.path("audit.jsonl"), 0..16);
}

#[test]
fn a_copy_to_another_kind_of_store_leaves_no_gap_and_repeats_nothing() {
    let server = RedisServer::start();
    let setup = set_audit_path(Setup::new());
    let (file, redis) = (format!("sqlite:{}", setup.path("riskgate.db").display()), server.url());
    let later_file = format!("sqlite:{}", setup.path("later.db").display());
    make_changes(&setup, 0..6);
    let setup = stop_after(setup.start(), 0..6);
    // These changes happen while no gateway runs.
    make_changes(&setup, 6..9);
    setup.cli(&["store", "copy", &file, &redis]).expect(0);
    let setup = set_store(setup, &redis);
    make_changes(&setup, 9..12);
    let gateway = setup.start();
    make_changes(gateway.setup(), 12..15);
    let setup = stop_after(gateway, 0..15);
    setup.cli(&["store", "copy", &redis, &later_file]).expect(0);
    let gateway = set_store(setup, &later_file).start();
    make_changes(gateway.setup(), 15..45);
    expect_numbers(&gateway.path("audit.jsonl"), 0..45);
}

#[test]
fn a_rotation_and_a_restart_repeat_nothing() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let setup = set_audit_path(setup);
        make_changes(&setup, 0..4);
        let setup = stop_after(setup.start(), 0..4);
        std::fs::rename(setup.path("audit.jsonl"), setup.path("audit.jsonl.1")).unwrap();
        let gateway = setup.start();
        make_changes(gateway.setup(), 4..6);
        expect_numbers(&gateway.path("audit.jsonl"), 4..6);
        std::fs::rename(gateway.path("audit.jsonl"), gateway.path("audit.jsonl.2")).unwrap();
        make_changes(gateway.setup(), 6..8);
        expect_numbers(&gateway.path("audit.jsonl"), 6..8);
    }
}

#[test]
fn a_new_store_goes_on_in_the_same_file() {
    let (server, new_server) = (RedisServer::start(), RedisServer::start());
    let setup = set_audit_path(Setup::new().with_redis(&server));
    make_changes(&setup, 0..3);
    let setup = stop_after(setup.start(), 0..3);
    let setup = set_store(setup, &new_server.url());
    make_changes(&setup, 3..6);
    let setup = stop_after(setup.start(), 0..6);
    let fresh = format!("sqlite:{}", setup.path("fresh.db").display());
    let setup = set_store(setup, &fresh);
    make_changes(&setup, 6..9);
    let gateway = setup.start();
    expect_numbers(&gateway.path("audit.jsonl"), 0..9);
}

#[test]
fn a_disk_that_was_full_repeats_no_record() {
    let disk = TestDisk::in_memory("64k");
    let path = disk.path().join("audit.jsonl");
    let prefix = disk.namespace_command_prefix();
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let setup = Setup::new().set_text("audit.path", &path.display().to_string());
    let gateway = setup.run_under(&prefix).start();
    let outside = disk.path_outside_namespace().join("audit.jsonl");
    for first in [0, 50] {
        make_changes(gateway.setup(), first..first + 1);
        wait_until("the first change of the round is written", || {
            read_numbers(&outside).last() == Some(&first)
        });
        // More records than the last page of the file takes.
        disk.fill_up();
        make_changes(gateway.setup(), first + 1..first + 50);
        wait_until("the full disk is told", || {
            gateway.readyz().text().contains("audit.jsonl: expected to append records")
        });
        disk.remove_filler();
        wait_until("all changes are written", || {
            read_numbers(&outside).last() == Some(&(first + 49))
        });
    }
    assert_eq!(read_numbers(&outside), (0..100).collect::<Vec<_>>());
}
