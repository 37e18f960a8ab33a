//! The key file: keys that it declares beside those in the store, and how changes take effect.

use crate::harness::{Gateway, Setup, get, wait_until};
use crate::one_path::operators::admin_api::{AdminTokens, call_api};
use crate::one_path::quota::keys::{USAGE, is_key_accepted, sha256_hex};

fn start_with_key_file(text: &str) -> Gateway {
    let setup = Setup::new().env("WEB_KEY_OF_TESTS", "sv_from_the_environment");
    let path = setup.path("keys.toml");
    std::fs::write(&path, text).unwrap();
    setup.set_text("keys.file", &path.display().to_string()).start()
}

fn key_file_with_three_keys() -> String {
    format!(
        "[[key]]\nid = \"by-hash\"\naccount = \"filed\"\nplan = \"pro\"\nhash = \"sha256:{}\"\n\
         origins = [\"https://app.example.com\"]\nrequire_origin = true\n\
         [[key]]\nid = \"by-env\"\naccount = \"filed\"\nenv = \"WEB_KEY_OF_TESTS\"\n\
         [[key]]\nid = \"ended\"\naccount = \"filed\"\nhash = \"sha256:{}\"\n\
         expires = \"2026-01-01T00:00:00Z\"\n",
        sha256_hex("sv_the_key_by_its_hash"),
        sha256_hex("sv_the_key_that_ended"),
    )
}

#[test]
fn a_key_file_declares_keys_by_hash_or_variable_beside_those_of_the_store() {
    let gateway = start_with_key_file(&key_file_with_three_keys());
    let (hash, env) = ("sv_the_key_by_its_hash", "sv_from_the_environment");
    gateway.get(USAGE, hash).expect(403);
    let app = get(USAGE).key(hash).with_header("Origin", "https://app.example.com");
    assert_eq!(gateway.send_request(&app).expect(200).json()["plan"], "pro");
    assert!(is_key_accepted(&gateway, env) && !is_key_accepted(&gateway, "sv_the_key_that_ended"));
    let stored = gateway.create_active_key("stored", &[]);
    assert!(
        is_key_accepted(&gateway, &stored) && is_key_accepted(&gateway, env),
        "both sources form one key ring"
    );
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 4);
    // An account has one quota, whichever sources its keys come from.
    gateway.get_domain("first.test", env).expect(200);
    assert_eq!(gateway.send_request(&app).json()["month_count"], 1);
}

#[test]
fn a_key_revoked_in_the_store_or_in_the_key_file_is_refused() {
    let gateway = start_with_key_file(&key_file_with_three_keys());
    let env = "sv_from_the_environment";
    assert!(is_key_accepted(&gateway, env));
    gateway.cli(&["keys", "revoke", "by-env"]).expect(0);
    wait_until("the declared key is refused", || !is_key_accepted(&gateway, env));
    let gateway = gateway.restart();
    assert!(!is_key_accepted(&gateway, env), "the file still declares it, and it stays revoked");

    let token = "sv_revoked_by_the_file";
    let key =
        format!("[[key]]\nid = \"x\"\naccount = \"a\"\nhash = \"sha256:{}\"\n", sha256_hex(token));
    let import = gateway.path("import.toml");
    std::fs::write(&import, &key).unwrap();
    gateway.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
    wait_until("the imported key is accepted", || is_key_accepted(&gateway, token));
    let revoked =
        format!("{}{key}revoked = \"2026-01-01T00:00:00Z\"\n", key_file_with_three_keys());
    std::fs::write(gateway.path("keys.toml"), revoked).unwrap();
    wait_until("the key revoked in the file is refused", || !is_key_accepted(&gateway, token));
}

