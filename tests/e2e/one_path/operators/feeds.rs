//! Feeds: riskgate fetches lists that others maintain, from a server that makes many kinds of
//! mistakes.

mod held_lock;
mod list_server;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{CertificateAuthority, Gateway, SetOnDrop, Setup, wait_until};

use list_server::{
    ListServer, encoded_response, list_response, names_of_day, response_text, response_until_close,
};

fn feed_toml(name: &str, url: &str, more: &str) -> String {
    format!("\n[[table.feed]]\nname = \"{name}\"\nurl = \"{url}\"\ntier = \"a\"\n{more}\n")
}

fn feed_setup() -> Setup {
    feed_setup_on(Setup::new())
}

fn feed_setup_on(setup: Setup) -> Setup {
    let setup = setup.set("plans.free", "\"unlimited\"");
    let folder = setup.path("feeds").display().to_string();
    setup.set_text("table.feed_dir", &folder)
}

fn is_flagged(gateway: &Gateway, key: &str, name: &str) -> bool {
    let body = gateway.get_domain(name, key).expect(200).json();
    body["reason"] == "disposable" && body["risk_score"] == 100
}

/// Returns true if the table contains the list of this day and of no other.
fn serves_list_of_day(gateway: &Gateway, key: &str, day: usize) -> bool {
    let name = |n: usize| format!("abused-{n}-test-feed.com");
    is_flagged(gateway, key, &name(5 * day))
        && is_flagged(gateway, key, &name(5 * day + 59))
        && !is_flagged(gateway, key, &name(5 * day + 60))
}

fn feed_problem(gateway: &Gateway) -> String {
    let status = gateway.get_admin_page("/status").json();
    status["feeds"][0]["problem"].as_str().unwrap_or_default().to_owned()
}

/// Responses that riskgate refuses while it has the list of day 0, and the reported problem of
/// each.
fn bad_responses() -> [(String, &'static str); 10] {
    let day_1 = names_of_day(1).join("\n");
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{day_1}", 2 * day_1.len());
    let mut with_gmail = names_of_day(1);
    with_gmail.push("gmail.com".to_owned());
    [
        (response_text("500 Oh", "x.com"), "expected status 200, but found 500"),
        (long, "list.txt: expected the whole list"),
        (response_text("200 OK", "<html><body>Sign in</body></html>"), "but found HTML"),
        (response_text("200 OK", ""), "but found an empty one"),
        (response_text("200 OK", "not a list\nof any\nnames at all\n"), "lines that are none"),
        (response_until_close(&day_1), "expected the whole list, but found a part"),
        (
            list_response(&[names_of_day(1), vec!["<html>502".to_owned()]].concat(), ""),
            "but found HTML",
        ),
        (list_response(&with_gmail, ""), "expected no protected name, but found gmail.com"),
        (
            list_response(&names_of_day(0)[..20], ""),
            "expected at most 30 of 60 rows to be added and to be removed",
        ),
        (list_response(&names_of_day(40), ""), "60 new and 60 gone"),
    ]
}

#[test]
fn a_feed_follows_daily_lists_and_keeps_its_last_good_list_after_bad_ones() {
    let server = ListServer::start();
    server
        .responses
        .lock()
        .unwrap()
        .push_back(list_response(&names_of_day(0), "ETag: \"day-0\"\r\n").into());
    let gateway = feed_setup_on(Setup::with_bundled_table())
        .append_toml(&feed_toml("daily", &server.url(), "interval = \"1s\""))
        .start();
    let key = gateway.create_active_key("acme", &[]);
    wait_until("the first list is in the table", || serves_list_of_day(&gateway, &key, 0));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop_guard = SetOnDrop(&is_done);
        // The name is in the list of day 0 only. Each table version must always give the same
        // score.
        scope.spawn(|| {
            let mut seen = std::collections::BTreeMap::new();
            while !is_done.load(Ordering::SeqCst) {
                let answer = gateway.get_domain("abused-7-test-feed.com", &key).expect(200);
                let version = answer.header("X-Table-Version").unwrap().to_owned();
                let score = answer.json()["risk_score"].as_u64().unwrap();
                assert_eq!(*seen.entry(version).or_insert(score), score);
                assert!(score == 100 || score == 10, "{score}");
            }
        });
        server.respond_with("HTTP/1.1 304 Not Modified\r\n\r\n");
        assert!(
            server
                .request_headers
                .lock()
                .unwrap()
                .last()
                .unwrap()
                .contains("if-none-match: \"day-0\"")
        );
        wait_until("nothing is wrong", || feed_problem(&gateway).is_empty());
        for (wrong, expected) in bad_responses() {
            server.respond_with(&wrong);
            wait_until(&format!("it is told: {expected}"), || {
                feed_problem(&gateway).contains(expected)
            });
            assert!(gateway.readyz().text().contains("feeds: feed daily"));
            assert!(serves_list_of_day(&gateway, &key, 0), "{expected}");
        }
        for day in [1, 2] {
            server.respond_with(list_response(&names_of_day(day), ""));
            wait_until("the new list is in the table", || serves_list_of_day(&gateway, &key, day));
            wait_until("nothing is wrong", || feed_problem(&gateway).is_empty());
        }
        let mut old = names_of_day(1);
        old.reverse();
        server.respond_with(list_response(&[vec!["# fresh".to_owned()], old].concat(), ""));
        wait_until("riskgate reports it", || {
            feed_problem(&gateway).contains("found one that was fetched before")
        });
        assert!(serves_list_of_day(&gateway, &key, 2));
    });
    assert_eq!(gateway.sum_of_samples("riskgate_feed_rows", &["feed=\"daily\""]), 60.0);
    assert!(gateway.sum_of_samples("riskgate_feed_fetches_total", &["outcome=\"failed\""]) >= 8.0);
    let printed = gateway.cli(&["table", "lookup", "abused-15-test-feed.com"]).expect(0).stdout;
    assert!(printed.contains("list     feed daily (disposable_a)"), "{printed}");
}

