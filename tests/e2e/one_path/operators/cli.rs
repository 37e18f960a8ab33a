//! The command line: what each command prints to stdout, in which format, and with which exit code.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{BINARY, ListFolder, Setup, run_command};

fn sorted_member_names(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[track_caller]
fn assert_rfc3339(value: &Value) {
    let text = value.as_str().expect("a time");
    assert!(text.len() == 20 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok());
}

#[test]
fn keys_create_prints_only_the_key_to_stdout_and_a_note_to_stderr() {
    let setup = Setup::new();
    let made = setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    assert_eq!(made.stdout.lines().count(), 1);
    assert!(made.stdout.starts_with("rg_") && made.stdout.trim_end().len() == 35);
    assert!(!made.stderr.contains(made.stdout.trim_end()), "{}", made.stderr);
    // The store did not exist.
    assert!(made.stderr.contains("created the store /"), "{}", made.stderr);
    let made = setup.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0);
    assert!(!made.stderr.contains("created the store"), "{}", made.stderr);
    assert_eq!(sorted_member_names(&made.json()), ["account", "id", "key"]);
}

#[test]
fn keys_list_json_has_the_documented_members() {
    let setup = Setup::new();
    assert_eq!(setup.cli(&["keys", "list", "--json"]).expect(0).json(), json!([]));
    let create = ["keys", "create", "--account", "acme", "--plan", "pro", "--label", "web"];
    let more = ["--origin", "https://a.com", "--origin", "https://*.b.com", "--expires", "90d"];
    setup.cli(&[&create[..], &more[..]].concat()).expect(0);
    setup.cli(&["keys", "create", "--account", "bare"]).expect(0);
    let listed = setup.cli(&["keys", "list", "--json"]).expect(0).json();
    let rows = listed.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let members = [
            "account",
            "created_at",
            "expires_at",
            "id",
            "in_store",
            "label",
            "origins",
            "plan",
            "require_origin",
            "restricted",
            "revoked_at",
            "state",
        ];
        assert_eq!(sorted_member_names(row), members);
        assert_rfc3339(&row["created_at"]);
        assert_eq!(row["revoked_at"], Value::Null);
    }
    let full = rows.iter().find(|row| row["account"] == "acme").unwrap();
    assert_eq!((&full["plan"], &full["label"]), (&json!("pro"), &json!("web")));
    assert_eq!(full["origins"], json!(["https://a.com", "https://*.b.com"]));
    assert_rfc3339(&full["expires_at"]);
    let bare = rows.iter().find(|row| row["account"] == "bare").unwrap();
    assert_eq!((&bare["plan"], &bare["label"]), (&json!("free"), &Value::Null));
    assert_eq!((&bare["origins"], &bare["expires_at"]), (&json!([]), &Value::Null));
    let table = setup.cli(&["keys", "list"]).expect(0).stdout;
    assert_eq!(table.lines().count(), 3);
    assert!(table.starts_with("ID ") && table.contains("https://a.com https://*.b.com"));
}

#[test]
fn accounts_and_usage_print_plan_limit_and_month_count() {
    let setup = Setup::new();
    let set = setup.cli(&["accounts", "set", "acme", "--plan", "pro", "--limit", "7", "--json"]);
    let set = set.expect(0).json();
    let account = set.as_array().map_or(&set, |rows| &rows[0]);
    assert_eq!(account["name"], "acme");
    assert_eq!((&account["plan"], &account["limit"]), (&json!("pro"), &json!(7)));
    setup.cli(&["accounts", "set", "big", "--limit", "unlimited"]).expect(0);
    let listed = setup.cli(&["accounts", "list", "--json"]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let gateway = setup.set("plans.free", "100").set("plans.pro", "10000").start();
    let (acme, big) =
        (gateway.create_active_key("acme", &[]), gateway.create_active_key("big", &[]));
    for _ in 0..3 {
        gateway.get_domain("first.test", &acme).expect(200);
    }
    gateway.get_domain("first.test", &big).expect(200);
    let gateway = gateway.restart();
    let usage = gateway.cli(&["usage", "--json"]).expect(0).json();
    let counts: Vec<_> = usage
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["account"].as_str().unwrap(), row["month_count"].as_u64().unwrap()))
        .collect();
    assert_eq!(counts, [("acme", 3), ("big", 1)]);
    let one = gateway.cli(&["usage", "--account", "big", "--json"]).expect(0).json();
    assert_eq!(one.as_array().unwrap().len(), 1);
    let text = gateway.cli(&["usage"]).expect(0).stdout;
    assert!(text.contains("acme") && text.contains('3'), "{text}");
}

