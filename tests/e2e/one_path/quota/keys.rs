//! Keys: created, rotated, revoked, imported and declared while the gateway runs.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::harness::{Gateway, MockUpstream, Setup, get, request, run_command, wait_until};

pub const USAGE: &str = "/v1/usage";

pub fn sha256_hex(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

pub fn is_key_accepted(gateway: &Gateway, key: &str) -> bool {
    match gateway.get(USAGE, key).status {
        200 => true,
        401 => false,
        status => panic!("{status}"),
    }
}

#[test]
fn a_new_key_has_its_prefix_and_a_checksum_and_is_accepted_on_a_kept_connection() {
    let gateway = Setup::new().start();
    let mut connection = gateway.connect();
    connection.send_request(&get(USAGE)).expect(401);
    let made = gateway.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let key = made.stdout.strip_suffix('\n').unwrap().to_owned();
    let random = key.strip_prefix("rg_").expect("the prefix");
    assert_eq!(random.len(), 32);
    assert!(random.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(crc32_base62(&key[..key.len() - 6]), key[key.len() - 6..]);
    assert!(made.stderr.contains("acme") && !made.stderr.contains(&key), "{}", made.stderr);
    wait_until("the existing connection accepts the key", || {
        connection.send_request(&get(USAGE).key(&key)).status == 200
    });
}

/// The CRC-32 of a text in six base62 digits, most significant digit first.
fn crc32_base62(text: &str) -> String {
    const BASE62_DIGITS: &[u8; 62] =
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = crc32fast::hash(text.as_bytes()) as usize;
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62_DIGITS[rest % 62];
        rest /= 62;
    }
    String::from_utf8(digits.to_vec()).unwrap()
}

#[test]
fn the_prefix_of_new_keys_is_a_setting() {
    let gateway = Setup::new().set_text("keys.prefix", "acme_live_").start();
    let key = gateway.create_active_key("acme", &[]);
    assert!(key.starts_with("acme_live_") && key.len() == 42, "{}", key.len());
}

#[test]
fn a_revoked_key_is_refused_on_a_kept_connection_and_others_are_not() {
    let gateway = Setup::new().start();
    let (key, id) = gateway.create_active_key_with_id("acme", &[]);
    let other = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    connection.send_request(&get(USAGE).key(&key)).expect(200);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    wait_until("the key is refused", || {
        connection.send_request(&get(USAGE).key(&key)).status == 401
    });
    connection.send_request(&get(USAGE).key(&other)).expect(200);
    let gateway = gateway.restart();
    assert!(!is_key_accepted(&gateway, &key) && is_key_accepted(&gateway, &other));
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let listed_key =
        listed.as_array().unwrap().iter().find(|row| row["id"] == id.as_str()).unwrap();
    assert!(listed_key["revoked_at"].is_string());
    // Whoever revokes it again learns since when it has been revoked.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let again = gateway.cli(&["keys", "revoke", &id, "--json"]).expect(0).json();
    assert_eq!(again["revoked_at"], listed_key["revoked_at"]);
}

#[test]
fn a_rotated_key_works_beside_its_successor_until_the_overlap_ends() {
    let gateway = Setup::new().start();
    let (old, id) =
        gateway.create_active_key_with_id("acme", &["--label", "web", "--origin", "https://a.com"]);
    let new = gateway.cli(&["keys", "rotate", &id, "--overlap", "7d"]).expect(0);
    let new = new.stdout.trim_end().to_owned();
    wait_until("the new key is accepted", || is_key_accepted(&gateway, &new));
    assert!(is_key_accepted(&gateway, &old), "the overlap has only begun");
    let evil = |key: &str| get(USAGE).key(key).with_header("Origin", "https://evil.example");
    gateway.send_request(&evil(&new)).expect(403);
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let rows = listed.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((&row["account"], &row["label"]), (&"acme".into(), &"web".into()));
        assert_eq!(row["expires_at"].is_string(), row["id"] == id.as_str(), "{row}");
    }
    let third = gateway.cli(&["keys", "rotate", &id, "--overlap", "0"]).expect(0);
    // The end of the overlap is no end of a key that replaces it.
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let has_end = |row: &&Value| row["expires_at"].is_string();
    assert_eq!(listed.as_array().unwrap().iter().filter(has_end).count(), 1, "{listed}");
    wait_until("the old key is refused", || !is_key_accepted(&gateway, &old));
    assert!(is_key_accepted(&gateway, &new) && is_key_accepted(&gateway, third.stdout.trim_end()));
}

