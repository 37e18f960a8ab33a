//! Quota webhooks: a receiver that is slow, down, answers with errors or repeats is told each
//! threshold of an account once, over restarts and by all nodes together.

mod receiver;
mod settings;

use std::time::Duration;

use serde_json::Value;

use crate::harness::{
    CertificateAuthority, FakeClock, Gateway, Setup, free_address, get, wait_until,
};
use crate::redis_server::RedisServer;

pub use receiver::SECRET;
use receiver::{Reaction, Receiver};

const DOMAIN: &str = "/v1/public/domain/first.test";
/// Longer than riskgate needs to notice a threshold and to send a message.
const QUIET_TIME: Duration = Duration::from_secs(4);

/// A gateway in which the plan `free` has 10 calls.
fn setup(receiver: &Receiver) -> Setup {
    setup_for_url(&receiver.url()).set("webhook.allow_private", "true")
}

fn setup_for_url(url: &str) -> Setup {
    Setup::new()
        .set("plans.free", "10")
        .set_text("webhook.url", url)
        .set_text("webhook.secret", SECRET)
}

fn spend_calls(gateway: &Gateway, key: &str, calls: u64) {
    let mut connection = gateway.connect();
    for _ in 0..calls {
        connection.send_request(&get(DOMAIN).key(key)).expect(200);
    }
}

fn webhook_status(gateway: &Gateway) -> Value {
    gateway.get_admin_page("/status").expect(200).json()["webhook"].clone()
}

#[track_caller]
fn wait_until_accepted(receiver: &Receiver, expected: &[&str]) {
    wait_until(&format!("the receiver has accepted {expected:?}"), || {
        receiver.accepted() == expected
    });
}

/// Waits until the gateway knows that nothing is left to tell.
#[track_caller]
fn wait_until_all_is_told(gateway: &Gateway) {
    wait_until("no event is pending", || webhook_status(gateway)["pending"] == 0);
}

#[test]
fn each_threshold_is_told_once_and_again_at_another_limit() {
    let receiver = Receiver::start();
    let gateway = setup(&receiver).start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 7);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(receiver.messages().len(), 0, "70 %");
    spend_calls(&gateway, &key, 1);
    wait_until_accepted(&receiver, &["acme 80 of 10"]);
    let data = receiver.messages()[0].data();
    assert_eq!((&data["plan"], &data["month_count"]), (&"free".into(), &8.into()));
    assert!(!receiver.messages()[0].signature.contains(' '), "one secret, one signature");
    let month = gateway.get_admin_page("/status").json()["month"].clone();
    assert_eq!(data["month"], month);
    assert_eq!(data["reset_at"], gateway.get("/v1/usage", &key).json()["reset_at"]);
    spend_calls(&gateway, &key, 2);
    wait_until_accepted(&receiver, &["acme 80 of 10", "acme 100 of 10"]);
    gateway.get(DOMAIN, &key).expect(429);
    gateway.cli(&["accounts", "set", "acme", "--limit", "12"]).expect(0);
    let told = ["acme 80 of 10", "acme 100 of 10", "acme 80 of 12"];
    wait_until_accepted(&receiver, &told);
    gateway.cli(&["accounts", "set", "acme", "--limit", "10"]).expect(0);
    std::thread::sleep(QUIET_TIME);
    wait_until_accepted(&receiver, &told);
    assert!(receiver.attempts_by_id().values().all(|attempts| *attempts == 1));
    assert_eq!(receiver.attempts_by_id().len(), 3, "each has an id of its own");
    let status = webhook_status(&gateway);
    assert_eq!((&status["delivered"], &status["pending"]), (&3.into(), &0.into()));
    let delivered =
        gateway.sum_of_samples("riskgate_webhook_deliveries_total", &["outcome=\"delivered\""]);
    assert_eq!(delivered, 3.0);
}

#[test]
fn other_thresholds_are_told_from_the_lowest_and_beyond_the_limit() {
    let receiver = Receiver::start();
    let gateway = setup(&receiver).set("webhook.thresholds", "[120, 75, 90, 100]").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 10);
    let told = ["acme 75 of 10", "acme 90 of 10", "acme 100 of 10"];
    wait_until_accepted(&receiver, &told);
    gateway.cli(&["accounts", "set", "acme", "--limit", "8"]).expect(0);
    let of_8 = ["acme 75 of 8", "acme 90 of 8", "acme 100 of 8", "acme 120 of 8"];
    wait_until_accepted(&receiver, &[&told[..], &of_8].concat());
    for wrong in ["[]", "[0]", "[80.5]", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "\"80\""] {
        let checked = setup(&receiver).set("webhook.thresholds", wrong).cli(&["check"]).expect(78);
        assert!(checked.stderr.contains("webhook.thresholds: expected 1 to 8"), "{wrong}");
    }
}

