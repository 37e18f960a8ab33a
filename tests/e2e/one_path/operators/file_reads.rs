//! When riskgate reads files again: after a read that the system refused, when a file of a secret
//! changes, and never while a file is being written.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Gateway, Request, Setup, request, run_command, wait_until};
use crate::one_path::quota::keys::{USAGE, is_key_accepted, sha256_hex};
use crate::redis_server::RedisServer;

const LONGER_LIST: &str = "first.test\nsecond.test\nthird.test\n=exact.test\nmail.com\nnew.test\n";

fn key_entry(id: &str, token: &str) -> String {
    let hash = sha256_hex(token);
    format!("[[key]]\nid = \"{id}\"\naccount = \"filed\"\nhash = \"sha256:{hash}\"\n")
}

fn setup_with_key_file(text: &str) -> Setup {
    let setup = Setup::new();
    let path = setup.path("keys.toml");
    std::fs::write(&path, text).unwrap();
    setup.set_text("keys.file", &path.display().to_string())
}

fn limit_descriptors(gateway: &Gateway, most: usize) {
    let (pid, limit) = (gateway.pid().to_string(), format!("--nofile={most}:20000"));
    run_command(Command::new("prlimit").args(["--pid", &pid, &limit])).expect(0);
}

fn status_with_token(token: &str) -> Request {
    request("GET", "/status").with_header("Host", "localhost").key(token)
}

#[test]
fn files_that_could_not_be_read_for_now_are_read_again_without_a_change() {
    let (kept, removed) = ("sv_the_key_that_stays", "sv_the_key_that_is_removed");
    let both = key_entry("kept", kept) + &key_entry("removed", removed);
    let setup = setup_with_key_file(&both);
    let token_file = setup.path("token");
    std::fs::write(&token_file, "the-first-token-of-the-operator\n").unwrap();
    let setup = setup.set_text("admin.token_file", &token_file.display().to_string());
    let gateway = setup.start();
    assert!(is_key_accepted(&gateway, kept) && is_key_accepted(&gateway, removed));
    limit_descriptors(&gateway, 3);
    std::fs::write(gateway.path("keys.toml"), key_entry("kept", kept)).unwrap();
    std::fs::write(&token_file, "the-second-token-of-the-operator\n").unwrap();
    gateway.lists().write("disposable.txt", LONGER_LIST);
    for part in ["keys is degraded", "config keeps its last good state"] {
        wait_until(&format!("it is told: {part}"), || {
            let stderr = gateway.stderr();
            let mut lines = stderr.lines().filter(|line| line.contains(part));
            lines.any(|line| line.contains("Too many open files"))
        });
    }
    limit_descriptors(&gateway, 20_000);
    wait_until("the removed key is refused", || !is_key_accepted(&gateway, removed));
    wait_until("the new token works", || {
        status_with_token("the-second-token-of-the-operator").send(gateway.admin).status == 200
    });
    wait_until("the new row answers", || {
        gateway.get_domain("new.test", kept).expect(200).json()["reason"] == "disposable"
    });
    assert!(is_key_accepted(&gateway, kept));
    wait_until("nothing is wrong any more", || {
        gateway.readyz().json()["degraded"].as_array().is_none_or(Vec::is_empty)
    });
}

#[test]
fn a_rewritten_token_file_replaces_the_token() {
    let setup = Setup::new();
    let path = setup.path("token");
    let tokens = ["the-first-token-of-the-operator", "the-second-token-of-the-operator"];
    std::fs::write(&path, tokens[0]).unwrap();
    let gateway = setup.set_text("admin.token_file", &path.display().to_string()).start();
    let status = |token: &str| status_with_token(token).send(gateway.admin).status;
    assert_eq!((status(tokens[0]), status(tokens[1])), (200, 401));
    std::fs::write(&path, tokens[1]).unwrap();
    wait_until("the new token works", || status(tokens[1]) == 200);
    assert_eq!(status(tokens[0]), 401);
    // A faulty file keeps the token, and is told; the next good one is read.
    std::fs::write(&path, "short").unwrap();
    wait_until("it is told", || gateway.stderr().contains("16 or more ASCII characters"));
    assert_eq!(status(tokens[1]), 200);
    std::fs::write(&path, tokens[0]).unwrap();
    wait_until("the first token works again", || status(tokens[0]) == 200);
    assert_eq!(status(tokens[1]), 401);
}

