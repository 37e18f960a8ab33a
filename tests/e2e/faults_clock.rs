//! Clocks that step: a month begins on time, never again, and never too early; and never is more
//! admitted in one than its limit.

use crate::harness::{Clock, Gateway, Setup, get, until_true};
use crate::redis_server::RedisServer;

const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 30;
/// So long before a month's end that everything that must happen before it does.
const BEFORE_THE_END: &str = "2031-04-30T23:59:45Z";
const APRIL: &str = "2031-05-01T00:00:00Z";
const MAY: &str = "2031-06-01T00:00:00Z";
const JUNE: &str = "2031-07-01T00:00:00Z";
const DAY: i64 = 86_400;

fn setup(clock: &Clock) -> Setup {
    Setup::new().set("plans.free", &LIMIT.to_string()).clock(clock)
}

/// When the running month ends, and how much of it is spent.
fn usage(gateway: &Gateway, key: &str) -> (String, u64) {
    let usage = gateway.get("/v1/usage", key).expect(200).json();
    (usage["reset_at"].as_str().unwrap().to_owned(), usage["month_count"].as_u64().unwrap())
}

/// Asks far more often than the limit allows; how many were admitted.
fn spend_all(gateway: &Gateway, key: &str) -> u64 {
    let mut connection = gateway.connect();
    let answers = (0..LIMIT + 20).map(|_| connection.ask(&get(DOMAIN).key(key)).status);
    answers.filter(|status| *status == 200).count() as u64
}

#[track_caller]
fn assert_spent(gateway: &Gateway, key: &str, reset_at: &str) {
    assert_eq!(spend_all(gateway, key), 0);
    assert_eq!(usage(gateway, key), (reset_at.to_owned(), LIMIT));
}

/// Spends April, and May once it has come; no clock was set until then.
fn spend_two_months(gateway: &Gateway, key: &str) {
    assert_eq!(spend_all(gateway, key), LIMIT);
    let refused = gateway.get(DOMAIN, key).expect(429);
    assert_eq!(refused.json()["reset_at"], APRIL);
    let wait: u64 = refused.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=15).contains(&wait), "{wait}");
    assert_spent(gateway, key, APRIL);
    until_true("May has begun", || usage(gateway, key) == (MAY.to_owned(), 0));
    assert_eq!(spend_all(gateway, key), LIMIT);
    assert_spent(gateway, key, MAY);
}

#[test]
fn by_the_machine_s_clock_a_month_begins_on_time_and_no_step_opens_another() {
    let clock = Clock::at(BEFORE_THE_END);
    let gateway = setup(&clock).start();
    let key = gateway.key("acme", &[]);
    spend_two_months(&gateway, &key);
    // Back over the month's end, by little and by much: April is over.
    for back in [60, DAY, 20 * DAY] {
        clock.step(-back);
        assert_spent(&gateway, &key, MAY);
        clock.step(back);
    }
    // Ahead, where nothing confirms it.
    clock.step(40 * DAY);
    assert_spent(&gateway, &key, MAY);
    clock.step(-40 * DAY);
    assert_spent(&gateway, &key, MAY);
    // Nor does a start with a clock that is wrong.
    for wrong in [-40 * DAY, 70 * DAY] {
        clock.step(wrong);
    }
    let setup = gateway.end();
    let gateway = setup.start();
    assert_spent(&gateway, &key, MAY);
    clock.step(-70 * DAY);
    let gateway = gateway.restart();
    assert_spent(&gateway, &key, MAY);
}

#[test]
fn by_a_server_s_clock_a_month_begins_on_time_and_no_step_opens_another() {
    let (ours, theirs) = (Clock::at(BEFORE_THE_END), Clock::at(BEFORE_THE_END));
    let server = RedisServer::start_among(&theirs.environment());
    let setup = setup(&ours).redis(&server).text("store.deadline", "2s");
    let made = setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let (gateway, key) = (setup.start(), made.stdout.trim_end());
    spend_two_months(&gateway, key);
    // One of them alone, back over the month's end and ahead over the next.
    let jumps = || gateway.stderr().matches("a clock jumped").count();
    for step in [-DAY, 40 * DAY] {
        ours.step(step);
        assert_spent(&gateway, key, MAY);
        ours.step(-step);
        let before = jumps();
        theirs.step(step);
        until_true("the step was noticed", || jumps() > before);
        assert_spent(&gateway, key, MAY);
        theirs.step(-step);
        assert_spent(&gateway, key, MAY);
    }
    // Numbers that the server threw away when their time had come are told anew.
    let counted = || gateway.cli(&["usage", "--json"]).expect(0).json()[0]["month_count"] == LIMIT;
    until_true("the server knows it again", counted);
    // Both, back: April is over, also for one that starts.
    ours.step(-DAY);
    theirs.step(-DAY);
    let gateway = gateway.restart();
    assert_spent(&gateway, key, MAY);
    ours.step(DAY);
    theirs.step(DAY);
    // Both, ahead: each confirms the other.
    ours.step(31 * DAY);
    theirs.step(31 * DAY);
    until_true("June has begun", || usage(&gateway, key) == (JUNE.to_owned(), 0));
    assert_eq!(spend_all(&gateway, key), LIMIT);
    assert_spent(&gateway, key, JUNE);
}

#[test]
fn keys_and_the_log_go_by_the_clock_and_latencies_do_not() {
    let clock = Clock::at("2031-04-10T12:00:00Z");
    let gateway = setup(&clock).start();
    let key = gateway.key("acme", &["--expires", "2d"]);
    for (step, status) in [(0, 200), (2 * DAY - 600, 200), (1_200, 401), (-1_200, 200)] {
        clock.step(step);
        assert_eq!(gateway.get(DOMAIN, &key).status, status, "{step}");
    }
    until_true("all is logged", || {
        gateway.log().iter().filter(|l| l["path"] == DOMAIN).count() == 4
    });
    let lines = gateway.log();
    let mut mine = lines.iter().filter(|line| line["path"] == DOMAIN);
    let mut next = || mine.next().unwrap()["time"].as_str().unwrap().to_owned();
    for day in ["2031-04-10T12:", "2031-04-12T11:5", "2031-04-12T12:1", "2031-04-12T11:5"] {
        let time = next();
        assert!(time.starts_with(day), "{time}");
    }
    for line in &lines {
        assert!(line["latency_us"].as_u64().unwrap() < 5_000_000, "{line}");
    }
}
