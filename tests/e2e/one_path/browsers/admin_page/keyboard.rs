//! The main path with the keyboard alone.

use crate::harness::{ENTER_KEY, TAB_KEY, wait_until};

use super::keys::read_new_key;
use super::operator::{OperatorPage, add_tokens, hook, setup};

/// More stops than any section of the test has.
const MAX_STOPS: usize = 40;

#[track_caller]
fn is_focused(page: &OperatorPage, selector: &str) -> bool {
    let script = "return document.activeElement?.matches(arguments[0]) === true";
    page.browser.run_script(script, &[selector.into()]) == true
}

/// Presses Tab until this element has the focus. Each stop must show that it has the focus.
#[track_caller]
fn move_focus_to(page: &OperatorPage, selector: &str) {
    for _ in 0..MAX_STOPS {
        page.browser.press_keys(&TAB_KEY.to_string());
        let script = "const it = document.activeElement; \
            return it === document.body || getComputedStyle(it).outlineStyle !== 'none'";
        assert_eq!(page.browser.run_script(script, &[]), true, "a stop does not show its focus");
        if is_focused(page, selector) {
            return;
        }
    }
    panic!("the key Tab does not lead to {selector}");
}

#[track_caller]
fn press_enter(page: &OperatorPage) {
    page.browser.press_keys(&ENTER_KEY.to_string());
}

#[test]
fn the_keyboard_alone_signs_in_and_creates_a_key() {
    let (setup, tokens) = add_tokens(setup());
    let gateway = setup.start();
    let page = OperatorPage::open(&gateway);
    wait_until("the field has the focus", || is_focused(&page, &hook("token-input")));
    page.browser.press_keys(&tokens.write);
    press_enter(&page);
    wait_until("the heading has the focus", || is_focused(&page, "#section h1"));
    // The first stop of the page leads past the navigation.
    page.browser.run_script("document.activeElement.blur(); getSelection().removeAllRanges()", &[]);
    move_focus_to(&page, "#nav a[href='#/keys']");
    press_enter(&page);
    wait_until("the keys are shown", || page.browser.text("#section h1") == "Keys");
    wait_until("the heading has the focus", || is_focused(&page, "#section h1"));
    page.wait_until_loaded();
    move_focus_to(&page, &hook("create-key-open"));
    press_enter(&page);
    wait_until("the first field has the focus", || is_focused(&page, &hook("create-key-account")));
    page.browser.press_keys("acme");
    move_focus_to(&page, &hook("create-key-label"));
    page.browser.press_keys("typed");
    press_enter(&page);
    let key = read_new_key(&page);
    wait_until("the button has the focus", || is_focused(&page, &hook("new-key-copy")));
    move_focus_to(&page, &hook("new-key-close"));
    press_enter(&page);
    page.wait_for_absence("dialog[open]");
    wait_until("the focus is back", || is_focused(&page, &hook("create-key-open")));
    gateway.get_domain("first.test", &key).expect(200);
    page.wait_for_text("key-row", "typed");
}

#[test]
fn the_first_stop_of_the_page_leads_to_the_content() {
    let gateway = setup().start();
    let page = OperatorPage::open(&gateway);
    page.wait_for_text_in("#section h1", "Health");
    page.browser.press_keys(&TAB_KEY.to_string());
    assert!(is_focused(&page, "#skip"));
    press_enter(&page);
    wait_until("the content has the focus", || is_focused(&page, "#main"));
    assert_eq!(page.browser.text("#section h1"), "Health");
}
