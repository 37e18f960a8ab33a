//! The admin API and the commands act on the store that is served, or refuse with words. Nothing
//! creates a store by the way.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    BINARY, Gateway, KillOnDrop, MockUpstream, Setup, Step, free_address, get, response_bytes,
    run_command, wait_until,
};
use crate::one_path::operators::admin_api::{AdminTokens, call_api};
use crate::redis_server::RedisServer;

/// Sends every kind of change, and returns the statuses and the texts of the answers.
fn send_changes(gateway: &Gateway, tokens: &AdminTokens, key_id: &str) -> Vec<(u16, String)> {
    let changes = [
        ("POST", "/keys".to_owned(), json!({ "account": "acme" })),
        ("POST", format!("/keys/{key_id}/rotate"), json!({})),
        ("POST", format!("/keys/{key_id}/revoke"), Value::Null),
        ("PATCH", "/accounts/acme".to_owned(), json!({ "plan": "business" })),
        ("PUT", "/overrides/bad.example.com".to_owned(), json!({ "action": "deny" })),
    ];
    let send = |(method, path, body): &(&str, String, Value)| {
        let answer = call_api(gateway, method, path, &tokens.write, body);
        (answer.status, answer.text())
    };
    changes.iter().map(send).collect()
}

#[test]
fn no_change_goes_to_another_store_while_a_changed_url_waits_for_a_restart() {
    let (server, other_server) = (RedisServer::start(), RedisServer::start());
    for (setup, other) in
        [(Setup::new(), None), (Setup::new().with_redis(&server), Some(other_server.url()))]
    {
        let (setup, tokens) = AdminTokens::add_to(setup);
        setup.cli(&["store", "init"]).expect(0);
        let gateway = setup.start();
        let (key, id) = gateway.create_active_key_with_id("acme", &["--plan", "pro"]);
        let other_file = gateway.path("other.db");
        let other = other.unwrap_or_else(|| format!("sqlite:{}", other_file.display()));
        let served = gateway.setup().toml();
        gateway.edit_config(|text| {
            let line = |line: &str| match line.starts_with("url = ") {
                true => format!("url = {other:?}\n"),
                false => format!("{line}\n"),
            };
            text.lines().map(line).collect()
        });
        let waits = |gateway: &Gateway| {
            let status = call_api(gateway, "GET", "/status", &tokens.read, &Value::Null);
            status.expect(200).json()["needs_restart"].to_string().contains("store")
        };
        wait_until("the changed url waits for a restart", || waits(&gateway));
        for (status, text) in send_changes(&gateway, &tokens, &id) {
            assert_eq!(status, 409, "{text}");
            assert!(text.contains("store of the running gateway, but found "), "{text}");
        }
        gateway.get_domain("first.test", &key).expect(200);
        for words in [
            &["keys", "create", "--account", "acme"][..],
            &["keys", "revoke", &id],
            &["accounts", "set", "acme", "--plan", "free"],
            &["table", "deny", "bad.example.com"],
        ] {
            let refused = gateway.cli(words).expect(1).stderr;
            assert!(refused.contains("the store of the running gateway"), "{words:?} {refused}");
        }
        assert!(!other_file.exists(), "no store was made");
        assert!(other_server.matching_keys("*").is_empty());
        let listed = call_api(&gateway, "GET", "/keys", &tokens.read, &Value::Null).expect(200);
        assert_eq!(listed.json()["items"].as_array().unwrap().len(), 1, "{}", listed.text());
        gateway.edit_config(|_| served);
        wait_until("the former url is back", || !waits(&gateway));
        let revoke = format!("/keys/{id}/revoke");
        call_api(&gateway, "POST", &revoke, &tokens.write, &Value::Null).expect(200);
        gateway.get_domain("first.test", &key).expect(401);
    }
}

