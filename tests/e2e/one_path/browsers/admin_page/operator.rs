//! The operator: tokens of each scope, and a browser with the page of a gateway.

use std::cell::RefCell;
use std::process::Command;

use serde_json::Value;

use crate::harness::{BINARY, Browser, Gateway, Setup, run_command, wait_until};

/// The sections of the page: the address, and the heading.
pub const SECTIONS: [(&str, &str); 11] = [
    ("health", "Health"),
    ("traffic", "Traffic"),
    ("verdicts", "Verdicts"),
    ("screening", "Screening"),
    ("servers", "Servers and routes"),
    ("accounts", "Accounts"),
    ("keys", "Keys"),
    ("usage", "Usage"),
    ("domains", "Look-up and overrides"),
    ("lists", "Lists and feeds"),
    ("audit", "Audit"),
];

/// An admin token of each scope; the config has their hashes.
pub struct Tokens {
    pub write: String,
    pub read: String,
    pub expired: String,
    /// Of the account `acme`.
    pub account: String,
}

/// Makes a token, and returns it with its section for the config.
pub fn create_token(name: &str, scope: &str, expires: Option<&str>) -> (String, String) {
    let mut command = Command::new(BINARY);
    command.args(["admin-token", "create", "--json", "--name", name, "--scope", scope]);
    let made = run_command(&mut command).expect(0).json();
    let text = |member: &str| made[member].as_str().unwrap().to_owned();
    let (token, hash) = (text("token"), text("hash"));
    let expires = expires.map_or(String::new(), |at| format!("expires = \"{at}\"\n"));
    let entry = format!(
        "[[admin.token]]\nname = \"{name}\"\nhash = \"{hash}\"\nscope = \"{scope}\"\n{expires}"
    );
    (token, entry)
}

/// Adds a token of each scope to the config.
pub fn add_tokens(setup: Setup) -> (Setup, Tokens) {
    let (write, write_entry) = create_token("ops", "write", None);
    let (read, read_entry) = create_token("watch", "read", None);
    let (expired, expired_entry) = create_token("old", "write", Some("2026-01-01T00:00:00Z"));
    let (account, account_entry) = create_token("customer", "account:acme", None);
    let entries = [write_entry, read_entry, expired_entry, account_entry].concat();
    (setup.append_toml(&entries), Tokens { write, read, expired, account })
}

/// A gateway with the small table and two plans.
pub fn setup() -> Setup {
    let setup = Setup::new().set("plans.free", "1000").set("plans.pro", "50000");
    // The metrics show what happened, also to a test without a token.
    setup.set("admin.metrics_public", "true")
}

/// Starts a gateway, and opens its page with the token that may write.
pub fn start_signed_in(setup: Setup) -> (Gateway, OperatorPage) {
    let (setup, tokens) = add_tokens(setup);
    let gateway = setup.start();
    let page = OperatorPage::open(&gateway);
    page.sign_in(&tokens.write);
    (gateway, page)
}

/// The page of a gateway in a browser. Dropping this value checks the console and the requests.
pub struct OperatorPage {
    pub browser: Browser,
    origin: String,
    expected_faults: RefCell<Vec<&'static str>>,
}

/// The selector of a hook for tests.
pub fn hook(name: &str) -> String {
    format!("[data-testid=\"{name}\"]")
}

impl OperatorPage {
    #[track_caller]
    pub fn open(gateway: &Gateway) -> OperatorPage {
        let browser = Browser::start();
        browser.set_view(1280, 900, false);
        let origin = format!("http://{}", gateway.admin);
        browser.open(&origin);
        OperatorPage { browser, origin, expected_faults: RefCell::default() }
    }

    pub fn url(&self, section: &str) -> String {
        format!("{}/#/{section}", self.origin)
    }

    /// Signs in, and waits until the first section is shown.
    #[track_caller]
    pub fn sign_in(&self, token: &str) {
        self.submit_token(token);
        wait_until("the page shows a section", || {
            self.is_shown(&hook("sign-out")) && !self.is_shown(&hook("token-input"))
        });
        self.wait_until_loaded();
    }

    #[track_caller]
    pub fn submit_token(&self, token: &str) {
        self.fill("token-input", token);
        self.click("token-submit");
    }

    /// Opens a section, and waits until its data is there.
    #[track_caller]
    pub fn go_to(&self, section: &str, heading: &str) {
        self.browser.run_script("location.hash = arguments[0]", &[format!("#/{section}").into()]);
        wait_until(&format!("the heading is {heading}"), || {
            self.browser.text("#section h1") == heading
        });
        self.wait_until_loaded();
    }

    #[track_caller]
    pub fn wait_until_loaded(&self) {
        wait_until("all parts of the section are loaded", || {
            self.count("main [aria-busy=true], main[aria-busy=true]") == 0
        });
    }

    /// Clicks on the element with this hook once the page shows it and has enabled it.
    #[track_caller]
    pub fn click(&self, name: &str) {
        self.click_on(&hook(name));
    }

    #[track_caller]
    pub fn click_on(&self, selector: &str) {
        wait_until(&format!("a click on {selector}"), || {
            self.is_enabled(selector) && self.browser.try_click(selector)
        });
    }

    /// Chooses an option of a list by its value.
    #[track_caller]
    pub fn choose(&self, name: &str, value: &str) {
        self.click_on(&format!("{} option[value=\"{value}\"]", hook(name)));
    }