#[test]
fn a_key_of_the_file_in_place_of_its_id_and_a_mistyped_id_lead_to_the_id() {
    let setup = Setup::new();
    let (token, id) = ("sv_the_key_of_a_web_server_1", "web-frontend-production-01");
    let hash = sha256_hex(token);
    let entry = format!("[[key]]\nid = \"{id}\"\naccount = \"a\"\nhash = \"sha256:{hash}\"\n");
    std::fs::write(setup.path("keys.toml"), entry).unwrap();
    let file = setup.path("keys.toml").display().to_string();
    let setup = setup.set_text("keys.file", &file);
    let mistyped = "web-frontend-production-02";
    for has_store in [false, true] {
        for command in ["rotate", "revoke"] {
            let told = setup.cli(&["keys", command, token]).expect(1).stderr;
            assert!(told.contains(&format!("found the key itself; its id is {id}\n")), "{told}");
            let told = setup.cli(&["keys", command, mistyped]).expect(1).stderr;
            let found = format!("found \"{mistyped}\", which no key has; write {id}\n");
            assert!(told.contains(&found), "{told}");
        }
        assert_eq!(setup.path("riskgate.db").exists(), has_store);
        setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    }
}

#[test]
fn a_key_in_store_and_key_file_has_the_restrictions_of_both() {
    let setup = Setup::new();
    let token = |n: u8| format!("sv_in_both_places_{n}");
    let key = |n: u8, more: &str| {
        let hash = sha256_hex(&token(n));
        format!("[[key]]\nid = \"k{n}\"\naccount = \"a\"\nhash = \"sha256:{hash}\"\n{more}")
    };
    let past = "expires = \"2026-01-01T00:00:00Z\"\n";
    let wide = "origins = [\"https://*.example.com\", \"https://one.example.org\"]\n";
    let narrow = "origins = [\"https://app.example.com\", \"https://two.example.org\"]\n";
    let apart = "origins = [\"https://elsewhere.example.net\"]\n";
    let asks = "require_origin = true\n";
    // The restrictions in the store, and those in the file.
    let rows = [("", past), (past, ""), ("", asks), (asks, ""), (wide, narrow), (narrow, wide)];
    let rows: Vec<_> = rows.into_iter().chain([(wide, ""), ("", narrow), (wide, apart)]).collect();
    let text = |of: &dyn Fn(&(&'static str, &'static str)) -> &'static str| -> String {
        rows.iter().zip(0..).map(|(row, n)| key(n, of(row))).collect()
    };
    let (import, file) = (setup.path("import.toml"), setup.path("keys.toml"));
    std::fs::write(&import, text(&|row| row.0)).unwrap();
    std::fs::write(&file, text(&|row| row.1)).unwrap();
    setup.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
    let gateway = setup.set_text("keys.file", &file.display().to_string()).start();
    let plain = |n: u8| gateway.get(USAGE, &token(n)).status;
    let from = |n: u8, origin: &str| {
        gateway.send_request(&get(USAGE).key(&token(n)).with_header("Origin", origin)).status
    };
    let app = "https://app.example.com";
    assert_eq!([plain(0), plain(1)], [401, 401], "the earlier end applies");
    for n in [2, 3] {
        assert_eq!(
            (plain(n), from(n, app)),
            (403, 200),
            "one of the two sources requires an origin"
        );
    }
    for n in [4, 5] {
        assert_eq!((plain(n), from(n, app)), (200, 200), "both allow it");
        for origin in
            ["https://b.example.com", "https://one.example.org", "https://two.example.org"]
        {
            assert_eq!(from(n, origin), 403, "{origin} is not allowed by both");
        }
    }
    assert_eq!([from(6, app), from(6, "https://x.example.net")], [200, 403]);
    assert_eq!([from(7, app), from(7, "https://x.example.net")], [200, 403]);
    for origin in [app, "https://elsewhere.example.net"] {
        assert_eq!((plain(8), from(8, origin)), (200, 403), "no origin is allowed by both");
    }
    // The command lists the effective restrictions.
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let row = |id: &str| {
        let mut all = listed.as_array().unwrap().iter();
        all.find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id}")).clone()
    };
    assert_eq!(listed.as_array().unwrap().len(), rows.len());
    for id in ["k0", "k1"] {
        assert_eq!(row(id)["expires_at"], "2026-01-01T00:00:00Z");
    }
    for id in ["k2", "k3"] {
        assert_eq!(row(id)["require_origin"], true);
    }
    for id in ["k4", "k5"] {
        assert_eq!(row(id)["origins"], serde_json::json!([app]));
    }
    assert_eq!(
        (&row("k8")["origins"], &row("k8")["restricted"]),
        (&serde_json::json!([]), &true.into())
    );
}