#[test]
fn no_change_makes_a_store_while_the_served_file_is_gone_or_replaced() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    let (_, id) = gateway.create_active_key_with_id("acme", &["--plan", "pro"]);
    let (file, aside) = (gateway.path("riskgate.db"), gateway.path("aside.db"));
    let other = Setup::new();
    other.cli(&["keys", "create", "--account", "other"]).expect(0);
    // The API has a connection in one round, and none in the other.
    for is_first in [true, false] {
        std::fs::rename(&file, &aside).unwrap();
        let answers = send_changes(&gateway, &tokens, &id);
        // Only an open connection tells that the file is no longer the served one.
        let first_status = if is_first { 503 } else { 409 };
        let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [first_status, 503, 503, 503, 503], "{answers:?}");
        for (_, text) in answers {
            assert!(text.to_lowercase().contains("nothing was changed"), "{text}");
        }
        let refused = gateway.cli(&["keys", "create", "--account", "acme"]).expect(1);
        assert!(
            refused.stderr.contains("expected the store of the running gateway"),
            "{refused:?}"
        );
        let refused = gateway.cli(&["keys", "revoke", &id]).expect(1).stderr;
        assert!(refused.contains("expected the store of the running gateway"), "{refused}");
        gateway.cli(&["store", "init"]).expect(1);
        gateway.cli(&["accounts", "set", "acme", "--plan", "free"]).expect(1);
        gateway.cli(&["table", "deny", "bad.example.com"]).expect(1);
        let [from, to] = [other.path("riskgate.db"), file.clone()]
            .map(|path| format!("sqlite:{}", path.display()));
        let refused = gateway.cli(&["store", "copy", &from, &to]).expect(1).stderr;
        assert!(refused.contains("expected no running gateway"), "{refused}");
        assert!(!file.exists(), "no store was made");
        std::fs::copy(other.path("riskgate.db"), &file).unwrap();
        for (status, text) in send_changes(&gateway, &tokens, &id) {
            assert_eq!(status, 409, "{text}");
        }
        let refused = gateway.cli(&["keys", "create", "--account", "acme"]).expect(1).stderr;
        assert!(refused.contains("of the running gateway, but found another file"), "{refused}");
        std::fs::remove_file(&file).unwrap();
        std::fs::rename(&aside, &file).unwrap();
        if is_first {
            let body = json!({ "account": "acme" });
            call_api(&gateway, "POST", "/keys", &tokens.write, &body).expect(201);
        }
    }
    let listed = other.cli(&["keys", "list", "--json"]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "the other store is unchanged");
}

/// Checks that the commands that change or read a store say this instead.
fn assert_commands_refuse(gateway: &Gateway, expected: &str) {
    for words in [
        &["keys", "create", "--account", "acme", "--expires", "90d"][..],
        &["keys", "revoke", "key_1"],
        &["accounts", "set", "acme", "--plan", "free"],
        &["table", "deny", "bad.example.com"],
        &["store", "init"],
    ] {
        let refused = gateway.cli(words).expect(1).stderr;
        assert!(refused.contains(expected), "{words:?} {refused}");
    }
    let refused = gateway.cli(&["store", "repair-month", "2020-01"]).expect(1).stderr;
    assert!(refused.contains("expected no running gateway, but found one; stop it"), "{refused}");
    for words in [&["keys", "list"][..], &["usage"], &["audit"], &["accounts", "list"]] {
        let refused = gateway.cli(words).expect(1);
        assert_eq!(refused.stdout, "", "{words:?}");
        let expected = format!("{}: {expected}", store_of(gateway));
        assert!(refused.stderr.contains(&expected), "{words:?}: {}", refused.stderr);
    }
}

/// The store as messages name it: a file that is missing has its path, another one its address.
fn store_of(gateway: &Gateway) -> String {
    let path = gateway.path("state/riskgate.db");
    match path.canonicalize() {
        Ok(found) => format!("sqlite:{}", found.display()),
        Err(_) => path.display().to_string(),
    }
}

const FILE_IS_MISSING: &str = "expected the store of the running gateway, but found no file";
const FILE_IS_ANOTHER: &str = "expected the store of the running gateway, but found another file";

