//! `riskgate check` and the start report the same faults of a config, without secrets.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::{BINARY, CommandOutput, Setup, list_recursively, run_command, wait_until};

fn path_as_text(setup: &Setup, name: &str) -> String {
    setup.path(name).display().to_string()
}

type SetupChange = Box<dyn Fn(Setup) -> Setup>;

/// Faulty setups that both `check` and `run` refuse, each with the reported fault.
fn faulty_setups() -> [(&'static str, SetupChange); 9] {
    let log = |place: fn(&Setup) -> String| {
        move |setup: Setup| {
            let path = place(&setup);
            setup.set_text("log.path", &path)
        }
    };
    [
        (
            "log.path: expected a file to append to",
            Box::new(log(|setup| path_as_text(setup, "lists"))),
        ),
        (
            "log.path: expected a file to append to",
            Box::new(log(|setup| {
                run_command(Command::new("mkfifo").arg(setup.path("fifo"))).expect(0);
                path_as_text(setup, "fifo")
            })),
        ),
        (
            "log.path: expected a file to append to",
            Box::new(log(|setup| path_as_text(setup, "no/log"))),
        ),
        (
            "log.path: expected a file to append to",
            Box::new(log(|setup| path_as_text(setup, "lists/disposable.txt/log"))),
        ),
        (
            "expected a directory that we may create and write",
            Box::new(|setup| {
                let file = path_as_text(&setup, "lists/disposable.txt/new/riskgate.db");
                setup.set_text("store.url", &format!("sqlite:{file}"))
            }),
        ),
        (
            "listen.admin: expected another address than listen.http, but found 127.0.0.1:1",
            Box::new(|setup| {
                let setup = setup.set_text("listen.http", "0.0.0.0:1");
                setup.set_text("listen.admin", "127.0.0.1:1")
            }),
        ),
        (
            "listen.https: expected another address than listen.http, but found [::]:1",
            Box::new(|setup| {
                setup.set_text("listen.http", "127.0.0.1:1").set_text("listen.https", "[::]:1")
            }),
        ),
        (
            "keys.toml: expected keys, but found an empty file",
            Box::new(|setup| {
                std::fs::write(setup.path("keys.toml"), "\n").unwrap();
                let path = path_as_text(&setup, "keys.toml");
                setup.set_text("keys.file", &path)
            }),
        ),
        (
            "limit of open files: expected at least 64, but found 50",
            Box::new(|setup| {
                setup.run_under(&["sh", "-c", "ulimit -n 50; exec timeout 20 \"$0\" \"$@\""])
            }),
        ),
    ]
}

#[test]
fn check_reports_the_same_faults_as_run_and_creates_no_file() {
    for (expected, change) in faulty_setups() {
        // If `run` accepts the config, `timeout` ends it, which gives another exit code.
        let setup = change(Setup::new().run_under(&["timeout", "20"]));
        setup.write_config();
        let before = list_recursively(&setup.path(""));
        let check = setup.cli(&["check"]).expect(78);
        assert!(check.stderr.contains(expected), "{expected}: {}", check.stderr);
        assert_eq!(list_recursively(&setup.path("")), before, "{expected}");
        let start = setup.cli(&["run"]).expect(78);
        let faults = |ran: &CommandOutput| -> Vec<String> {
            let lines = ran.stderr.lines().filter(|line| line.contains(expected));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(faults(&start), faults(&check), "{}", start.stderr);
    }
}

#[test]
fn every_command_refuses_an_empty_config_but_accepts_one_with_only_comments() {
    let setup = Setup::new();
    let config = setup.path("empty.toml");
    for text in ["", "\n \n"] {
        std::fs::write(&config, text).unwrap();
        for subcommand in [&["run"][..], &["check"], &["keys", "list"]] {
            let mut command = Command::new("timeout");
            command.args(["20", BINARY]).args(subcommand).arg("-c").arg(&config);
            let reported = run_command(&mut command).expect(78).stderr;
            let expected = "empty.toml: expected settings, but found an empty file\n";
            assert!(
                reported.ends_with(expected) && reported.lines().count() == 1,
                "{subcommand:?}: {reported}"
            );
        }
    }
    std::fs::write(&config, "# Nothing yet.\n").unwrap();
    let mut command = Command::new(BINARY);
    command.args(["check", "-c"]).arg(&config).current_dir(setup.path(""));
    run_command(&mut command).expect(0);
}

#[test]
fn an_environment_variable_that_is_not_utf8_is_reported_without_its_value() {
    let setup = Setup::new();
    let config = setup.write_config();
    let secret = OsString::from_vec(b"redis://me:s3cr3t\xff@host".to_vec());
    let with = |name: &OsStr, arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["20", BINARY]).args(arguments).arg("-c").arg(&config);
        run_command(command.env(name, &secret))
    };
    let subcommands: [&[&str]; 7] = [
        &["run"],
        &["check"],
        &["keys", "create", "--account", "acme"],
        &["keys", "list"],
        &["accounts", "list"],
        &["usage"],
        &["store", "init"],
    ];
    let names: [(&[u8], &str); 3] = [
        (b"RISKGATE__STORE__URL", "RISKGATE__STORE__URL: store.url: expected UTF-8"),
        (b"RISKGATE__ADMIN__TOKEN", "RISKGATE__ADMIN__TOKEN: admin.token: expected UTF-8"),
        (b"RISKGATE__\xff", "RISKGATE__\u{fffd}: \u{fffd}: expected UTF-8"),
    ];
    for subcommand in subcommands {
        for (name, expected) in names {
            let ran = with(OsStr::from_bytes(name), subcommand).expect(78);
            assert_eq!(
                ran.stderr,
                format!("{expected}, but found other bytes\n"),
                "{subcommand:?}"
            );
            assert!(ran.stdout.is_empty(), "{subcommand:?}: {}", ran.stdout);
        }
    }
    for name in [OsStr::from_bytes(b"ODD"), OsStr::from_bytes(b"ODD_\xff")] {
        for subcommand in &subcommands[1..] {
            with(name, subcommand).expect(0);
        }
    }
    // A key's variable does not serve as the admin token.
    let keys = setup.path("keys.toml");
    std::fs::write(&keys, "[[key]]\nid = \"a\"\naccount = \"a\"\nenv = \"WEB_KEY\"\n").unwrap();
    let setup = setup.set_text("keys.file", keys.to_str().unwrap());
    setup.write_config();
    let ran = with(OsStr::new("WEB_KEY"), &["check"]).expect(78);
    let form = "the variable WEB_KEY to hold 16 to 256 visible ASCII characters";
    assert!(ran.stderr.contains(form) && !ran.stderr.contains("s3cr3t"), "{}", ran.stderr);
}