#[test]
fn a_rotated_key_that_the_file_declares_too_ends_after_its_overlap() {
    let gateway = start_with_key_file("# none yet\n");
    let token = "sv_that_is_rotated_soon";
    let key =
        format!("[[key]]\nid = \"r\"\naccount = \"a\"\nhash = \"sha256:{}\"\n", sha256_hex(token));
    let import = gateway.path("import.toml");
    std::fs::write(&import, &key).unwrap();
    std::fs::write(gateway.path("keys.toml"), &key).unwrap();
    gateway.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
    wait_until("the key is accepted", || is_key_accepted(&gateway, token));
    let new = gateway.cli(&["keys", "rotate", "r", "--overlap", "1s"]).expect(0);
    wait_until("the old key is refused", || !is_key_accepted(&gateway, token));
    assert!(is_key_accepted(&gateway, new.stdout.trim_end()));
    let gateway = gateway.restart();
    assert!(!is_key_accepted(&gateway, token), "the same after a restart");
}

#[test]
fn a_rotated_key_keeps_what_the_file_restricts() {
    let gateway = start_with_key_file("# none yet\n");
    let token = "sv_that_the_file_restricts";
    let hash = sha256_hex(token);
    let key = format!("[[key]]\nid = \"r\"\naccount = \"a\"\nhash = \"sha256:{hash}\"\n");
    let import = gateway.path("import.toml");
    std::fs::write(&import, &key).unwrap();
    gateway.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
    let app = "https://app.example.com";
    let restricted = format!("{key}origins = [\"{app}\"]\nrequire_origin = true\n");
    std::fs::write(gateway.path("keys.toml"), restricted).unwrap();
    let new = gateway.cli(&["keys", "rotate", "r", "--overlap", "1h"]).expect(0);
    let new = new.stdout.trim_end();
    let status = |origin: Option<&str>| {
        let request = crate::harness::get("/v1/usage").key(new);
        let request = match origin {
            Some(origin) => request.with_header("Origin", origin),
            None => request,
        };
        gateway.send_request(&request).status
    };
    wait_until("the new key works", || status(Some(app)) == 200);
    assert_eq!((status(None), status(Some("https://other.example.com"))), (403, 403));
}

#[test]
fn a_changed_key_file_takes_effect_and_a_broken_one_keeps_the_last_keys() {
    let gateway = start_with_key_file(&key_file_with_three_keys());
    let file = gateway.path("keys.toml");
    let env = "sv_from_the_environment";
    assert!(is_key_accepted(&gateway, env));
    std::fs::write(&file, "[[key]]\nid = \"broken\n").unwrap();
    wait_until("/readyz reports the broken file", || {
        gateway.readyz().text().contains("keys.toml:2")
    });
    assert!(is_key_accepted(&gateway, env), "the last good keys stay");
    assert_eq!(gateway.readyz().status, 200);
    assert_eq!(gateway.sum_of_samples("riskgate_reload_failing", &["part=\"keys\""]), 1.0);
    // A broken key file does not delay changes in the store.
    let (stored, id) = gateway.create_active_key_with_id("stored", &[]);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("the stored key is refused", || !is_key_accepted(&gateway, &stored));
    assert!(is_key_accepted(&gateway, env));
    std::fs::write(&file, "# No key any more.\n").unwrap();
    wait_until("a file without keys closes them", || !is_key_accepted(&gateway, env));
    wait_until("/readyz reports no fault", || {
        gateway.readyz().json()["degraded"].as_array().unwrap().is_empty()
    });
    assert_eq!(gateway.sum_of_samples("riskgate_reload_failing", &["part=\"keys\""]), 0.0);
}

