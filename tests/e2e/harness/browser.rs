//! A real browser: Chromium without a window, driven through chromedriver (W3C WebDriver and the
//! DevTools protocol).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::front_proxy::find_program;
use super::{TEST_TIMEOUT, free_address, request, wait_for, wait_until};

/// The name of an element's id in WebDriver (W3C WebDriver section 12).
const ELEMENT_KEY: &str = "element-6066-11e4-a52e-4f735466cecf";
/// The key Tab in WebDriver (section 17.4.2).
pub const TAB_KEY: char = '\u{e004}';
/// The key Enter.
pub const ENTER_KEY: char = '\u{e007}';
/// The key Escape.
pub const ESCAPE_KEY: char = '\u{e00c}';
/// A host that resolves to this machine, as the host of a hostile DNS server may.
pub const REBOUND_HOST: &str = "rebound.test";

/// A browser with one window. Dropping this value ends it.
pub struct Browser {
    driver: SocketAddr,
    child: Child,
    session: String,
    /// Holds what driver and browser write, and do not remove.
    folder: TempDir,
}

impl Browser {
    #[track_caller]
    pub fn start() -> Browser {
        let (driver, folder) = (free_address(), TempDir::new().unwrap());
        let child = Command::new(find_program("chromedriver", "chromedriver"))
            .arg(format!("--port={}", driver.port()))
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Browser { driver, child, session: String::new(), folder };
        wait_until("chromedriver listens", || TcpStream::connect(driver).is_ok());
        let arguments = [
            "--headless=new",
            // The tests may run as root, and in a container with a small /dev/shm.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            // Nothing but what a page asks for.
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
            "--disable-extensions",
            "--disable-sync",
            "--disable-quic",
            "--window-size=640,600",
            // It reaches nothing but this machine.
            "--host-resolver-rules=MAP rebound.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, \
             EXCLUDE localhost",
        ];
        // Debian's Chromium sends a site no cookies from pages of other sites unless told so.
        let cookies = json!({ "profile": { "cookie_controls_mode": 0 } });
        let options = json!({
            "args": arguments, "binary": find_program("chromium", "chromium"), "prefs": cookies,
        });
        let logs = json!({ "browser": "ALL", "performance": "ALL" });
        // The tests sign their own certificates.
        let match_all = json!({
            "goog:chromeOptions": options, "goog:loggingPrefs": logs, "acceptInsecureCerts": true,
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": match_all } });
        let created = browser.call("POST", "", &wanted);
        browser.session = created["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    /// Calls the driver with a path below the session, and returns the value of its answer.
    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|fault| panic!("{path}: {fault}"))
    }

    /// As [`Browser::call`]; an error of the driver is returned as its text.
    #[track_caller]
    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let session = &self.session;
        let target = if session.is_empty() {
            "/session".to_owned()
        } else {
            format!("/session/{session}{path}")
        };
        let mut called = request(method, target).with_header("Host", &self.driver.to_string());
        if method == "POST" {
            called = called.with_header("Content-Type", "application/json").body(&body.to_string());
        }
        let answer = called.send(self.driver);
        match answer.status {
            200 => Ok(answer.json()["value"].clone()),
            _ => Err(answer.text()),
        }
    }

    /// Ends the session, and waits until the driver has answered. Unlike [`Browser::call`], it
    /// never panics, because a test that has failed calls it too.
    fn end_session(&self) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(self.driver)?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        let (session, driver) = (&self.session, self.driver);
        write!(
            stream,
            "DELETE /session/{session} HTTP/1.1\r\nHost: {driver}\r\nConnection: close\r\n\r\n"
        )?;
        // The driver keeps the connection open after its answer.
        stream.read_exact(&mut [0])
    }

    /// Opens a page, and waits until it is loaded.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// The only element that matches a CSS selector. A page that is loading may not have it yet.
    #[track_caller]
    fn find(&self, selector: &str) -> String {
        wait_for(selector, || self.try_find(selector))
    }

    fn try_find(&self, selector: &str) -> Option<String> {
        let using = json!({ "using": "css selector", "value": selector });
        let found = self.call("POST", "/elements", &using);
        let [element] = &found.as_array().unwrap()[..] else { return None };
        Some(element[ELEMENT_KEY].as_str().unwrap().to_owned())
    }

