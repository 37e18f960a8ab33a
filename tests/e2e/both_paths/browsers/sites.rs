//! Four sites behind riskgate with the config of docs/signup-form.md: in Chromium, over HTTPS and
//! HTTP/2, each is what it is behind HAProxy, which only ends TLS.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::harness::{
    Browser, CertificateAuthority, FrontProxy, Gateway, MockUpstream, Setup, Step, free_address,
    get, response_bytes, wait_for, wait_until,
};
use crate::one_path::browsers::sign_up_page::route_of_the_document;

/// The route's deadline. The sites need longer for a download and for an event stream.
const DEADLINE: &str = "deadline = \"3s\"\n";
/// How many rows the download has, and how many messages the event stream.
const PART_COUNT: usize = 12;
const PHOTO_LENGTH: usize = 20 << 20;
const CODE_LENGTH: usize = 6 << 10;
const EMAIL: &str = "jane.doe@gmail.com";

/// What a person sees of a page, and how it came.
const READ_PAGE: &str = "
const [entry] = performance.getEntriesByType('navigation');
return {
  path: location.pathname, title: document.title, text: document.body?.innerText.trim(),
  charset: document.characterSet, protocol: entry.nextHopProtocol,
  status: entry.responseStatus, redirects: entry.redirectCount,
};";

/// The status and the fields of the answer to a GET.
const READ_FIELDS: &str = "
return fetch(arguments[0]).then(async (answer) => {
  await answer.text();
  return [answer.status, Object.fromEntries(answer.headers)];
});";

/// The status of a form that has no token of the site.
const POST_WITHOUT_TOKEN: &str = "
const { action } = document.querySelector('#signup'), [email] = arguments;
const body = new URLSearchParams({ email });
return fetch(action, { method: 'POST', body }).then((it) => it.status);";

/// The messages of an event stream, and whether they arrived one after the other.
const READ_EVENTS: &str = "
return new Promise((done) => {
  const source = new EventSource('/events'), messages = [], times = [];
  const end = (how) => {
    source.close();
    done({ how, messages, areApart: times.at(-1) - times[0] > 3000 });
  };
  source.onmessage = ({ data }) => { messages.push(data); times.push(performance.now()); };
  source.addEventListener('end', () => end('complete'));
  source.onerror = () => end('broken');
});";

/// Reads and changes the user of the session, from a page of another origin.
const CALL_API: &str = "
const [url, tokenField] = arguments;
const call = async (options) => {
  const answer = await fetch(url, { credentials: 'include', ...options });
  return [answer.status, await answer.json().catch(() => null)];
};
return (async () => {
  const [status, { email, name, token }] = await call({});
  const body = JSON.stringify({ name: 'Jane' });
  const headers = { 'Content-Type': 'application/json' };
  const [refused] = await call({ method: 'PUT', body, headers });
  headers[tokenField] = token;
  const [changed, now] = await call({ method: 'PUT', body, headers });
  return {
    before: [status, email, name], withoutToken: refused, after: [changed, now?.email, now?.name],
  };
})();";

/// A site, and the server program that runs it. Dropping this value ends the program.
struct Site {
    address: SocketAddr,
    child: Child,
    folder: TempDir,
}