#[test]
fn the_log_warns_once_of_an_account_that_a_changed_key_file_has() {
    let gateway = start_with_key_file(&key_file_with_three_keys());
    let token = |id: &str| format!("sv_of_the_account_{id}");
    let key = |id: &str, account: &str| {
        let hash = sha256_hex(&token(id));
        format!("[[key]]\nid = \"{id}\"\naccount = \"{account}\"\nhash = \"sha256:{hash}\"\n")
    };
    let mut text = key_file_with_three_keys();
    let keys = [("one", "acme", 0), ("two", "}x", 1), ("three", "acme", 1), ("four", "acme", 1)];
    for (id, account, warnings) in keys {
        text += &key(id, account);
        std::fs::write(gateway.path("keys.toml"), &text).unwrap();
        wait_until("the new key is accepted", || is_key_accepted(&gateway, &token(id)));
        let log = gateway.stderr();
        assert_eq!(log.matches("names of accounts not to begin with }").count(), warnings, "{log}");
    }
}

#[test]
fn a_key_file_with_an_unknown_plan_delays_no_other_key_change() {
    let gateway = start_with_key_file(&key_file_with_three_keys());
    let (env, gold) = ("sv_from_the_environment", "sv_of_an_unknown_plan");
    let (stored, id) = gateway.create_active_key_with_id("stored", &[]);
    let key = |account: &str| {
        let hash = sha256_hex(gold);
        format!(
            "[[key]]\nid = \"g\"\naccount = \"{account}\"\nplan = \"gold\"\nhash = \"sha256:{hash}\"\n"
        )
    };
    let is_healthy = || gateway.readyz().json()["degraded"].as_array().unwrap().is_empty();
    std::fs::write(gateway.path("keys.toml"), key_file_with_three_keys() + &key("golden")).unwrap();
    wait_until("/readyz reports the plan", || gateway.readyz().text().contains("gold"));
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("the stored key is refused", || !is_key_accepted(&gateway, &stored));
    assert!(is_key_accepted(&gateway, env) && !is_key_accepted(&gateway, gold) && !is_healthy());
    // The file becomes valid when the store gets the plan.
    gateway.cli(&["accounts", "set", "golden", "--plan", "pro"]).expect(0);
    wait_until("the key of the file is accepted", || is_key_accepted(&gateway, gold));
    wait_until("no fault is reported", is_healthy);
    // The file becomes valid when the config gets the plan.
    std::fs::write(gateway.path("keys.toml"), key_file_with_three_keys() + &key("other")).unwrap();
    wait_until("/readyz reports the plan again", || gateway.readyz().text().contains("gold"));
    assert!(is_key_accepted(&gateway, gold), "the last good file serves");
    gateway.edit_config(|text| text + "[plans]\nfree = 100\npro = 10000\ngold = 7\n");
    wait_until("no fault is reported", is_healthy);
    assert_eq!(gateway.get(USAGE, gold).json()["monthly_limit"], 7);
}

#[test]
fn a_key_that_only_the_file_has_is_rotated_in_the_file() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let file = setup.path("keys.toml");
    let hash = sha256_hex("sv_a_key_of_the_file");
    let entry = format!("[[key]]\nid = \"filed\"\naccount = \"a\"\nhash = \"sha256:{hash}\"\n");
    std::fs::write(&file, entry).unwrap();
    let setup = setup.set_text("keys.file", &file.display().to_string());
    let named = format!("found filed in {}", file.display());
    let refused = setup.cli(&["keys", "rotate", "filed"]).expect(1).stderr;
    assert!(refused.contains(&named), "without a store: {refused}");
    let gateway = setup.start();
    gateway.create_active_key("acme", &[]);
    let refused = gateway.cli(&["keys", "rotate", "filed"]).expect(1).stderr;
    assert!(
        refused.contains(&named) && refused.contains("add a new key to that file"),
        "{refused}"
    );
    let rotate = |id: &str| {
        let path = format!("/keys/{id}/rotate");
        call_api(&gateway, "POST", &path, &tokens.write, &serde_json::Value::Null)
    };
    assert!(rotate("filed").expect(409).text().contains(&named));
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let of_key = |id: &str| {
        let keys = listed.as_array().unwrap();
        keys.iter().find(|key| (key["id"] == "filed") == (id == "filed")).unwrap().clone()
    };
    assert_eq!(
        (&of_key("filed")["in_store"], &of_key("other")["in_store"]),
        (&false.into(), &true.into())
    );
}