    #[track_caller]
    pub fn fill(&self, name: &str, text: &str) {
        let selector = hook(name);
        wait_until(&format!("a text in {name}"), || {
            self.is_enabled(&selector) && self.browser.try_fill(&selector, text)
        });
    }

    /// The visible text of the element with this hook; empty while there is none.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        self.browser.text(&hook(name))
    }

    /// Waits until the element with this hook shows this text among others.
    #[track_caller]
    pub fn wait_for_text(&self, name: &str, part: &str) {
        self.wait_for_text_in(&hook(name), part);
    }

    #[track_caller]
    pub fn wait_for_text_in(&self, selector: &str, part: &str) {
        wait_until(&format!("{selector} shows {part:?}"), || {
            self.browser.text(selector).contains(part)
        });
    }

    #[track_caller]
    pub fn wait_for_element(&self, selector: &str) {
        wait_until(&format!("there is {selector}"), || self.count(selector) > 0);
    }

    #[track_caller]
    pub fn wait_for_absence(&self, selector: &str) {
        wait_until(&format!("there is no {selector}"), || self.count(selector) == 0);
    }

    #[track_caller]
    pub fn count(&self, selector: &str) -> u64 {
        let script = "return document.querySelectorAll(arguments[0]).length";
        self.browser.run_script(script, &[selector.into()]).as_u64().unwrap()
    }

    /// Whether exactly one visible element matches.
    #[track_caller]
    pub fn is_shown(&self, selector: &str) -> bool {
        let script = "return [...document.querySelectorAll(arguments[0])]
            .filter((it) => it.checkVisibility()).length === 1";
        self.browser.run_script(script, &[selector.into()]) == true
    }

    #[track_caller]
    fn is_enabled(&self, selector: &str) -> bool {
        let script = "return document.querySelector(arguments[0])?.disabled !== true";
        self.browser.run_script(script, &[selector.into()]) == true
    }

    /// The controls that change something: all, and those that are enabled.
    #[track_caller]
    pub fn count_write_controls(&self) -> (u64, u64) {
        (self.count("[data-write]"), self.count("[data-write]:not(:disabled)"))
    }

    /// The attribute of the first element that matches.
    #[track_caller]
    pub fn attribute(&self, selector: &str, name: &str) -> Option<String> {
        let script = "return document.querySelector(arguments[0])?.getAttribute(arguments[1])";
        let value = self.browser.run_script(script, &[selector.into(), name.into()]);
        value.as_str().map(str::to_owned)
    }

    /// The value of a field.
    #[track_caller]
    pub fn value(&self, name: &str) -> String {
        let script = "return document.querySelector(arguments[0]).value";
        let value = self.browser.run_script(script, &[hook(name).into()]);
        value.as_str().unwrap().to_owned()
    }

    /// All that the page holds and keeps: its elements, the values of its fields, and its storage.
    #[track_caller]
    pub fn all_that_is_kept(&self) -> String {
        let script = "const fields = [...document.querySelectorAll('input, textarea, select')];
            return JSON.stringify([document.documentElement.outerHTML, document.title,
                fields.map((it) => it.value), { ...sessionStorage }, { ...localStorage },
                document.cookie, location.href, history.state])";
        self.browser.run_script(script, &[]).as_str().unwrap().to_owned()
    }

    /// The number of items in the storage of the browser.
    #[track_caller]
    pub fn stored_items(&self) -> u64 {
        let script = "return sessionStorage.length + localStorage.length + document.cookie.length";
        self.browser.run_script(script, &[]).as_u64().unwrap()
    }

    /// Allows a message on the console that contains this text: the browser prints each answer from
    /// 400 on.
    pub fn expect_console_fault(&self, part: &'static str) {
        self.expected_faults.borrow_mut().push(part);
    }

    /// Panics if the console has other warnings or errors than expected, or lacks an expected one.
    #[track_caller]
    pub fn check_console(&self) {
        let faults = self.browser.take_console_faults();
        let expected = self.expected_faults.take();
        let is_expected = |fault: &&String| expected.iter().any(|part| fault.contains(part));
        let (told, unexpected): (Vec<&String>, Vec<&String>) = faults.iter().partition(is_expected);
        assert!(unexpected.is_empty(), "the console has {unexpected:?}");
        let is_told = |part: &&str| told.iter().any(|fault| fault.contains(*part));
        assert!(expected.iter().all(is_told), "the console has only {told:?}");
    }

    /// The paths that the browser has requested since the last call. Panics if it has asked another
    /// host.
    #[track_caller]
    pub fn take_requested_paths(&self) -> Vec<String> {
        let urls = self.browser.take_requested_urls();
        let local = |url: &&String| !url.starts_with("blob:") && !url.starts_with("data:");
        let path = |url: &String| match url.strip_prefix(&self.origin) {
            Some(path) if path.starts_with('/') => path.to_owned(),
            _ => panic!("the browser has requested {url}"),
        };
        urls.iter().filter(local).map(path).collect()
    }
}

impl Drop for OperatorPage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.check_console();
        self.take_requested_paths();
    }
}

/// The records of the audit, the newest first, as the command shows them.
pub fn read_audit(gateway: &Gateway) -> Vec<Value> {
    let printed = gateway.cli(&["audit", "--json"]).expect(0).stdout;
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