/// A gateway whose store and runtime directory are in the folder `state`.
fn setup_in_one_folder() -> Setup {
    let setup = Setup::new();
    let path = |name: &str| setup.path(name).display().to_string();
    let (store, run) = (format!("sqlite:{}", path("state/riskgate.db")), path("state/run"));
    setup.set_text("store.url", &store).set_text("process.runtime_dir", &run)
}

#[test]
fn commands_see_the_gateway_although_its_whole_folder_was_moved_away() {
    let gateway = setup_in_one_folder().start();
    gateway.create_active_key("acme", &[]);
    let (state, aside) = (gateway.path("state"), gateway.path("aside"));
    std::fs::rename(&state, &aside).unwrap();
    assert_commands_refuse(&gateway, FILE_IS_MISSING);
    assert!(!state.exists(), "nothing was made");
    // As if somebody had restored a copy.
    std::fs::create_dir(&state).unwrap();
    std::fs::copy(aside.join("riskgate.db"), state.join("riskgate.db")).unwrap();
    assert_commands_refuse(&gateway, FILE_IS_ANOTHER);
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    gateway.create_active_key("acme", &[]);
    let setup = gateway.shut_down();
    std::fs::rename(setup.path("state"), setup.path("aside")).unwrap();
    let created = setup.cli(&["keys", "create", "--account", "acme"]).expect(0).stderr;
    assert!(created.contains("created the store"), "{created}");
}

#[test]
fn commands_see_the_gateway_although_the_link_to_its_folder_was_replaced() {
    let setup = setup_in_one_folder();
    let (state, folders) = (setup.path("state"), [setup.path("first"), setup.path("second")]);
    for folder in &folders {
        std::fs::create_dir(folder).unwrap();
    }
    std::os::unix::fs::symlink(&folders[0], &state).unwrap();
    let gateway = setup.start();
    gateway.create_active_key("acme", &[]);
    std::fs::remove_file(&state).unwrap();
    std::os::unix::fs::symlink(&folders[1], &state).unwrap();
    assert_commands_refuse(&gateway, FILE_IS_MISSING);
    assert!(files_below(&folders[1]).is_empty(), "nothing was made");
    std::fs::copy(folders[0].join("riskgate.db"), folders[1].join("riskgate.db")).unwrap();
    assert_commands_refuse(&gateway, FILE_IS_ANOTHER);
}

#[test]
fn commands_see_a_gateway_that_has_no_runtime_directory() {
    // No directory can be made below a file.
    for unusable in ["", "riskgate.toml/run"] {
        let setup = setup_in_one_folder();
        let path = setup.path(unusable).display().to_string();
        let runtime_dir = if unusable.is_empty() { "" } else { &path };
        let gateway = setup.set_text("process.runtime_dir", runtime_dir).start();
        gateway.create_active_key("acme", &[]);
        std::fs::rename(gateway.path("state"), gateway.path("aside")).unwrap();
        assert_commands_refuse(&gateway, FILE_IS_MISSING);
    }
}

#[test]
fn commands_see_a_gateway_that_outlives_the_owner_of_the_runtime_directory() {
    let first = setup_in_one_folder().start();
    first.create_active_key("acme", &[]);
    let addresses = [free_address(), free_address()].map(|address| address.to_string());
    let mut second = Command::new(BINARY);
    second.args(["run", "--listen", &addresses[0], "--admin", &addresses[1], "-c"]);
    second.arg(first.path("riskgate.toml")).stderr(Stdio::null()).stdout(Stdio::null());
    let second = KillOnDrop(second.spawn().unwrap());
    wait_until("the second gateway says which store it serves", || {
        let sockets = std::fs::read("/proc/net/unix").unwrap();
        String::from_utf8_lossy(&sockets).lines().any(|line| {
            // A gateway that has not read its store yet knows no id of it.
            line.contains("@riskgate-store/")
                && line.ends_with(&format!("/{}", second.0.id()))
                && !line.contains("//")
        })
    });
    let mut first = first;
    first.send_signal("TERM");
    first.wait_for_exit();
    std::fs::rename(first.path("state"), first.path("aside")).unwrap();
    assert_commands_refuse(&first, FILE_IS_MISSING);
}