#[test]
fn wrong_arguments_create_no_key_or_account_and_exit_with_code_2() {
    let setup = Setup::new();
    for arguments in [
        &["keys", "create"][..],
        &["keys", "create", "--account", "a", "--plan", "gold"],
        &["keys", "create", "--account", "a", "--origin", "nonsense"],
        &["keys", "create", "--account", "a", "--origin", "https://*.com"],
        &["keys", "create", "--account", "a", "--expires", "never"],
        &["keys", "create", "--account", "two words"],
        &["keys", "create", "--account", ""],
        &["keys", "rotate", "any", "--overlap", "7"],
        &["accounts", "set", "a"],
        &["accounts", "set", "a", "--limit", "-1"],
        &["accounts", "set", "a", "--limit", "many"],
        &["accounts", "set", "a", "--plan", "gold"],
        &["keys", "delete", "a"],
        &["serve"],
    ] {
        let ran = setup.cli(arguments).expect(2);
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{arguments:?}");
    }
    let plan = setup.cli(&["keys", "create", "--account", "a", "--plan", "gold"]).stderr;
    assert!(plan.contains("expected one of business, free, pro, starter"), "{plan}");
    assert!(plan.contains("but found \"gold\""), "{plan}");
    let key = setup.cli(&["keys", "list", "--account", "sv_0123456789abcdef01"]).expect(2).stderr;
    assert!(key.contains("expected no API key among the arguments"), "{key}");
    setup.cli(&["keys", "revoke", "nobody"]).expect(1);
    setup.cli(&["keys", "rotate", "nobody"]).expect(1);
    assert_eq!(setup.cli(&["keys", "list", "--json"]).json(), json!([]));
    assert_eq!(setup.cli(&["accounts", "list", "--json"]).json(), json!([]));
}

#[test]
fn help_and_version_are_printed_to_stdout_with_exit_code_0() {
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["demo", "--help"],
        &["check", "--help"],
        &["keys", "--help"],
        &["keys", "create", "--help"],
        &["accounts", "--help"],
        &["usage", "--help"],
        &["table", "--help"],
    ] {
        let ran = run_command(Command::new(BINARY).args(arguments)).expect(0);
        assert!(ran.stdout.contains("Usage:"), "{arguments:?}");
    }
    let version = run_command(Command::new(BINARY).arg("--version")).expect(0);
    assert!(version.stdout.starts_with("riskgate "));
}

