//! The page for all: axe-core finds no violation in any section, in light and dark, and on a narrow
//! screen, where nothing lies outside the screen.

use std::path::Path;

use crate::harness::{Browser, ESCAPE_KEY, Gateway, MockUpstream, request, wait_until};

use super::operator::{OperatorPage, SECTIONS, Tokens, add_tokens, hook, setup};

const WIDE: (u32, u32) = (1280, 900);
const NARROW: (u32, u32) = (360, 740);
/// An account with a name as long as names may be.
const LONG_NAME_LENGTH: usize = 128;

/// axe-core, with which each section is checked.
fn read_axe() -> String {
    let file = "target/tools/axe/node_modules/axe-core/axe.min.js";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{file}: {error}: scripts/setup --tests installs axe-core"))
}

/// Everything that axe-core finds in what the page shows.
fn find_violations(browser: &Browser) -> Vec<String> {
    let script = "const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa',
            'best-practice'];
        const describe = ({ impact, id, nodes }) => nodes.map((node) =>
            `${impact} ${id}: ${node.target.join(' ')}: ${node.failureSummary}`);
        return axe.run(document, { runOnly: rules, resultTypes: ['violations'] })
            .then(({ violations, passes }) => {
                if (passes.length < 10) throw new Error('axe has checked too little');
                return violations.flatMap(describe);
            })";
    let found = browser.run_script(script, &[]);
    found.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// How far the page is wider than the screen.
fn measure_overflow(browser: &Browser) -> i64 {
    let script = "return document.documentElement.scrollWidth - innerWidth";
    browser.run_script(script, &[]).as_i64().unwrap()
}

/// Checks what a page shows in light and dark.
struct Checker<'p> {
    page: &'p OperatorPage,
    size: (u32, u32),
    axe: String,
    faults: Vec<String>,
    views: usize,
}

impl Checker<'_> {
    fn check(&mut self, view: &str) {
        let browser = &self.page.browser;
        if browser.run_script("return typeof axe", &[]) == "undefined" {
            let run = serde_json::json!({ "expression": self.axe });
            browser.call_devtools("Runtime.evaluate", &run);
        }
        for is_dark in [false, true] {
            browser.set_view(self.size.0, self.size.1, is_dark);
            let scheme = if is_dark { "dark" } else { "light" };
            let found = find_violations(browser).into_iter();
            self.faults.extend(found.map(|fault| format!("{view}, {scheme}: {fault}")));
            self.views += 1;
        }
        let overflow = measure_overflow(browser);
        if overflow > 0 {
            self.faults.push(format!("{view}: it is {overflow} px wider than the screen"));
        }
    }

    fn check_sections(&mut self) {
        let page = self.page;
        let long_name = "n".repeat(LONG_NAME_LENGTH);
        let long = format!("accounts/{long_name}");
        let further = [
            ("accounts/acme", "acme"),
            (long.as_str(), long_name.as_str()),
            ("domains?domain=first.test", "Look-up and overrides"),
        ];
        for (section, heading) in SECTIONS.into_iter().chain(further) {
            page.go_to(section, heading);
            if section.contains('?') {
                page.wait_for_element(&hook("lookup-result"));
            }
            let open = "for (const it of document.querySelectorAll('details')) it.open = true";
            page.browser.run_script(open, &[]);
            self.check(section);
        }
    }

    fn check_dialogs(&mut self) {
        let page = self.page;
        let escape = || {
            page.browser.press_keys(&ESCAPE_KEY.to_string());
            page.wait_for_absence("dialog[open]");
        };
        page.go_to("keys", "Keys");
        page.click("create-key-open");
        page.fill("create-key-account", "a b");
        page.click("create-key-submit");
        page.wait_for_element(&hook("error"));
        self.check("the dialog that creates a key, with an error");
        page.fill("create-key-account", "acme");
        page.click("create-key-submit");
        page.wait_for_element(&hook("new-key-text"));
        self.check("the dialog with a new key");
        page.click("new-key-close");
        page.wait_until_loaded();
        let first_row = format!("{}:first-child", hook("key-row"));
        for (button, view) in [("rotate-key", "rotates"), ("revoke-key", "revokes")] {
            page.click_on(&format!("{first_row} {}", hook(button)));
            self.check(&format!("the dialog that {view} a key"));
            escape();
        }
        page.go_to("domains", "Look-up and overrides");
        page.fill("override-domain", "gmail.com");
        page.click("override-deny");
        page.wait_for_element(&hook("error"));
        self.check("a refused override");
    }
}

