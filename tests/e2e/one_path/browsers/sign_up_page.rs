//! The demo's sign-up page in a real browser: refused with words, asked about a typing error, let
//! through.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{
    Browser, Demo, MockUpstream, Setup, Step, response_bytes, run_command, wait_until,
};

/// The config of the demo that keeps its files below `folder`.
fn demo_config(folder: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(folder).unwrap();
    entries.next().unwrap().unwrap().path().join("riskgate.toml")
}

fn screenshot(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots").join(name)
}

#[test]
fn a_browser_is_refused_asked_and_let_through() {
    let folder = tempfile::tempdir().unwrap();
    let (demo, browser) = (Demo::start(folder.path()), Browser::start());
    let sign_up = |email: &str| {
        browser.open(demo.page());
        browser.type_into("#email", email);
        browser.click("button");
    };
    // Without its script, the page would go on to the next one.
    let expect_text = |selector: &str, text: &str| {
        wait_until(text, || browser.text(selector) == text);
    };
    sign_up("x@yopmail.com");
    expect_text("[role=alert]", "Please use another e-mail address.");
    browser.save_screenshot(&screenshot("sign-up-refused.png"));

    sign_up("jane@gmial.com");
    expect_text("[role=alert]", "Did you mean jane@gmail.com?");
    browser.save_screenshot(&screenshot("sign-up-suggestion.png"));
    browser.click("#answer + button");
    expect_text("[role=status]", "Welcome, jane@gmail.com.");

    // No list has this domain, so riskgate only tells the backend, which asks.
    sign_up("jane@gmaul.com");
    expect_text("[role=alert]", "Did you mean jane@gmail.com?");
    browser.click("form:nth-of-type(1) button");
    expect_text("[role=status]", "Welcome, jane@gmail.com.");
    sign_up("jane@gmaul.com");
    expect_text("[role=alert]", "Did you mean jane@gmail.com?");
    browser.click("form:nth-of-type(2) button");
    expect_text("[role=status]", "Welcome, jane@gmaul.com.");

    // As a browser without scripts.
    browser.open(demo.page());
    browser.submit_without_script("#email", "x@yopmail.com");
    assert_eq!(browser.url(), format!("{}?email=refused", demo.page()));
    expect_text("[role=alert]", "Please use another e-mail address.");
    browser.open(demo.page());
    browser.submit_without_script("#email", "jane@gmial.com");
    let alert = "Please use another e-mail address. Did you mean one of gmail.com?";
    expect_text("[role=alert]", alert);

    sign_up("jane@gmail.com");
    expect_text("[role=status]", "Welcome, jane@gmail.com.");
    assert!(browser.text("body").contains("X-Riskgate-Action: pass"), "{}", browser.text("body"));

    // One word in the demo's config lets the throw-away address through.
    let path = demo_config(folder.path());
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replace("\"block\" ", "\"annotate\" ")).unwrap();
    wait_until("the address passes", || {
        sign_up("x@yopmail.com");
        browser.text("body").contains("Welcome")
    });
    assert!(browser.text("body").contains("X-Riskgate-Action: would_block"));
}

#[test]
fn the_page_of_the_demo_works_without_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Demo::start(folder.path());
    let post = |email: &str, accept: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "20", "-w", "\n%{http_code} %{redirect_url}"]);
        curl.args(["-H", &format!("Accept: {accept}"), "--data-urlencode"]);
        run_command(curl.arg(format!("email={email}")).arg(demo.page())).expect(0).stdout
    };
    assert!(post("x@yopmail.com", "*/*").ends_with("\n422 "));
    assert!(
        post("x@yopmail.com", "text/html")
            .ends_with(&format!("\n303 {}?email=refused", demo.page()))
    );
    assert!(post("<b>@gmail.com", "*/*").ends_with("\n422 "));
    assert!(post("o'neill@gmail.com", "*/*").contains("Welcome, <b>o&#39;neill@gmail.com</b>"));
}

/// The page with a script that docs/signup-form.md shows.
fn page_of_the_document() -> String {
    let document = include_str!("../../../../docs/signup-form.md");
    let (_, rest) = document.split_once("```html\n").unwrap();
    format!("<!doctype html><title>Sign up</title>{}", rest.split("```").next().unwrap())
}

/// The first route that docs/signup-form.md shows, in the mode `block`.
pub fn route_of_the_document() -> String {
    let document = include_str!("../../../../docs/signup-form.md");
    let (_, rest) = document.split_once("[[upstream.route]]\n").unwrap();
    let route = rest.split("```").next().unwrap().replace("\"shadow\"", "\"block\"");
    format!("[[upstream.route]]\n{route}")
}

#[test]
fn the_page_of_the_document_shows_what_riskgate_and_the_backend_answer() {
    let upstream = MockUpstream::with_script(|seen| {
        let html = "Content-Type: text/html; charset=utf-8\r\n";
        let form_again = format!("<p id=fault>Taken.</p>{}", page_of_the_document());
        let is_from = |name: &[u8]| seen.body.windows(name.len()).any(|it| it == name);
        let answer = match seen.request_line().split(' ').take(2).collect::<Vec<_>>()[..] {
            ["POST", "/signup"] if is_from(b"unlucky") => response_bytes(500, html, "<p>Oops.</p>"),
            ["POST", "/signup"] if is_from(b"known") => response_bytes(200, html, &form_again),
            ["POST", "/signup"] if is_from(b"taken") => response_bytes(422, html, &form_again),
            ["POST", "/signup"] => response_bytes(303, "Location: /welcome\r\n", ""),
            ["GET", "/welcome"] => response_bytes(200, html, "<p role=status>Welcome.</p>"),
            _ => response_bytes(200, html, &page_of_the_document()),
        };
        vec![Step::Send(answer)]
    });
    let setup = Setup::with_bundled_table().append_toml(&route_of_the_document());
    let gateway = setup.with_upstreams(&[upstream.address]).start();
    let browser = Browser::start();
    let sign_up = |email: &str| {
        browser.open(&format!("http://{}/signup", gateway.http));
        browser.type_into("[name=email]", email);
        browser.click("button");
    };
    for (email, text) in [
        ("x@yopmail.com", "Please use another e-mail address."),
        ("jane@gmial.com", "Did you mean jane@gmail.com?"),
        ("jane@gmail", "Did you mean jane@gmail.com?"),
        ("unlucky@gmail.com", "Please try again later."),
    ] {
        sign_up(email);
        wait_until(text, || browser.text("[role=alert]") == text);
        let kept = browser.run_script("return document.querySelector('[name=email]').value", &[]);
        assert_eq!(kept, email);
    }
    for email in ["known@gmail.com", "taken@gmail.com"] {
        sign_up(email);
        wait_until("the backend's page", || browser.text("#fault") == "Taken.");
    }
    sign_up("jane@gmail.com");
    wait_until("the user is welcome", || browser.url().ends_with("/welcome"));
    assert_eq!(browser.text("[role=status]"), "Welcome.");
}
