//! Domains that the operator looks up, allows and denies on the page, and the audit of all changes.

use std::time::{Duration, Instant};

use crate::harness::{Gateway, wait_until};

use super::operator::{OperatorPage, hook, read_audit, setup, start_signed_in};

/// How soon the verdict of the gateway follows an override.
const EFFECT_TIME: Duration = Duration::from_secs(2);

fn get_reason(gateway: &Gateway, key: &str, domain: &str) -> String {
    let answer = gateway.get_domain(domain, key).expect(200).json();
    answer["reason"].as_str().unwrap().to_owned()
}

#[track_caller]
fn expect_verdict_soon(gateway: &Gateway, key: &str, domain: &str, reason: &str) {
    let begun = Instant::now();
    wait_until(&format!("{domain} is {reason}"), || get_reason(gateway, key, domain) == reason);
    assert!(begun.elapsed() < EFFECT_TIME, "{:?}", begun.elapsed());
}

#[track_caller]
fn look_up(page: &OperatorPage, domain: &str) {
    page.fill("lookup-domain", domain);
    page.click("lookup-submit");
}

fn row_of(domain: &str) -> String {
    format!("{}[data-domain=\"{domain}\"]", hook("override-row"))
}

#[track_caller]
fn clear(page: &OperatorPage, domain: &str) {
    page.click_on(&format!("{} {}", row_of(domain), hook("override-clear")));
    page.wait_for_absence(&row_of(domain));
}

#[test]
fn an_override_of_the_page_changes_the_verdict_within_two_seconds() {
    let (gateway, page) = start_signed_in(setup());
    let key = gateway.create_active_key("acme", &[]);
    page.go_to("domains", "Look-up and overrides");
    look_up(&page, "jane@first.test");
    page.wait_for_text("error", "Enter a domain such as example.com");
    look_up(&page, "Mail.First.Test.");
    page.wait_for_text("lookup-result", "score 100 of 100");
    let result = page.text("lookup-result");
    for part in ["disposable", "first.test, which covers mail.first.test", "disposable.txt"] {
        assert!(result.contains(part), "{part}: {result}");
    }
    page.fill("override-domain", "first.test");
    page.fill("override-note", "a partner");
    page.click("override-allow");
    page.wait_for_text("override-done", "first.test is allowed.");
    expect_verdict_soon(&gateway, &key, "mail.first.test", "safe");
    page.wait_for_text_in(&row_of("first.test"), "a partner");
    page.fill("override-domain", "nobody-lists-this.com");
    page.click("override-exact");
    page.click("override-deny");
    page.wait_for_text("override-done", "nobody-lists-this.com is denied.");
    expect_verdict_soon(&gateway, &key, "nobody-lists-this.com", "disposable");
    assert_ne!(get_reason(&gateway, &key, "www.nobody-lists-this.com"), "disposable");
    look_up(&page, "nobody-lists-this.com");
    page.wait_for_text("lookup-result", "An override names it.");
    clear(&page, "first.test");
    expect_verdict_soon(&gateway, &key, "mail.first.test", "disposable");
    clear(&page, "nobody-lists-this.com");
    expect_verdict_soon(&gateway, &key, "nobody-lists-this.com", "safe");
}

#[test]
fn the_page_shows_what_a_row_without_a_reason_sets() {
    let setup = setup();
    let rows = "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,\
                mx_provider_label\nfree.example.com,exact,,,true,,-\n";
    std::fs::write(setup.path("overrides.csv"), rows).unwrap();
    let (_gateway, page) = start_signed_in(setup);
    page.go_to("domains", "Look-up and overrides");
    let row = row_of("free.example.com");
    page.wait_for_text_in(&row, "free provider: yes, mail service: none");
    assert!(!page.browser.text(&row).contains("denied"));
}