#[test]
fn each_key_that_replaces_another_lasts_as_long_as_that_one_was_to_last() {
    let gateway = Setup::new().start();
    let (_, id) = gateway.create_active_key_with_id("acme", &["--expires", "90d"]);
    for _ in 0..3 {
        gateway.cli(&["keys", "rotate", &id, "--overlap", "1d"]).expect(0);
    }
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    let term = |row: &Value| {
        let second = |name: &str| {
            row[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
        };
        second("expires_at") - second("created_at")
    };
    let terms: Vec<i64> = listed.as_array().unwrap().iter().map(term).collect();
    assert_eq!(terms.iter().filter(|term| **term == 90 * 86_400).count(), 3, "{terms:?}");
}

#[test]
fn a_key_is_refused_once_it_has_expired() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &["--expires", "2s"]);
    assert!(is_key_accepted(&gateway, &key));
    wait_until("the key has expired", || !is_key_accepted(&gateway, &key));
    let long = gateway.create_active_key("acme", &["--expires", "90d"]);
    assert!(is_key_accepted(&gateway, &long));
    gateway.cli(&["keys", "create", "--account", "a", "--expires", "soon"]).expect(2);
}

#[test]
fn keys_import_imports_all_keys_of_a_file_or_none() {
    let gateway = Setup::new().start();
    let (first, second) = ("sv_live_0123456789abcdef", "any-token+of/visible=ASCII~16");
    let file = gateway.path("import.toml");
    let key = |id: &str, token: &str, more: &str| {
        format!(
            "[[key]]\nid = \"{id}\"\naccount = \"old\"\nhash = \"sha256:{}\"\n{more}",
            sha256_hex(token)
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
        wait_until("the imported key is accepted", || is_key_accepted(&gateway, token));
        assert_eq!(gateway.get(USAGE, token).json()["plan"], "pro");
    }
}

#[test]
fn a_new_account_does_not_begin_with_a_closing_brace_and_a_known_one_may() {
    let setup = Setup::new();
    let (file, import) = (setup.path("keys.toml"), setup.path("import.toml"));
    let entry = |id: &str, account: &str| {
        let hash = sha256_hex(id);
        format!("[[key]]\nid = \"{id}\"\naccount = \"{account}\"\nhash = \"sha256:{hash}\"\n")
    };
    std::fs::write(&file, entry("known", "}known")).unwrap();
    std::fs::write(&import, entry("one", "acme") + &entry("two", "}imported")).unwrap();
    let gateway = setup.set_text("keys.file", &file.display().to_string()).start();
    let import = import.to_str().unwrap();
    for (words, exit_code) in [
        (&["keys", "create", "--account", "}new"][..], 2),
        (&["accounts", "set", "}new", "--limit", "5"], 2),
        (&["keys", "import", import], 78),
    ] {
        let refused = gateway.cli(words).expect(exit_code).stderr;
        assert!(refused.contains("not to begin with }"), "{words:?}: {refused}");
    }
    assert!(!gateway.cli(&["keys", "list"]).expect(0).stdout.contains("one"));
    gateway.cli(&["accounts", "set", "}known", "--limit", "5"]).expect(0);
    let key = gateway.create_active_key("}known", &[]);
    assert_eq!(gateway.get(USAGE, &key).json()["monthly_limit"], 5);
}

#[test]
fn keys_of_16_to_256_visible_characters_work_and_shorter_ones_do_not() {
    let gateway = Setup::new();
    let tokens = ["t".repeat(16), "t".repeat(256), "!#$%&'()*+-./:;<=>?@[]^_`{|}~".to_owned()];
    let short = "t".repeat(15);
    let mut file = String::new();
    for (at, token) in tokens.iter().chain([&short]).enumerate() {
        let hash = sha256_hex(token);
        file += &format!("[[key]]\nid = \"k{at}\"\naccount = \"acme\"\nhash = \"sha256:{hash}\"\n");
    }
    std::fs::write(gateway.path("keys.toml"), file).unwrap();
    let path = gateway.path("keys.toml").display().to_string();
    let gateway = gateway.set_text("keys.file", &path).start();
    for token in &tokens {
        assert!(is_key_accepted(&gateway, token), "{token}");
        // riskgate accepts no key text as an id, because it logs ids.
        let named = gateway.send_request(&get("/nowhere").with_header("X-Request-Id", token));
        assert_ne!(named.header("X-Request-Id"), Some(token.as_str()));
    }
    // An id may not contain a key either.
    for token in [gateway.create_active_key("made", &[]), "t".repeat(16)] {
        let id = format!("job-{token}.1");
        let named = gateway.send_request(&get("/nowhere").with_header("X-Request-Id", &id));
        assert_ne!(named.header("X-Request-Id"), Some(id.as_str()));
    }
    assert!(!is_key_accepted(&gateway, &short));
}

#[test]
fn the_text_of_a_key_is_never_stored_or_listed() {
    let gateway = Setup::new().start();
    let (key, id) = gateway.create_active_key_with_id("acme", &["--label", "web"]);
    gateway.get_domain("first.test", &key).expect(200);
    for arguments in [&["keys", "list"][..], &["keys", "list", "--json"], &["accounts", "list"]] {
        let listed = gateway.cli(arguments).expect(0);
        assert!(!listed.stdout.contains(&key) && !listed.stderr.contains(&key));
        assert!(!listed.stdout.contains(&sha256_hex(&key)), "the list shows no hash of the key");
    }
    assert!(gateway.cli(&["keys", "list"]).stdout.contains(&id));
    let (stderr, metrics, page) =
        (gateway.stderr(), gateway.metrics(), gateway.get_admin_page("/").text());
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
fn known_keys_stay_valid_if_the_store_is_emptied() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    let store = rusqlite::Connection::open(gateway.path("riskgate.db")).unwrap();
    // As after a restored old backup: the store has lost the keys and the version of the key ring.
    store
        .execute_batch("DELETE FROM api_key; UPDATE meta SET value = 1 WHERE key = 'ring_version'")
        .unwrap();
    wait_until("stderr reports that the store lost changes", || {
        gateway.stderr().contains("the store lost changes of keys or accounts")
    });
    assert!(is_key_accepted(&gateway, &key), "the last good keys stay");
    wait_until("the keys are written back", || {
        let count = "SELECT count(*) FROM api_key";
        store.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap() == 1
    });
    let gateway = gateway.restart();
    assert!(is_key_accepted(&gateway, &key), "the same after a restart");
}

#[test]
fn a_new_key_changes_no_plan_and_keys_are_listed_by_account() {
    let setup = Setup::new().set("plans.free", "5").set("plans.gold", "9");
    setup.cli(&["keys", "create", "--account", "acme", "--plan", "gold"]).expect(0);
    setup.cli(&["keys", "create", "--account", "other"]).expect(0);
    setup.cli(&["keys", "create", "--account", "acme", "--plan", "gold"]).expect(0);
    let refused = setup.cli(&["keys", "create", "--account", "acme", "--plan", "free"]).expect(1);
    let hint = "--plan: expected gold, the plan of the account acme, but found free; to change it: \
                riskgate accounts set acme --plan free";
    assert!(refused.stderr.contains(hint), "{}", refused.stderr);
    setup.cli(&["keys", "create", "--account", "other", "--plan", "gold"]).expect(1);
    let count = |words: &[&str]| setup.cli(words).expect(0).json().as_array().unwrap().len();
    assert_eq!(count(&["keys", "list", "--json"]), 3);
    assert_eq!(count(&["keys", "list", "--json", "--account", "acme"]), 2);
    let unknown = setup.cli(&["keys", "list", "--json", "--account", "nobody"]).expect(1);
    assert!(unknown.stderr.contains("but found \"nobody\""), "{}", unknown.stderr);
}

#[test]
fn a_key_may_be_in_a_field_of_its_own() {
    let upstream = MockUpstream::start();
    for fast_path in ["true", "false"] {
        let setup = Setup::new().with_upstreams(&[upstream.address]);
        let setup = setup.set_text("keys.header", "X-Api-Key").set("listen.fast_path", fast_path);
        let setup = setup.set("listen.h2c", "true");
        let gateway = setup.start();
        let page = "https://app.example.com";
        let key = gateway.create_active_key("acme", &["--origin", page]);
        let other = gateway.create_active_key("other", &[]);
        let unknown = "rg_00000000000000000000000000000000";
        for target in ["/v1/usage", "/v1/public/domain/gmail.com", "/v1/check/a%40gmail.com"] {
            let by_field = |key: &str| get(target).with_header("x-api-key", key);
            gateway.send_request(&get(target)).expect(401);
            gateway.send_request(&get(target).key(&key)).expect(200);
            gateway.send_request(&by_field(&key)).expect(200);
            gateway.send_request(&by_field(&key).with_header("X-Api-Key", &key)).expect(401);
            gateway.send_request(&by_field(unknown).key(&key)).expect(401);
            gateway.send_request(&by_field(&key).key(unknown)).expect(401);
            gateway.send_request(&by_field(&key).key(&other)).expect(401);
            gateway.send_request(&by_field(&key).key(&key)).expect(200);
            let with_basic = by_field(&key).with_header("Authorization", "Basic abc");
            gateway.send_request(&with_basic).expect(401);
            gateway.send_request(&by_field(&format!("Bearer {key}"))).expect(401);
            let secret = "a-secret-that-is-no-key-of-ours";
            let traced = by_field(secret).with_header("X-Request-Id", secret);
            assert_ne!(
                gateway.send_request(&traced).expect(401).header("X-Request-Id"),
                Some(secret)
            );
            let mut curl = std::process::Command::new("curl");
            curl.args(["-s", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}"]);
            curl.args(["-H", &format!("X-Api-Key: {key}")]);
            curl.arg(format!("http://{}{target}", gateway.http));
            assert_eq!(run_command(&mut curl).expect(0).stdout, "200", "{target}");
        }
        let seen = upstream.last_request();
        assert!(!seen.head.contains(&key), "{}", seen.head);
        let preflight = request("OPTIONS", "/v1/usage").with_header("Origin", page);
        let preflight = preflight.with_header("Access-Control-Request-Method", "GET");
        let allowed = gateway.send_request(&preflight).expect(204);
        let fields = allowed.header("Access-Control-Allow-Headers").unwrap();
        assert_eq!(fields, "Authorization, Content-Type, Traceparent, X-Request-Id, x-api-key");
    }
}