#[test]
fn an_argument_that_is_not_utf8_is_refused_without_a_panic() {
    let not_utf8 = OsString::from_vec(b"a\xff".to_vec());
    let setup = Setup::new();
    let config = setup.write_config();
    let mut command = Command::new(BINARY);
    command.args(["keys", "create", "--account"]).arg(&not_utf8).arg("-c").arg(&config);
    let ran = run_command(&mut command).expect(2);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    // A path may contain any bytes.
    let path = setup.path("").join(&not_utf8);
    std::fs::copy(&config, &path).unwrap();
    run_command(Command::new(BINARY).args(["check", "-c"]).arg(path)).expect(0);
}

#[test]
fn no_error_about_a_url_shows_its_password() {
    let setup = Setup::new();
    let config = setup.write_config();
    let gateway = setup.start();
    for url in [
        "redis://127.0.0.1:1?password=s3cr3t",
        "redis://me:s3cr3t",
        "redis://:s3cr3t/0",
        "rediss://me:s3cr3t%40host:6379/0",
        "redis://127.0.0.1:1/s3cr3t",
        "me:s3cr3t@127.0.0.1:1",
        "sqlite:riskgate.db?key=s3cr3t",
    ] {
        let silent = |what: &str, reported: &str| {
            assert!(
                !reported.contains("s3cr3t") && !reported.is_empty(),
                "{what} of {url}: {reported}"
            );
        };
        for setting in ["STORE__URL", "UPSTREAM__SERVERS", "LISTEN__HTTP", "STORE__DEADLINE"] {
            let mut command = Command::new(BINARY);
            command.args(["check", "-c"]).arg(&config).env(format!("RISKGATE__{setting}"), url);
            silent(setting, &run_command(&mut command).expect(78).stderr);
        }
        let own_url = format!("sqlite:{}", gateway.path("riskgate.db").display());
        for arguments in [[url, &own_url], [&own_url, url]] {
            let mut command = Command::new(BINARY);
            command.args(["store", "copy"]).args(arguments).arg("-c").arg(&config);
            silent("store copy", &run_command(&mut command).expect(2).stderr);
        }
        let before = std::fs::read_to_string(&gateway.config).unwrap();
        let own = format!("{:?}", format!("sqlite:{}", gateway.path("riskgate.db").display()));
        gateway.edit_config(|text| text.replace(&own, &format!("{url:?}")));
        let reported = || gateway.readyz().text();
        wait_until("riskgate reports the reload", || reported().contains("store.url: expected "));
        silent("/readyz", &reported());
        silent("standard error", &gateway.stderr());
        gateway.edit_config(|_| before);
        wait_until("the config is good again", || !reported().contains("store.url"));
    }
    // clap repeats an argument that it refuses.
    let ran = run_command(Command::new(BINARY).args(["run", "redis://me:s3cr3t@host"])).expect(2);
    assert!(
        ran.stderr.contains("redis://host") && !ran.stderr.contains("s3cr3t"),
        "{}",
        ran.stderr
    );
}

