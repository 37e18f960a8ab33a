//! Keys: made, rotated, revoked, imported and declared while the gateway runs.

use sha2::{Digest, Sha256};

use crate::harness::{Gateway, Setup, get, until_true};

const USAGE: &str = "/v1/usage";

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn opens(gateway: &Gateway, key: &str) -> bool {
    match gateway.get(USAGE, key).status {
        200 => true,
        401 => false,
        status => panic!("{status}"),
    }
}

#[test]
fn a_new_key_has_its_prefix_and_a_checksum_and_opens_on_a_kept_connection() {
    let gateway = Setup::new().start();
    let mut connection = gateway.connect();
    connection.ask(&get(USAGE)).expect(401);
    let made = gateway.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let key = made.stdout.strip_suffix('\n').unwrap().to_owned();
    let random = key.strip_prefix("rg_").expect("the prefix");
    assert_eq!(random.len(), 32);
    assert!(random.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(crc32_base62(&key[..key.len() - 6]), key[key.len() - 6..]);
    assert!(made.stderr.contains("acme") && !made.stderr.contains(&key), "{}", made.stderr);
    until_true("the key opens on the connection that was there before", || {
        connection.ask(&get(USAGE).key(&key)).status == 200
    });
}

/// Six base62 digits, most significant first, of the CRC-32 of a text.
fn crc32_base62(text: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = crc32fast::hash(text.as_bytes()) as usize;
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[rest % 62];
        rest /= 62;
    }
    String::from_utf8(digits.to_vec()).unwrap()
}

#[test]
fn the_prefix_of_new_keys_is_a_setting() {
    let gateway = Setup::new().text("keys.prefix", "acme_live_").start();
    let key = gateway.key("acme", &[]);
    assert!(key.starts_with("acme_live_") && key.len() == 42, "{}", key.len());
}

#[test]
fn a_revoked_key_closes_on_a_kept_connection_and_others_stay_open() {
    let gateway = Setup::new().start();
    let (key, id) = gateway.key_with_id("acme", &[]);
    let other = gateway.key("acme", &[]);
    let mut connection = gateway.connect();
    connection.ask(&get(USAGE).key(&key)).expect(200);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    until_true("the key is out", || connection.ask(&get(USAGE).key(&key)).status == 401);
    connection.ask(&get(USAGE).key(&other)).expect(200);
    let gateway = gateway.restart();
    assert!(!opens(&gateway, &key) && opens(&gateway, &other));
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let mine = listed.as_array().unwrap().iter().find(|row| row["id"] == id.as_str()).unwrap();
    assert!(mine["revoked_at"].is_string());
}

#[test]
fn a_rotated_key_works_beside_its_successor_until_the_overlap_ends() {
    let gateway = Setup::new().start();
    let (old, id) = gateway.key_with_id("acme", &["--label", "web", "--origin", "https://a.com"]);
    let new = gateway.cli(&["keys", "rotate", &id, "--overlap", "7d"]).expect(0);
    let new = new.stdout.trim_end().to_owned();
    until_true("the new key opens", || opens(&gateway, &new));
    assert!(opens(&gateway, &old), "the overlap has only begun");
    let evil = |key: &str| get(USAGE).key(key).with("Origin", "https://evil.example");
    gateway.ask(&evil(&new)).expect(403);
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let rows = listed.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((&row["account"], &row["label"]), (&"acme".into(), &"web".into()));
        assert_eq!(row["expires_at"].is_string(), row["id"] == id.as_str(), "{row}");
    }
    let third = gateway.cli(&["keys", "rotate", &id, "--overlap", "0"]).expect(0);
    until_true("the old key has ended", || !opens(&gateway, &old));
    assert!(opens(&gateway, &new) && opens(&gateway, third.stdout.trim_end()));
}

#[test]
fn a_key_ends_when_it_expires_without_anybody_doing_anything() {
    let gateway = Setup::new().start();
    let key = gateway.key("acme", &["--expires", "2s"]);
    assert!(opens(&gateway, &key));
    until_true("the key has expired", || !opens(&gateway, &key));
    let long = gateway.key("acme", &["--expires", "90d"]);
    assert!(opens(&gateway, &long));
    gateway.cli(&["keys", "create", "--account", "a", "--expires", "soon"]).expect(2);
}

