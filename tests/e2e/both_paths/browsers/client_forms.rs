//! The posts of `tests/forms`, as real clients send them: riskgate judges each, on a route over
//! HTTP/1.1 and HTTP/2, and as the question of a proxy. `browser_forms` has the real proxy.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::harness::{CertificateAuthority, Connection, MockUpstream, Setup, run_command};

/// The address in the files, and the one that replaces it: both have one length, so no
/// `Content-Length` changes.
const THROWAWAY: &[u8] = b"yopmail.com";
const HONEST: &[u8] = b"outlook.com";
const FIELDS: &str = "[\"email\", \"user.email\"]";

/// A post of a client.
struct ClientForm {
    name: String,
    /// The request, with its header.
    bytes: Vec<u8>,
    body_start: usize,
}

impl ClientForm {
    fn body(&self) -> &[u8] {
        &self.bytes[self.body_start..]
    }

    fn content_type(&self) -> String {
        let head = std::str::from_utf8(&self.bytes[..self.body_start]).expect(&self.name);
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        found.unwrap_or_else(|| panic!("{}: no Content-Type", self.name)).1.trim().to_owned()
    }

    /// The same post, with an honest address.
    fn with_honest_address(&self) -> ClientForm {
        let mut bytes = self.bytes.clone();
        let places = memchr::memmem::find_iter(&self.bytes, THROWAWAY);
        places.for_each(|at| bytes[at..at + HONEST.len()].copy_from_slice(HONEST));
        assert_ne!(bytes, self.bytes, "{}", self.name);
        ClientForm { name: self.name.clone(), bytes, body_start: self.body_start }
    }

    /// Sends the post to an address. Returns the status and the body of the answer.
    fn send(&self, address: SocketAddr) -> (u16, String) {
        let mut connection = Connection::open(address);
        connection.send(&self.bytes);
        let answer = connection.read_response_to("POST").expect(&self.name);
        (answer.status, answer.text())
    }
}

fn client_forms() -> Vec<ClientForm> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forms");
    let read = |path: std::path::PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let body_start = memchr::memmem::find(&bytes, b"\r\n\r\n").expect(&name) + 4;
        ClientForm { name, bytes, body_start }
    };
    let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut forms: Vec<ClientForm> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "http")).map(read).collect();
    forms.sort_by(|left, right| left.name.cmp(&right.name));
    let sources = std::fs::read_to_string(folder.join("SOURCES.tsv")).unwrap();
    let listed = sources.lines().skip(1).map(|line| line.split('\t').next().unwrap());
    let names: Vec<&str> = forms.iter().map(|form| form.name.as_str()).collect();
    assert_eq!(names, listed.collect::<Vec<_>>(), "SOURCES.tsv lists the files in this order");
    forms
}

fn setup_route(site: &MockUpstream) -> Setup {
    Setup::with_bundled_table().with_upstreams(&[site.address]).append_toml(&format!(
        "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
         [upstream.route.screen]\nfields = {FIELDS}\nmode = \"block\"\n"
    ))
}

/// Checks that the site has received exactly these forms, byte for byte, and that riskgate has
/// judged each.
#[track_caller]
fn assert_received(site: &MockUpstream, forms: &[ClientForm]) {
    let received = site.received_requests();
    assert_eq!(received.len(), forms.len());
    for (seen, form) in received.iter().zip(forms) {
        assert!(seen.body == form.body(), "{}: the body has changed", form.name);
        assert_eq!(seen.header("Content-Type"), form.content_type(), "{}", form.name);
        let told = ["Action", "Reason"].map(|name| seen.header(&format!("X-Riskgate-{name}")));
        assert_eq!(told, ["pass", "safe"], "{}", form.name);
    }
}