#[test]
fn table_update_fetches_a_list_from_a_file_and_checks_its_sha256() {
    let setup = feed_setup();
    let (list, digest) = (setup.path("list.txt"), setup.path("list.txt.sha256"));
    // Both start at the directory of the config, wherever the command runs.
    let more = "sha256_url = \"list.txt.sha256\"\ninterval = \"7d\"";
    let setup = setup.append_toml(&feed_toml("reviewed", "list.txt", more));
    std::fs::write(&list, names_of_day(0).join("\n")).unwrap();
    std::fs::write(&digest, format!("{}  list.txt\n", "0".repeat(64))).unwrap();
    let wrong = setup.cli(&["table", "update"]).expect(1);
    assert!(
        wrong.stderr.contains("expected a list with the published SHA-256"),
        "{}",
        wrong.stderr
    );
    let sum = |path: &std::path::Path| {
        let done = std::process::Command::new("sha256sum").arg(path).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    std::fs::write(&digest, sum(&list)).unwrap();
    assert_eq!(setup.cli(&["table", "update"]).expect(0).stdout, "reviewed: 60 rows\n");
    assert_eq!(setup.cli(&["table", "update"]).expect(0).stdout, "reviewed: unchanged\n");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    assert!(serves_list_of_day(&gateway, &key, 0));
    std::fs::write(&list, names_of_day(40).join("\n")).unwrap();
    std::fs::write(&digest, sum(&list)).unwrap();
    let refused = gateway.cli(&["table", "update", "reviewed"]).expect(1);
    assert!(
        refused.stderr.contains("riskgate table update --force reviewed"),
        "{}",
        refused.stderr
    );
    gateway.cli(&["table", "update", "--force", "reviewed"]).expect(0);
    wait_until("the new list is in the table", || serves_list_of_day(&gateway, &key, 40));
    let feeds = gateway.cli(&["table", "feeds", "--json"]).expect(0).json();
    assert_eq!((&feeds[0]["name"], &feeds[0]["rows"]), (&"reviewed".into(), &60.into()));
    assert!(feeds[0]["problem"].is_null() && feeds[0]["fetched_at"].is_string());
    let unknown = gateway.cli(&["table", "update", "other"]).expect(2);
    assert!(unknown.stderr.contains("expected one of reviewed"), "{}", unknown.stderr);
}

#[test]
fn a_feed_with_a_public_key_accepts_only_lists_signed_with_it() {
    // A signature by minisign of the text "test".
    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    const SIGNATURE: &str = "untrusted comment: signature from minisign secret key\n\
        RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrC\
        o8KLzZwo=\ntrusted comment: timestamp:1556193335\tfile:test\n\
        y/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==\n";
    let setup = feed_setup();
    let list = setup.path("list.txt");
    let more = format!("public_key = \"{KEY}\"");
    let setup = setup.append_toml(&feed_toml("signed", &list.display().to_string(), &more));
    std::fs::write(&list, "test").unwrap();
    let wrong = setup.cli(&["table", "update"]).expect(1);
    assert!(wrong.stderr.contains("list.txt.minisig: expected a list"), "{}", wrong.stderr);
    std::fs::write(setup.path("list.txt.minisig"), SIGNATURE).unwrap();
    // The signature is valid, but the text is no list of domains.
    let signed = setup.cli(&["table", "update"]).expect(1);
    assert!(signed.stderr.contains("expected a list of domains"), "{}", signed.stderr);
    std::fs::write(&list, names_of_day(0).join("\n")).unwrap();
    let forged = setup.cli(&["table", "update"]).expect(1);
    assert!(forged.stderr.contains("expected a signature of this list"), "{}", forged.stderr);
}

#[test]
fn check_refuses_malformed_feed_settings_and_names_the_setting() {
    let faults = |text: &str| {
        let setup = feed_setup().append_toml(text);
        setup.cli(&["check"]).expect(78).stderr
    };
    for (text, expected) in [
        (
            feed_toml("a", "http://example.com/list", ""),
            "url: expected https://…, http://… on this",
        ),
        (feed_toml("a", "ftp://example.com/list", ""), "url: expected https://"),
        (feed_toml("A b", "https://example.com/list", ""), "name: expected a name of a-z"),
        (
            feed_toml("a", "/x", "") + &feed_toml("a", "/y", ""),
            "table.feed \"a\": name: expected a name that no other feed has",
        ),
        (feed_toml("a", "/x", "public_key = \"x\""), "public_key: expected the base64 line of"),
        (feed_toml("a", "/x", "kind = \"bad\""), "kind: expected"),
        ("\n[[table.feed]]\nname = \"a\"\n".to_owned(), "table.feed \"a\": url: expected"),
    ] {
        let printed = faults(&text);
        assert!(printed.contains(expected), "{printed}");
    }
    let off = feed_setup().append_toml(&feed_toml("a", "https://127.0.0.1:1/x", "enabled = false"));
    assert_eq!(off.cli(&["table", "feeds", "--json"]).expect(0).json(), serde_json::json!([]));
}

#[test]
fn a_feed_list_is_accepted_without_the_names_that_the_lists_protect() {
    let setup = feed_setup_on(Setup::with_bundled_table());
    let path = setup.path("castle.txt");
    let days = std::fs::read_to_string("data/castle.tsv").unwrap();
    let names: Vec<&str> = days
        .lines()
        .filter(|line| line.split('\t').nth(2) == Some("2026-07-31"))
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    assert!(names.len() > 900 && names.contains(&"cock.li"), "{}", names.len());
    std::fs::write(&path, names.join("\n")).unwrap();
    let setup = setup.append_toml(&feed_toml("castle", &path.display().to_string(), ""));
    setup.cli(&["table", "update"]).expect(0);
    let printed = setup.cli(&["table", "lookup", "cock.li"]).expect(0).stdout;
    assert!(printed.contains("rule     protected"), "{printed}");
    let feeds = setup.cli(&["table", "feeds", "--json"]).expect(0).json();
    assert!(feeds[0]["rows"].as_u64().unwrap() > 900, "{feeds}");
}

#[test]
fn an_unwritable_feed_dir_is_reported_and_no_list_is_fetched() {
    let server = ListServer::start();
    server.responses.lock().unwrap().push_back(list_response(&names_of_day(0), "").into());
    // riskgate can't create a folder there.
    let setup = feed_setup().set_text("table.feed_dir", "/proc/riskgate/feeds");
    let gateway =
        setup.append_toml(&feed_toml("daily", &server.url(), "interval = \"1h\"")).start();
    wait_until("riskgate reports it", || gateway.readyz().text().contains("feeds: feed daily"));
    // Each reading of the status comes later than the one before.
    for _ in 0..40 {
        assert!(feed_problem(&gateway).contains("feed daily"));
    }
    assert_eq!(server.response_count.load(Ordering::SeqCst), 0);
}

#[test]
fn a_feed_with_a_changed_url_is_fetched_at_once_and_without_its_etag() {
    let (first, second) = (ListServer::start(), ListServer::start());
    first
        .responses
        .lock()
        .unwrap()
        .push_back(list_response(&names_of_day(0), "ETag: \"same\"\r\n").into());
    second
        .responses
        .lock()
        .unwrap()
        .push_back(list_response(&names_of_day(40), "ETag: \"same\"\r\n").into());
    let gateway =
        feed_setup().append_toml(&feed_toml("daily", &first.url(), "interval = \"7d\"")).start();
    let key = gateway.create_active_key("acme", &[]);
    wait_until("the first list is in the table", || serves_list_of_day(&gateway, &key, 0));
    gateway.edit_config(|config| config.replace(&first.url(), &second.url()));
    wait_until("the other list is in the table", || serves_list_of_day(&gateway, &key, 40));
    assert!(!second.request_headers.lock().unwrap()[0].contains("if-none-match"));
}

#[test]
fn a_reported_feed_fault_ends_once_table_update_succeeds() {
    let server = ListServer::start();
    server.responses.lock().unwrap().push_back(response_text("500 Oh", "").into());
    let gateway =
        feed_setup().append_toml(&feed_toml("daily", &server.url(), "interval = \"7d\"")).start();
    wait_until("riskgate reports it", || feed_problem(&gateway).contains("found 500"));
    *server.responses.lock().unwrap() =
        VecDeque::from([list_response(&names_of_day(0), "").into()]);
    // Times have a resolution of one second, so the next fetch must happen in another second.
    let first = gateway.get_admin_page("/status").json()["feeds"][0]["attempted_at"].clone();
    wait_until("a command fetches later", || {
        gateway.cli(&["table", "update"]).expect(0);
        gateway.cli(&["table", "feeds", "--json"]).expect(0).json()[0]["attempted_at"] != first
    });
    wait_until("nothing is wrong", || feed_problem(&gateway).is_empty());
    assert!(gateway.readyz().json()["degraded"].as_array().unwrap().is_empty());
}

#[test]
fn a_feed_with_a_broken_state_file_still_limits_the_changes_of_its_list() {
    let setup = feed_setup();
    let list = setup.path("list.txt");
    let setup = setup.append_toml(&feed_toml("daily", &list.display().to_string(), ""));
    std::fs::write(&list, names_of_day(0).join("\n")).unwrap();
    setup.cli(&["table", "update"]).expect(0);
    std::fs::write(setup.path("feeds/daily.json"), "{").unwrap();
    std::fs::write(&list, names_of_day(40).join("\n")).unwrap();
    let refused = setup.cli(&["table", "update"]).expect(1);
    assert!(refused.stderr.contains("60 new and 60 gone"), "{}", refused.stderr);
}

#[test]
fn a_fetched_list_is_not_used_after_its_feed_gets_another_kind() {
    let setup = feed_setup();
    let list = setup.path("list.txt");
    let setup =
        setup.append_toml(&feed_toml("daily", &list.display().to_string(), "interval = \"1s\""));
    std::fs::write(&list, names_of_day(0).join("\n")).unwrap();
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    wait_until("the list is in the table", || serves_list_of_day(&gateway, &key, 0));
    std::fs::remove_file(&list).unwrap();
    gateway.edit_config(|config| config.replace("tier = \"a\"", "kind = \"free\""));
    wait_until("the list is out of the table", || !serves_list_of_day(&gateway, &key, 0));
    let body = gateway.get_domain("abused-7-test-feed.com", &key).expect(200).json();
    assert_eq!((&body["risk_score"], &body["is_free_provider"]), (&10.into(), &false.into()));
}

#[test]
fn a_feed_list_unchanged_for_longer_than_max_age_is_reported() {
    let setup = feed_setup();
    let list = setup.path("list.txt");
    let more = "interval = \"1s\"\nmax_age = \"1s\"";
    let setup = setup.append_toml(&feed_toml("daily", &list.display().to_string(), more));
    std::fs::write(&list, names_of_day(0).join("\n")).unwrap();
    let gateway = setup.start();
    wait_until("riskgate reports it", || {
        feed_problem(&gateway).contains("feed daily: unchanged since 2")
    });
    assert!(gateway.readyz().text().contains("unchanged since"));
    let changed =
        gateway.sum_of_samples("riskgate_feed_changed_timestamp_seconds", &["feed=\"daily\""]);
    assert!(changed > 1.7e9, "{changed}");
}

#[test]
fn a_damaged_list_of_a_feed_fails_no_command_and_is_fetched_again() {
    let setup = feed_setup();
    let (list, kept) = (setup.path("list.txt"), setup.path("feeds/daily.disposable.txt"));
    let setup =
        setup.append_toml(&feed_toml("daily", &list.display().to_string(), "interval = \"7d\""));
    std::fs::write(&list, names_of_day(0).join("\n")).unwrap();
    setup.cli(&["table", "update"]).expect(0);
    let good = std::fs::read(&kept).unwrap();
    let damages = [b"\xff\xfe".to_vec(), good[..good.len() - 30].to_vec(), Vec::new()];
    for damage in &damages {
        std::fs::write(&kept, damage).unwrap();
        let warned = setup.cli(&["check"]).expect(0).stderr;
        assert!(warned.contains("warning: feed daily: "), "{warned}");
        assert!(warned.contains("expected the kept list"), "{warned}");
        let printed = setup.cli(&["table", "feeds"]).expect(0).stdout;
        assert!(printed.contains("expected the kept list"), "{printed}");
        setup.cli(&["table", "deny", "bad.example.com"]).expect(0);
    }
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    for damage in &damages {
        wait_until("the list is in the table", || serves_list_of_day(&gateway, &key, 0));
        wait_until("nothing is wrong", || feed_problem(&gateway).is_empty());
        assert_eq!(std::fs::read(&kept).unwrap(), good);
        std::fs::write(&kept, damage).unwrap();
        wait_until("the list is stored again", || std::fs::read(&kept).unwrap() == good);
    }
    std::fs::remove_file(&kept).unwrap();
    let is_stored = || std::fs::read(&kept).is_ok_and(|stored| stored == good);
    wait_until("a removed list is stored again", is_stored);
    wait_until("and is in the table", || serves_list_of_day(&gateway, &key, 0));
}

#[test]
fn a_broken_overrides_file_does_not_stop_feed_updates() {
    let setup = feed_setup();
    let (list, overrides) = (setup.path("list.txt"), setup.path("overrides.csv"));
    let setup = setup.set_text("table.overrides", &overrides.display().to_string());
    let setup =
        setup.append_toml(&feed_toml("daily", &list.display().to_string(), "interval = \"1s\""));
    let good = "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,\
                mx_provider_label\nbad.example.com,subtree,disposable,100,,,\n";
    std::fs::write(&overrides, good).unwrap();
    std::fs::write(&list, names_of_day(0).join("\n")).unwrap();
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    wait_until("the list is in the table", || serves_list_of_day(&gateway, &key, 0));
    std::fs::write(&overrides, format!("{good}broken,row\n")).unwrap();
    wait_until("riskgate reports it", || gateway.readyz().text().contains("table: "));
    std::fs::write(&list, names_of_day(1).join("\n")).unwrap();
    wait_until("the next list is in the table", || serves_list_of_day(&gateway, &key, 1));
    assert!(is_flagged(&gateway, &key, "bad.example.com"));
    assert!(gateway.readyz().text().contains("table: "));
    std::fs::write(&overrides, good).unwrap();
    wait_until("nothing is wrong", || !gateway.readyz().text().contains("table: "));
}

/// Compresses with the gzip program.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = std::process::Command::new("gzip")
        .arg("-c")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), bytes).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[test]
