//! The pictures of docs/admin.md: `scripts/screenshots` makes them. The clock of the gateway with
//! the traffic runs 30 times as fast, so that an hour of traffic takes two minutes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Connection, FakeClock, Gateway, SetOnDrop, Setup, get, request, wait_until};

use super::operator::{OperatorPage, add_tokens, hook};

/// How much faster the clock of the gateway runs.
const CLOCK_RATE: u64 = 30;
/// How long the gateway gets traffic.
const TRAFFIC_TIME: Duration = Duration::from_secs(125);
/// The time between two bursts of requests.
const BURST_INTERVAL: Duration = Duration::from_millis(30);
/// The largest picture, in bytes.
const MAX_PICTURE_BYTES: u64 = 150_000;

/// Accounts: the name, the plan, the used share of the month in percent, and the label of a key.
const ACCOUNTS: [(&str, &str, u64, &str); 8] = [
    ("acme", "pro", 83, "sign-up page"),
    ("bluebird", "free", 100, "trial"),
    ("harbour-toys", "pro", 41, "web shop"),
    ("kestrel-travel", "business", 64, "booking"),
    ("lumen-clinics", "pro", 12, "patient portal"),
    ("orchard-games", "business", 92, "launcher"),
    ("pinecone", "free", 7, "test"),
    ("saltmarsh", "free", 30, "newsletter"),
];
const PLANS: [(&str, u64); 3] = [("free", 1_000), ("pro", 10_000), ("business", 100_000)];
/// Domains that clients ask about, the frequent ones several times.
const DOMAINS: [&str; 12] = [
    "gmail.com",
    "outlook.com",
    "gmail.com",
    "yopmail.com",
    "example.org",
    "mailinator.com",
    "web.de",
    "gmial.com",
    "icloud.com",
    "guerrillamail.com",
    "gmail.com",
    "sharklasers.com",
];

fn setup() -> Setup {
    let setup = PLANS.iter().fold(Setup::with_bundled_table(), |setup, (plan, limit)| {
        setup.set(&format!("plans.{plan}"), &limit.to_string())
    });
    setup.set("upstream.servers", "[\"127.0.0.1:9000\", \"check-2.internal:9000\"]")
}

/// A gateway whose clock will show the time of the machine when the traffic has ended.
fn setup_with_fast_clock() -> Setup {
    let behind = TRAFFIC_TIME.as_secs() * (CLOCK_RATE - 1);
    let clock = FakeClock::starting_at("2026-11-26T00:00:00Z");
    let needed = ["LD_PRELOAD", "NO_FAKE_STAT"];
    let variables = clock.environment_variables();
    let kept = variables.iter().filter(|(name, _)| needed.contains(name));
    let setup = kept.fold(setup(), |setup, (name, value)| setup.env(name, value));
    let setup = setup.env("FAKETIME", &format!("-{behind}s x{CLOCK_RATE}"));
    // Time limits end sooner for such a clock.
    setup
        .set_text("store.deadline", "5m")
        .set_text("listen.header_timeout", "5m")
        .set_text("listen.keepalive_timeout", "1h")
        .unset("upstream.servers")
}

/// Counts many calls of an account with few requests.
fn spend_calls(gateway: &Gateway, key: &str, calls: u64) {
    let mut connection = gateway.connect();
    let mut left = calls;
    while left > 0 {
        let count = left.min(1_000);
        let names: Vec<String> = (0..count).map(|_| "\"example.org\"".to_owned()).collect();
        let batch = request("POST", "/v1/public/domains")
            .key(key)
            .with_header("Content-Type", "application/json")
            .body(&format!("{{\"domains\":[{}]}}", names.join(",")));
        connection.send_request(&batch).expect(200);
        left -= count;
    }
}