    /// Types a text into a field.
    #[track_caller]
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.call("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Clicks on an element, and waits until the next page is loaded.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let element = self.find(selector);
        self.call("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Clicks on the only element that matches a CSS selector. Returns false if there is none, or
    /// if something hides it: the page may be about to show it.
    #[track_caller]
    pub fn try_click(&self, selector: &str) -> bool {
        let Some(element) = self.try_find(selector) else { return false };
        self.try_call("POST", &format!("/element/{element}/click"), &json!({})).is_ok()
    }

    /// Replaces the text of a field. Returns false if nobody can type into it yet.
    #[track_caller]
    pub fn try_fill(&self, selector: &str, text: &str) -> bool {
        let Some(element) = self.try_find(selector) else { return false };
        let path = |action: &str| format!("/element/{element}/{action}");
        self.try_call("POST", &path("clear"), &json!({})).is_ok()
            && self.try_call("POST", &path("value"), &json!({ "text": text })).is_ok()
    }

    /// Presses keys one after the other, wherever the focus is.
    #[track_caller]
    pub fn press_keys(&self, keys: &str) {
        let press =
            |key: char| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }));
        let presses: Vec<Value> = keys.chars().flat_map(press).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": presses });
        self.call("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// Runs a script in the page, and returns its value; that of a promise, once it is fulfilled.
    #[track_caller]
    pub fn run_script(&self, script: &str, arguments: &[Value]) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Calls a method of the DevTools protocol. The content security policy of the page does not
    /// bind it.
    #[track_caller]
    pub fn call_devtools(&self, method: &str, parameters: &Value) -> Value {
        let call = json!({ "cmd": method, "params": parameters });
        self.call("POST", "/goog/cdp/execute", &call)
    }

    /// Shows the page in this size, and with a preference for a dark or a light scheme.
    #[track_caller]
    pub fn set_view(&self, width: u32, height: u32, is_dark: bool) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call_devtools("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call_devtools("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Saves the files that pages offer in this folder.
    #[track_caller]
    pub fn save_downloads_in(&self, folder: &Path) {
        let allow = json!({ "behavior": "allow", "downloadPath": folder });
        self.call_devtools("Browser.setDownloadBehavior", &allow);
    }

    /// The warnings and errors on the console since the last call.
    #[track_caller]
    pub fn take_console_faults(&self) -> Vec<String> {
        let entries = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().unwrap().iter();
        let faults = entries.filter(|it| it["level"] == "SEVERE" || it["level"] == "WARNING");
        faults.map(|it| it["message"].as_str().unwrap().to_owned()).collect()
    }

    /// The addresses that the browser has requested since the last call.
    #[track_caller]
    pub fn take_requested_urls(&self) -> Vec<String> {
        let entries = self.call("POST", "/se/log", &json!({ "type": "performance" }));
        let parse = |entry: &Value| -> Option<String> {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let event = &event["message"];
            let is_request = event["method"] == "Network.requestWillBeSent";
            is_request.then(|| event["params"]["request"]["url"].as_str().unwrap().to_owned())
        };
        entries.as_array().unwrap().iter().filter_map(parse).collect()
    }

    /// Fills in a field and submits its form as a browser does whose scripts are off.
    #[track_caller]
    pub fn submit_without_script(&self, selector: &str, text: &str) {
        let script = "const [selector, text] = arguments, field = document.querySelector(selector); \
                      field.value = text; field.form.submit();";
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [selector, text] }));
        wait_until("another page is loaded", || self.url().contains('?'));
    }

    /// The visible text of the element that matches a CSS selector; empty while there is none.
    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        let script = "return document.querySelector(arguments[0])?.innerText.trim() ?? ''";
        let run = json!({ "script": script, "args": [selector] });
        self.call("POST", "/execute/sync", &run).as_str().unwrap_or_default().to_owned()
    }

    /// The address of the page.
    #[track_caller]
    pub fn url(&self) -> String {
        self.call("GET", "/url", &Value::Null).as_str().unwrap().to_owned()
    }

    /// Saves a picture of the page.
    #[track_caller]
    pub fn save_screenshot(&self, file: &Path) {
        let picture = self.call("GET", "/screenshot", &Value::Null);
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture.as_str().unwrap());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes.unwrap()).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // The driver ends the browser with the session; a failed test must not leave one
            // either.
            let _ = self.end_session();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The browser's last processes may still write there.
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(20));
            if std::fs::remove_dir_all(self.folder.path()).is_ok() {
                break;
            }
        }
    }
}
