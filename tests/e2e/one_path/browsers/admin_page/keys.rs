//! Keys that the operator creates, rotates and revokes on the page, and what the gateway then does.

use serde_json::Value;

use crate::harness::{ESCAPE_KEY, Gateway, get, wait_until};

use super::operator::{OperatorPage, hook, read_audit, setup, start_signed_in};

/// Waits for the dialog that shows a new key, and returns the key.
#[track_caller]
pub fn read_new_key(page: &OperatorPage) -> String {
    wait_until("the new key is shown", || page.is_shown(&hook("new-key-text")));
    page.text("new-key-text")
}

fn row_of(id: &str) -> String {
    format!("{}[data-id=\"{id}\"]", hook("key-row"))
}

/// The id of the newest key on the page.
#[track_caller]
fn newest_id(page: &OperatorPage) -> String {
    page.attribute(&hook("key-row"), "data-id").expect("a row")
}

/// A fault in the gateway, a disk or a proxy could keep a key: no file of the gateway may have it.
fn assert_no_file_has(gateway: &Gateway, key: &str) {
    for entry in std::fs::read_dir(gateway.path("")).unwrap().flatten() {
        let path = entry.path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let has_key = bytes.windows(key.len()).any(|part| part == key.as_bytes());
        assert!(!has_key, "{} has the key", path.display());
    }
}

