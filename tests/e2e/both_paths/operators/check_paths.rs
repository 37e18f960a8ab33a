//! `riskgate check` and the start report the same faults of the paths of the store and of the log.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{
    BINARY, CertificateAuthority, Setup, list_recursively, run_command,
    unprivileged_command_prefix, wait_until,
};

fn set_file_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A setup whose store is `name` in a folder of its own. `make` prepares the store's path.
fn setup_with_store(name: &str, make: impl FnOnce(&Path)) -> Setup {
    let setup = Setup::new().run_under(&["timeout", "20"]);
    let store = setup.path("state").join(name);
    std::fs::create_dir(setup.path("state")).unwrap();
    make(&store);
    setup.set_text("store.url", &format!("sqlite:{}", store.display()))
}

/// A setup whose `log.path` is the path that `make` prepares and returns.
fn setup_with_log(make: impl FnOnce(&Setup) -> PathBuf) -> Setup {
    let setup = Setup::new().run_under(&["timeout", "20"]);
    let log = make(&setup).display().to_string();
    setup.set_text("log.path", &log)
}

/// Asserts that `check` and `run` refuse this setup with the same text and exit code 78, and that
/// `check` creates no file.
#[track_caller]
fn assert_check_and_run_refuse(setup: &Setup, expected: &str) {
    setup.write_config();
    let before = list_recursively(&setup.path(""));
    let check = setup.cli(&["check"]).expect(78);
    assert!(check.stderr.contains(expected), "{expected}: {}", check.stderr);
    assert_eq!(list_recursively(&setup.path("")), before, "{expected}");
    let start = setup.cli(&["run"]).expect(78);
    assert_eq!(start.stderr, check.stderr);
    assert!(!setup.path("nowhere").exists(), "{expected}");
}

#[test]
fn check_and_run_refuse_unusable_store_paths_alike() {
    let link = |target: &str| {
        let target = target.to_owned();
        move |store: &Path| std::os::unix::fs::symlink(target, store).unwrap()
    };
    let nothing = |_: &Path| {};
    let dangling = setup_with_store("riskgate.db", link("../nowhere"));
    assert_check_and_run_refuse(
        &dangling,
        "riskgate.db: expected a store, but found a link that leads nowhere",
    );
    let looping = setup_with_store("riskgate.db", link("riskgate.db"));
    assert_check_and_run_refuse(
        &looping,
        "riskgate.db: expected a store, but found Too many levels",
    );
    let fifo = setup_with_store("riskgate.db", |store| {
        run_command(Command::new("mkfifo").arg(store)).expect(0);
    });
    assert_check_and_run_refuse(&fifo, "riskgate.db: expected a regular file, but found a FIFO");
    assert_check_and_run_refuse(
        &setup_with_store(".", nothing),
        "expected a regular file, but found a directory",
    );
    let new = "expected a directory that we may create and write, but found ";
    assert_check_and_run_refuse(&setup_with_store("new/..", nothing), new);
    // SQLite creates a journal beside the database, with a longer name.
    for name in ["x".repeat(248), "x".repeat(256), format!("new/{}", "x".repeat(248))] {
        assert_check_and_run_refuse(&setup_with_store(&name, nothing), "File name too long");
    }
    assert_check_and_run_refuse(
        &setup_with_store(&format!("{}/y/z", "x".repeat(256)), nothing),
        "File name too long",
    );
    // This path exceeds SQLite's limit on the length of a path.
    let deep = format!("{}/riskgate.db", ["x".repeat(120).as_str(); 4].join("/"));
    assert_check_and_run_refuse(&setup_with_store(&deep, nothing), new);
    let longest = setup_with_store(&"x".repeat(247), nothing);
    longest.cli(&["check"]).expect(0);
    // A killed `timeout` would leave the gateway running.
    longest.run_under(&[]).start();
}