/// A gateway with something to show in each section.
fn start_with_data() -> (Gateway, Tokens) {
    let upstream = MockUpstream::start();
    let route = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
                 [upstream.route.screen]\nfields = [\"email\"]\nmode = \"block\"\n";
    let setup = setup().with_upstreams(&[upstream.address]).append_toml(route);
    let (setup, tokens) = add_tokens(setup);
    let gateway = setup.start();
    let long = "n".repeat(LONG_NAME_LENGTH);
    gateway.create_key(&long, &["--label", &"l".repeat(60), "--expires", "90d"]);
    let origin = format!("https://{}.example.com", "o".repeat(60));
    gateway.cli(&["accounts", "set", "acme", "--limit", "12"]).expect(0);
    let key = gateway.create_active_key("acme", &["--origin", &origin]);
    for _ in 0..10 {
        gateway.get_domain("first.test", &key).expect(200);
    }
    gateway.get_domain("first.test", "rg_unknown").expect(401);
    let form = request("POST", "/signup")
        .with_header("Content-Type", "application/x-www-form-urlencoded")
        .body("email=jane%40first.test");
    gateway.send_request(&form).expect(422);
    let (_, revoked) = gateway.create_active_key_with_id("acme", &["--label", "old"]);
    gateway.cli(&["keys", "revoke", &revoked]).expect(0);
    gateway.cli(&["table", "deny", &format!("{}.test", "d".repeat(60)), "--note", "x"]).expect(0);
    gateway.edit_config(|text| text.replace("free = 1000", "free = \"many\""));
    wait_until("the config is broken", || gateway.readyz().text().contains("config"));
    (gateway, tokens)
}

fn assert_no_violation(size: (u32, u32)) {
    let (gateway, tokens) = start_with_data();
    let page = OperatorPage::open(&gateway);
    let mut checker = Checker { page: &page, size, axe: read_axe(), faults: Vec::new(), views: 0 };
    page.submit_token(&tokens.expired);
    page.wait_for_element(&hook("error"));
    checker.check("the sign-in form, with an error");
    page.sign_in(&tokens.write);
    page.wait_for_element(&hook("problem"));
    checker.check_sections();
    checker.check_dialogs();
    for (token, view) in [(&tokens.read, "a token that may read"), (&tokens.account, "an account")]
    {
        page.click("sign-out");
        page.sign_in(token);
        page.wait_for_element(&hook("read-only-note"));
        checker.check(view);
    }
    assert!(checker.faults.is_empty(), "{}", checker.faults.join("\n"));
    assert_eq!(checker.views, 44, "views");
}

#[test]
fn axe_finds_no_violation_on_a_wide_screen_in_light_and_dark() {
    assert_no_violation(WIDE);
}

#[test]
fn axe_finds_no_violation_on_a_narrow_screen_in_light_and_dark() {
    assert_no_violation(NARROW);
}

#[test]
fn axe_would_find_a_violation() {
    let gateway = setup().start();
    let page = OperatorPage::open(&gateway);
    page.wait_for_text_in("#section h1", "Health");
    page.wait_until_loaded();
    let spoil = "document.querySelector('#section h1').textContent = '';
        document.querySelector('main').append(document.createElement('input'))";
    page.browser.run_script(spoil, &[]);
    let run = serde_json::json!({ "expression": read_axe() });
    page.browser.call_devtools("Runtime.evaluate", &run);
    let found = find_violations(&page.browser).join("\n");
    assert!(found.contains("critical label") && found.contains("empty-heading"), "{found}");
}
