//! One config has one store, wherever the shell stands, and no command that fails or only reads
//! makes one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{
    BINARY, CommandOutput, Setup, run_command, unprivileged_command_prefix, wait_until,
};

/// Runs a command in this folder.
fn run_in(folder: &Path, words: &[&str]) -> CommandOutput {
    let mut command = Command::new(BINARY);
    run_command(command.args(words).current_dir(folder).env_remove("RISKGATE_CONFIG"))
}

fn list_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(list_files(&path));
        }
        files.push(path);
    }
    files.sort();
    files
}

#[test]
fn a_command_in_another_folder_uses_the_store_of_the_gateway() {
    let setup = Setup::new().unset("store.url").unset("process.runtime_dir");
    let gateway = setup.start();
    let elsewhere = TempDir::new().unwrap();
    let config = gateway.path("riskgate.toml");
    let config = config.to_str().unwrap();
    let made = run_in(elsewhere.path(), &["keys", "create", "--account", "acme", "-c", config]);
    let key = made.expect(0).stdout.trim().to_owned();
    let is_accepted = || gateway.get("/v1/usage", &key).status == 200;
    wait_until("the key is accepted", is_accepted);
    assert!(gateway.path("state/riskgate.db").exists());
    assert_eq!(list_files(elsewhere.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_command_with_another_store_than_the_gateway_is_told() {
    let gateway = Setup::new().unset("process.runtime_dir").start();
    gateway.create_active_key("acme", &[]);
    let config = gateway.path("riskgate.toml");
    let other = format!("sqlite:{}", gateway.path("other.db").display());
    let run = |words: &[&str]| {
        let mut command = Command::new(BINARY);
        let command =
            command.args(words).arg("-c").arg(&config).env("RISKGATE__STORE__URL", &other);
        run_command(command)
    };
    for words in [&["keys", "list"][..], &["usage"], &["audit"], &["accounts", "list"]] {
        let told = run(words).expect(0).stderr;
        assert!(told.contains("warning: store.url: expected sqlite:"), "{words:?}: {told}");
        assert!(told.contains("the store of the running gateway"), "{words:?}: {told}");
    }
    let backup = gateway.path("backup").display().to_string();
    let refused = run(&["store", "backup", &backup]).expect(1).stderr;
    assert!(refused.contains("the store of the running gateway"), "{refused}");
    assert!(!gateway.path("other.db").exists());
}

#[test]
fn a_command_that_reads_or_fails_makes_no_store_and_no_folder() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("riskgate.toml"), "[plans]\nfree = 100\n").unwrap();
    fs::write(folder.path().join("keys.toml"), "[[key]]\nid = \"a\"\n").unwrap();
    let plan = "[[key]]\nid = \"a\"\naccount = \"b\"\nplan = \"gold\"\nhash = \"sha256:";
    fs::write(folder.path().join("plan.toml"), format!("{plan}{}\"\n", "a".repeat(64))).unwrap();
    let before = list_files(folder.path());
    for (words, code) in [
        (&["keys", "list"][..], 0),
        (&["accounts", "list"], 0),
        (&["usage"], 0),
        (&["usage", "--csv"], 0),
        (&["audit"], 0),
        (&["check"], 0),
        (&["config", "show"], 0),
        (&["table", "lookup", "yopmail.com"], 0),
        (&["table", "feeds"], 0),
        (&["usage", "--account", "nobody"], 1),
        (&["store", "backup", "nope/x.bak"], 78),
        (&["store", "backup", "x.bak"], 78),
        (&["keys", "revoke", "key_1"], 1),
        (&["keys", "rotate", "key_1"], 1),
        (&["keys", "import", "keys.toml"], 78),
        (&["keys", "import", "plan.toml"], 78),
        (&["keys", "import", "missing.toml"], 78),
        (&["keys", "create", "--account", "a b"], 2),
        (&["keys", "create", "--account", "a", "--plan", "gold"], 2),
        (&["keys", "create", "--account", "a", "--expires", "soon"], 2),
        (&["accounts", "set", "a", "--limit", "many"], 2),
        (&["accounts", "set", "a"], 2),
    ] {
        run_in(folder.path(), words).expect(code);
        assert_eq!(list_files(folder.path()), before, "{words:?}");
    }
}

#[test]
fn usage_of_an_account_that_does_not_exist_fails() {
    let setup = Setup::new();
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    for more in [&[][..], &["--daily"], &["--csv"], &["--json"]] {
        let usage =
            |account: &str| setup.cli(&[&["usage", "--account", account][..], more].concat());
        usage("acme").expect(0);
        let refused = usage("nobody").expect(1);
        assert!(refused.stderr.contains("expected the name of an account"), "{}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
}

#[test]
fn a_store_at_the_former_default_is_used_and_the_line_to_write_is_told() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    // A version whose default paths started at the working directory made these.
    fs::create_dir_all(path("shell/conf")).unwrap();
    fs::create_dir_all(path("etc")).unwrap();
    run_in(&path("shell"), &["keys", "create", "--account", "kept"]).expect(0);
    fs::write(path("etc/riskgate.toml"), "[plans]\nfree = 100\n").unwrap();
    let config = path("etc/riskgate.toml").display().to_string();
    let shell = path("shell").canonicalize().unwrap();
    let list = |folder: &Path| run_in(folder, &["keys", "list", "--json", "-c", &config]).expect(0);
    let listed = list(&shell);
    assert_eq!(listed.json()[0]["account"], "kept");
    let line = format!("url = \"sqlite:{}/state/riskgate.db\"", shell.display());
    assert!(listed.stderr.contains(&line), "{}", listed.stderr);
    let checked = run_in(&shell, &["check", "-c", &config]).expect(0).stderr;
    assert!(checked.contains(&line), "{checked}");
    assert!(!path("etc/state").exists());
    // As told, the commands use it everywhere, and warn no longer.
    let settings = format!("[plans]\nfree = 100\n[store]\n{line}\n");
    fs::write(&config, settings).unwrap();
    let listed = list(folder.path());
    assert_eq!(listed.json()[0]["account"], "kept");
    assert_eq!(listed.stderr, "");
    // A command in another folder can't know of it and makes a store. From then on, both are told.
    fs::write(&config, "[plans]\nfree = 100\n").unwrap();
    let create = ["keys", "create", "--account", "new", "-c", &config];
    run_in(folder.path(), &create).expect(0);
    let listed = list(&shell);
    assert_eq!(listed.json()[0]["account"], "new");
    assert!(listed.stderr.contains("is there too"), "{}", listed.stderr);
    assert!(listed.stderr.contains(&line), "{}", listed.stderr);
}

#[test]
fn check_says_which_config_and_store_it_has_read() {
    let folder = TempDir::new().unwrap();
    let checked = run_in(folder.path(), &["check"]).expect(0).stderr;
    assert!(checked.contains("built-in defaults, because there is no riskgate.toml"), "{checked}");
    fs::create_dir(folder.path().join("conf")).unwrap();
    fs::write(folder.path().join("conf/riskgate.toml"), "[plans]\nfree = 1\n").unwrap();
    let checked = run_in(folder.path(), &["check"]).expect(0).stderr;
    assert!(checked.starts_with("conf/riskgate.toml: good; store sqlite:/"), "{checked}");
    fs::write(folder.path().join("riskgate.toml"), "[plans]\nfree = 1\n").unwrap();
    let checked = run_in(folder.path(), &["check"]).expect(0).stderr;
    assert!(checked.starts_with("riskgate.toml: good; store sqlite:/"), "{checked}");
    assert!(checked.contains("/state/riskgate.db, table "), "{checked}");
    // From its own folder, conf/riskgate.toml has the same store.
    let inside = folder.path().join("conf");
    let checked = run_in(&inside, &["check", "-c", "riskgate.toml"]).expect(0).stderr;
    let store = folder.path().canonicalize().unwrap().join("state/riskgate.db");
    assert!(checked.contains(&format!("sqlite:{}", store.display())), "{checked}");
}

#[test]
fn a_config_that_may_be_hidden_is_told_unless_the_working_directory_hides_all() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("conf")).unwrap();
    // `sudo -u riskgate` in /root starts riskgate in a folder that it may not search.
    let show = |hidden: &str| {
        let script = format!("chmod 000 {hidden} && exec \"$@\"");
        let words = [&["-c", &script, "sh"], unprivileged_command_prefix(), &[BINARY]].concat();
        let mut command = Command::new("sh");
        let command = command.args(words).args(["config", "show"]).current_dir(folder.path());
        let output = run_command(command.env_remove("RISKGATE_CONFIG"));
        let mode = |name: &str, mode: u32| {
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode))
        };
        mode("", 0o755).unwrap();
        mode("conf", 0o755).unwrap();
        output
    };
    let told = show("conf").expect(78).stderr;
    assert!(told.contains("conf/riskgate.toml: expected a config file, but found Perm"), "{told}");
    let shown = show(".").expect(0).stdout;
    assert!(shown.contains("http = \"127.0.0.1:8080\"  # default"), "{shown}");
}