#[test]
fn check_and_run_refuse_unusable_log_paths_alike() {
    let link = |target: &str| {
        let target = target.to_owned();
        move |setup: &Setup| {
            let path = setup.path("linked.log");
            std::os::unix::fs::symlink(target, &path).unwrap();
            path
        }
    };
    let log = "log.path: expected a file to append to, but found ";
    assert_check_and_run_refuse(&setup_with_log(link("no/log")), log);
    assert_check_and_run_refuse(&setup_with_log(link("nowhere/")), log);
    assert_check_and_run_refuse(&setup_with_log(link("linked.log")), log);
    assert_check_and_run_refuse(&setup_with_log(|setup| setup.path("nowhere/")), log);
    assert_check_and_run_refuse(&setup_with_log(|setup| setup.path(&"x".repeat(256))), log);
    // Both commands follow a link to a file that does not exist yet.
    let setup = setup_with_log(link("nowhere"));
    setup.cli(&["check"]).expect(0);
    assert!(!setup.path("nowhere").exists());
    let gateway = setup.run_under(&[]).start();
    wait_until("the log is made", || gateway.path("nowhere").exists());
}

#[test]
fn check_and_run_refuse_a_log_path_that_is_a_file_of_the_store() {
    let other = "log.path: expected another file than the store's, but found ";
    assert_check_and_run_refuse(&setup_with_log(|setup| setup.path("riskgate.db")), other);
    assert_check_and_run_refuse(
        &setup_with_log(|setup| setup.path("lists/../riskgate.db-wal")),
        other,
    );
    let link = |setup: &Setup| {
        std::os::unix::fs::symlink("riskgate.db", setup.path("linked.log")).unwrap();
        setup.path("linked.log")
    };
    assert_check_and_run_refuse(&setup_with_log(link), other);
    let store = Setup::new();
    store.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let before = std::fs::read(store.path("riskgate.db")).unwrap();
    let log = link(&store).display().to_string();
    let store = store.set_text("log.path", &log);
    assert_check_and_run_refuse(&store, other);
    assert!(std::fs::read(store.path("riskgate.db")).unwrap() == before);
}

#[test]
fn check_and_run_refuse_a_log_path_that_is_a_file_of_another_setting() {
    let setup = Setup::new().run_under(&["timeout", "20"]);
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let (chain, key) = authority.issue_certificate("first", "DNS:gate.test");
    const HOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let secret = |name: &str, text: &str| {
        let path = setup.path(name);
        std::fs::write(&path, text).unwrap();
        set_file_mode(&path, 0o600);
        path
    };
    let token = secret("token", "operator-token-of-thirty-two-bytes");
    let (inbox, webhook) =
        (secret("inbox", &"another secret ".repeat(3)), secret("hook", HOOK_SECRET));
    let authorities = authority.certificate_path();
    let (audit, written) = (setup.path("audit.jsonl"), setup.path("audit.jsonl.written"));
    let list = setup.path("own.txt");
    std::fs::write(&list, "a.test\n").unwrap();
    let files = [
        ("listen.certificate.chain", chain.clone()),
        ("listen.certificate.key", key.clone()),
        ("admin.token_file", token),
        ("inbox.secret_file", inbox),
        ("webhook.secret_file", webhook),
        ("upstream.tls_ca", authorities),
        ("audit.path", audit),
        ("that of audit.path with .written", written),
        ("the list of the feed own", list.clone()),
    ];
    let set = |setup: Setup, (setting, path): &(&str, PathBuf)| match setting.contains(' ') {
        true => setup,
        false => setup.set_text(setting, &path.display().to_string()),
    };
    let setup = files[2..].iter().fold(setup, set).with_certificates(&[(chain, key)]);
    let setup = setup.set_text("webhook.url", "https://hooks.example.com/");
    let setup = setup.append_toml(&format!(
        "[[table.feed]]\nname = \"own\"\nurl = {:?}\n",
        list.display().to_string()
    ));
    let mut setup = setup.set("upstream.tls", "true").set_text("upstream.tls_name", "gate.test");
    for (setting, path) in &files {
        setup = setup.set_text("log.path", &path.display().to_string());
        let expected = format!("log.path: expected another file than {setting}, but found ");
        assert_check_and_run_refuse(&setup, &expected);
    }
}