#[test]
fn commands_on_the_store_need_no_file_of_another_secret() {
    let setup = Setup::new()
        .set_text("webhook.url", "https://hooks.example.com/riskgate")
        .set_text("webhook.secret_file", "/none/webhook")
        .set_text("webhook.previous_secret_file", "/none/previous")
        .set_text("inbox.secret_file", "/none/inbox")
        .set_text("admin.token_file", "/none/token");
    let made = setup.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    for words in [
        &["accounts", "set", "acme", "--limit", "5"][..],
        &["keys", "list"],
        &["keys", "revoke", made["id"].as_str().unwrap()],
        &["table", "deny", "a.test"],
        &["usage"],
        &["audit"],
    ] {
        let ran = setup.cli(words).expect(0);
        assert!(!ran.stderr.contains("/none/"), "{words:?} {}", ran.stderr);
    }
    for words in [&["check"][..], &["run"]] {
        let refused = setup.cli(words).expect(78).stderr;
        for file in ["webhook", "previous", "inbox", "token"] {
            let expected = format!("expected a readable file /none/{file}");
            assert!(refused.contains(&expected), "{words:?} {refused}");
        }
    }
    let refused = setup.cli_with_input(&["sign-ups", "show", "-"], b"jane@x.com").expect(78);
    assert!(refused.stderr.contains("/none/inbox"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("/none/token"), "{}", refused.stderr);
    let inbox = setup.path("inbox");
    std::fs::write(&inbox, [b'x'; 32]).unwrap();
    let setup = setup.set_text("inbox.secret_file", &inbox.display().to_string());
    setup.cli_with_input(&["sign-ups", "show", "-"], b"jane@x.com").expect(0);
    let setup = Setup::new().unset("store.url").set_text("store.url_file", "/none/store");
    setup.cli(&["keys", "list"]).expect(78);
}

/// Writes a key file slowly, a key at a time, and asks with its last key meanwhile. Returns false
/// if this took so long that riskgate had to take the half-written file for a whole one.
#[test]
fn files_that_change_while_the_gateway_starts_are_read_again() {
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    let token_file = setup.path("token");
    let tokens = ["the-first-token-of-the-operator", "the-second-token-of-the-operator"];
    std::fs::write(&token_file, tokens[0]).unwrap();
    // Reading this takes long enough for the changes below, which come after the config was read.
    let names: String = (0..150_000).fold(String::new(), |mut names, n| {
        writeln!(names, "name-{n}.test").unwrap();
        names
    });
    setup.lists().write("disposable.txt", &names);
    let overrides = setup.path("overrides.csv");
    let setup = setup.set_text("admin.token_file", &token_file.display().to_string());
    let changes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(400));
        std::fs::write(&token_file, tokens[1]).unwrap();
        let row = "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,\
                   mx_provider_label\nname-7.test,subtree,safe,0,,,\n";
        std::fs::write(&overrides, row).unwrap();
    });
    let gateway = setup.start();
    changes.join().unwrap();
    let status = |token: &str| status_with_token(token).send(gateway.admin).status;
    wait_until("the new token works", || status(tokens[1]) == 200);
    assert_eq!(status(tokens[0]), 401);
    let key = gateway.create_active_key("acme", &[]);
    wait_until("the override is in force", || {
        gateway.get_domain("name-7.test", &key).expect(200).json()["risk_score"] == 0
    });
}

