//! What the page says and allows without a token, and with each kind of token.

use crate::harness::{Gateway, wait_until};

use super::operator::{OperatorPage, SECTIONS, add_tokens, create_token, hook, setup};

/// The requests to the admin API, without their queries.
fn api_paths(page: &OperatorPage) -> Vec<String> {
    let paths = page.take_requested_paths().into_iter();
    let paths = paths.map(|path| path.split('?').next().unwrap().to_owned());
    let mut paths: Vec<String> = paths.filter(|path| path.starts_with("/api/")).collect();
    paths.sort();
    paths.dedup();
    paths
}

fn start() -> (Gateway, super::operator::Tokens) {
    let (setup, tokens) = add_tokens(setup());
    (setup.start(), tokens)
}

#[test]
fn without_a_good_token_the_page_says_why_and_reads_nothing() {
    let (gateway, tokens) = start();
    let page = OperatorPage::open(&gateway);
    wait_until("the form is shown", || page.is_shown(&hook("token-input")));
    page.wait_for_text("sign-in-lead", "only to the holder of an admin token");
    assert_eq!(page.count(&hook("error")), 0);
    assert_eq!(page.attribute(&hook("token-input"), "type").as_deref(), Some("password"));
    for (token, text) in [
        ("rga_nobody-has-this-token", "riskgate does not know this token"),
        ("schlüssel", "riskgate does not know this token"),
        (&tokens.expired, "This token has expired on 1 Jan 2026"),
        (" ", "Enter a token."),
    ] {
        page.submit_token(token);
        page.wait_for_text("error", text);
        assert_eq!(page.stored_items(), 0, "{token}");
        assert!(!page.is_shown("#nav"), "{token}");
    }
    assert_eq!(api_paths(&page), ["/api/v1/session"]);
}

#[test]
fn a_read_token_shows_every_section_and_disables_each_change() {
    let (gateway, tokens) = start();
    gateway.create_active_key("acme", &[]);
    gateway.cli(&["table", "deny", "bad.test"]).expect(0);
    let page = OperatorPage::open(&gateway);
    page.sign_in(&tokens.read);
    page.wait_for_text("session", "watch (read)");
    for (section, heading) in SECTIONS.into_iter().chain([("accounts/acme", "acme")]) {
        page.go_to(section, heading);
        assert_eq!(page.count(&hook("error")), 0, "{section}: {}", page.text("error"));
        let (all, enabled) = page.count_write_controls();
        assert_eq!(enabled, 0, "{section}");
        if all > 0 {
            let note = page.text("read-only-note");
            assert!(note.starts_with("Your token may only read"), "{section}: {note}");
            assert!(note.contains("riskgate admin-token create --name NAME --scope write"));
        }
    }
    page.go_to("keys", "Keys");
    assert_eq!(page.count_write_controls().0, 4, "create, submit, rotate, revoke");
    page.go_to("domains", "Look-up and overrides");
    assert_eq!(page.count_write_controls().0, 3, "allow, deny, clear");
}

#[test]
fn an_account_token_shows_its_account_and_asks_for_nothing_else() {
    let (gateway, tokens) = start();
    gateway.create_active_key("acme", &[]);
    gateway.create_active_key("other", &[]);
    let page = OperatorPage::open(&gateway);
    page.sign_in(&tokens.account);
    page.wait_for_text("session", "customer (account acme)");
    page.take_requested_paths();
    assert_eq!(page.count("#nav a"), 3, "{}", page.browser.text("#nav"));
    // Other addresses lead to the account of the token.
    for section in ["accounts/other", "health", "accounts"] {
        page.go_to(section, "acme");
    }
    page.wait_for_text("read-only-note", "Your token shows the account acme");
    page.go_to("keys", "Keys");
    assert_eq!(page.count(&hook("key-row")), 1);
    assert_eq!(page.count_write_controls(), (4, 0));
    page.go_to("usage", "Usage");
    let mut paths = api_paths(&page);
    // Requests within a second share one answer of /session.
    paths.retain(|path| path != "/api/v1/session");
    let own = ["accounts/acme", "keys", "plans", "usage"];
    assert_eq!(paths, own.map(|path| format!("/api/v1/{path}")));
}

#[test]
fn without_configured_tokens_the_page_reads_and_says_how_to_change() {
    let gateway = setup().start();
    gateway.create_active_key("acme", &[]);
    let page = OperatorPage::open(&gateway);
    page.wait_for_text("read-only-note", "Nothing can be changed without a token.");
    page.wait_for_text("session", "No token");
    page.go_to("keys", "Keys");
    assert_eq!(page.count(&hook("key-row")), 1);
    assert_eq!(page.count_write_controls(), (4, 0));
    page.click("sign-in");
    page.submit_token("rga_nobody-has-this-token");
    page.wait_for_text("error", "riskgate does not know this token");
    page.click("token-skip");
    wait_until("the section is shown again", || page.is_shown(&hook("create-key-open")));
    // A token that somebody adds meanwhile makes all others sign in.
    let (token, entry) = create_token("ops", "write", None);
    gateway.edit_config(|text| text + &entry);
    wait_until("the form is shown", || page.is_shown(&hook("token-input")));
    page.sign_in(&token);
    wait_until("changes are allowed", || page.count_write_controls() == (4, 4));
    assert!(!page.is_shown(&hook("read-only-note")));
}

#[test]
fn the_form_is_shown_when_the_token_expires_or_is_removed() {
    let soon = jiff::Timestamp::now() + std::time::Duration::from_secs(15);
    let (short, short_entry) =
        create_token("short", "write", Some(&soon.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
    let (other, other_entry) = create_token("other", "write", None);
    let gateway = setup().append_toml(&short_entry).append_toml(&other_entry).start();
    let page = OperatorPage::open(&gateway);
    page.sign_in(&short);
    page.go_to("keys", "Keys");
    page.click("create-key-open");
    page.fill("create-key-account", "half-typed");
    page.wait_for_text("error", "This token has expired");
    assert_eq!(page.count("dialog[open]"), 0);
    page.sign_in(&other);
    page.click("create-key-open");
    assert_eq!(page.value("create-key-account"), "half-typed", "entries survive");
    page.browser.press_keys(&crate::harness::ESCAPE_KEY.to_string());
    page.take_requested_paths();
    gateway.edit_config(|text| text.replace(&other_entry, ""));
    page.wait_for_text("error", "riskgate does not know this token");
    assert_eq!(page.count(&hook("key-row")), 0);
}

#[test]
fn signing_out_removes_the_token_and_the_data() {
    let (gateway, tokens) = start();
    gateway.create_active_key("acme", &[]);
    let page = OperatorPage::open(&gateway);
    page.sign_in(&tokens.write);
    page.go_to("keys", "Keys");
    assert_eq!(page.count(&hook("key-row")), 1);
    assert_eq!(page.stored_items(), 1);
    page.click("sign-out");
    wait_until("the form is shown", || page.is_shown(&hook("token-input")));
    assert_eq!(page.stored_items(), 0);
    let kept = page.all_that_is_kept();
    assert!(!kept.contains(&tokens.write) && !kept.contains("acme"), "{kept}");
    page.browser.open(&page.url("keys"));
    wait_until("the form is shown again", || page.is_shown(&hook("token-input")));
}