/// The next full log would replace the other file.
#[test]
fn check_and_run_refuse_an_old_log_that_is_another_file() {
    let setup = setup_with_log(|setup| setup.path("a.log")).set("log.max_bytes", "4096");
    let audit = setup.path("a.log.2").display().to_string();
    let setup = setup.set_text("audit.path", &audit);
    let expected = format!("log.path: expected another file than audit.path, but found {audit}");
    assert_check_and_run_refuse(&setup, &expected);
    setup.set("log.kept_files", "1").cli(&["check"]).expect(0);
    let linked = setup_with_log(|setup| {
        std::os::unix::fs::symlink("riskgate.db", setup.path("linked")).unwrap();
        setup.path("linked")
    });
    let store = format!("sqlite:{}", linked.path("x").display());
    let linked = linked.set_text("store.url", &store);
    let audit = linked.path("riskgate.db.5").display().to_string();
    let linked = linked.set("log.max_bytes", "4096").set_text("audit.path", &audit);
    assert_check_and_run_refuse(&linked, "log.path: expected another file than audit.path");
}

#[test]
fn check_refuses_a_store_that_run_cannot_write_and_changes_no_mode() {
    let setup = setup_with_store("riskgate.db", |_| {});
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let store = setup.path("state/riskgate.db");
    for mode in [0o644, 0o604, 0o600] {
        set_file_mode(&store, mode);
        setup.cli(&["check"]).expect(0);
        let found = std::fs::metadata(&store).unwrap().permissions().mode() & 0o777;
        assert_eq!(format!("{found:o}"), format!("{mode:o}"));
    }
    setup.write_config();
    let words = unprivileged_command_prefix();
    if !words.is_empty() {
        for path in [setup.path("state"), store.clone(), setup.path("")] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
    }
    for mode in [0o400, 0o000] {
        set_file_mode(&store, mode);
        let errors = ["check", "run"].map(|subcommand| {
            let words = [words, &["timeout", "20", BINARY, subcommand, "-c"]].concat();
            let mut command = Command::new(words[0]);
            run_command(command.args(&words[1..]).arg(setup.path("riskgate.toml")))
                .expect(78)
                .stderr
        });
        assert!(errors[0].contains("riskgate.db: expected a file that we may"), "{}", errors[0]);
        assert_eq!(errors[0], errors[1]);
    }
}

/// The fault names the user, and the folder or the file whose permission is missing.
#[test]
fn a_file_without_permission_is_told_by_what_refuses_it() {
    let setup = Setup::new();
    let folder = setup.path("closed");
    std::fs::create_dir(&folder).unwrap();
    let token = folder.join("token");
    std::fs::write(&token, "0123456789abcdef").unwrap();
    let setup = setup.set_text("admin.token_file", &token.display().to_string());
    setup.write_config();
    set_file_mode(&setup.path(""), 0o755);
    let words = unprivileged_command_prefix();
    let words = [words, &["timeout", "20", BINARY, "check", "-c"]].concat();
    for (folder_mode, file_mode, expected) in [
        (0o000, 0o644, format!("may not enter the folder {}", folder.display())),
        (0o755, 0o000, format!("may not read {}", token.display())),
    ] {
        set_file_mode(&folder, folder_mode);
        set_file_mode(&token, file_mode);
        let mut command = Command::new(words[0]);
        let ran =
            run_command(command.args(&words[1..]).arg(setup.path("riskgate.toml"))).expect(78);
        assert!(ran.stderr.contains("admin.token_file: "), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("^ the user ") && ran.stderr.contains(&expected),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn a_file_left_by_a_killed_check_does_not_make_check_fail() {
    let setup = Setup::new();
    // In a container, another process may have the process id of the killed process.
    let words = "touch \"$1/.riskgate-check-$$\"; shift; exec \"$@\"";
    let folder = setup.path("").display().to_string();
    let setup = setup.run_under(&["sh", "-c", words, "sh", &folder]);
    setup.cli(&["check"]).expect(0);
}