#[test]
fn no_change_makes_a_store_of_an_emptied_server() {
    let server = RedisServer::start();
    let (gateway, tokens) = AdminTokens::start_on_redis(&server);
    let (_, id) = gateway.create_active_key_with_id("acme", &["--plan", "pro"]);
    server.run(&["FLUSHALL"]);
    for (_, text) in send_changes(&gateway, &tokens, &id) {
        assert!(text.to_lowercase().contains("nothing was changed"), "{text}");
    }
    for words in [
        &["keys", "create", "--account", "acme", "--expires", "90d"][..],
        &["keys", "revoke", &id],
        &["accounts", "set", "acme", "--plan", "free"],
        &["table", "deny", "bad.example.com"],
        &["store", "init"],
    ] {
        let refused = gateway.cli(words).expect(1).stderr;
        assert!(refused.contains("but found an empty server"), "{words:?} {refused}");
    }
    assert!(server.run(&["HGET", "riskgate:{ring}:meta", "store_id"]).is_empty());
}

#[test]
fn commands_that_read_say_that_the_store_of_the_running_gateway_is_away() {
    let gateway = setup_in_one_folder().start();
    gateway.create_active_key("acme", &[]);
    std::fs::rename(gateway.path("state/riskgate.db"), gateway.path("aside.db")).unwrap();
    let checked = gateway.cli(&["check"]).expect(78).stderr;
    assert!(checked.contains(FILE_IS_MISSING) && !checked.contains("good"), "{checked}");
    let server = RedisServer::start();
    let (gateway, _) = AdminTokens::start_on_redis(&server);
    gateway.create_active_key("acme", &[]);
    server.run(&["FLUSHALL"]);
    for words in [&["check"][..], &["keys", "list"], &["accounts", "list"], &["usage"]] {
        let status = if words[0] == "check" { 0 } else { 1 };
        let told = gateway.cli(words).expect(status).stderr;
        assert_eq!(told.matches("of the running gateway, but found an empty").count(), 1, "{told}");
        assert!(!told.contains("the first key makes it a store"), "{words:?} {told}");
    }
    assert!(server.run(&["HGET", "riskgate:{ring}:meta", "store_id"]).is_empty());
}

#[test]
fn a_check_before_the_store_moves_passes_and_names_the_served_store() {
    let gateway = setup_in_one_folder().start();
    gateway.edit_config(|text| text.replace("state/riskgate.db", "state/new.db"));
    let checked = gateway.cli(&["check"]).expect(0).stderr;
    assert!(checked.contains(": good; ") && checked.contains("warning: store.url: "), "{checked}");
}

#[test]
fn the_api_makes_no_store_of_a_server_that_was_empty_at_the_start() {
    let server = RedisServer::start();
    let (setup, tokens) = AdminTokens::add_to(Setup::new().with_redis(&server));
    let gateway = setup.start();
    for _ in 0..2 {
        let body = json!({ "account": "acme" });
        let refused = call_api(&gateway, "POST", "/keys", &tokens.write, &body).expect(409);
        assert!(refused.text().contains("`riskgate store init` makes one"), "{}", refused.text());
        assert!(server.run(&["HGET", "riskgate:{ring}:meta", "store_id"]).is_empty());
    }
    gateway.cli(&["store", "init"]).expect(0);
    wait_until("the API makes a key", || {
        let body = json!({ "account": "acme" });
        call_api(&gateway, "POST", "/keys", &tokens.write, &body).status == 201
    });
}

#[test]
fn a_command_names_the_server_that_does_not_answer() {
    let server = RedisServer::start();
    let setup = Setup::new().with_redis(&server);
    drop(server);
    for words in [
        &["keys", "create", "--account", "acme", "--expires", "90d"][..],
        &["keys", "list"],
        &["accounts", "set", "acme", "--plan", "free"],
    ] {
        let refused = setup.cli(words).expect(1).stderr;
        assert!(refused.contains("Connection refused"), "{words:?} {refused}");
    }
}

