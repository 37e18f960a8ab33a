//! The forms of a page in Chromium, posted in nine ways: riskgate judges every form, on a route and
//! for a proxy that asks, over HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::{
    Browser, CertificateAuthority, MockUpstream, Setup, Step, response_bytes,
    start_haproxy_with_tls,
};
use crate::one_path::proxies::integrations::{ASKED_PATH, setup_riskgate};

/// The page has a frame for the answers to its forms.
const PAGE: &str = "<!doctype html><title>Sign up</title><iframe name=answer></iframe>";

/// Posts an address to a path in every way. Returns the status of each answer, by the way.
const POST_IN_EVERY_WAY: &str = r#"
const [path, email] = arguments;
const formData = (...more) => {
  const data = new FormData();
  for (const [name, ...value] of [["name", "Jane"], ["email", email], ...more]) {
    data.append(name, ...value);
  }
  return data;
};
const photo = new File(["\u0089PNG"], `it's; "my" photo.png`, { type: "image/png" });
const fetchForm = async (body, headers = {}) =>
  (await fetch(path, { method: "POST", body, headers })).status;
const requestForm = (body) => new Promise((done) => {
  const request = new XMLHttpRequest();
  request.onload = () => done(request.status);
  request.open("POST", path);
  request.send(body);
});
const submitForm = (enctype, hasFile) => new Promise((done) => {
  const frame = document.querySelector("iframe");
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action: path, enctype, target: "answer" });
  for (const [name, value] of [["name", "Jane"], ["email", email]]) {
    form.append(Object.assign(document.createElement("input"), { name, value }));
  }
  if (hasFile) {
    form.append(Object.assign(document.createElement("input"), { name: "photo", type: "file" }));
  }
  document.body.append(form);
  frame.onload = () => {
    const [entry] = frame.contentWindow.performance.getEntriesByType("navigation");
    done(entry.responseStatus);
  };
  form.submit();
});
return (async () => ({
  "form, multipart": await submitForm("multipart/form-data", false),
  "form, multipart with a file": await submitForm("multipart/form-data", true),
  "form, urlencoded": await submitForm("application/x-www-form-urlencoded", false),
  "fetch, FormData": await fetchForm(formData()),
  "fetch, FormData with a file": await fetchForm(formData(["photo", photo])),
  "fetch, URLSearchParams": await fetchForm(new URLSearchParams(formData())),
  "fetch, JSON": await fetchForm(JSON.stringify({ name: "Jane", email }),
    { "Content-Type": "application/json" }),
  "fetch, JSON without a type": await fetchForm(JSON.stringify({ name: "Jane", email })),
  "XMLHttpRequest, FormData": await requestForm(formData()),
}))();
"#;
const WAY_COUNT: usize = 9;

/// Serves the page, and answers 200 to each form.
fn start_site() -> MockUpstream {
    MockUpstream::with_script(|request| {
        let body = if request.request_line().starts_with("GET") { PAGE } else { "welcome" };
        vec![Step::Send(response_bytes(200, "Content-Type: text/html\r\n", body))]
    })
}

fn posts_received_by(site: &MockUpstream) -> Vec<(String, Vec<u8>)> {
    let received = site.received_requests();
    let posts = received.iter().filter(|seen| seen.request_line().starts_with("POST"));
    posts.map(|seen| (seen.header("X-Riskgate-Action").to_owned(), seen.body.clone())).collect()
}

/// Opens the page below `path` at this origin, and posts forms to `path`: those with a throw-away
/// address get this status, and the others reach the site.
#[track_caller]
fn assert_forms_are_judged(
    browser: &Browser,
    origin: &str,
    protocol: &str,
    path: &str,
    (site, refusal_status): (&MockUpstream, u16),
) {
    browser.open(&format!("{origin}{path}/page"));
    let script = "return performance.getEntriesByType('navigation')[0].nextHopProtocol";
    assert_eq!(browser.run_script(script, &[]), protocol, "{origin}");
    let post = |email: &str| browser.run_script(POST_IN_EVERY_WAY, &[json!(path), json!(email)]);
    let expect = |answers: &Value, status: u16| {
        let answers = answers.as_object().unwrap();
        assert_eq!(answers.len(), WAY_COUNT);
        for (way, answer) in answers {
            assert_eq!(answer, status, "{way} to {origin}{path}, {protocol}: {answers:?}");
        }
    };
    let before = posts_received_by(site).len();
    expect(&post("joe@yopmail.com"), refusal_status);
    assert_eq!(posts_received_by(site).len(), before, "{origin}{path}");
    expect(&post("jane.doe@gmail.com"), 200);
    let posts = posts_received_by(site).split_off(before);
    assert_eq!(posts.len(), WAY_COUNT);
    for (action, body) in posts {
        assert_eq!(action, "pass", "{}", String::from_utf8_lossy(&body));
    }
}

fn assert_forms_are_judged_over_both_protocols(
    (plain, tls): (SocketAddr, SocketAddr),
    path: &str,
    expected: (&MockUpstream, u16),
) {
    let browser = Browser::start();
    let origin = format!("http://{plain}");
    assert_forms_are_judged(&browser, &origin, "http/1.1", path, expected);
    assert_forms_are_judged(&browser, &format!("https://{tls}"), "h2", path, expected);
}

#[test]
fn every_form_of_a_page_is_judged_on_a_route() {
    let site = start_site();
    let setup = Setup::with_bundled_table().with_upstreams(&[site.address]);
    let authority = CertificateAuthority::new(&setup.path(""));
    let certificate = authority.issue_certificate("site", "IP:127.0.0.1");
    let gateway = setup
        .with_certificates(&[certificate])
        .append_toml(
            "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"GET\", \"POST\"]\nkey = false\n\
             [upstream.route.screen]\nfields = [\"email\"]\nmode = \"block\"\n",
        )
        .start();
    let addresses = (gateway.http, gateway.https_address());
    assert_forms_are_judged_over_both_protocols(addresses, "/signup", (&site, 422));
}

#[test]
fn every_form_of_a_page_is_judged_for_haproxy() {
    let site = start_site();
    let setup = setup_riskgate(&site, "block", "[\"screen\"]");
    let authority = CertificateAuthority::new(&setup.path(""));
    let certificate = authority.issue_certificate("site", "IP:127.0.0.1");
    let riskgate = setup.start();
    let (front, tls) = start_haproxy_with_tls(riskgate.http, site.address, &certificate);
    assert_forms_are_judged_over_both_protocols((front.address, tls), ASKED_PATH, (&site, 403));
}
