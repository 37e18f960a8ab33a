//! `riskgate init`: what it writes is good, and it overwrites nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::{BINARY, CommandOutput, run_command};

fn run_in(folder: &Path, words: &[&str]) -> CommandOutput {
    let mut command = Command::new(BINARY);
    run_command(command.args(words).current_dir(folder).env_remove("RISKGATE_CONFIG"))
}

#[test]
fn init_writes_a_config_without_warnings_and_a_key_that_is_in_its_store() {
    for words in [
        &["init"][..],
        &["init", "--upstream", "127.0.0.1:3000"],
        &["init", "--upstream", "127.0.0.1:3000", "--sign-up", "/signup", "--account", "acme"],
        &["init", "--listen", "127.0.0.1:18080", "--systemd"],
        &["init", ".", "--upstream", "https://10.0.0.7:8443"],
        &["init", "./", "--upstream", "https://backend.internal/"],
    ] {
        let folder = TempDir::new().unwrap();
        let made = run_in(folder.path(), words).expect(0);
        assert!(made.stdout.starts_with("rg_"), "{}", made.stdout);
        assert!(made.stderr.contains("next:\n"), "{}", made.stderr);
        let checked = run_in(folder.path(), &["check"]).expect(0).stderr;
        assert!(checked.starts_with("riskgate.toml: good; store "), "{words:?}: {checked}");
        assert!(checked.contains("1 key\n") && !checked.contains("table.feed"), "{checked}");
        let config = fs::read_to_string(folder.path().join("riskgate.toml")).unwrap();
        assert!(config.contains("name = \"castle\"") && config.contains("keep = \"90d\""));
        let screened = "fields = [\"email\", \"user.email\"]\nmode = \"shadow\"";
        assert_eq!(config.contains(screened), words.contains(&"/signup"));
        let has_tls = words.last().unwrap().starts_with("https://");
        assert_eq!(config.contains("\ntls = true\n"), has_tls);
        // The store has the hashes of keys; the config has no secret.
        let store = fs::metadata(folder.path().join("state/riskgate.db")).unwrap();
        assert_eq!(store.permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.path().join("riskgate.service").exists(), words.contains(&"--systemd"));
    }
}