#[test]
fn riskgate_creates_no_file_that_others_may_read_whatever_the_umask() {
    let setup = Setup::new();
    let store = setup.path("deep/state/riskgate.db");
    let setup = setup.set_text("store.url", &format!("sqlite:{}", store.display()));
    let setup = setup.run_under(&["sh", "-c", "umask 0; exec \"$0\" \"$@\""]);
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    let mode = |name: &str| {
        let metadata = std::fs::metadata(gateway.path(name));
        metadata.unwrap_or_else(|error| panic!("{name}: {error}")).permissions().mode() & 0o7777
    };
    for (name, expected) in [
        ("deep", 0o700),
        ("deep/state", 0o700),
        ("deep/state/riskgate.db", 0o600),
        ("deep/state/riskgate.db-wal", 0o600),
        ("deep/state/riskgate.db-shm", 0o600),
        ("access.log", 0o640),
        ("run", 0o700),
        ("run/riskgate.pid", 0o600),
    ] {
        assert_eq!(format!("{:o}", mode(name)), format!("{expected:o}"), "{name}");
    }
    // riskgate removes the permission of other users to read the database, unless they may also
    // write it.
    let setup = gateway.shut_down();
    for (before, after) in [(0o644, 0o640), (0o664, 0o660), (0o640, 0o640), (0o666, 0o666)] {
        std::fs::set_permissions(&store, PermissionsExt::from_mode(before)).unwrap();
        setup.cli(&["keys", "list"]).expect(0);
        let found = std::fs::metadata(&store).unwrap().permissions().mode() & 0o777;
        assert_eq!(format!("{found:o}"), format!("{after:o}"));
    }
}

#[test]
fn check_warns_of_riskgate_as_its_own_server() {
    let warns = |listen: &str, server: &str| {
        let setup = Setup::new().set_text("listen.http", listen);
        let checked = setup.set("upstream.servers", &format!("[\"{server}\"]")).cli(&["check"]);
        checked.expect(0).stderr.contains("expected another server than riskgate itself")
    };
    for (listen, server) in
        [("127.0.0.1:4711", "127.0.0.1:4711"), ("0.0.0.0:4711", "127.0.0.1:4711")]
    {
        assert!(warns(listen, server), "{listen} {server}");
    }
    for (listen, server) in
        [("127.0.0.1:4711", "127.0.0.1:4712"), ("0.0.0.0:4711", "10.0.0.7:4711")]
    {
        assert!(!warns(listen, server), "{listen} {server}");
    }
}