impl Site {
    /// Starts the program that `command` names, with these files of the sites and this free
    /// address. Pages of `app_origin` may use the API of the site.
    fn start(app_origin: &str, command: impl Fn(&Path, SocketAddr) -> Command) -> Site {
        let sites =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/both_paths/browsers/sites");
        // Another process may take the free port before the program binds it.
        for _ in 0..5 {
            let (folder, address) = (TempDir::new().unwrap(), free_address());
            let log = std::fs::File::create(folder.path().join("site.log")).unwrap();
            let child = command(&sites, address)
                .env("APP_ORIGIN", app_origin)
                .env("HOME", folder.path())
                .env("TMPDIR", folder.path())
                .current_dir(folder.path())
                // A group, because the program may start others.
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .expect("a server program: scripts/setup --tests");
            let mut site = Site { address, child, folder };
            let has_started = wait_for("the site listens or has ended", || {
                let has_ended = site.child.try_wait().unwrap().is_some();
                let listens = !has_ended && TcpStream::connect(address).is_ok();
                (has_ended || listens).then_some(listens)
            });
            if has_started {
                // The first answer takes longer than others.
                let first = get("/signup").with_header("X-Forwarded-Proto", "https");
                first.with_header("Connection", "close").send(address);
                return site;
            }
            eprintln!("{}", site.log());
        }
        panic!("the site did not start");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("site.log")).unwrap()
    }

    /// How many posts to `/signup` the site has logged.
    fn sign_up_count(&self) -> usize {
        let is_sign_up = |line: &&str| line.contains("POST") && line.contains("/signup");
        self.log().lines().filter(is_sign_up).count()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

fn start_django(app_origin: &str) -> Site {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/form-parsers");
    Site::start(app_origin, |sites, address| {
        let mut command = Command::new("python3");
        // Its own limit of 4 KiB is less than a long target has.
        command.args(["-m", "gunicorn", "--threads", "8", "--limit-request-line", "8190"]);
        command.args(["--access-logfile", "-", "--bind", &address.to_string(), "django_site"]);
        command.env("PYTHONPATH", std::env::join_paths([packages.as_path(), sites]).unwrap());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    })
}

fn start_rails(app_origin: &str) -> Site {
    Site::start(app_origin, |sites, address| {
        let mut command = Command::new("puma");
        command.args(["-e", "production", "-t", "8:8", "-b", &format!("tcp://{address}")]);
        command.arg(sites.join("rails_site.ru")).env("RAILS_ENV", "production");
        command
    })
}

fn start_express(app_origin: &str) -> Site {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/express");
    Site::start(app_origin, |sites, address| {
        let mut command = Command::new("node");
        command.arg(sites.join("express_site.mjs"));
        command.env("PORT", address.port().to_string()).env("EXPRESS_FOLDER", &packages);
        command
    })
}

fn start_php(app_origin: &str) -> Site {
    Site::start(app_origin, |sites, address| {
        let mut command = Command::new("php");
        command.args(["-d", "upload_max_filesize=32M", "-d", "post_max_size=40M"]);
        command.args(["-d", "session.save_path=.", "-S", &address.to_string()]);
        command.arg(sites.join("php_site.php")).env("PHP_CLI_SERVER_WORKERS", "8");
        command
    })
}

/// A browser, and what it needs to use a site in each way.
struct Visitor {
    browser: Browser,
    /// A page of another origin.
    app: MockUpstream,
    app_origin: String,
    folder: TempDir,
    photo: PathBuf,
}

impl Visitor {
    fn start() -> Visitor {
        let app = MockUpstream::with_script(|_| {
            vec![Step::Send(response_bytes(200, "Content-Type: text/html\r\n", "<!doctype html>"))]
        });
        let app_origin = format!("http://localhost:{}", app.address.port());
        let folder = TempDir::new().unwrap();
        let photo = folder.path().join("photo.jpg");
        std::fs::write(&photo, photo_bytes()).unwrap();
        Visitor { browser: Browser::start(), app, app_origin, folder, photo }
    }

    /// Opens the sign-up page, and posts its form with this address.
    fn sign_up(&self, origin: &str, email: &str) {
        self.browser.open(&format!("{origin}/signup"));
        self.browser.type_into("#email", email);
        self.submit("#signup button");
    }

    /// Clicks on the button of a form, and waits until the answer is shown.
    fn submit(&self, button: &str) {
        self.browser.run_script("document.title = 'old page'", &[]);
        self.browser.click(button);
        wait_until("the answer to the form is shown", || {
            self.browser.run_script(READ_PAGE, &[])["title"] != "old page"
        });
    }

    fn read_page(&self) -> Value {
        self.browser.run_script(READ_PAGE, &[])
    }

    /// The cookies of the site, without their values.
    fn read_cookies(&self, origin: &str) -> Vec<Value> {
        let found = self.browser.call_devtools("Network.getCookies", &json!({ "urls": [origin] }));
        let facts = ["name", "path", "domain", "httpOnly", "secure", "sameSite", "session"];
        let cookies = found["cookies"].as_array().unwrap().iter();
        let mut cookies: Vec<Value> =
            cookies.map(|it| facts.map(|fact| it[fact].clone()).into()).collect();
        cookies.sort_by_key(ToString::to_string);
        cookies
    }

    /// The status and the fields of a page, without those that riskgate owns or that differ each
    /// time.
    fn read_fields(&self, path: &str) -> Value {
        let mut answer = self.browser.run_script(READ_FIELDS, &[json!(path)]);
        let fields = answer[1].as_object_mut().unwrap();
        for name in ["date", "server", "x-request-id", "x-riskgate-source"] {
            fields.remove(name);
        }
        // Of a token, of the time, and of PHP's own server, which repeats the client's `Host`.
        for name in ["etag", "last-modified", "x-runtime", "host"] {
            fields.remove(name);
        }
        answer
    }

    /// Clicks on the link to the download, reads the event stream at the same time, and returns
    /// both.
    fn read_streams(&self) -> Value {
        let folder = TempDir::new_in(self.folder.path()).unwrap();
        self.browser.save_downloads_in(folder.path());
        self.browser.click("#export");
        let events = self.browser.run_script(READ_EVENTS, &[]);
        let export = folder.path().join("export.csv");
        let rows = wait_for("the download is complete", || std::fs::read_to_string(&export).ok());
        json!({ "events": events, "rows": rows.lines().collect::<Vec<_>>() })
    }

    /// Uses the site in every way, and returns what the browser has seen.
    fn visit(&self, origin: &str, token_field: &str) -> Value {
        let browser = &self.browser;
        browser.open(&format!("{origin}/signup"));
        let without_token = browser.run_script(POST_WITHOUT_TOKEN, &[json!(EMAIL)]);
        self.sign_up(origin, EMAIL);
        let welcome = self.read_page();
        assert!(browser.url().starts_with(origin), "{}", browser.url());
        let cookies = self.read_cookies(origin);
        let streams = self.read_streams();
        let fields = ["/signup", "/welcome", "/none"].map(|path| self.read_fields(path));
        browser.type_into("#photo", self.photo.to_str().unwrap());
        self.submit("#upload button");
        let photo = self.read_page();
        let code = "c".repeat(CODE_LENGTH);
        browser.open(&format!("{origin}/oauth/callback?state=1&code={code}"));
        let callback = self.read_page();
        browser.open(&self.app_origin);
        let api = [json!(format!("{origin}/api/me")), json!(token_field)];
        let api = browser.run_script(CALL_API, &api);
        json!({
            "welcome": welcome, "cookies": cookies, "streams": streams, "fields": fields,
            "form without a token": without_token, "photo": photo, "callback": callback,
            "api": api,
        })
    }
}

/// A file whose kilobytes differ.
fn photo_bytes() -> Vec<u8> {
    let kilobytes =
        (0..PHOTO_LENGTH / 1024).map(|number| (number as u64).to_be_bytes().repeat(128));
    kilobytes.collect::<Vec<_>>().concat()
}

/// Checks that the visit was a complete one.
#[track_caller]
fn assert_complete(seen: &Value) {
    for page in ["welcome", "photo", "callback"] {
        assert_eq!((&seen[page]["status"], &seen[page]["protocol"]), (&json!(200), &json!("h2")));
    }
    let text = |page: &str| seen[page]["text"].as_str().unwrap();
    assert!(text("welcome").starts_with(&format!("Welcome, {EMAIL}")), "{seen:#}");
    let digest = hex::encode(Sha256::digest(photo_bytes()));
    assert_eq!(text("photo"), format!("{PHOTO_LENGTH} bytes: {digest}"));
    assert_eq!(text("callback"), format!("a code of {CODE_LENGTH} characters"));
    let numbers = (0..PART_COUNT).map(|number| number.to_string());
    let expected_events =
        json!({ "how": "complete", "areApart": true, "messages": numbers.collect::<Vec<_>>() });
    assert_eq!(seen["streams"]["events"], expected_events);
    let rows = (0..PART_COUNT).map(|number| format!("{number},{EMAIL}"));
    assert_eq!(seen["streams"]["rows"], json!(rows.collect::<Vec<_>>()));
    assert_eq!(seen["api"]["before"], json!([200, EMAIL, null]));
    assert_eq!(seen["api"]["after"], json!([200, EMAIL, "Jane"]));
    assert_eq!(seen["api"]["withoutToken"], seen["form without a token"]);
    assert!(seen["form without a token"].as_u64() >= Some(400), "{seen:#}");
    assert_ne!(seen["cookies"], json!([]));
}

fn start_gateway(setup: Setup, site: &Site, certificate: (PathBuf, PathBuf)) -> Gateway {
    let route = route_of_the_document();
    let (of_route, of_screen) = route.split_once("[upstream.route.screen]").unwrap();
    setup
        .append_toml(&format!("{of_route}{DEADLINE}[upstream.route.screen]{of_screen}"))
        .with_certificates(&[certificate])
        .with_upstreams(&[site.address])
        .start()
}

/// Visits the site behind HAProxy and behind riskgate. The site reads the token of a script from
/// the field `token_field`.
#[track_caller]
fn assert_same_behind_riskgate(start_site: impl Fn(&str) -> Site, token_field: &str) {
    let visitor = Visitor::start();
    let site = start_site(&visitor.app_origin);
    let setup = Setup::with_bundled_table();
    let authority = CertificateAuthority::new(&setup.path(""));
    let certificate = authority.issue_certificate("site", "IP:127.0.0.1");
    let haproxy = FrontProxy::start_with_tls(site.address, &certificate);
    let gateway = start_gateway(setup, &site, certificate);

    let without_riskgate = visitor.visit(&format!("https://{}", haproxy.address), token_field);
    assert_complete(&without_riskgate);
    let sign_up_count = site.sign_up_count();
    assert!(sign_up_count >= 2, "{sign_up_count}");

    // The ports of one host share their cookies.
    visitor.browser.call_devtools("Network.clearBrowserCookies", &json!({}));
    let origin = format!("https://{}", gateway.https_address());
    visitor.sign_up(&origin, "joe@yopmail.com");
    let refusal = visitor.read_page();
    assert_eq!((&refusal["status"], &refusal["protocol"]), (&json!(422), &json!("h2")));
    let text = refusal["text"].as_str().unwrap();
    assert!(text.starts_with("Please use another e-mail address."), "{text}");

    visitor.browser.call_devtools("Network.clearBrowserCookies", &json!({}));
    let behind_riskgate = visitor.visit(&origin, token_field);
    assert_eq!(behind_riskgate, without_riskgate);
    // The refused form never reached the site.
    wait_until("the site has logged the forms", || site.sign_up_count() >= 2 * sign_up_count);
    assert_eq!(site.sign_up_count(), 2 * sign_up_count);
    assert!(visitor.app.request_count() >= 2);
}

#[test]
fn a_django_site_is_the_same_behind_riskgate() {
    assert_same_behind_riskgate(start_django, "X-CSRFToken");
}

#[test]
fn a_rails_site_is_the_same_behind_riskgate() {
    assert_same_behind_riskgate(start_rails, "X-CSRF-Token");
}

#[test]
fn an_express_site_is_the_same_behind_riskgate() {
    assert_same_behind_riskgate(start_express, "X-CSRF-Token");
}

#[test]
fn a_php_site_is_the_same_behind_riskgate() {
    assert_same_behind_riskgate(start_php, "X-CSRF-Token");
}