#[test]
fn the_forms_of_all_clients_are_judged_on_a_route() {
    let site = MockUpstream::start();
    let gateway = setup_route(&site).start();
    let forms = client_forms();
    for form in &forms {
        let (status, answer) = form.send(gateway.http);
        assert_eq!(status, 422, "{}: {answer}", form.name);
        // A browser's own form asks for a page, and a program gets JSON.
        let is_refused = match answer.contains("<!doctype html>") {
            true => answer.contains("<h1>Please use another e-mail address.</h1>"),
            false => answer.contains("\"email_refused\"") && answer.contains("\"disposable\""),
        };
        assert!(is_refused, "{}: {answer}", form.name);
    }
    assert_eq!(site.request_count(), 0);
    let honest: Vec<ClientForm> = forms.iter().map(ClientForm::with_honest_address).collect();
    for form in &honest {
        assert_eq!(form.send(gateway.http).0, 200, "{}", form.name);
    }
    assert_received(&site, &honest);
}

/// Posts all forms with curl on one HTTP/2 connection. Returns the status of each answer.
fn post_over_http2(gateway: SocketAddr, folder: &Path, forms: &[ClientForm]) -> Vec<String> {
    let mut config = String::new();
    for form in forms {
        let body = folder.join(&form.name);
        std::fs::write(&body, form.body()).unwrap();
        let content_type = form.content_type().replace('\\', "\\\\").replace('"', "\\\"");
        writeln!(
            config,
            "{}url = \"https://{gateway}/signup\"\nhttp2\ninsecure\noutput = /dev/null\n\
             header = \"Content-Type: {content_type}\"\ndata-binary = \"@{}\"\n\
             write-out = \"%{{http_code}} %{{http_version}}\\n\"",
            if config.is_empty() { "" } else { "next\n" },
            body.display()
        )
        .unwrap();
    }
    let file = folder.join("curl.txt");
    std::fs::write(&file, config).unwrap();
    let mut curl = Command::new("curl");
    let ran = run_command(curl.args(["-s", "--max-time", "60", "-K"]).arg(&file));
    ran.expect(0).stdout.lines().map(str::to_owned).collect()
}

#[test]
fn the_forms_of_all_clients_are_judged_over_http2() {
    let site = MockUpstream::start();
    let setup = setup_route(&site);
    let authority = CertificateAuthority::new(&setup.path(""));
    let certificate = authority.issue_certificate("site", "IP:127.0.0.1");
    let gateway = setup.with_certificates(&[certificate]).start();
    let folder = tempfile::tempdir().unwrap();
    let forms = client_forms();
    let statuses = post_over_http2(gateway.https_address(), folder.path(), &forms);
    for (form, status) in forms.iter().zip(&statuses) {
        assert_eq!(status, "422 2", "{}", form.name);
    }
    assert_eq!((statuses.len(), site.request_count()), (forms.len(), 0));
    let honest: Vec<ClientForm> = forms.iter().map(ClientForm::with_honest_address).collect();
    let statuses = post_over_http2(gateway.https_address(), folder.path(), &honest);
    assert_eq!(statuses, vec!["200 2"; forms.len()]);
    assert_received(&site, &honest);
}

#[test]
fn the_forms_of_all_clients_are_judged_for_a_proxy_that_asks() {
    let gateway = Setup::with_bundled_table()
        .append_toml(
            "[authz]\npath = \"/signup\"\ncheck = [\"screen\"]\n\
             email = [\"body:email\", \"body:user.email\"]\nmode = \"block\"\n",
        )
        .start();
    for form in client_forms() {
        let (status, answer) = form.send(gateway.http);
        assert_eq!(status, 403, "{}: {answer}", form.name);
        assert!(
            answer.contains("\"email_refused\"") && answer.contains("\"disposable\""),
            "{answer}"
        );
        let mut connection = Connection::open(gateway.http);
        connection.send(&form.with_honest_address().bytes);
        let answer = connection.read_response_to("POST").expect(&form.name).expect(200);
        assert_eq!(answer.header("X-Riskgate-Action"), Some("pass"), "{}", form.name);
    }
}