fn a_whole_list_in_gzip_is_accepted_and_a_cut_or_otherwise_encoded_one_is_not() {
    let server = ListServer::start();
    let gateway =
        feed_setup().append_toml(&feed_toml("daily", &server.url(), "interval = \"1s\"")).start();
    let key = gateway.create_active_key("acme", &[]);
    // No list ends with a line feed.
    for (day, has_length) in [(0, true), (1, false)] {
        let body = gzip(names_of_day(day).join("\n").as_bytes());
        server.respond_with(encoded_response("gzip", &body, has_length));
        wait_until("the list is in the table", || serves_list_of_day(&gateway, &key, day));
    }
    assert!(server.request_headers.lock().unwrap()[0].contains("accept-encoding: gzip\r\n"));
    let body = gzip(names_of_day(2).join("\n").as_bytes());
    let cut = &body[..body.len() - 9];
    for (response, expected) in [
        (encoded_response("gzip", cut, true), "expected the whole list, but found a part"),
        (encoded_response("gzip", cut, false), "expected the whole list, but found a part"),
        (encoded_response("br", &body, true), "but found \"br\""),
        (encoded_response("zstd", &body, true), "but found \"zstd\""),
        (encoded_response("gzip", b"abused.com\n", true), "expected the whole list in gzip"),
    ] {
        server.respond_with(&response);
        wait_until(&format!("it is told: {expected}"), || {
            feed_problem(&gateway).contains(expected)
        });
        server.respond_with(encoded_response(
            "gzip",
            &gzip(names_of_day(1).join("\n").as_bytes()),
            true,
        ));
        wait_until("nothing is wrong", || feed_problem(&gateway).is_empty());
    }
    assert!(serves_list_of_day(&gateway, &key, 1));
}