/// The files in a folder, and in the folders below it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn commands_that_read_create_no_store() {
    let setup = Setup::new();
    setup.write_config();
    let before = files_below(&setup.path(""));
    for words in [
        &["keys", "list"][..],
        &["accounts", "list"],
        &["usage"],
        &["usage", "--daily"],
        &["audit"],
    ] {
        let shown = setup.cli(words).expect(0);
        assert!(
            shown.stderr.contains("expected a store, but found no file"),
            "{words:?} {shown:?}"
        );
        let json = setup.cli(&[words, &["--json"]].concat()).expect(0).stdout;
        assert!(["[]\n", ""].contains(&json.as_str()), "{words:?} {json}");
    }
    let csv = setup.cli(&["usage", "--csv"]).expect(0).stdout;
    assert_eq!(csv, "day,account,route,key_id,calls\n");
    setup.cli(&["keys", "rotate", "key_1"]).expect(1);
    setup.cli(&["keys", "revoke", "key_1"]).expect(1);
    setup.cli(&["store", "repair-month", "2026-01"]).expect(78);
    assert_eq!(files_below(&setup.path("")), before, "nothing was created");
}

#[test]
fn a_relative_path_in_the_file_of_the_url_starts_at_the_config() {
    let setup = Setup::new();
    let file = setup.path("store-url");
    std::fs::write(&file, "sqlite:relative.db").unwrap();
    let setup = setup.unset("store.url").set_text("store.url_file", &file.display().to_string());
    let config = setup.write_config();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = Command::new(BINARY);
    command.args(["keys", "create", "--account", "acme", "-c"]).arg(&config);
    run_command(command.current_dir(elsewhere.path())).expect(0);
    assert!(setup.path("relative.db").exists());
    assert_eq!(files_below(elsewhere.path()).len(), 0);
}

#[test]
fn another_password_for_the_same_server_is_the_same_store() {
    let server = RedisServer::start();
    for password in ["first-word", "second-word"] {
        server.run(&["ACL", "SETUSER", "some", "on", &format!(">{password}"), "~*", "&*", "+@all"]);
    }
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let file = setup.path("store-url");
    std::fs::write(&file, server.url_as("some", "first-word")).unwrap();
    let setup = setup.unset("store.url").set_text("store.url_file", &file.display().to_string());
    let gateway = setup.start();
    gateway.create_active_key("acme", &[]);
    std::fs::write(&file, server.url_as("some", "second-word")).unwrap();
    wait_until("the change waits for a restart", || {
        let status = call_api(&gateway, "GET", "/status", &tokens.read, &Value::Null);
        status.expect(200).json()["needs_restart"].to_string().contains("store")
    });
    let body = json!({ "account": "acme" });
    call_api(&gateway, "POST", "/keys", &tokens.write, &body).expect(201);
    gateway.cli(&["keys", "create", "--account", "acme"]).expect(0);
}

#[test]
fn the_month_is_not_repaired_while_a_gateway_drains() {
    let upstream = MockUpstream::with_script(|_| {
        vec![Step::Trickle(response_bytes(200, "", "{}"), Duration::from_millis(40))]
    });
    let setup = Setup::new().with_upstreams(&[upstream.address]);
    let without_runtime_dir = Setup::new().with_upstreams(&[upstream.address]);
    for setup in [setup, without_runtime_dir.set_text("process.runtime_dir", "")] {
        let mut gateway = setup.start();
        let key = gateway.create_active_key("acme", &[]);
        let mut client = gateway.connect();
        let received = upstream.request_count();
        client.send(&get("/v1/check/a@b.com").key(&key).to_bytes());
        wait_until("the server has the request", || upstream.request_count() > received);
        gateway.send_signal("TERM");
        wait_until("it drains", || {
            let refused = gateway.cli(&["store", "repair-month", "2020-01"]).expect(1).stderr;
            assert!(refused.contains("expected no running gateway, but found one"), "{refused}");
            refused.contains("about to end")
        });
        gateway.wait_for_exit();
        let refused = gateway.cli(&["store", "repair-month", "2020-01"]).expect(1).stderr;
        assert!(refused.contains("expected a clock that shows 2020-01"), "{refused}");
    }
}
