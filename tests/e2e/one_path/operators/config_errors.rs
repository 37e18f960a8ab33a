//! If the config, a list, the key file or the store has a fault, riskgate reports the exact fault,
//! ends with code 78, and changes nothing.

use std::path::Path;
use std::process::Command;

use crate::harness::{BINARY, CertificateAuthority, Gateway, Setup, run_command};

/// Runs `check` and `run`, which must print the same faults and exit with code 78. Returns the
/// lines.
#[track_caller]
fn errors_of_check_and_run(setup: &Setup) -> Vec<String> {
    let checked = setup.cli(&["check"]).expect(78);
    assert_eq!(checked.stdout, "");
    let run = setup.cli(&["run"]).expect(78);
    assert_eq!(run.stderr, checked.stderr, "run and check read the same config");
    checked.stderr.lines().map(str::to_owned).collect()
}

#[test]
fn check_accepts_a_valid_config_and_creates_no_store() {
    let setup = Setup::new();
    let ran = setup.cli(&["check"]).expect(0);
    assert!(ran.stderr.contains("good"), "{}", ran.stderr);
    assert!(!setup.path("riskgate.db").exists(), "a check makes no store");
    // A failed command does not disturb a running gateway.
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.cli(&["check"]).expect(0);
    gateway.get_domain("first.test", &key).expect(200);
}

#[test]
fn check_accepts_the_shipped_config() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let store = format!("sqlite:{}", folder.path().join("store.db").display());
    let mut command = std::process::Command::new(crate::harness::BINARY);
    command.arg("check").current_dir(root).env("RISKGATE__STORE__URL", store);
    let ran = crate::harness::run_command(&mut command).expect(0);
    assert!(ran.stderr.contains("conf/riskgate.toml: good"), "{}", ran.stderr);
}