#[test]
fn a_feed_trusts_the_authorities_in_tls_ca_and_those_of_the_system() {
    let server = ListServer::start();
    server.responses.lock().unwrap().push_back(list_response(&names_of_day(0), "").into());
    let folder = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new(folder.path());
    let address = authority.start_tls_server_for(server.address, "localhost");
    let url = format!("https://localhost:{}/list.txt", address.port());
    let authorities = authority.certificate_path().display().to_string();
    let setup = |more: &str| feed_setup().append_toml(&feed_toml("daily", &url, more));
    let refused = setup("").cli(&["table", "update"]).expect(1);
    assert!(refused.stderr.contains("UnknownIssuer"), "{}", refused.stderr);
    assert!(refused.stderr.contains("name its authority in tls_ca"), "{}", refused.stderr);
    let with_file = setup(&format!("tls_ca = \"{authorities}\""));
    assert_eq!(with_file.cli(&["table", "update"]).expect(0).stdout, "daily: 60 rows\n");
    let with_system = setup("").env("SSL_CERT_FILE", &authorities);
    assert_eq!(with_system.cli(&["table", "update"]).expect(0).stdout, "daily: 60 rows\n");
}

#[test]
fn a_file_without_authorities_is_a_fault_of_each_tls_ca() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let unreadable = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let files = [
        (write("none.pem", "no certificate\n"), "but found none"),
        (write("other.pem", unreadable), "but found one that can't be read"),
        (folder.path().join("missing.pem").display().to_string(), "but found"),
    ];
    for (path, found) in files {
        let of_feed = feed_toml("daily", "https://localhost:1/x", &format!("tls_ca = \"{path}\""));
        let setups = [
            ("tls_ca", Setup::new().append_toml(&of_feed)),
            ("webhook.tls_ca", Setup::new().set_text("webhook.tls_ca", &path)),
            ("traces.tls_ca", Setup::new().set_text("traces.tls_ca", &path)),
        ];
        for (key, setup) in setups {
            let printed = setup.cli(&["check"]).expect(78).stderr;
            let expected = format!("{path}: expected certificates of authorities in PEM form");
            let is_told = printed.contains(key) && printed.contains(&expected);
            assert!(is_told && printed.contains(found), "{key}: {printed}");
        }
    }
}