#[test]
fn init_overwrites_no_file_and_leaves_none_behind_after_a_failure() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (existing, words) in [
        ("riskgate.toml", &["init"][..]),
        ("riskgate.service", &["init", "--systemd"]),
        ("compose.yaml", &["init", "--compose"]),
    ] {
        fs::write(path(existing), "mine\n").unwrap();
        let refused = run_in(folder.path(), words).expect(1).stderr;
        assert!(refused.contains(existing) && refused.contains("overwrites none"), "{refused}");
        assert_eq!(fs::read_to_string(path(existing)).unwrap(), "mine\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::remove_file(path(existing)).unwrap();
    }
    for path in ["signup", "/signup/", "https://a.test/signup"] {
        let wrong = ["init", "--upstream", "127.0.0.1:3000", "--sign-up", path];
        let refused = run_in(folder.path(), &wrong).expect(2).stderr;
        assert!(refused.starts_with("--sign-up: expected a path such as /signup"), "{refused}");
        assert!(refused.ends_with(" a query and a / at its end; write /signup\n"), "{refused}");
    }
    for (server, hint) in [
        ("http://127.0.0.1:3000/", "; write 127.0.0.1:3000\n"),
        ("127.0.0.1", "; the port is missing: write 127.0.0.1:PORT\n"),
        ("localhost", "; the port is missing: write localhost:PORT\n"),
        ("a.test:99999", "--upstream: expected a host and a port such as"),
        ("a.test:0", "--upstream: expected a port from 1 to 65535"),
        ("https://a.test/x", "; write https://a.test\n"),
        ("127.0.0.1:8080", "--upstream: expected another server than riskgate itself"),
        ("localhost:8080", "--upstream: expected another server than riskgate itself"),
        ("https://127.0.0.1:8080", "--upstream: expected another server than riskgate itself"),
    ] {
        let refused = run_in(folder.path(), &["init", "--upstream", server]).expect(2).stderr;
        assert!(refused.contains(hint), "{refused}");
    }
    for (address, hint) in [
        ("8080", "; write 127.0.0.1:8080\n"),
        (":8080", "; write 0.0.0.0:8080\n"),
        ("localhost:8080", "; write 127.0.0.1:8080\n"),
        ("http://0.0.0.0:8080", "; write 0.0.0.0:8080\n"),
        ("127.0.0.1:0", "\"127.0.0.1:0\"\n"),
    ] {
        let refused = run_in(folder.path(), &["init", "--listen", address]).expect(2).stderr;
        let expected = "expected an address such as 127.0.0.1:8080, but found";
        assert!(refused.contains(expected) && refused.ends_with(hint), "{refused}");
    }
    for path in ["/v1/public", "/V1/check/x", "/healthz"] {
        let words = ["init", "--upstream", "127.0.0.1:3000", "--sign-up", path];
        let refused = run_in(folder.path(), &words).expect(2).stderr;
        let expected =
            format!("of a form of your server, but found {path}, which riskgate answers");
        assert!(refused.starts_with("--sign-up: ") && refused.contains(&expected), "{refused}");
    }
    let own = run_in(folder.path(), &["init", "--listen", "127.0.0.1:9090"]).expect(2).stderr;
    assert!(own.contains("--listen: expected another port than 9090"), "{own}");
    run_in(folder.path(), &["init", "no/such/folder.toml"]).expect(1);
    run_in(folder.path(), &["init", "--account", "two words"]).expect(2);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_store_that_is_broken_leaves_no_config_behind() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("state")).unwrap();
    let other = folder.path().join("state/riskgate.db");
    fs::write(&other, "this is no database\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    for words in [&["init"][..], &["init", "--systemd"]] {
        run_in(folder.path(), words).expect(78);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
    // The file of another program stays as it is.
    assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn the_first_key_is_in_the_store_of_the_new_config_and_in_no_former_one() {
    let folder = TempDir::new().unwrap();
    run_in(folder.path(), &["keys", "create", "--account", "other"]).expect(0);
    fs::create_dir(folder.path().join("svc")).unwrap();
    let made = run_in(folder.path(), &["init", "svc"]).expect(0).stderr;
    assert!(!made.contains("warning"), "{made}");
    let accounts = |words: &[&str]| {
        let words = [&["keys", "list", "--json"], words].concat();
        let listed = run_in(folder.path(), &words).expect(0).json();
        let keys = listed.as_array().unwrap();
        keys.iter().map(|key| key["account"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(accounts(&["-c", "svc/riskgate.toml"]), ["main"]);
    assert_eq!(accounts(&[]), ["other"]);
}

#[test]
fn a_compose_file_has_no_server_on_the_loopback_of_the_container() {
    let folder = TempDir::new().unwrap();
    for server in ["127.0.0.1:3000", "localhost:3000", "[::1]:3000", "0.0.0.0:3000"] {
        let words = ["init", "--compose", "--upstream", server];
        let refused = run_in(folder.path(), &words).expect(2).stderr;
        assert!(refused.contains("write host.docker.internal:3000 for a server on"), "{refused}");
        assert!(refused.contains("SERVICE:3000"), "{refused}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let words = ["init", "--compose", "--upstream", "host.docker.internal:3000"];
    let made = run_in(folder.path(), &words).expect(0).stderr;
    assert!(made.contains("build the image first: scripts/release"), "{made}");
    let text = fs::read_to_string(folder.path().join("compose.yaml")).unwrap();
    assert!(text.contains("extra_hosts: [\"host.docker.internal:host-gateway\"]\n"), "{text}");
    // Docker does not see the images of Podman.
    assert!(text.contains("load it: docker load -i target/release-files/riskgate-"), "{text}");
}

#[test]
fn odd_names_of_files_are_quoted_in_what_init_writes_and_prints() {
    let folder = TempDir::new().unwrap();
    let made = run_in(folder.path(), &["init", "it's $one #1.toml", "--compose"]).expect(0).stderr;
    let compose = fs::read_to_string(folder.path().join("compose.yaml")).unwrap();
    let path = "\"/etc/riskgate/it's $$one #1.toml\"";
    for line in [format!("command: [run, -c, {path}]\n"), format!("RISKGATE_CONFIG: {path}\n")] {
        assert!(compose.contains(&line), "{compose}");
    }
    assert!(made.contains("`riskgate check -c 'it'\\''s $one #1.toml'`"), "{made}");
}

#[test]
fn the_unit_names_a_folder_whose_name_systemd_would_change() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("50% of $HOME \"x\"");
    fs::create_dir(&folder).unwrap();
    run_in(&folder, &["init", "--systemd"]).expect(0);
    let unit = fs::read_to_string(folder.join("riskgate.service")).unwrap();
    let parent = fs::canonicalize(parent.path()).unwrap();
    let parent = parent.display();
    let folder = format!("WorkingDirectory={parent}/50%% of $HOME \"x\"\n");
    assert!(unit.contains(&folder), "{unit}");
    let config = format!("\" run -c \"{parent}/50%% of $$HOME \\\"x\\\"/riskgate.toml\"\n");
    assert!(unit.contains(&config), "{unit}");
    let writable = format!("ReadWritePaths=-\"{parent}/50%% of $HOME \\\"x\\\"\"\n");
    assert!(unit.contains(&writable), "{unit}");
}

/// The settings of a unit, without those of its name, user, folders and sandbox.
fn read_service_rules(unit: &str) -> BTreeMap<&str, &str> {
    let settings = unit.lines().filter(|line| !line.starts_with('#'));
    let settings = settings.filter_map(|line| line.split_once('='));
    let starts = ["Start", "Restart", "Watchdog", "Type", "TimeoutStop", "Limit", "ExecReload"];
    settings.filter(|(name, _)| starts.iter().any(|start| name.starts_with(start))).collect()
}

#[test]
fn the_unit_starts_stops_and_restarts_the_service_as_the_packaged_one_does() {
    let folder = TempDir::new().unwrap();
    run_in(folder.path(), &["init", "--systemd"]).expect(0);
    let unit = fs::read_to_string(folder.path().join("riskgate.service")).unwrap();
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packaged = fs::read_to_string(project.join("conf/systemd/riskgate@.service")).unwrap();
    let rules = read_service_rules(&unit);
    assert_eq!(rules, read_service_rules(&packaged));
    assert!(rules.len() >= 9 && rules["StartLimitIntervalSec"] == "0", "{rules:?}");
}

#[test]
fn the_unit_lets_the_service_write_where_its_default_paths_start() {
    let folder = TempDir::new().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap().display().to_string();
    for (name, argument, writable) in
        [("a", "a", "/a"), ("conf", "conf/x.toml", ""), ("a/b", "a/../a/b", "/a/b")]
    {
        fs::create_dir(folder.path().join(name)).unwrap();
        run_in(folder.path(), &["init", argument, "--systemd"]).expect(0);
        let unit = folder.path().join(name).join("riskgate.service");
        let unit = fs::read_to_string(unit).unwrap();
        for line in [
            format!("WorkingDirectory={root}/{name}\n"),
            format!("ProtectSystem=full\nReadWritePaths=-\"{root}{writable}\"\n"),
        ] {
            assert!(unit.contains(&line), "{unit}");
        }
    }
}

#[test]
fn root_makes_no_unit_in_the_folder_of_another_user() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("riskgate.toml");
    let config = config.to_str().unwrap();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    // In a new user namespace, somebody is root, and all other users own nothing but "nobody".
    let (prefix, config) = match is_root {
        true => (&["env"][..], config),
        false => (&["unshare", "--map-root-user"][..], "/riskgate.toml"),
    };
    if is_root {
        chown(folder.path(), Some(65534), None).unwrap();
    }
    let mut command = Command::new(prefix[0]);
    let command = command.args(&prefix[1..]).args([BINARY, "init", config, "--systemd"]);
    let refused = run_command(command.env_remove("RISKGATE_CONFIG")).expect(1).stderr;
    assert!(refused.contains("--systemd: expected the user 65534, who owns"), "{refused}");
    assert!(refused.contains("sudo -u '#65534'"), "{refused}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn on_a_terminal_four_questions_have_defaults() {
    let folder = TempDir::new().unwrap();
    // `script` runs the command on a terminal.
    let mut child = Command::new("script")
        .args(["-qec", &format!("{BINARY} init"), "/dev/null"])
        .current_dir(folder.path())
        .env_remove("RISKGATE_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let answers =
        b"nonsense\n127.0.0.1:18080\nhttp://127.0.0.1:3000\n127.0.0.1:3000\njoin\n/join\n\
        two words\n\n";
    child.stdin.take().unwrap().write_all(answers).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    for hint in [
        "expected an address such as 127.0.0.1:8080",
        "; write 127.0.0.1:3000",
        "expected a path such as /signup",
        "but found \"two words\"",
    ] {
        assert!(shown.contains(hint), "{hint}: {shown}");
    }
    let config = fs::read_to_string(folder.path().join("riskgate.toml")).unwrap();
    for line in
        ["http = \"127.0.0.1:18080\"", "servers = [\"127.0.0.1:3000\"]", "paths = [\"/join\"]"]
    {
        assert!(config.contains(line), "{line}: {config}");
    }
    assert!(run_in(folder.path(), &["keys", "list"]).expect(0).stdout.contains("  main  "));
}

#[test]
fn a_port_below_1024_has_what_its_service_needs() {
    let folder = TempDir::new().unwrap();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    for (config, port, needs_right) in [("a.toml", 80, !is_root), ("b.toml", 1024, false)] {
        let listen = format!("0.0.0.0:{port}");
        run_in(folder.path(), &["init", config, "--systemd", "--listen", &listen]).expect(0);
        let unit = read("riskgate.service");
        for setting in ["AmbientCapabilities", "CapabilityBoundingSet"] {
            let line = format!("\n{setting}=CAP_NET_BIND_SERVICE\n");
            assert_eq!(unit.contains(&line), needs_right, "{unit}");
        }
        fs::remove_file(folder.path().join("riskgate.service")).unwrap();
    }
    for (config, outer, inner) in [("c.toml", 80, 8080), ("d.toml", 1024, 1024)] {
        let listen = format!("127.0.0.1:{outer}");
        let words = ["init", config, "--compose", "--listen", &listen];
        run_in(folder.path(), &words).expect(0);
        let compose = read("compose.yaml");
        assert!(compose.contains(&format!("[\"127.0.0.1:{outer}:{inner}\"]")), "{compose}");
        assert!(read(config).contains(&format!("http = \"0.0.0.0:{inner}\"")));
        fs::remove_file(folder.path().join("compose.yaml")).unwrap();
    }
}

#[test]
fn the_user_of_a_container_can_read_the_config_and_names_are_quoted() {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let script = format!("umask 077; {BINARY} init --compose --account 'a;id$(id)'");
    let mut command = Command::new("sh");
    let command = command.args(["-c", &script]).current_dir(folder.path());
    let made = run_command(command.env_remove("RISKGATE_CONFIG")).expect(0).stderr;
    assert!(made.contains("--account 'a;id$(id)' --plan pro\n"), "{made}");
    let config = fs::metadata(folder.path().join("riskgate.toml")).unwrap();
    assert_eq!(config.permissions().mode() & 0o777, 0o644);
    // The folder is that of its owner; the command does not open it.
    assert!(made.contains("can't read the folder of the config: chmod o+rx ."), "{made}");
}