fn write_slowly(gateway: &Gateway, entries: &[String], last_key: &str) -> bool {
    let mut file = File::create(gateway.path("keys.toml")).unwrap();
    let started = Instant::now();
    for entry in entries {
        let begun = Instant::now();
        file.write_all(entry.as_bytes()).unwrap();
        while begun.elapsed() < Duration::from_millis(60) {
            let status = gateway.get(USAGE, last_key).status;
            if begun.elapsed() > Duration::from_millis(400) {
                return false;
            }
            assert_eq!(status, 200);
        }
    }
    started.elapsed() < Duration::from_secs(5)
}

#[test]
fn a_requested_reload_waits_until_a_key_file_is_written() {
    let last = "sv_the_last_key_of_the_file";
    let gateway = setup_with_key_file(&key_entry("last", last)).start();
    assert!(is_key_accepted(&gateway, last));
    let mut entries: Vec<String> = (0..12)
        .map(|n| key_entry(&format!("k{n}"), &format!("sv_another_key_number_{n}")))
        .collect();
    entries.push(key_entry("last", last));
    // On a busy machine, a round may be interrupted for too long.
    let rounds = (0..20).any(|_| {
        std::fs::write(gateway.path("keys.toml"), entries.concat()).unwrap();
        wait_until("the last key is accepted", || is_key_accepted(&gateway, last));
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| {
                request("POST", "/reload").with_header("Host", "localhost").send(gateway.admin)
            });
            gateway.send_signal("HUP");
            let was_written = write_slowly(&gateway, &entries, last);
            let answer = reload.join().unwrap();
            if was_written {
                answer.expect(200);
            }
            was_written
        })
    });
    assert!(rounds, "one round was written without an interruption");
    wait_until("the new keys are accepted", || {
        is_key_accepted(&gateway, "sv_another_key_number_11")
    });
    assert!(is_key_accepted(&gateway, last));
}

/// Lets the process get only this many MiB more.
fn limit_memory(gateway: &Gateway, mebibytes: u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let used = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let used: u64 = used.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = format!("--as={}:", (used << 10) + (mebibytes << 20));
    let pid = gateway.pid().to_string();
    run_command(Command::new("prlimit").args(["--pid", &pid, &limit])).expect(0);
}

#[test]
fn a_feed_that_needs_too_much_memory_is_refused() {
    let names: String = (0..400_000).map(|n| format!("name{n:07}.test\n")).collect();
    for mebibytes in [20, 40, 60, 80, 100, 120] {
        let setup = Setup::new();
        let feeds = setup.path("feeds").display().to_string();
        let gateway = setup.set_text("table.feed_dir", &feeds).start();
        let list = gateway.path("published.txt");
        std::fs::write(&list, &names).unwrap();
        // The allocator takes addresses for each thread when it first needs some.
        for _ in 0..30 {
            gateway.get_admin_page("/status");
            gateway.metrics();
        }
        limit_memory(&gateway, mebibytes);
        let feed = format!("[[table.feed]]\nname = \"daily\"\nurl = {list:?}\ntier = \"b\"\n");
        gateway.edit_config(|text| format!("{text}\n{feed}"));
        let mut last_status = Value::Null;
        let is_refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("the list is refused", || {
                last_status = gateway.get_admin_page("/status").json();
                let problem = last_status["feeds"][0]["problem"].as_str();
                // If little memory is left, it is the thread that can't be started.
                problem.is_some_and(|found| found.contains("free memory"))
            });
        }));
        assert!(is_refused.is_ok(), "{mebibytes} MiB: {last_status}");
        assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0, "{mebibytes} MiB");
    }
}