#[test]
fn while_the_secret_changes_messages_have_a_signature_of_both() {
    let (before, after) = (Receiver::start(), "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
    let setup = setup(&before).set_text("webhook.secret", after);
    let gateway = setup.set_text("webhook.previous_secret", SECRET).start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 8);
    // This receiver knows the former secret only.
    wait_until_accepted(&before, &["acme 80 of 10"]);
    let signature = before.messages()[0].signature.clone();
    let signatures: Vec<&str> = signature.split(' ').collect();
    assert_eq!(signatures.len(), 2, "{signature}");
    assert!(signatures.iter().all(|it| it.starts_with("v1,")) && signatures[0] != signatures[1]);
    let shown = gateway.cli(&["config", "show"]).expect(0).stdout;
    assert!(shown.contains("previous_secret = \"…\""), "{shown}");
}

#[test]
fn an_account_that_reaches_both_thresholds_at_once_is_told_80_first() {
    let receiver = Receiver::start();
    let gateway = setup(&receiver).start();
    let keys = ["a", "b", "c", "d", "e", "f"].map(|name| gateway.create_active_key(name, &[]));
    for key in &keys {
        spend_calls(&gateway, key, 10);
    }
    wait_until("all are told", || receiver.accepted().len() == 12);
    let told = receiver.accepted();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let at = |percent| {
            let text = format!("{name} {percent} of 10");
            told.iter().position(|it| *it == text).unwrap_or_else(|| panic!("{told:?}"))
        };
        assert!(at(80) < at(100), "{told:?}");
    }
}

#[test]
fn a_receiver_that_fails_is_told_again_with_the_same_id_until_it_accepts() {
    let receiver = Receiver::start();
    let elsewhere = format!("Location: {}\r\n", receiver.url());
    receiver.react(&[
        Reaction::Answer(500, String::new()),
        Reaction::Answer(302, elsewhere),
        Reaction::Close,
        Reaction::AnswerLate(Duration::from_secs(3)),
    ]);
    let gateway = setup(&receiver).set_text("webhook.timeout", "1s").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 8);
    for error in ["status 500", "status 302", "no answer within 1000 ms"] {
        wait_until(error, || webhook_status(&gateway)["last_error"] == error);
    }
    wait_until_all_is_told(&gateway);
    // 500, 302, closed, late (its 200 comes too late), accepted.
    wait_until("all attempts have ended", || receiver.messages().len() == 5);
    assert_eq!(receiver.attempts_by_id().len(), 1);
    let messages = receiver.messages();
    assert!(messages.iter().all(|message| message.body == messages[0].body));
    let status = webhook_status(&gateway);
    assert_eq!((&status["delivered"], &status["failed_attempts"]), (&1.into(), &4.into()));
    assert!(status["last_delivered_at"].is_string());
    wait_until("the log tells the end of the fault", || {
        gateway.stderr().contains("webhook: the receiver accepts events again")
    });
}

#[test]
fn a_receiver_that_is_gone_gets_no_further_attempts() {
    let receiver = Receiver::start();
    receiver.react_with_status(&[410]);
    let gateway = setup(&receiver).start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 8);
    wait_until("it is given up", || webhook_status(&gateway)["given_up"] == 1);
    let gateway = gateway.restart();
    std::thread::sleep(QUIET_TIME);
    assert_eq!(receiver.messages().len(), 1);
    assert_eq!(webhook_status(&gateway)["pending"], 0);
    spend_calls(&gateway, &key, 2);
    wait_until_accepted(&receiver, &["acme 100 of 10"]);
}

#[test]
fn a_receiver_with_a_certificate_of_an_unknown_authority_gets_no_message() {
    let other = Setup::new();
    let authority = CertificateAuthority::new(other.path("").as_path());
    let certificate = authority.issue_certificate("hooks", "IP:127.0.0.1");
    let other = other.with_certificates(&[certificate]).start();
    let url = format!("https://{}/hooks", other.https_address());
    let gateway = setup_for_url(&url).set("webhook.allow_private", "true").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 8);
    wait_until("an attempt has failed", || webhook_status(&gateway)["failed_attempts"] != 0);
    let error = webhook_status(&gateway)["last_error"].to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert_eq!(other.sum_of_samples("riskgate_requests_total", &[]), 0.0);
}