#[test]
fn keys_made_elsewhere_can_be_imported_all_or_none() {
    let gateway = Setup::new().start();
    let (first, second) = ("sv_live_0123456789abcdef", "any-token+of/visible=ASCII~16");
    let file = gateway.path("import.toml");
    let key = |id: &str, token: &str, more: &str| {
        format!(
            "[[key]]\nid = \"{id}\"\naccount = \"old\"\nhash = \"sha256:{}\"\n{more}",
            sha256(token)
        )
    };
    let path = file.to_str().unwrap();
    std::fs::write(&file, key("a", first, "plan = \"pro\"\n") + "[[key]]\nid = \"b\"\n").unwrap();
    let refused = gateway.cli(&["keys", "import", path]).expect(78);
    assert!(refused.stderr.contains(&format!("{path}:")), "{}", refused.stderr);
    assert_eq!(gateway.cli(&["keys", "list", "--json"]).json(), serde_json::json!([]));
    let both = key("a", first, "plan = \"pro\"\n") + &key("b", second, "plan = \"pro\"\n");
    std::fs::write(&file, both).unwrap();
    let imported = gateway.cli(&["keys", "import", path, "--json"]).expect(0).json();
    assert_eq!(imported, serde_json::json!(["a", "b"]));
    for token in [first, second] {
        until_true("the imported key opens", || opens(&gateway, token));
        assert_eq!(gateway.get(USAGE, token).json()["plan"], "pro");
    }
}

#[test]
fn tokens_of_16_to_256_visible_characters_work_and_others_do_not() {
    let gateway = Setup::new();
    let tokens = ["t".repeat(16), "t".repeat(256), "!#$%&'()*+-./:;<=>?@[]^_`{|}~".to_owned()];
    let short = "t".repeat(15);
    let mut file = String::new();
    for (at, token) in tokens.iter().chain([&short]).enumerate() {
        let hash = sha256(token);
        file += &format!("[[key]]\nid = \"k{at}\"\naccount = \"acme\"\nhash = \"sha256:{hash}\"\n");
    }
    std::fs::write(gateway.path("keys.toml"), file).unwrap();
    let path = gateway.path("keys.toml").display().to_string();
    let gateway = gateway.text("keys.file", &path).start();
    for token in &tokens {
        assert!(opens(&gateway, token), "{token}");
        // No key is ever an id, whoever says it: ids are logged.
        let named = gateway.ask(&get("/nowhere").with("X-Request-Id", token));
        assert_ne!(named.header("X-Request-Id"), Some(token.as_str()));
    }
    // Nor does one stand in an id.
    for token in [gateway.key("made", &[]), "t".repeat(16)] {
        let id = format!("job-{token}.1");
        let named = gateway.ask(&get("/nowhere").with("X-Request-Id", &id));
        assert_ne!(named.header("X-Request-Id"), Some(id.as_str()));
    }
    assert!(!opens(&gateway, &short));
}

fn with_file(text: &str) -> Gateway {
    let setup = Setup::new().variable("WEB_KEY_OF_TESTS", "sv_from_the_environment");
    let path = setup.path("keys.toml");
    std::fs::write(&path, text).unwrap();
    setup.text("keys.file", &path.display().to_string()).start()
}

fn declared() -> String {
    format!(
        "[[key]]\nid = \"by-hash\"\naccount = \"filed\"\nplan = \"pro\"\nhash = \"sha256:{}\"\n\
         origins = [\"https://app.example.com\"]\nrequire_origin = true\n\
         [[key]]\nid = \"by-env\"\naccount = \"filed\"\nenv = \"WEB_KEY_OF_TESTS\"\n\
         [[key]]\nid = \"ended\"\naccount = \"filed\"\nhash = \"sha256:{}\"\n\
         expires = \"2026-01-01T00:00:00Z\"\n",
        sha256("sv_the_key_by_its_hash"),
        sha256("sv_the_key_that_ended"),
    )
}

#[test]
fn a_key_file_declares_keys_by_hash_or_variable_beside_those_of_the_store() {
    let gateway = with_file(&declared());
    let (hash, env) = ("sv_the_key_by_its_hash", "sv_from_the_environment");
    gateway.get(USAGE, hash).expect(403);
    let app = get(USAGE).key(hash).with("Origin", "https://app.example.com");
    assert_eq!(gateway.ask(&app).expect(200).json()["plan"], "pro");
    assert!(opens(&gateway, env) && !opens(&gateway, "sv_the_key_that_ended"));
    let stored = gateway.key("stored", &[]);
    assert!(opens(&gateway, &stored) && opens(&gateway, env), "both sources form one ring");
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 4);
    // One account, one quota, whichever source a key is from.
    gateway.domain("first.test", env).expect(200);
    assert_eq!(gateway.ask(&app).json()["month_count"], 1);
}

