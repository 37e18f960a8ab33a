//! A real browser: Chromium without a window, driven through chromedriver (W3C WebDriver).

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use serde_json::{Value, json};

use super::front_proxy::find_program;
use super::{free_address, request, wait_for, wait_until};

/// The name of an element's id in WebDriver (W3C WebDriver section 12).
const ELEMENT_KEY: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window. Dropping this value ends it.
pub struct Browser {
    driver: SocketAddr,
    child: Child,
    session: String,
}

impl Browser {
    #[track_caller]
    pub fn start() -> Browser {
        let driver = free_address();
        let child = Command::new(find_program("chromedriver", "chromedriver"))
            .arg(format!("--port={}", driver.port()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Browser { driver, child, session: String::new() };
        wait_until("chromedriver listens", || TcpStream::connect(driver).is_ok());
        let arguments = [
            "--headless=new",
            // The tests may run as root, and in a container with a small /dev/shm.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            "--window-size=640,600",
            // It reaches nothing but this machine.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ];
        let options = json!({ "args": arguments, "binary": find_program("chromium", "chromium") });
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let created = browser.call("POST", "", &wanted);
        browser.session = created["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    /// Calls the driver with a path below the session, and returns the value of its answer.
    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
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
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()["value"].clone()
    }

    /// Opens a page, and waits until it is loaded.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// The only element that matches a CSS selector. A page that is loading may not have it yet.
    #[track_caller]
    fn find(&self, selector: &str) -> String {
        let using = json!({ "using": "css selector", "value": selector });
        wait_for(selector, || {
            let found = self.call("POST", "/elements", &using);
            let [element] = &found.as_array().unwrap()[..] else { return None };
            Some(element[ELEMENT_KEY].as_str().unwrap().to_owned())
        })
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
        // chromedriver ends the browser with the session.
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", "", &Value::Null);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