#[test]
fn a_receiver_with_a_certificate_of_the_authority_in_tls_ca_gets_its_messages() {
    let receiver = Receiver::start();
    let folder = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new(folder.path());
    let url = receiver.url();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let port = authority.start_tls_server_for(address.parse().unwrap(), "localhost").port();
    let gateway = setup_for_url(&format!("https://localhost:{port}/{path}"))
        .set("webhook.allow_private", "true")
        .set_text("webhook.tls_ca", &authority.certificate_path().display().to_string())
        .start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 8);
    wait_until_accepted(&receiver, &["acme 80 of 10"]);
}

#[test]
fn an_event_survives_kills_while_the_receiver_is_down() {
    let address = free_address();
    let url = format!("http://{address}/hooks/s3cr3t-path?token=s3cr3t-query");
    // A killed process may have claimed the events, and a claim lasts as long as attempts may take.
    let setup = setup_for_url(&url).set_text("webhook.timeout", "1s");
    let gateway = setup.set("webhook.allow_private", "true").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 10);
    wait_until("an attempt has failed", || webhook_status(&gateway)["failed_attempts"] != 0);
    wait_until("both events wait", || webhook_status(&gateway)["pending"] == 2);
    let gateway = gateway.crash_and_restart().crash_and_restart();
    let receiver = Receiver::start_at(address);
    wait_until("both are told", || receiver.accepted().len() == 2);
    wait_until_all_is_told(&gateway);
    let gateway = gateway.crash_and_restart().restart();
    std::thread::sleep(QUIET_TIME);
    let mut told = receiver.accepted();
    told.sort_unstable();
    assert_eq!(told, ["acme 100 of 10", "acme 80 of 10"]);
    assert!(receiver.attempts_by_id().values().all(|attempts| *attempts == 1));
    drop(gateway);
}

#[test]
fn a_lower_threshold_is_told_of_an_account_without_calls_since_the_start() {
    let receiver = Receiver::start();
    let gateway = setup(&receiver).set("webhook.thresholds", "[80]").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 6);
    let gateway = gateway.restart();
    // By then, the gateway has read the usage from the store.
    std::thread::sleep(QUIET_TIME);
    gateway.edit_config(|text| text.replace("[80]", "[50, 80]"));
    wait_until_accepted(&receiver, &["acme 50 of 10"]);
}

#[test]
fn a_threshold_that_a_killed_process_left_untold_is_told_after_the_start() {
    let receiver = Receiver::start();
    // The first process has no receiver, as one that is killed before it could record the event.
    let mut gateway = Setup::new().set("plans.free", "10").start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 9);
    wait_until("the store has the calls", || {
        gateway.cli(&["usage", "--json"]).expect(0).json()[0]["month_count"] == 9
    });
    gateway.kill();
    let store = format!("sqlite:{}", gateway.path("riskgate.db").display());
    let second = setup(&receiver).set_text("store.url", &store).start();
    wait_until_accepted(&receiver, &["acme 80 of 10"]);
    assert_eq!(receiver.messages()[0].data()["month_count"], 9);
    wait_until_all_is_told(&second);
}

#[test]
fn a_threshold_that_another_gateway_reached_at_the_end_of_a_month_is_told_in_the_next() {
    let (receiver, clock) = (Receiver::start(), FakeClock::starting_at("2031-04-30T23:59:45Z"));
    // It has no receiver, so only the other gateway can tell what it counts.
    let spending = Setup::new().set("plans.free", "10").with_clock(&clock).start();
    let store = format!("sqlite:{}", spending.path("riskgate.db").display());
    let telling = setup(&receiver).set_text("store.url", &store).with_clock(&clock).start();
    let key = spending.create_active_key("acme", &[]);
    spend_calls(&spending, &key, 8);
    let usage = spending.get("/v1/usage", &key).expect(200).json();
    assert_eq!(usage["reset_at"], "2031-05-01T00:00:00Z", "the calls are of April");
    wait_until_accepted(&receiver, &["acme 80 of 10"]);
    assert_eq!(receiver.messages()[0].data()["month"], "2031-04");
    wait_until_all_is_told(&telling);
}