#[test]
fn a_key_of_the_page_works_on_the_gateway_and_is_shown_only_once() {
    let (gateway, page) = start_signed_in(setup());
    page.go_to("keys", "Keys");
    page.click("create-key-open");
    page.fill("create-key-account", "no account");
    page.click("create-key-submit");
    page.wait_for_text("error", "Enter 1 to 128 visible ASCII characters");
    page.choose("create-key-plan", "pro");
    page.click("create-key-cancel");
    page.wait_for_absence("dialog[open]");
    page.click("create-key-open");
    let script = "return ['account', 'plan'].map((name) => \
                  document.querySelector(`[data-testid=create-key-${name}]`).value);";
    let values = page.browser.run_script(script, &[]);
    assert_eq!(values, serde_json::json!(["", ""]), "Cancel forgets what was entered");
    page.fill("create-key-account", "acme");
    page.choose("create-key-plan", "pro");
    page.fill("create-key-label", "web page");
    page.fill("create-key-origins", "https://app.example.com");
    page.fill("create-key-expires", "90d");
    page.click("create-key-submit");
    let key = read_new_key(&page);
    assert!(page.browser.text("dialog[open]").contains("This key is shown only now."));
    // The answer came once the key was in force.
    let from_app = get("/v1/public/domain/first.test").key(&key);
    let from_app = from_app.with_header("Origin", "https://app.example.com");
    gateway.send_request(&from_app).expect(200);
    gateway.get_domain("first.test", &key).expect(200);
    let elsewhere = get("/v1/public/domain/first.test").key(&key);
    gateway.send_request(&elsewhere.with_header("Origin", "https://other.example")).expect(403);
    page.browser.press_keys(&ESCAPE_KEY.to_string().repeat(2));
    assert_eq!(page.text("new-key-text"), key, "only its button closes the dialog");
    page.click("new-key-copy");
    page.wait_for_text_in("dialog[open] [role=status]", "Copied.");
    page.click("new-key-close");
    page.wait_for_absence("dialog[open]");
    page.wait_until_loaded();
    assert!(!page.all_that_is_kept().contains(&key), "the page forgets the key");
    assert_no_file_has(&gateway, &key);
    let row = page.browser.text(&row_of(&newest_id(&page)));
    for part in ["acme", "pro", "web page", "https://app.example.com", "active"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    page.browser.open(&page.url("keys"));
    page.wait_for_element(&hook("key-row"));
    assert!(!page.all_that_is_kept().contains(&key));
    let listed = gateway.cli(&["keys", "list", "--json"]).expect(0).json();
    assert_eq!(listed[0]["label"], "web page");
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn a_key_that_only_the_key_file_has_can_be_revoked_and_not_rotated() {
    let setup = setup();
    let file = setup.path("keys.toml");
    let hash = "ab".repeat(32);
    let entry = format!("[[key]]\nid = \"filed\"\naccount = \"a\"\nhash = \"sha256:{hash}\"\n");
    std::fs::write(&file, entry).unwrap();
    let (_gateway, page) =
        start_signed_in(setup.set_text("keys.file", &file.display().to_string()));
    page.go_to("keys", "Keys");
    page.wait_for_element(&format!("{} {}", row_of("filed"), hook("revoke-key")));
    page.wait_for_absence(&format!("{} {}", row_of("filed"), hook("rotate-key")));
}

#[test]
fn a_rotated_key_ends_after_its_overlap_and_a_revoked_key_gets_a_401() {
    let (gateway, page) = start_signed_in(setup());
    let (old, old_id) = gateway.create_active_key_with_id("acme", &["--label", "old"]);
    page.go_to("keys", "Keys");
    page.click_on(&format!("{} {}", row_of(&old_id), hook("rotate-key")));
    page.fill("rotate-overlap", "3s");
    page.click("confirm");
    let new = read_new_key(&page);
    page.wait_for_text("replaced", &format!("The old key {old_id} ends"));
    page.click("new-key-close");
    gateway.get_domain("first.test", &new).expect(200);
    wait_until("the old key ends", || gateway.get_domain("first.test", &old).status == 401);
    gateway.get_domain("first.test", &new).expect(200);
    page.wait_until_loaded();
    assert!(!page.all_that_is_kept().contains(&new));
    // Keys of the same second have no order.
    let new_row = format!("{}:not([data-id=\"{old_id}\"])", hook("key-row"));
    let new_id = page.attribute(&new_row, "data-id").expect("a second row");
    let revoke = format!("{} {}", row_of(&new_id), hook("revoke-key"));
    page.click_on(&revoke);
    page.wait_for_text_in("dialog[open]", "A revoked key never works again.");
    page.click("cancel");
    page.wait_for_absence("dialog[open]");
    gateway.get_domain("first.test", &new).expect(200);
    page.click_on(&revoke);
    page.click("confirm");
    page.wait_for_element(&format!("{}[data-state=revoked]", row_of(&new_id)));
    gateway.get_domain("first.test", &new).expect(401);
    let records = read_audit(&gateway).into_iter().filter(|record| record["via"] == "page");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let changes: Vec<(String, String)> =
        records.map(|it| (text(&it["operation"]), text(&it["target"]))).collect();
    let expected = [("key.revoke", &new_id), ("key.create", &new_id), ("key.rotate", &old_id)];
    assert_eq!(changes, expected.map(|(operation, id)| (operation.to_owned(), id.clone())));
}

#[test]
fn keys_are_found_by_text_account_and_state_page_by_page() {
    let (gateway, page) = start_signed_in(setup());
    for number in 0..51 {
        gateway.create_key(if number == 0 { "acme" } else { "other" }, &["--label", "batch"]);
    }
    let (_, id) = gateway.create_active_key_with_id("acme", &["--label", "Mobile app"]);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    page.go_to("keys", "Keys");
    page.wait_for_text("list-range", "Keys 1 to 50 of 52");
    page.click("next");
    page.wait_for_text("list-range", "Keys 51 to 52 of 52");
    page.click("previous");
    page.wait_for_text("list-range", "Keys 1 to 50 of 52");
    page.choose("key-state", "revoked");
    page.wait_for_text("list-range", "Keys 1 to 1 of 1");
    page.choose("key-state", "");
    page.fill("key-account-filter", "acme");
    page.wait_for_text("list-range", "Keys 1 to 2 of 2");
    page.fill("key-search", "mobile");
    page.wait_for_text("list-range", "Keys 1 to 1 of 1");
    assert_eq!(newest_id(&page), id);
    assert!(page.browser.url().ends_with("search=mobile&account=acme"), "{}", page.browser.url());
}