#[test]
fn readiness_says_how_old_the_list_of_a_feed_is() {
    const AGE: i64 = 45 * 86_400;
    let server = ListServer::start();
    server.responses.lock().unwrap().push_back(list_response(&names_of_day(0), "").into());
    let feed = feed_toml("daily", &server.url(), "interval = \"1s\"");
    let gateway = feed_setup().append_toml(&feed).start();
    let age_in_days = |gateway: &Gateway| {
        let knowledge = gateway.readyz().json()["knowledge"].clone();
        let is_of_feed = knowledge[1]["source"] == "feed daily";
        is_of_feed.then(|| knowledge[1]["age_days"].as_i64()).flatten()
    };
    wait_until("the list is new", || age_in_days(&gateway) == Some(0));
    let setup = gateway.shut_down();
    let state_file = setup.path("feeds/daily.json");
    let text = std::fs::read_to_string(&state_file).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
    state["changed_at"] = (state["changed_at"].as_i64().unwrap() - AGE).into();
    std::fs::write(&state_file, state.to_string()).unwrap();
    // The list is fetched again, but it has not changed since.
    let gateway = setup.start();
    wait_until("the list is 45 days old", || age_in_days(&gateway) == Some(45));
}

/// Starts TLS in front of a list server. Returns host and port, and the setup of a feed whose URL
/// begins with `https://` and `user`.
fn tls_feed(server: &ListServer, authority: &CertificateAuthority, user: &str) -> (String, Setup) {
    let address = authority.start_tls_server_for(server.address, "localhost");
    let host = format!("localhost:{}", address.port());
    let more = format!("tls_ca = \"{}\"", authority.certificate_path().display());
    let url = format!("https://{user}{host}/lists/list.txt");
    (host, feed_setup().append_toml(&feed_toml("daily", &url, &more)))
}

