//! A command whose output can't be written fails with one line on standard error. It leaves no
//! usable key that the operator never saw.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{BINARY, Setup, run_command};
use crate::redis_server::RedisServer;

/// A device on which every write fails with ENOSPC.
fn open_full_device() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A pipe without a reader.
fn create_broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

struct FailedCommand {
    code: Option<i32>,
    stderr: String,
}

fn run_with_stdout(stdout: Stdio, config: Option<&Path>, arguments: &[&str]) -> FailedCommand {
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    if let Some(config) = config {
        command.arg("-c").arg(config).current_dir(config.parent().unwrap());
    }
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    FailedCommand { code: output.status.code(), stderr: String::from_utf8(output.stderr).unwrap() }
}

#[track_caller]
fn assert_stdout_error(ended: &FailedCommand, arguments: &[&str]) {
    let FailedCommand { code, stderr } = ended;
    assert_eq!(*code, Some(1), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    let says = "standard output: expected to write to it, but found ";
    assert!(stderr.contains(says), "{arguments:?}: {stderr}");
}

fn list_keys(setup: &Setup) -> Vec<Value> {
    setup.cli(&["keys", "list", "--json"]).expect(0).json().as_array().unwrap().clone()
}

fn assert_unprinted_keys_are_revoked(setup: &Setup) {
    let config = setup.write_config();
    // The commands below then say nothing about a new store.
    setup.cli(&["store", "init"]).expect(0);
    let in_use = |setup: &Setup| -> Vec<String> {
        let used = list_keys(setup).into_iter().filter(|key| key["revoked_at"].is_null());
        used.map(|key| key["id"].as_str().unwrap().to_owned()).collect()
    };
    for json in [&[][..], &["--json"]] {
        for (stdout, name) in [
            (open_full_device as fn() -> Stdio, "a full disk"),
            (create_broken_pipe, "a broken pipe"),
        ] {
            let create = [&["keys", "create", "--account", "acme"], json].concat();
            let ended = run_with_stdout(stdout(), Some(&config), &create);
            assert_stdout_error(&ended, &create);
            assert!(ended.stderr.contains("could not be shown and is revoked"), "{}", ended.stderr);
            assert_eq!(in_use(setup), [""; 0], "{name}");
        }
    }
    // Rust's standard library opens /dev/null in place of a closed standard output.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" keys create --account acme -c \"$1\" >&-", BINARY]);
    let ran = run_command(shell.arg(&config).current_dir(setup.path("")));
    assert_eq!((ran.exit_code, ran.stderr.lines().count()), (1, 1), "{}", ran.stderr);
    assert!(ran.stderr.contains("could not be shown and is revoked"), "{}", ran.stderr);
    assert_eq!(in_use(setup), [""; 0], "a closed standard output");
    let made = setup.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    let id = made["id"].as_str().unwrap();
    let rotate = ["keys", "rotate", id, "--overlap", "1d"];
    let ended = run_with_stdout(open_full_device(), Some(&config), &rotate);
    assert_stdout_error(&ended, &rotate);
    assert!(ended.stderr.contains("could not be shown and is revoked"), "{}", ended.stderr);
    assert_eq!(in_use(setup), [id], "only the old key keeps working");
    let old = list_keys(setup).into_iter().find(|key| key["id"] == id).unwrap();
    assert!(old["expires_at"].is_null(), "{old}");
    // Commands with a working output behave as before.
    setup.cli(&rotate).expect(0);
    assert_eq!(in_use(setup).len(), 2);
}

#[test]
fn on_sqlite_a_key_that_could_not_be_printed_is_revoked_and_a_rotation_undone() {
    assert_unprinted_keys_are_revoked(&Setup::new());
}

#[test]
fn on_redis_a_key_that_could_not_be_printed_is_revoked_and_a_rotation_undone() {
    let server = RedisServer::start();
    assert_unprinted_keys_are_revoked(&Setup::new().with_redis(&server));
}

#[test]
fn keys_rotate_is_one_change_of_the_store() {
    let setup = Setup::new();
    let version = || {
        let created = setup.cli(&["store", "init", "--json"]).expect(0).json();
        created["version"].as_u64().unwrap()
    };
    let made = setup.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    let before = version();
    setup.cli(&["keys", "rotate", made["id"].as_str().unwrap()]).expect(0);
    assert_eq!(version(), before + 1, "no crash leaves half of the change");
}

#[test]
fn with_too_few_replicas_a_new_key_is_revoked_and_a_rotation_undone() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server);
    let waits = Setup::new().with_redis(&server).set("store.wait_replicas", "1");
    let made = setup.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    let id = made["id"].as_str().unwrap();
    for arguments in [&["keys", "create", "--account", "acme"][..], &["keys", "rotate", id]] {
        let ran = waits.cli(arguments).expect(1);
        assert!(ran.stdout.is_empty() && ran.stderr.lines().count() == 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("0 of 1 replicas"), "{}", ran.stderr);
        assert!(ran.stderr.contains("could not be shown"), "{}", ran.stderr);
    }
    let used: Vec<Value> =
        list_keys(&setup).into_iter().filter(|key| key["revoked_at"].is_null()).collect();
    assert_eq!((used.len(), &used[0]["id"]), (1, &made["id"]), "{used:?}");
    assert!(used[0]["expires_at"].is_null(), "{used:?}");
}