#[test]
fn revoked_in_either_source_is_revoked() {
    let gateway = with_file(&declared());
    let env = "sv_from_the_environment";
    assert!(opens(&gateway, env));
    gateway.cli(&["keys", "revoke", "by-env"]).expect(0);
    until_true("the declared key is out", || !opens(&gateway, env));
    let gateway = gateway.restart();
    assert!(!opens(&gateway, env), "the file still declares it, and it stays revoked");

    let token = "sv_revoked_by_the_file";
    let key =
        format!("[[key]]\nid = \"x\"\naccount = \"a\"\nhash = \"sha256:{}\"\n", sha256(token));
    let import = gateway.path("import.toml");
    std::fs::write(&import, &key).unwrap();
    gateway.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
    until_true("the imported key opens", || opens(&gateway, token));
    let revoked = format!("{}{key}revoked = \"2026-01-01T00:00:00Z\"\n", declared());
    std::fs::write(gateway.path("keys.toml"), revoked).unwrap();
    until_true("the key revoked in the file is out", || !opens(&gateway, token));
}

#[test]
fn a_key_in_the_store_and_in_the_file_is_as_the_stricter_of_both_says() {
    let setup = Setup::new();
    let token = |n: u8| format!("sv_in_both_places_{n}");
    let key = |n: u8, more: &str| {
        let hash = sha256(&token(n));
        format!("[[key]]\nid = \"k{n}\"\naccount = \"a\"\nhash = \"sha256:{hash}\"\n{more}")
    };
    let past = "expires = \"2026-01-01T00:00:00Z\"\n";
    let wide = "origins = [\"https://*.example.com\", \"https://one.example.org\"]\n";
    let narrow = "origins = [\"https://app.example.com\", \"https://two.example.org\"]\n";
    let apart = "origins = [\"https://elsewhere.example.net\"]\n";
    let asks = "require_origin = true\n";
    // In the store, and in the file.
    let rows = [("", past), (past, ""), ("", asks), (asks, ""), (wide, narrow), (narrow, wide)];
    let rows: Vec<_> = rows.into_iter().chain([(wide, ""), ("", narrow), (wide, apart)]).collect();
    let text = |of: &dyn Fn(&(&'static str, &'static str)) -> &'static str| -> String {
        rows.iter().zip(0..).map(|(row, n)| key(n, of(row))).collect()
    };
    let (import, file) = (setup.path("import.toml"), setup.path("keys.toml"));
    std::fs::write(&import, text(&|row| row.0)).unwrap();
    std::fs::write(&file, text(&|row| row.1)).unwrap();
    setup.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
    let gateway = setup.text("keys.file", &file.display().to_string()).start();
    let plain = |n: u8| gateway.get(USAGE, &token(n)).status;
    let from =
        |n: u8, origin: &str| gateway.ask(&get(USAGE).key(&token(n)).with("Origin", origin)).status;
    let app = "https://app.example.com";
    assert_eq!([plain(0), plain(1)], [401, 401], "it ends when either says");
    for n in [2, 3] {
        assert_eq!((plain(n), from(n, app)), (403, 200), "either asks for an origin");
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
    // The list says what is in force.
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
    let gateway = with_file("# none yet\n");
    let token = "sv_that_is_rotated_soon";
    let key =
        format!("[[key]]\nid = \"r\"\naccount = \"a\"\nhash = \"sha256:{}\"\n", sha256(token));
    let import = gateway.path("import.toml");
    std::fs::write(&import, &key).unwrap();
    std::fs::write(gateway.path("keys.toml"), &key).unwrap();
    gateway.cli(&["keys", "import", import.to_str().unwrap()]).expect(0);
    until_true("the key opens", || opens(&gateway, token));
    let new = gateway.cli(&["keys", "rotate", "r", "--overlap", "1s"]).expect(0);
    until_true("the old key has ended", || !opens(&gateway, token));
    assert!(opens(&gateway, new.stdout.trim_end()));
    let gateway = gateway.restart();
    assert!(!opens(&gateway, token), "also after a restart");
}