fn redirect_to(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").into()
}

#[test]
fn the_user_of_a_feed_url_is_decoded_and_sent_to_its_own_server_only() {
    // The Base64 form of "me:p@w".
    const AUTHORIZATION: &str = "authorization: basic bwu6ceb3\r\n";
    let (first, second) = (ListServer::start(), ListServer::start());
    let folder = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new(folder.path());
    let (_, setup) = tls_feed(&first, &authority, "me:p%40w@");
    let other = authority.start_tls_server_for(second.address, "localhost");
    let other = format!("https://localhost:{}/moved.txt", other.port());
    first.responses.lock().unwrap().extend([
        redirect_to("../../other/./list.txt?day=1"),
        redirect_to("?day=2"),
        redirect_to(&other),
    ]);
    second.responses.lock().unwrap().push_back(list_response(&names_of_day(0), "").into());
    let updated = setup.cli(&["table", "update"]);
    assert_eq!(updated.stdout, "daily: 60 rows\n", "{}", updated.stderr);
    let headers = |server: &ListServer| -> Vec<String> {
        let headers = server.request_headers.lock().unwrap();
        headers.iter().map(|header| header.to_ascii_lowercase()).collect()
    };
    let targets = ["/lists/list.txt ", "/other/list.txt?day=1 ", "/other/list.txt?day=2 "];
    assert_eq!(headers(&first).len(), targets.len());
    for (header, target) in headers(&first).iter().zip(targets) {
        assert!(header.starts_with(&format!("get {target}")), "{header}");
        assert!(header.contains(AUTHORIZATION), "{header}");
    }
    let of_second = headers(&second);
    assert!(of_second[0].starts_with("get /moved.txt "), "{of_second:?}");
    assert!(!of_second[0].contains("authorization"), "{of_second:?}");
}