#[test]
fn every_config_fault_is_reported_with_file_line_and_key() {
    let setup = Setup::new();
    let config = setup.path("riskgate.toml");
    let text = "\
[listen]
http = \"nowhere\"
port = 3
threads = 0

[store]
url = \"localhost:6379\"
on_failure = \"maybe\"

[upstream]
servers = []
deadline = \"soon\"

[plans]
free = -1
gold = \"endless\"

[nonsense]
a = 1

[[upstream.route]]
prefix = \"/v1/check\"
";
    let at = config.display();
    let expected = [
        format!(
            r#"{at}:2:8: listen.http: expected an address such as 127.0.0.1:8080, but found "nowhere""#
        ),
        format!("{at}:3:1: listen.port: expected a known setting"),
        format!("{at}:4:11: listen.threads: expected a whole number from 1 to 1024, but found 0"),
        format!("{at}:7:7: store.url: expected sqlite:PATH"),
        format!(r#"{at}:8:14: store.on_failure: expected "open" or "closed", but found "maybe""#),
        format!("{at}:11:11: upstream.servers: expected a list of servers"),
        format!("{at}:12:12: upstream.deadline: expected a duration"),
        format!("{at}:15:8: plans.free: expected calls in a month as a whole number"),
        format!("{at}:16:8: plans.gold: expected calls in a month as a whole number"),
        format!("{at}:18:2: nonsense: expected a known section"),
        format!("{at}:22:10: upstream.route \"/v1/check\": prefix: expected a path apart"),
    ];
    std::fs::write(&config, text).unwrap();
    let mut command = std::process::Command::new(crate::harness::BINARY);
    let ran = crate::harness::run_command(command.arg("check").arg("-c").arg(&config)).expect(78);
    for line in expected {
        assert!(ran.stderr.lines().any(|error| error.starts_with(&line)), "{line}\n{}", ran.stderr);
    }
    // Below each fault is its line, with a mark under what is faulty.
    assert!(
        ran.stderr.contains("\n2 | http = \"nowhere\"\n  |        ^^^^^^^^^"),
        "{}",
        ran.stderr
    );
    for line in ran.stderr.lines().filter(|line| !line.contains(" |")) {
        let (_, words) = line.split_once(": expected ").unwrap_or_else(|| panic!("{line}"));
        assert!(words.contains(", but found "), "{line}");
        assert!(!line.ends_with('.'), "{line}");
    }
}

#[test]
fn an_unreadable_or_malformed_config_is_reported_in_one_line() {
    let setup = Setup::new();
    let config = setup.path("riskgate.toml");
    let check = || {
        let mut command = std::process::Command::new(crate::harness::BINARY);
        let ran =
            crate::harness::run_command(command.arg("check").arg("-c").arg(&config)).expect(78);
        let faults = ran.stderr.lines().filter(|line| !line.contains(" |"));
        assert_eq!(faults.count(), 1, "{}", ran.stderr);
        ran.stderr
    };
    assert!(check().starts_with(&format!("{}: expected", config.display())));
    std::fs::write(&config, "[listen]\nhttp = \n").unwrap();
    let expected = format!("{}:2:8: listen.http: expected an address", config.display());
    assert!(check().starts_with(&expected));
    std::fs::write(&config, b"[listen]\n# \xff\n").unwrap();
    check();
    std::fs::remove_file(&config).unwrap();
    std::fs::create_dir(&config).unwrap();
    check();
}

#[test]
fn a_fault_in_an_environment_variable_is_reported_with_its_name() {
    let setup = Setup::new().env("RISKGATE__LISTEN__HTTP", "nowhere");
    let errors = errors_of_check_and_run(&setup);
    assert!(errors[0].starts_with("RISKGATE__LISTEN__HTTP: listen.http: expected"), "{errors:?}");
    let unknown = Setup::new().env("RISKGATE__LISTEN__COLOUR", "red");
    assert!(errors_of_check_and_run(&unknown)[0].contains("listen.colour: expected"));
}

#[test]
fn an_admin_address_other_than_loopback_needs_a_long_enough_token() {
    let errors = errors_of_check_and_run(&Setup::new().set_text("listen.admin", "0.0.0.0:0"));
    assert!(errors[0].contains("in admin.token, but found 0.0.0.0:0 and no token"), "{errors:?}");
    let short = Setup::new().set_text("admin.token", "short-secret");
    let errors = errors_of_check_and_run(&short).join("\n");
    assert!(
        errors.contains("admin.token: expected") && !errors.contains("short-secret"),
        "{errors}"
    );
}

#[test]
fn a_bad_score_in_the_overrides_is_reported_with_its_line() {
    let setup = Setup::new();
    let overrides = setup.lists().file_path("overrides.csv");
    let mut text = std::fs::read_to_string(&overrides).unwrap();
    for line in 2..=5000 {
        let score = if line == 4127 { "101".to_owned() } else { (line % 100).to_string() };
        text += &format!("n{line}.test,subtree,disposable,{score},,,\n");
    }
    std::fs::write(&overrides, text).unwrap();
    let errors = errors_of_check_and_run(&setup);
    let place = format!("{}:4127: risk_score: expected ", overrides.display());
    assert!(
        errors[0].starts_with(&place) && errors[0].contains(", but found \"101\""),
        "{errors:?}"
    );
    let row = ["     |", "4127 | n4127.test,subtree,disposable,101,,,"];
    let mark = "     |                               ^^^";
    assert_eq!(errors[1..], [row[0], row[1], mark]);
}

#[test]
fn a_bad_name_in_a_list_is_reported_with_its_line() {
    let setup = Setup::new();
    let lists = setup.lists();
    let rows: String = (1..=300).map(|at| format!("n{at}.test\n")).collect();
    lists.write("disposable.txt", &format!("{rows}no_name.test\nfirst.test\nsecond.test\n"));
    let errors = errors_of_check_and_run(&setup);
    let place = format!("{}:301: expected ", lists.file_path("disposable.txt").display());
    assert!(errors[0].starts_with(&place) && errors[0].contains(", but found "), "{errors:?}");
}

#[test]
fn an_unreadable_table_is_reported_with_its_path() {
    for ruin in [
        (|lists: &Path| std::fs::remove_file(lists.join("manifest.toml")).unwrap()) as fn(&Path),
        |lists| std::fs::remove_dir_all(lists).unwrap(),
        |lists| std::fs::remove_file(lists.join("disposable.txt")).unwrap(),
        |lists| std::fs::write(lists.join("disposable.txt"), b"a.test\n\xff\xfe\n").unwrap(),
        |lists| std::fs::write(lists.join("manifest.toml"), "[[list]]\nfile = 3\n").unwrap(),
        |lists| {
            std::fs::remove_dir_all(lists).unwrap();
            std::fs::write(lists, "this is no compiled table").unwrap();
        },
        |lists| {
            std::fs::remove_dir_all(lists).unwrap();
            std::fs::write(lists, "").unwrap();
        },
    ] {
        let setup = Setup::new();
        let lists = setup.path("lists");
        ruin(&lists);
        let errors = errors_of_check_and_run(&setup);
        let is_missing = !lists.exists();
        let place = if is_missing { ": table.path: expected a directory" } else { "" };
        let is_placed = errors[0].contains(place);
        let has_path = errors.join("\n").contains(&lists.display().to_string());
        assert!(is_placed && has_path, "{errors:?}");
    }
}

#[test]
fn a_compiled_table_with_one_wrong_byte_is_refused() {
    let setup = Setup::new();
    let (lists, built) = (setup.path("lists"), setup.path("built.table"));
    let mut command = std::process::Command::new(crate::harness::BINARY);
    let build = command.args(["table", "build"]).arg(&lists).arg("-o").arg(&built);
    crate::harness::run_command(build).expect(0);
    let whole = std::fs::read(&built).unwrap();
    let setup = setup.set_text("table.path", built.to_str().unwrap());
    setup.cli(&["check"]).expect(0);
    for at in [0, 9, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&built, bytes).unwrap();
        let shown = errors_of_check_and_run(&setup).join("\n");
        assert!(shown.contains(built.to_str().unwrap()), "{at}: {shown}");
        assert_eq!(shown.contains("^ for a list of domains, write [[table.feed]]"), at == 0);
    }
    std::fs::write(&built, &whole[..whole.len() - 1]).unwrap();
    errors_of_check_and_run(&setup);
}