#[test]
fn every_command_fails_in_one_line_when_its_output_cannot_be_written() {
    let setup = Setup::new();
    let config = setup.write_config();
    let made = setup.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    let file = setup.path("import.toml");
    let hash = "0".repeat(64);
    let key = format!("[[key]]\nid = \"a\"\naccount = \"old\"\nhash = \"sha256:{hash}\"\n");
    std::fs::write(&file, key).unwrap();
    let (lists, built) = (setup.path("lists"), setup.path("built.table"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (lists, built, file) = (path(&lists), path(&built), path(&file));
    let from = format!("sqlite:{}", path(&setup.path("riskgate.db")));
    let to = format!("sqlite:{}", path(&setup.path("copy.db")));
    let listing: [&[&str]; 5] = [
        &["keys", "list"],
        &["keys", "list", "--json"],
        &["accounts", "list"],
        &["usage"],
        &["usage", "--json"],
    ];
    let changing: [(&[&str], &str); 5] = [
        (&["accounts", "set", "acme", "--plan", "pro"], "account acme is set"),
        (&["keys", "import", &file, "--json"], "1 key imported"),
        (&["store", "init", "--json"], "store "),
        (&["store", "copy", &from, &to, "--json"], "copied 2 keys"),
        (&["keys", "revoke", made["id"].as_str().unwrap(), "--json"], "is revoked; "),
    ];
    let plain: [&[&str]; 7] = [
        &["--help"],
        &["--version"],
        &["keys", "create", "--help"],
        &["table", "inspect", &lists],
        &["table", "lookup", "first.test", "--table", &lists],
        &["table", "diff", &lists, &lists, "--json"],
        &["table", "build", &lists, "-o", &built],
    ];
    for arguments in listing {
        assert_stdout_error(
            &run_with_stdout(open_full_device(), Some(&config), arguments),
            arguments,
        );
        let ended = run_with_stdout(create_broken_pipe(), Some(&config), arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""), "{arguments:?}");
    }
    for (arguments, done) in changing {
        let ended = run_with_stdout(open_full_device(), Some(&config), arguments);
        assert_stdout_error(&ended, arguments);
        assert!(ended.stderr.contains(done), "{arguments:?}: {}", ended.stderr);
    }
    for arguments in plain {
        assert_stdout_error(&run_with_stdout(open_full_device(), None, arguments), arguments);
    }
    assert!(Path::new(&built).exists(), "the command has done its work");
}

#[test]
fn a_command_works_even_if_its_stderr_cannot_be_written() {
    let setup = Setup::new();
    let config = setup.write_config();
    for arguments in [
        &["keys", "create", "--account", "acme"][..],
        &["check"],
        &["accounts", "set", "acme", "--limit", "5"],
    ] {
        let mut command = Command::new(BINARY);
        command.args(arguments).arg("-c").arg(&config).stdin(Stdio::null());
        let done = command.stderr(open_full_device()).stdout(Stdio::piped()).spawn().unwrap();
        let done = done.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{arguments:?}");
        assert_eq!(done.stdout.is_empty(), arguments == ["check"], "{arguments:?}");
    }
    // A fault whose text can't be printed still has its exit code.
    std::fs::write(&config, "nonsense = 1\n").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" check -c \"$1\" 2> /dev/full", BINARY]).arg(&config);
    assert_eq!(run_command(&mut shell).exit_code, 78);
}