#[test]
fn a_changed_key_file_is_in_effect_and_a_broken_one_changes_nothing() {
    let gateway = with_file(&declared());
    let file = gateway.path("keys.toml");
    let env = "sv_from_the_environment";
    assert!(opens(&gateway, env));
    std::fs::write(&file, "[[key]]\nid = \"broken\n").unwrap();
    until_true("/readyz tells of the broken file", || {
        gateway.readyz().text().contains("keys.toml:2")
    });
    assert!(opens(&gateway, env), "the last good keys stay");
    assert_eq!(gateway.readyz().status, 200);
    assert_eq!(gateway.metric("riskgate_reload_failing", &["part=\"keys\""]), 1.0);
    // A broken file does not hold back the store.
    let (stored, id) = gateway.key_with_id("stored", &[]);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    until_true("the stored key is out", || !opens(&gateway, &stored));
    assert!(opens(&gateway, env));
    std::fs::write(&file, "# No key any more.\n").unwrap();
    until_true("a file without keys closes them", || !opens(&gateway, env));
    until_true("/readyz is content again", || {
        gateway.readyz().json()["degraded"].as_array().unwrap().is_empty()
    });
    assert_eq!(gateway.metric("riskgate_reload_failing", &["part=\"keys\""]), 0.0);
}

#[test]
fn a_key_file_that_does_not_go_with_the_rest_waits_and_holds_nothing_back() {
    let gateway = with_file(&declared());
    let (env, gold) = ("sv_from_the_environment", "sv_of_an_unknown_plan");
    let (stored, id) = gateway.key_with_id("stored", &[]);
    let key = |account: &str| {
        let hash = sha256(gold);
        format!(
            "[[key]]\nid = \"g\"\naccount = \"{account}\"\nplan = \"gold\"\nhash = \"sha256:{hash}\"\n"
        )
    };
    let content = || gateway.readyz().json()["degraded"].as_array().unwrap().is_empty();
    std::fs::write(gateway.path("keys.toml"), declared() + &key("golden")).unwrap();
    until_true("/readyz tells of the plan", || gateway.readyz().text().contains("gold"));
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    until_true("the stored key is out", || !opens(&gateway, &stored));
    assert!(opens(&gateway, env) && !opens(&gateway, gold) && !content());
    // It goes with a plan that was set in the store.
    gateway.cli(&["accounts", "set", "golden", "--plan", "pro"]).expect(0);
    until_true("the key of the file opens", || opens(&gateway, gold));
    assert!(content());
    // Or with one that comes into the config.
    std::fs::write(gateway.path("keys.toml"), declared() + &key("other")).unwrap();
    until_true("/readyz tells of the plan again", || gateway.readyz().text().contains("gold"));
    assert!(opens(&gateway, gold), "the last good file serves");
    gateway.rewrite(|text| text + "[plans]\nfree = 100\npro = 10000\ngold = 7\n");
    until_true("all is well", content);
    assert_eq!(gateway.get(USAGE, gold).json()["monthly_limit"], 7);
}

#[test]
fn no_key_is_ever_stored_or_listed() {
    let gateway = Setup::new().start();
    let (key, id) = gateway.key_with_id("acme", &["--label", "web"]);
    gateway.domain("first.test", &key).expect(200);
    for arguments in [&["keys", "list"][..], &["keys", "list", "--json"], &["accounts", "list"]] {
        let listed = gateway.cli(arguments).expect(0);
        assert!(!listed.stdout.contains(&key) && !listed.stderr.contains(&key));
        assert!(!listed.stdout.contains(&sha256(&key)), "nor what it could be compared with");
    }
    assert!(gateway.cli(&["keys", "list"]).stdout.contains(&id));
    let (stderr, metrics, page) = (gateway.stderr(), gateway.metrics(), gateway.admin("/").text());
    assert!(!stderr.contains(&key) && !metrics.contains(&key) && !page.contains(&key));
    let gateway = gateway.restart();
    for entry in std::fs::read_dir(gateway.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(key.len()).any(|window| window == key.as_bytes());
            assert!(!found, "the key stands in {}", path.display());
        }
    }
}

#[test]
fn a_store_that_was_emptied_closes_no_door() {
    let gateway = Setup::new().start();
    let key = gateway.key("acme", &[]);
    let store = rusqlite::Connection::open(gateway.path("riskgate.db")).unwrap();
    // As after a restore of an old backup: the keys are gone, and the version with them.
    store
        .execute_batch("DELETE FROM api_key; UPDATE meta SET value = 1 WHERE key = 'ring_version'")
        .unwrap();
    until_true("stderr tells that the store lost something", || {
        gateway.stderr().contains("the store lost changes of keys or accounts")
    });
    assert!(opens(&gateway, &key), "the last good keys stay");
    until_true("the keys are written back", || {
        let count = "SELECT count(*) FROM api_key";
        store.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap() == 1
    });
    let gateway = gateway.restart();
    assert!(opens(&gateway, &key), "also after a restart");
}