#[test]
fn key_file_faults_are_reported_with_their_line_and_without_the_secret() {
    let setup = Setup::new().env("SHORT_KEY_OF_TESTS", "s3cret");
    let file = setup.path("keys.toml");
    let setup = setup.set_text("keys.file", file.to_str().unwrap());
    let head = "[[key]]\nid = \"a\"\naccount = \"acme\"\n";
    for (rest, line, words) in [
        ("hash = \"sha256:1234\"\n", "4:8", "hash: expected sha256:"),
        ("env = \"NOT_SET_ANYWHERE\"\n", "4:7", "env: expected"),
        ("env = \"SHORT_KEY_OF_TESTS\"\n", "4:7", "env: expected"),
        ("colour = 1\n", "4:1", ""),
        ("hash = \"sha256:00\"\norigins = [\"x\"]\n", "4:8", ""),
    ] {
        std::fs::write(&file, format!("{head}{rest}")).unwrap();
        let errors = errors_of_check_and_run(&setup);
        let place = format!("{}:{line}: {words}", file.display());
        assert!(errors[0].starts_with(&place), "{place}\n{errors:?}");
        assert!(!errors.join("").contains("s3cret"), "{errors:?}");
        assert!(errors[2].starts_with("4 | ") && errors[3].contains('^'), "{errors:?}");
    }
    std::fs::remove_file(&file).unwrap();
    let errors = errors_of_check_and_run(&setup);
    assert!(errors[0].contains(": keys.file: expected a key file, but found"), "{errors:?}");
}