/// Sends bursts of requests of changing size, some of them refused, until the flag is set.
fn send_traffic(gateway: &Gateway, key: &str, spent_key: &str, is_done: &AtomicBool) {
    let begun = Instant::now();
    let mut connection: Connection = gateway.connect();
    let (mut number, mut due) = (0, 0.0);
    while !is_done.load(Ordering::Relaxed) {
        let part = begun.elapsed().as_secs_f64() / TRAFFIC_TIME.as_secs_f64();
        due += 4.0 + 1.8 * (part * 9.0).sin() + (part * 31.0).sin();
        while f64::from(number) < due {
            number += 1;
            let key = match number % 23 {
                3 => "rg_unknown",
                5 | 11 if part > 0.4 => spent_key,
                _ => key,
            };
            let domain = match number % 41 {
                0 => "not_valid",
                _ => DOMAINS[number as usize % DOMAINS.len()],
            };
            let target = format!("/v1/public/domain/{domain}");
            if connection.try_send_request(&get(target).key(key)).is_none() {
                connection = gateway.connect();
            }
        }
        std::thread::sleep(BURST_INTERVAL);
    }
}

/// Shows a section in this size, and saves it as a picture of the documents.
fn take_picture(page: &OperatorPage, section: &str, heading: &str, height: u32, is_dark: bool) {
    page.browser.set_view(1_240, height, is_dark);
    page.go_to(section, heading);
    wait_until("the charts are drawn", || page.count(".plot") == page.count(".plot > svg"));
    page.browser.run_script("document.activeElement.blur(); scrollTo(0, 0)", &[]);
    // A row under the pointer has another colour.
    let move_away = json!({ "type": "mouseMoved", "x": 1, "y": 1 });
    page.browser.call_devtools("Input.dispatchMouseEvent", &move_away);
    let name = format!("page-{}.png", section.split('?').next().unwrap());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images").join(&name);
    page.browser.save_screenshot(&file);
    let size = std::fs::metadata(&file).unwrap().len();
    assert!(size < MAX_PICTURE_BYTES, "{name} has {size} bytes");
}

fn open_page(gateway: &Gateway, token: &str) -> OperatorPage {
    let page = OperatorPage::open(gateway);
    page.browser.call_devtools("Emulation.setScrollbarsHidden", &json!({ "hidden": true }));
    page.sign_in(token);
    page.wait_for_element(&hook("problem"));
    page
}

fn picture_traffic() {
    let (setup, tokens) = add_tokens(setup_with_fast_clock());
    let gateway = setup.start();
    let key = gateway.create_active_key("kestrel-travel", &["--plan", "business"]);
    let spent_key = gateway.create_active_key("bluebird", &["--plan", "free"]);
    spend_calls(&gateway, &spent_key, 1_000);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&is_done);
        scope.spawn(|| send_traffic(&gateway, &key, &spent_key, &is_done));
        std::thread::sleep(TRAFFIC_TIME);
        let page = open_page(&gateway, &tokens.read);
        take_picture(&page, "traffic?minutes=60", "Traffic", 580, true);
    });
}

fn picture_keys_and_accounts() {
    let (setup, tokens) = add_tokens(setup());
    let gateway = setup.start();
    for (account, plan, percent, label) in ACCOUNTS {
        let origin = format!("https://{account}.example");
        let mut more = vec!["--plan", plan, "--label", label];
        if plan == "business" {
            more.extend(["--origin", origin.as_str()]);
        }
        let key = gateway.create_active_key(account, &more);
        let (_, limit) = PLANS.iter().find(|(name, _)| *name == plan).unwrap();
        spend_calls(&gateway, &key, limit * percent / 100);
    }
    let (_, old) = gateway.create_active_key_with_id("acme", &["--label", "mobile app"]);
    gateway.cli(&["keys", "revoke", &old]).expect(0);
    gateway.create_active_key("acme", &["--label", "mobile app", "--expires", "90d"]);
    let page = open_page(&gateway, &tokens.write);
    take_picture(&page, "health", "Health", 780, false);
    take_picture(&page, "keys", "Keys", 660, false);
    take_picture(&page, "accounts", "Accounts", 560, false);
}

#[test]
#[ignore = "writes docs/images, and takes two minutes: scripts/screenshots"]
fn the_pictures_of_the_page_are_made() {
    picture_keys_and_accounts();
    picture_traffic();
}