#[test]
fn a_redirect_that_a_feed_does_not_follow_is_told_without_its_url() {
    for (location, expected) in [
        ("http://127.0.0.1:9/x?token=secret", "expected a redirect to https://"),
        ("https://[x?token=secret", "expected a redirect to a URL"),
        ("list.txt?token=secret", "expected at most 5 redirects, but found more"),
    ] {
        let (server, folder) = (ListServer::start(), tempfile::tempdir().unwrap());
        let authority = CertificateAuthority::new(folder.path());
        let (_, setup) = tls_feed(&server, &authority, "");
        server.responses.lock().unwrap().push_back(redirect_to(location));
        let refused = setup.cli(&["table", "update"]).expect(1).stderr;
        assert!(refused.contains(expected) && !refused.contains("secret"), "{refused}");
    }
}

#[test]
fn a_proxy_that_feeds_cannot_use_is_named_with_its_variable() {
    let (server, folder) = (ListServer::start(), tempfile::tempdir().unwrap());
    server.responses.lock().unwrap().push_back(list_response(&names_of_day(0), "").into());
    let refusing = ListServer::start();
    refusing.responses.lock().unwrap().push_back(response_text("407 No", "").into());
    let dead = crate::harness::free_address();
    let authority = CertificateAuthority::new(folder.path());
    let (refusing, dead) = (refusing.address, dead.to_string());
    let (refuses, refused) = (
        format!("found status 407, by the proxy {refusing}"),
        format!("Connection refused (os error 111), by the proxy {dead}"),
    );
    let unusable = "HTTPS_PROXY: expected the URL of a proxy, http://HOST:PORT or \
                    https://HOST:PORT, but found ";
    for (value, expected) in [
        ("socks5://me:secret@127.0.0.1:1", format!("{unusable}the scheme socks5")),
        ("me secret", format!("{unusable}another text")),
        ("http://[::1", format!("{unusable}another text")),
        (&format!("http://me:secret@{refusing}"), refuses),
        (&dead, refused),
    ] {
        let (host, setup) = tls_feed(&server, &authority, "");
        let setup = setup.env("HTTPS_PROXY", value);
        let failed = setup.cli(&["table", "update"]).expect(1).stderr;
        assert!(failed.contains(&expected) && !failed.contains("secret"), "{value}: {failed}");
        for direct in [host.as_str(), "a.test, localhost", ".test,local*"] {
            let (host_again, setup) = tls_feed(&server, &authority, "");
            let setup = setup.env("HTTPS_PROXY", value);
            let setup = setup.env("NO_PROXY", &direct.replace(&host, &host_again));
            let updated = setup.cli(&["table", "update"]);
            assert_eq!(updated.stdout, "daily: 60 rows\n", "{direct}: {}", updated.stderr);
        }
    }
}