/// A missing file is a fault of the setting that names it, and is told where it was looked for.
#[test]
fn a_missing_file_is_reported_at_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let real = std::fs::canonicalize(folder.path()).unwrap();
    let check = |text: &str, code: i32| {
        std::fs::write(folder.path().join("riskgate.toml"), text).unwrap();
        let mut command = std::process::Command::new(crate::harness::BINARY);
        command.args(["check", "-c", "riskgate.toml"]).current_dir(folder.path());
        crate::harness::run_command(&mut command).expect(code).stderr
    };
    for (text, place, missing) in [
        ("[keys]\nfile = \"k.toml\"\n", "2:8: keys.file: ", "k.toml"),
        ("[table]\npath = \"lists\"\n", "2:8: table.path: ", "lists"),
        ("[log]\npath = \"logs/a.log\"\n", "2:8: log.path: ", "folder logs"),
        ("[audit]\npath = \"logs/a.jsonl\"\n", "2:8: audit.path: ", "folder logs"),
        ("[upstream]\ntls = true\ntls_ca = \"ca.pem\"\n", "3:10: upstream.tls_ca: ", "ca.pem"),
    ] {
        let shown = check(text, 78);
        assert!(shown.starts_with(&format!("riskgate.toml:{place}expected ")), "{shown}");
        let missing = match missing.strip_prefix("folder ") {
            Some(name) => format!("^ there is no folder {}/{name}\n", real.display()),
            None => format!("^ there is no {}/{missing}\n", real.display()),
        };
        assert!(shown.contains(&missing) && shown.lines().count() == 4, "{shown}");
    }
    // If two settings name one file, each has its own fault.
    let shown = check(
        "[listen]\nhttps = \"127.0.0.1:1\"\n[[listen.certificate]]\nchain = \"c.pem\"\nkey = \"ca.pem\"\n\
         [upstream]\ntls = true\ntls_name = \"a.test\"\ntls_ca = \"ca.pem\"\n",
        78,
    );
    let expected = "riskgate.toml:9:10: upstream.tls_ca: expected certificates of authorities";
    assert!(shown.contains(expected), "{shown}");
    assert!(shown.contains("riskgate.toml:5:7: listen.certificate 1: key: "), "{shown}");
    // riskgate starts without these.
    let shown = check("[[table.feed]]\nname = \"own\"\nurl = \"own.txt\"\n", 0);
    assert!(shown.contains("riskgate.toml: good; "), "{shown}");
    let store =
        format!("note: there is no store at sqlite:{}/state/riskgate.db yet", real.display());
    assert!(shown.contains(&store), "{shown}");
    let feed =
        "warning: riskgate.toml:3:7: table.feed \"own\": url: expected a file, but found none";
    assert!(shown.contains(feed) && shown.contains("3 | url = \"own.txt\""), "{shown}");
    let shown = check("[[table.feed]]\nname = \"own\"\nurl = \"lists.example/own.txt\"\n", 0);
    assert!(shown.contains("^ write https:// before it, if it is a URL"), "{shown}");
    std::fs::write(folder.path().join("file"), "").unwrap();
    let shown = check("[process]\nruntime_dir = \"file\"\n", 0);
    let expected = "riskgate.toml:2:15: process.runtime_dir: expected a directory that only this";
    assert!(shown.contains(expected) && shown.contains("not a directory: file"), "{shown}");
    let long = "d".repeat(120);
    let shown = check(&format!("[process]\nruntime_dir = \"{long}\"\n"), 0);
    assert!(shown.contains("an upgrade without a refused connection would not be"), "{shown}");
    assert!(shown.contains("bytes, too long for a socket in it: "), "{shown}");
}