#[test]
fn a_protected_domain_is_denied_only_after_a_second_consent() {
    let (gateway, page) = start_signed_in(setup());
    let key = gateway.create_active_key("acme", &[]);
    page.go_to("domains", "Look-up and overrides");
    page.fill("override-domain", "gmail.com");
    assert!(!page.is_shown(&hook("override-force")));
    page.click("override-deny");
    page.wait_for_text("error", "The lists protect gmail.com.");
    assert_eq!(get_reason(&gateway, &key, "gmail.com"), "safe");
    assert_eq!(page.count(&hook("override-row")), 0);
    page.click("override-force");
    page.click("override-deny");
    page.wait_for_text("override-done", "gmail.com is denied.");
    expect_verdict_soon(&gateway, &key, "gmail.com", "disposable");
    // The consent is for one name only.
    assert!(!page.is_shown(&hook("override-force")));
    let record = read_audit(&gateway).remove(0);
    assert_eq!(
        (&record["operation"], &record["target"]),
        (&"override.set".into(), &"gmail.com".into())
    );
}

#[test]
fn a_domain_that_faulty_lists_may_protect_is_denied_only_after_a_second_consent() {
    let (gateway, page) = start_signed_in(setup());
    // The lists are kept within a moment after they were read.
    std::thread::sleep(EFFECT_TIME);
    gateway.lists().replace_by_rename("manifest.toml", "not a manifest");
    wait_until("the table is refused", || gateway.readyz().text().contains("\"table\""));
    page.go_to("domains", "Look-up and overrides");
    page.fill("override-domain", "other.example.com");
    page.click("override-deny");
    page.expect_console_fault("/overrides/other.example.com");
    page.wait_for_text("error", "The present state allows this only by force.");
    page.click("override-force");
    page.click("override-deny");
    page.wait_for_text("override-done", "other.example.com is denied.");
}

#[test]
fn the_audit_shows_each_change_of_the_page_with_the_name_of_the_token() {
    let (gateway, page) = start_signed_in(setup());
    page.go_to("keys", "Keys");
    page.click("create-key-open");
    page.fill("create-key-account", "acme");
    page.click("create-key-submit");
    let key = super::keys::read_new_key(&page);
    page.click("new-key-close");
    page.go_to("accounts/acme", "acme");
    page.choose("account-plan", "pro");
    page.fill("account-limit", "7");
    page.click("account-save");
    page.wait_for_text("account-saved", "Saved.");
    page.go_to("domains", "Look-up and overrides");
    page.fill("override-domain", "bad.test");
    page.click("override-deny");
    page.wait_for_text("override-done", "bad.test is denied.");
    clear(&page, "bad.test");
    gateway.cli(&["accounts", "set", "other", "--plan", "pro"]).expect(0);
    page.go_to("audit", "Audit");
    let rows = |operation: &str| {
        let row = format!("{}[data-operation=\"{operation}\"]", hook("audit-row"));
        assert_eq!(page.count(&row), 1, "{operation}: {}", page.browser.text("main"));
        page.browser.text(&row)
    };
    for operation in ["key.create", "override.set", "override.clear"] {
        let row = rows(operation);
        assert!(row.contains("ops") && row.contains("on the page, from 127.0.0.1"), "{row}");
    }
    assert!(rows("key.create").contains("created"), "{}", rows("key.create"));
    assert!(!rows("override.clear").contains("created"), "{}", rows("override.clear"));
    page.fill("audit-target", "acme");
    page.fill("audit-actor", "ops");
    page.wait_for_text("list-range", "Changes 1 to 1 of 1");
    let row = rows("account.set");
    let words = row.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["own limit before: none → after: 7", "plan before: none → after: pro"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    page.fill("audit-actor", "");
    page.fill("audit-target", "");
    page.fill("audit-operation", "account.");
    page.wait_for_text("list-range", "Changes 1 to 2 of 2");
    page.wait_for_text_in("main", "on the command line");
    let records = read_audit(&gateway);
    let by_page = records.iter().filter(|it| it["via"] == "page");
    let operations: Vec<&str> = by_page.map(|it| it["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["override.clear", "override.set", "account.set", "key.create"]);
    assert!(!records.iter().any(|record| record.to_string().contains(&key)));
}