/// Lets two gateways on one store spend the months of many accounts together.
fn assert_two_gateways_tell_once(receiver: &Receiver, gateways: [&Gateway; 2]) {
    let names: Vec<String> = (0..6).map(|n| format!("account-{n}")).collect();
    let keys: Vec<String> =
        names.iter().map(|name| gateways[0].create_active_key(name, &[])).collect();
    for key in &keys {
        wait_until("the other gateway knows the key", || {
            gateways[1].get("/v1/usage", key).status == 200
        });
    }
    std::thread::scope(|scope| {
        for gateway in gateways {
            let keys = &keys;
            scope.spawn(move || {
                for _ in 0..2 {
                    keys.iter().for_each(|key| spend_calls(gateway, key, 2));
                }
            });
        }
    });
    wait_until("80 % is told", || receiver.accepted().len() == names.len());
    for key in &keys {
        // One gateway may hold the last calls for a moment.
        let mut spent = 0;
        wait_until("the month is spent", || {
            for gateway in gateways {
                spent += u64::from(gateway.get(DOMAIN, key).status == 200);
            }
            spent >= 2
        });
    }
    wait_until("100 % is told", || receiver.accepted().len() == 2 * names.len());
    std::thread::sleep(QUIET_TIME);
    let mut told = receiver.accepted();
    told.sort_unstable();
    let mut expected: Vec<String> = names
        .iter()
        .flat_map(|name| [80, 100].map(|percent| format!("{name} {percent} of 10")))
        .collect();
    expected.sort_unstable();
    assert_eq!(told, expected);
    assert!(receiver.attempts_by_id().values().all(|attempts| *attempts == 1));
}

#[test]
fn two_gateways_on_one_file_tell_each_threshold_once() {
    let receiver = Receiver::start();
    let first = setup(&receiver).start();
    let store = format!("sqlite:{}", first.path("riskgate.db").display());
    let second = setup(&receiver).set_text("store.url", &store).start();
    assert_two_gateways_tell_once(&receiver, [&first, &second]);
}

#[test]
fn two_gateways_on_one_server_tell_each_threshold_once() {
    let (receiver, server) = (Receiver::start(), RedisServer::start());
    let first = setup(&receiver).with_redis(&server).start();
    let second = setup(&receiver).with_redis(&server).start();
    assert_two_gateways_tell_once(&receiver, [&first, &second]);
}

#[test]
fn another_gateway_takes_over_the_events_of_a_killed_one() {
    let (receiver, server) = (Receiver::start(), RedisServer::start());
    receiver.react_with_status(&[503; 3]);
    let mut first = setup(&receiver).with_redis(&server).start();
    let key = first.create_active_key("acme", &[]);
    spend_calls(&first, &key, 8);
    // The status shows an attempt once the store knows its outcome. A gateway that is killed before
    // keeps its claim for a minute.
    wait_until("an attempt has failed", || webhook_status(&first)["failed_attempts"] != 0);
    first.kill();
    let second = setup(&receiver).with_redis(&server).start();
    wait_until_accepted(&receiver, &["acme 80 of 10"]);
    wait_until_all_is_told(&second);
    assert_eq!(receiver.attempts_by_id().len(), 1);
}

#[test]
fn a_slow_receiver_delays_neither_requests_nor_other_accounts_for_long() {
    let receiver = Receiver::start();
    receiver.react(&[Reaction::AnswerLate(Duration::from_secs(5))]);
    let gateway = setup(&receiver).start();
    let [slow, quick] = ["slow", "quick"].map(|name| gateway.create_active_key(name, &[]));
    spend_calls(&gateway, &slow, 8);
    wait_until("the slow message is under way", || {
        webhook_status(&gateway)["pending"] == 1 || !receiver.messages().is_empty()
    });
    spend_calls(&gateway, &quick, 8);
    wait_until("both are told", || receiver.accepted().len() == 2);
    wait_until_all_is_told(&gateway);
    assert!(receiver.attempts_by_id().values().all(|attempts| *attempts == 1));
}

#[test]
fn an_orderly_end_waits_for_the_answer_of_the_receiver() {
    let receiver = Receiver::start();
    receiver.react(&[Reaction::AnswerLate(Duration::from_millis(1_200))]);
    let gateway = setup(&receiver).start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 8);
    wait_until("the event is recorded", || webhook_status(&gateway)["pending"] == 1);
    let gateway = gateway.restart();
    std::thread::sleep(QUIET_TIME);
    wait_until_accepted(&receiver, &["acme 80 of 10"]);
    wait_until_all_is_told(&gateway);
}