#[test]
fn check_warns_of_an_account_whose_plan_is_not_configured() {
    let setup = Setup::new().set("plans.free", "5").set("plans.gold", "9");
    setup.cli(&["keys", "create", "--account", "acme", "--plan", "gold"]).expect(0);
    let setup = Setup::new()
        .set("plans.free", "5")
        .set("plans.shipped", "false")
        .set_text("store.url", &format!("sqlite:{}", setup.path("riskgate.db").display()));
    let checked = setup.cli(&["check"]).expect(0);
    let warning = "warning: account acme: expected one of the plans free, but found \"gold\"";
    assert!(checked.stderr.contains(warning), "{}", checked.stderr);
}

/// The setup of a stopped gateway, whose SQLite store `change` has changed.
fn setup_with_changed_store(change: impl FnOnce(&rusqlite::Connection)) -> Setup {
    let gateway: Gateway = Setup::new().start();
    gateway.create_active_key("acme", &[]);
    let path = gateway.path("riskgate.db");
    let setup = gateway.shut_down();
    let connection = rusqlite::Connection::open(path).unwrap();
    change(&connection);
    // The write-ahead log is merged into the database file, so that changing the file takes effect.
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(checkpoint, [], |_| Ok(())).unwrap();
    setup
}

/// Asserts that every command refuses this store with code 78 and does not change its file; `check`
/// and `run` report it in one line that contains `words`.
#[track_caller]
fn assert_store_refused_unchanged(setup: &Setup, words: &str) {
    let path = setup.path("riskgate.db");
    let before = std::fs::read(&path).unwrap();
    let errors = errors_of_check_and_run(setup);
    assert_eq!(errors.len(), 1, "{errors:?}");
    let place = format!("store.url: {}: expected ", path.display());
    assert!(errors[0].contains(&place), "{errors:?}");
    assert!(errors[0].contains(words) && errors[0].contains(", but found "), "{errors:?}");
    for arguments in [
        &["keys", "create", "--account", "acme"][..],
        &["keys", "list"],
        &["accounts", "set", "acme", "--limit", "1"],
        &["usage"],
    ] {
        setup.cli(arguments).expect(78);
    }
    assert!(std::fs::read(&path).unwrap() == before, "the file was changed");
}

#[test]
fn commands_refuse_a_store_of_a_newer_version_and_do_not_change_it() {
    let setup =
        setup_with_changed_store(|store| store.execute_batch("PRAGMA user_version = 999").unwrap());
    assert_store_refused_unchanged(&setup, "version 999");
}

#[test]
fn commands_refuse_a_database_of_another_program_and_do_not_change_it() {
    let setup = Setup::new();
    let other = rusqlite::Connection::open(setup.path("riskgate.db")).unwrap();
    other.execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')").unwrap();
    drop(other);
    assert_store_refused_unchanged(&setup, "riskgate");
    let versioned = Setup::new();
    let other = rusqlite::Connection::open(versioned.path("riskgate.db")).unwrap();
    other.execute_batch("PRAGMA user_version = 1; CREATE TABLE account (text)").unwrap();
    drop(other);
    assert_store_refused_unchanged(&versioned, "riskgate");
}