#[test]
fn keys_of_the_store_that_need_too_much_memory_are_refused() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let gateway = setup.start();
        let key = gateway.create_active_key("acme", &[]);
        let (leaked, leaked_id) = gateway.create_active_key_with_id("acme", &[]);
        // Enough to read 150,000 keys, and too little to serve them.
        limit_memory(&gateway, 490);
        let mut many = String::new();
        for n in 0..150_000 {
            many += &key_entry(&format!("k{n}"), &format!("sv_one_of_many_keys_{n}"));
        }
        std::fs::write(gateway.path("many.toml"), many).unwrap();
        gateway.cli(&["keys", "import", gateway.path("many.toml").to_str().unwrap()]).expect(0);
        wait_until("the keys are refused", || {
            let text = gateway.readyz().text();
            text.contains("150000 keys to read") && text.contains("MiB of free memory")
        });
        assert!(is_key_accepted(&gateway, &key));
        gateway.cli(&["keys", "revoke", &leaked_id]).expect(0);
        wait_until("the revocation is in effect", || !is_key_accepted(&gateway, &leaked));
        assert!(!is_key_accepted(&gateway, "sv_one_of_many_keys_149999"));
        let pid = gateway.pid().to_string();
        run_command(Command::new("prlimit").args(["--pid", &pid, "--as=unlimited:"])).expect(0);
        wait_until("all keys serve", || is_key_accepted(&gateway, "sv_one_of_many_keys_149999"));
        assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
    }
}

#[test]
fn a_table_and_a_key_file_that_need_too_much_memory_are_refused() {
    let key = "sv_the_key_of_the_small_file";
    let small = key_entry("small", key);
    let gateway = setup_with_key_file(&small).start();
    assert!(is_key_accepted(&gateway, key));
    limit_memory(&gateway, 120);

    let mut names = String::from("first.test\n");
    for n in 0..1_000_000 {
        writeln!(names, "name{n:07}.example{}.com", n % 97).unwrap();
    }
    gateway.lists().replace_by_rename("disposable.txt", &names);
    wait_until("the table is refused", || gateway.readyz().text().contains("MiB of free memory"));
    assert!(is_key_accepted(&gateway, key));
    gateway.lists().replace_by_rename("disposable.txt", LONGER_LIST);
    wait_until("a small table serves", || {
        gateway.get_domain("new.test", key).expect(200).json()["reason"] == "disposable"
    });

    let mut many = small.clone();
    for n in 0..40_000 {
        many += &key_entry(&format!("k{n}"), &format!("sv_one_of_many_keys_{n}"));
    }
    std::fs::write(gateway.path("many.toml"), many).unwrap();
    std::fs::rename(gateway.path("many.toml"), gateway.path("keys.toml")).unwrap();
    wait_until("the key file is refused", || {
        let text = gateway.readyz().text();
        text.contains("keys.toml") && text.contains("MiB of free memory")
    });
    assert!(is_key_accepted(&gateway, key));
    std::fs::write(gateway.path("keys.toml"), small).unwrap();
    wait_until("nothing is wrong any more", || {
        gateway.readyz().json()["degraded"].as_array().is_none_or(Vec::is_empty)
    });
    assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
}

#[test]
fn keys_that_have_an_account_each_and_too_little_memory_never_end_the_process() {
    for mebibytes in [50, 90, 130, 170, 210, 250] {
        let gateway = Setup::new().start();
        let key = gateway.create_active_key("acme", &[]);
        limit_memory(&gateway, mebibytes);
        let mut many = String::new();
        for n in 0..40_000 {
            let entry = key_entry(&format!("k{n}"), &format!("sv_one_of_many_keys_{n}"));
            many += &entry.replace("\"filed\"", &format!("\"account-{n}\""));
        }
        std::fs::write(gateway.path("many.toml"), many).unwrap();
        gateway.cli(&["keys", "import", gateway.path("many.toml").to_str().unwrap()]).expect(0);
        wait_until("the keys are refused, or all serve", || {
            gateway.readyz().text().contains("40000 keys to read")
                || is_key_accepted(&gateway, "sv_one_of_many_keys_39999")
        });
        assert!(is_key_accepted(&gateway, &key), "{mebibytes} MiB");
    }
}