#[test]
fn words_of_other_programs_lead_to_the_command() {
    for (word, tip) in [
        ("start", "tip: `riskgate run` runs the gateway"),
        ("serve", "tip: `riskgate run` runs the gateway"),
        ("status", "tip: `riskgate doctor` checks what runs"),
        ("validate", "tip: `riskgate check` reads everything"),
    ] {
        let refused = run_command(Command::new(BINARY).arg(word)).expect(2).stderr;
        assert!(refused.contains(tip), "{refused}");
    }
    for (line, tip) in [
        ("reload", "tip: a running gateway reads a changed config within two seconds"),
        ("lookup a.test", "tip: did you mean `riskgate table lookup`?"),
        ("table check a.test", "tip: did you mean `riskgate table lookup`?"),
        ("token create", "tip: did you mean `riskgate admin-token`?"),
        ("feed list", "tip: `riskgate table feeds` shows the feeds of the config"),
        ("keys add acme", "tip: did you mean `riskgate keys create`? For example: riskgate keys"),
        ("keys rm a", "tip: did you mean `riskgate keys revoke`?"),
        ("keys frobnicate", "tip: the commands are create, list, rotate, revoke, import"),
        ("table block a.test", "tip: did you mean `riskgate table deny`?"),
        ("run --port 80", "tip: write --listen 127.0.0.1:80"),
        ("-c riskgate.toml run", "tip: write -c behind the command: riskgate run -c …"),
        ("keys create acme", "tip: write --account acme"),
        ("accounts set acme --frobnicate", "tip: `riskgate accounts set` has --config, --plan"),
        ("check riskgate.toml", "tip: write -c riskgate.toml"),
        ("plans set pro 5000", "tip: the config has the plans: [plans] and pro = 10000"),
        ("consumers list", "tip: `riskgate keys create --account NAME` makes an account"),
        ("accounts delete acme", "tip: an account stays; `riskgate accounts set NAME --limit 0`"),
        ("config validate", "tip: did you mean `riskgate config check`?"),
        ("-v run", "tip: write [log] and level = \"debug\" in the config"),
        ("run --daemon", "tip: riskgate runs in the foreground"),
        ("run --log-level debug", "tip: write [log] and level = \"debug\" in the config"),
        ("decide a@b.test", "expected - alone, because the address comes from standard input"),
        ("sign-ups delete a@b.test", "echo ADDRESS | riskgate sign-ups show|delete -"),
        ("sign-ups list", "tip: the commands are show, delete"),
        ("config set a b", "tip: no command changes the config: edit the file"),
        ("store init --url redis://h", "or set RISKGATE__STORE__URL"),
        ("keys create --account my account", "tip: write --account my-account: the name of an"),
        ("keys create --plan pro acme", "tip: write --account acme"),
        ("run --listen 127.0.0.1 8080", "tip: write --listen 127.0.0.1:8080"),
        ("keys create --label my label", "tip: write --label \"my label\""),
        ("keys create --label foo me@x.co", "tip: write --label \"foo …@x.co\""),
        ("audit --operation create", "override_file.change"),
    ] {
        let ran = run_command(Command::new(BINARY).args(line.split(' '))).expect(2);
        assert!(ran.stderr.contains(tip) && !ran.stderr.contains("similar"), "{}", ran.stderr);
    }
    for (name, found) in [
        ("https://a.test/x", "found \"https://a.test/x\"; write a.test\n"),
        // Another domain would be no mend.
        ("a_b.test", "found \"a_b.test\"\n"),
    ] {
        let ran = run_command(Command::new(BINARY).args(["table", "lookup", name])).expect(1);
        assert!(ran.stderr.contains(found), "{}", ran.stderr);
    }
    for (word, exit_code) in [("lookup", 1), ("allow", 2), ("deny", 2)] {
        let ran = Setup::new().cli(&["table", word, "secret@gmail.com"]).expect(exit_code);
        assert!(ran.stderr.contains("found a text with an @"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
}

#[test]
fn a_wrong_value_gets_the_right_one() {
    for (line, hint) in [
        ("admin-token create --name a --scope admin", "found \"admin\"; did you mean write?\n"),
        ("accounts set acme pro", "tip: write --plan pro"),
        ("accounts set acme 500", "tip: write --limit 500"),
        ("doctor https://a.test", "tip: write --url https://a.test"),
        ("ready --admin http://127.0.0.1:9090", "127.0.0.1:9090; write 127.0.0.1:9090\n"),
        ("ready --admin 9090", "; write 127.0.0.1:9090\n"),
        ("ready --admin :9090", "; write 127.0.0.1:9090\n"),
        ("ready 127.0.0.1:9090", "tip: write --admin 127.0.0.1:9090"),
        ("usage --month 2026-Nov", "; write 2026-11\n"),
        ("usage --month december2025", "; write 2025-12\n"),
        ("usage --month 2025-sept", "; write 2025-09\n"),
        ("usage --month decade", "expected a month as in 2026-11\n"),
        ("ready http://u:p@127.0.0.1:9090", "tip: write --admin 127.0.0.1:9090\n"),
        ("decide", "tip: echo ADDRESS | riskgate decide -"),
        ("sign-ups show", "tip: echo ADDRESS | riskgate sign-ups show -"),
        ("help keys crate", "tip: did you mean `riskgate keys create`?"),
        (
            "store copy state/riskgate.db redis://127.0.0.1:1",
            "; write \"sqlite:state/riskgate.db\"\n",
        ),
    ] {
        let ran = run_command(Command::new(BINARY).args(line.split(' '))).expect(2);
        assert!(ran.stderr.contains(hint) && !ran.stderr.contains("similar"), "{}", ran.stderr);
    }
    let ran = run_command(Command::new(BINARY).args(["help", "keys", "rotate", "x"])).expect(2);
    assert!(!ran.stderr.contains("the commands are"), "{}", ran.stderr);
    let setup = Setup::new();
    for (line, hint) in [
        ("keys create --account a --plan=Pro", "found \"Pro\"; write pro\n"),
        ("accounts set a --limit unlimitd", "found \"unlimitd\"; write unlimited\n"),
        ("accounts set a --limit -1", "found \"-1\"; write unlimited\n"),
        ("table deny .evil.com", "write evil.com\n"),
        ("keys rotate ID --overlap 7", "found \"7\"; write 7d\n"),
        ("keys rotate ID --overlap 99999999999", "found \"99999999999\"\n"),
        ("keys create --account a --expires 3months", "found \"3months\"; write 90d\n"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let refused = setup.cli(&words).expect(2).stderr;
        assert!(refused.contains(hint), "{refused}");
    }
}

/// Somebody who has a key and no id gives the key, also where nothing of it belongs.
#[test]
fn no_command_shows_a_key_that_stands_in_place_of_something_else() {
    let setup = Setup::new();
    let created = setup.cli(&["keys", "create", "--account", "acme", "--json"]).expect(0).json();
    let (key, id) = (created["key"].as_str().unwrap(), created["id"].as_str().unwrap());
    let other = "sv_0123456789abcdef0123456789abcdef";
    let unknown = "0123456789abcdef0123456789abcdef";
    for (key, found) in [
        (key, format!("found the key itself; its id is {id}\n")),
        (other, "found what may be a key".to_owned()),
        (unknown, "found what may be a key".to_owned()),
        ("web1", "found \"web1\", which no key has; `riskgate keys list` shows the ids".to_owned()),
    ] {
        for command in ["revoke", "rotate"] {
            let ran = setup.cli(&["keys", command, key]).expect(1);
            assert!(ran.stderr.contains(&found), "{}", ran.stderr);
            assert!(key == "web1" || !ran.stderr.contains(key), "{}", ran.stderr);
        }
    }
    for key in [key, other] {
        for words in [
            &["keys", "create", "--account", key][..],
            &["keys", "create", "--account", "a", "--label", key],
            &["keys", "create", key],
            &["keys", "list", "--account", key],
            &["keys", key],
            &[key],
            &["accounts", "set", key, "--plan", "pro"],
            &["accounts", "set", "acme", "--plan", key],
            &["accounts", "set", "acme", "--limit", key],
            &["usage", "--account", key],
            &["usage", "--month", key],
            &["audit", "--actor", key],
            &["table", "deny", key],
            &["table", "deny", "a.test", "--note", key],
            &["table", "lookup", key],
            &["decide", key],
            &["store", "copy", key, key],
            &["ready", "--admin", key],
            &["ready", &format!("--{key}")],
        ] {
            let ran = setup.cli(words);
            assert!(!ran.stderr.contains(key) && !ran.stdout.contains(key), "{words:?}");
            assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{words:?}: {}", ran.stderr);
        }
    }
    assert_eq!(setup.cli(&["accounts", "list", "--json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn run_uses_addresses_from_flags_and_settings_from_the_environment() {
    let upstream = crate::harness::MockUpstream::start();
    let (http, admin) = (crate::harness::free_address(), crate::harness::free_address());
    let setup = Setup::new();
    let key = setup.cli(&["keys", "create", "--account", "acme"]).expect(0).stdout;
    let mut child = Command::new(BINARY)
        .args(["run", "-c"])
        .arg(setup.write_config())
        .args(["--listen", &http.to_string(), "--admin", &admin.to_string()])
        .args(["--upstream", &upstream.address.to_string()])
        .env("RISKGATE__LOG__ACCESS", "false")
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let up = || std::net::TcpStream::connect(http).is_ok();
    crate::harness::wait_until("the gateway listens where the flag says", up);
    let check = crate::harness::get("/v1/check/a@b.com").key(key.trim_end()).send(http);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(check.status, 200);
    assert_eq!(upstream.request_count(), 1);
    let log = std::fs::read_to_string(setup.path("access.log")).unwrap_or_default();
    assert_eq!(log, "", "the environment overrides the file");
}

#[test]
fn ready_succeeds_only_while_the_gateway_may_get_traffic() {
    let mut gateway = Setup::new().set_text("drain.delay", "3s").start();
    let ready = gateway.cli(&["ready"]).expect(0);
    assert_eq!(ready.json()["ready"], true);
    // The gateway serves its last good config while the file has a fault.
    let good = std::fs::read_to_string(&gateway.config).unwrap();
    std::fs::write(&gateway.config, format!("{good}\nunknown = 1\n")).unwrap();
    gateway.cli(&["ready"]).expect(78);
    let admin = gateway.admin.to_string();
    gateway.cli(&["ready", "--admin", &admin]).expect(0);
    std::fs::write(&gateway.config, good).unwrap();
    gateway.send_signal("TERM");
    crate::harness::wait_until("the drain", || gateway.readyz().status == 503);
    let draining = gateway.cli(&["ready"]).expect(1);
    assert!(
        draining.stderr.contains("expected status 200, but found 503: "),
        "{}",
        draining.stderr
    );
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    let stopped = gateway.cli(&["ready"]).expect(1);
    let address = format!("http://{}/readyz: expected status 200, but found ", gateway.admin);
    assert!(stopped.stderr.contains(&address), "{}", stopped.stderr);
}

#[test]
fn table_commands_build_inspect_look_up_and_compare_a_table() {
    let setup = Setup::new();
    let (lists, built) = (setup.path("lists"), setup.path("built.table"));
    let table = |arguments: &[&str]| run_command(Command::new(BINARY).arg("table").args(arguments));
    let (lists, built) = (lists.to_str().unwrap(), built.to_str().unwrap());
    table(&["build", lists, "-o", built]).expect(0);
    let inspected = table(&["inspect", built, "--json"]).expect(0).json();
    assert!(inspected["rows"].as_u64().unwrap() >= 8, "{inspected}");
    let found = table(&["lookup", "a.first.test", "--table", built, "--json"]).expect(0).json();
    assert_eq!(found[0]["answer"]["reason"], "disposable");
    assert_eq!(found[0]["row"], "first.test");
    table(&["lookup", "a_b", "--table", built]).expect(1);
    let other = ListFolder::create(setup.path("other"));
    other.write("disposable.txt", "first.test\nsecond.test\nthird.test\nfourth.test\nmail.com\n");
    let diff = table(&["diff", lists, other.path.to_str().unwrap(), "--json"]).expect(0).json();
    assert_eq!(diff["added"], json!(["fourth.test"]));
    assert_eq!(diff["removed"], json!(["exact.test"]));
    // A compiled table serves like the folder of its lists.
    let gateway = setup.set_text("table.path", built).start();
    let key = gateway.create_active_key("acme", &[]);
    let answer = gateway.get_domain("a.first.test", &key).expect(200);
    assert_eq!(answer.header("X-Matched-Domain"), Some("first.test"));
    assert_eq!(answer.json()["mx_provider_label"], "First Mail");
}

#[test]
fn a_faulty_key_file_hides_no_key_of_the_store_and_no_other_finding_of_doctor() {
    let setup = Setup::new();
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let missing = setup.path("missing.toml").display().to_string();
    let setup = setup.set_text("keys.file", &missing);
    for words in [&["keys", "list"][..], &["keys", "list", "--json"]] {
        let listed = setup.cli(words).expect(78);
        assert!(listed.stdout.contains("acme"), "{}", listed.stdout);
        assert!(listed.stderr.contains("missing.toml"), "{}", listed.stderr);
    }
    let checked = setup.cli(&["doctor"]).expect(1).stdout;
    let fault = checked.lines().find(|line| line.starts_with("fault    config: "));
    let expected = ": keys.file: expected a key file, but found ";
    assert!(fault.is_some_and(|line| line.contains(expected)), "{checked}");
    assert!(checked.contains("good     store "), "{checked}");
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| run_command(Command::new(BINARY).args(words)).expect(0);
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).stdout;
        let file = folder.path().join(shell);
        assert!(script.contains("repair-month") && script.contains("schema"), "{shell}");
        std::fs::write(&file, script).unwrap();
        if shell == "bash" {
            run_command(Command::new("bash").arg("-n").arg(&file)).expect(0);
        }
    }
    assert!(run(&["man"]).stdout.contains(".TH riskgate 1"));
    let pages = folder.path().join("man/man1");
    for _ in 0..2 {
        run(&["man", "--dir", pages.to_str().unwrap()]);
        assert!(pages.join("riskgate-store-backup.1").exists());
    }
    let below_file = folder.path().join("bash/man1").display().to_string();
    let wrong = run_command(Command::new(BINARY).args(["man", "--dir", &below_file]));
    assert!(wrong.expect(1).stderr.contains(&format!("{below_file}: expected a directory")));
    let misspelt = run_command(Command::new(BINARY).arg("chekc")).expect(2);
    assert!(misspelt.stderr.contains("`riskgate check`"), "{}", misspelt.stderr);
}

/// The members that `docs/commands.md` lists for the JSON of a command.
fn documented_members(command: &str) -> Vec<String> {
    let document = include_str!("../../../../docs/commands.md");
    let named = format!("`{command}`");
    let row = document.lines().find(|line| {
        let cells: Vec<&str> = line.split('|').collect();
        cells.len() == 4 && cells[1].contains(&named) && cells[2].contains("{\"")
    });
    let (_, members) = row.unwrap_or_else(|| panic!("{command}")).split_once("{\"").unwrap();
    let (members, _) = members.split_once('}').unwrap();
    let mut members: Vec<String> =
        members.split(',').map(|member| member.trim_matches('"').to_owned()).collect();
    members.sort_unstable();
    members
}

#[test]
fn json_has_the_documented_members() {
    let setup = Setup::with_bundled_table();
    let overrides = setup.path("overrides.csv");
    let setup = setup.set_text("table.overrides", &overrides.display().to_string());
    let list = setup.path("feed.txt");
    std::fs::write(&list, "a.test\n").unwrap();
    let feed = format!(
        "[[table.feed]]\nname = \"one\"\nurl = {:?}\nkind = \"disposable\"\n",
        list.display().to_string()
    );
    let setup = setup.append_toml(&feed);
    let path = |name: &str| setup.path(name).display().to_string();
    let check = |command: &str, more: &[&str]| {
        let words: Vec<&str> = command.split(' ').chain(more.iter().copied()).collect();
        let words = [words.as_slice(), &["--json"]].concat();
        // These commands read no config.
        let ran = match ["table build", "table inspect", "table diff"].contains(&command) {
            true => run_command(Command::new(BINARY).args(words)),
            false => setup.cli(&words),
        };
        let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| {
            panic!("{command}: {error}: {}{}", ran.stdout, ran.stderr);
        });
        let object = if value.is_array() { value[0].clone() } else { value };
        assert_eq!(sorted_member_names(&object), documented_members(command), "{command}");
        object
    };
    let id = check("keys create", &["--account", "acme"])["id"].as_str().unwrap().to_owned();
    check("keys list", &[]);
    check("keys rotate", &[&id]);
    check("keys revoke", &[&id]);
    check("accounts list", &[]);
    check("accounts set", &["acme", "--limit", "5"]);
    check("store init", &[]);
    check("store backup", &[&path("backup")]);
    check("config show", &[]);
    check("table build", &["data", "-o", &path("table")]);
    check("table inspect", &[]);
    check("table lookup", &["gmail.com"]);
    check("table allow", &["a.test"]);
    check("table deny", &["a.test"]);
    check("table clear", &["a.test"]);
    check("table update", &[]);
    check("table feeds", &[]);
    check("table diff", &["data", "data"]);
    check("audit", &["--limit", "1"]);
}

#[test]
fn a_terminal_shows_colors_unless_the_user_wants_none() {
    let setup = Setup::new();
    let check = |environment: &str| {
        let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
        let mut command = Command::new("env");
        command.args(["-u", "NO_COLOR", "TERM=xterm", environment, "python3", "-c", spawn]);
        command.args([BINARY, "check", "-c", &setup.path("riskgate.toml").display().to_string()]);
        run_command(&mut command).expect(0).stdout
    };
    setup.cli(&["check"]).expect(0);
    let colored = check("A=b");
    assert!(colored.contains("\u{1b}[33mwarning:\u{1b}[0m"), "{colored:?}");
    let plain = check("NO_COLOR=1");
    assert!(plain.contains("warning: ") && !plain.contains('\u{1b}'), "{plain:?}");
}

#[test]
fn a_missing_file_or_folder_of_a_command_is_named() {
    let setup = Setup::new();
    let (file, folder) = (setup.path("no.toml"), setup.path("no-folder"));
    let import = setup.cli(&["keys", "import", &file.display().to_string()]).expect(78).stderr;
    assert!(import.ends_with(&format!("; there is no {}\n", file.display())), "{import}");
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let backup = setup.cli(&["store", "backup", &folder.join("b").display().to_string()]);
    let backup = backup.expect(1).stderr;
    assert!(backup.ends_with(&format!("; there is no folder {}\n", folder.display())), "{backup}");
    let setup = Setup::new().set_text("store.url", "sqlite:/proc/x/riskgate.db");
    let refused = setup.cli(&["keys", "create", "--account", "acme"]).expect(78).stderr;
    let advice = "; let this user write in /proc, or write another path\n";
    assert!(refused.ends_with(advice), "{refused}");
}

#[test]
fn accounts_set_says_if_the_account_is_new() {
    let setup = Setup::new();
    setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let said = |name: &str| setup.cli(&["accounts", "set", name, "--plan", "pro"]).expect(0).stderr;
    assert_eq!(said("acme"), "");
    assert_eq!(said("acm"), "created the account acm; it has no key\n");
    assert_eq!(said("acm"), "");
    // A faulty key file may have a key of the account.
    let setup = setup.set_text("keys.file", "missing.toml");
    assert_eq!(setup.cli(&["accounts", "set", "b", "--plan", "pro"]).expect(0).stderr, "");
}

#[test]
fn a_command_that_is_refused_makes_no_store() {
    let setup = Setup::new();
    let create = ["keys", "create", "--account", "acme"];
    let refused = |words: &[&str], code: i32| {
        let printed = setup.cli(words).expect(code).stderr;
        assert!(!setup.path("riskgate.db").exists(), "{words:?}");
        printed
    };
    let printed = refused(&[&create[..], &["--expires", "2020-01-01T00:00:00Z"]].concat(), 2);
    assert!(printed.contains("--expires: expected a time in the future"), "{printed}");
    let keys = setup.path("keys.toml");
    let digest = "0".repeat(64);
    let key = format!("[[key]]\nid = \"a\"\naccount = \"a@b.test\"\nhash = \"sha256:{digest}\"\n");
    std::fs::write(&keys, key).unwrap();
    for words in [
        &["keys", "create", "--account", "a@b.test"][..],
        &["accounts", "set", "a@b.test", "--plan", "pro"],
        &["keys", "import", &keys.display().to_string()],
    ] {
        let printed = setup.cli(words).stderr;
        assert!(printed.contains("the name of a new account without @"), "{printed}");
        assert!(!setup.path("riskgate.db").exists(), "{words:?}");
    }
    let printed = refused(&["table", "deny", "gmail.com"], 1);
    assert!(printed.contains("the lists protect gmail.com"), "{printed}");
    let printed = refused(&[&create[..], &["--origin", "null"]].concat(), 2);
    assert!(!printed.contains("https://null"), "{printed}");
    let printed = refused(&["keys", "list", "--account", "nobody"], 1);
    let unknown = "--account: expected the name of an account, but found \"nobody\"";
    assert!(printed.contains(unknown), "{printed}");
    let wrong = setup.path("wrong.backup");
    std::fs::write(&wrong, "no database ".repeat(100)).unwrap();
    let printed = refused(&["store", "restore", &wrong.display().to_string()], 78);
    let expected = "wrong.backup: expected a file that `riskgate store backup` has written";
    assert!(printed.contains(expected) && printed.lines().count() == 1, "{printed}");
    assert!(!printed.contains("backup of the store"), "{printed}");
    let elsewhere = Setup::new();
    elsewhere.cli(&create).expect(0);
    let files = [wrong, setup.path("new.db"), elsewhere.path("riskgate.db")];
    let [wrong, new, good] = files.map(|path| format!("sqlite:{}", path.display()));
    for (from, to) in [(&wrong, &new), (&good, &wrong)] {
        let printed = refused(&["store", "copy", from, to], 78);
        assert!(printed.contains("wrong.backup: expected an intact store, but found"), "{printed}");
        assert!(!printed.contains("move it away"), "{printed}");
    }
    setup.cli(&[&create[..], &["--origin", "a.test"]].concat()).expect(2);
    setup.cli(&["accounts", "set", "empty", "--plan", "free"]).expect(0);
    setup.cli(&["keys", "list", "--account", "empty"]).expect(0);
    let printed = setup.cli(&["keys", "list", "--account", "nobody"]).expect(1).stderr;
    assert!(printed.contains(unknown), "{printed}");
}