#[test]
fn commands_refuse_a_damaged_store_and_do_not_change_it() {
    let setup = Setup::new();
    std::fs::write(
        setup.path("riskgate.db"),
        "this is no database, but it is somebody's".repeat(99),
    )
    .unwrap();
    assert_store_refused_unchanged(&setup, "intact");
    let setup = setup_with_changed_store(|_| ());
    let path = setup.path("riskgate.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100..4096].fill(0x5a);
    std::fs::write(&path, bytes).unwrap();
    assert_store_refused_unchanged(&setup, "intact");
}

#[test]
fn run_refuses_a_store_path_below_a_regular_file() {
    let setup = Setup::new();
    std::fs::write(setup.path("file"), "").unwrap();
    let url = format!("sqlite:{}", setup.path("file").join("store.db").display());
    let setup = setup.set_text("store.url", &url);
    let ran = setup.cli(&["run"]);
    assert_ne!(ran.exit_code, 0);
    assert!(ran.stderr.contains("store.db"), "{}", ran.stderr);
}

#[test]
fn check_warns_of_settings_that_are_surely_not_meant() {
    let site = "[[upstream.route]]\nprefix = \"/\"\nkey = false\n";
    let warnings = |setup: &Setup| setup.cli(&["check"]).expect(0).stderr;
    let asked = "[authz]\npath = \"/authz\"\ncheck = [\"screen\"]\nemail = \"header:X-Email\"\n";
    let shown = warnings(&Setup::new().append_toml(&format!("{asked}{site}")));
    assert!(shown.contains("warning: authz.check: expected \"key\""), "{shown}");
    let rated = format!("{site}max_per_client = \"9/h\"\n");
    let proxies = ("listen.trusted_proxies", "[\"127.0.0.1\"]");
    let setup = Setup::new().append_toml(&rated).set(proxies.0, proxies.1);
    let shown = warnings(&setup);
    assert!(shown.contains("warning: listen.client_address: expected"), "{shown}");
    let shown = warnings(&setup.set_text("listen.client_address", "x-forwarded-for"));
    assert!(!shown.contains("warning: listen.client_address"), "{shown}");
    let rule = "[[rule]]\nname = \"r\"\nif = [\"client_accounts_1h >= 9\"]\nthen = \"review\"\n";
    let shown = warnings(&Setup::new().append_toml(rule).set(proxies.0, proxies.1));
    assert!(shown.contains("because client_accounts_1h has no value"), "{shown}");
    let shown = warnings(&Setup::new().append_toml(&format!("{asked}{rule}")));
    assert!(shown.contains("warning: rule: client_accounts_1h counts all clients"), "{shown}");
    let setup = Setup::new().append_toml(site);
    assert!(!warnings(&setup).contains("warning: the route /"));
    setup.cli(&["keys", "create", "--account", "a", "--origin", "https://a.example"]).expect(0);
    assert!(warnings(&setup).contains("warning: the route /: the origins of keys"));
}

/// Pingora panics on such authorities when it creates a connector.
#[test]
fn authorities_that_nobody_can_read_are_a_fault_only_if_tls_needs_them() {
    let setup = Setup::new();
    setup.write_config();
    let check = |setup: &Setup| {
        let mut command = Command::new(BINARY);
        let config = setup.path("riskgate.toml");
        command.args(["check", "-c", config.to_str().unwrap()]).env_remove("SSL_CERT_DIR");
        run_command(command.env("SSL_CERT_FILE", "/nonexistent/authorities.pem"))
    };
    check(&setup).expect(0);
    let setup = setup.set("upstream.tls", "true").set_text("upstream.tls_name", "a.test");
    setup.write_config();
    let refused = check(&setup).expect(78).stderr;
    let expected = "upstream.tls: expected authorities of the system that can be read, but found";
    assert!(refused.contains(expected), "{refused}");
    let setup = setup.set_text("upstream.tls_ca", "ca.pem");
    setup.write_config();
    let file = CertificateAuthority::new(&setup.path("")).certificate_path();
    check(&setup).expect(0);
    let good = std::fs::read_to_string(&file).unwrap();
    let block =
        |kind: &str, text: &str| format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n");
    for (added, found) in [
        (block("CERTIFICATE", "AAAA"), "in PEM form, but found one that can't be read"),
        (block("PUBLIC KEY", "MAUwAAMBAA=="), "in PEM form and nothing else, but found"),
    ] {
        std::fs::write(&file, format!("{good}{added}")).unwrap();
        let refused = check(&setup).expect(78).stderr;
        let expected = format!("tls_ca: expected certificates of authorities {found}");
        assert!(refused.contains(&expected), "{refused}");
    }
}
