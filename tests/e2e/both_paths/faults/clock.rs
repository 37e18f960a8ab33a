//! Whatever steps the clocks make, a month begins on time, never twice and never early. No month
//! admits more calls than its limit.

use super::unset_clock::forget_boot;
use crate::harness::{FakeClock, Gateway, Setup, get, wait_until};
use crate::redis_server::RedisServer;

pub const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 30;
/// A test starts 15 s before May: it must spend the limit of April within this time.
const SHORTLY_BEFORE_MAY: &str = "2031-04-30T23:59:45Z";
pub const END_OF_APRIL: &str = "2031-05-01T00:00:00Z";
pub const END_OF_MAY: &str = "2031-06-01T00:00:00Z";
const DAY: i64 = 86_400;

pub fn setup(clock: &FakeClock) -> Setup {
    Setup::new().set("plans.free", &LIMIT.to_string()).with_clock(clock)
}

/// The end of the current month, and the number of spent calls.
pub fn reset_and_month_count(gateway: &Gateway, key: &str) -> (String, u64) {
    let usage = gateway.get("/v1/usage", key).expect(200).json();
    (usage["reset_at"].as_str().unwrap().to_owned(), usage["month_count"].as_u64().unwrap())
}

/// Makes far more calls than the limit allows. Returns the number of admitted calls.
fn spend_all(gateway: &Gateway, key: &str) -> u64 {
    let mut connection = gateway.connect();
    let answers = (0..LIMIT + 20).map(|_| connection.send_request(&get(DOMAIN).key(key)).status);
    answers.filter(|status| *status == 200).count() as u64
}

#[track_caller]
fn assert_quota_spent(gateway: &Gateway, key: &str, reset_at: &str) {
    assert_eq!(spend_all(gateway, key), 0);
    assert_eq!(reset_and_month_count(gateway, key), (reset_at.to_owned(), LIMIT));
}

/// Spends April, and May once it has begun; no clock steps before that.
fn spend_two_months(gateway: &Gateway, key: &str) {
    assert_eq!(spend_all(gateway, key), LIMIT);
    let refused = gateway.get(DOMAIN, key).expect(429);
    assert_eq!(refused.json()["reset_at"], END_OF_APRIL);
    let wait: u64 = refused.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=15).contains(&wait), "{wait}");
    assert_quota_spent(gateway, key, END_OF_APRIL);
    wait_until("May has begun", || {
        reset_and_month_count(gateway, key) == (END_OF_MAY.to_owned(), 0)
    });
    assert_eq!(spend_all(gateway, key), LIMIT);
    assert_quota_spent(gateway, key, END_OF_MAY);
}

#[test]
fn on_sqlite_a_month_begins_on_time_and_clock_steps_begin_no_other_month() {
    let clock = FakeClock::starting_at(SHORTLY_BEFORE_MAY);
    let gateway = setup(&clock).start();
    let key = gateway.create_active_key("acme", &[]);
    spend_two_months(&gateway, &key);
    // The clocks step back over the month's end, by little and by much: April is over.
    for back in [60, DAY, 20 * DAY] {
        clock.step(-back);
        assert_quota_spent(&gateway, &key, END_OF_MAY);
        clock.step(back);
    }
    // The machine's clock steps ahead; no second clock confirms the step.
    clock.step(40 * DAY);
    assert_quota_spent(&gateway, &key, END_OF_MAY);
    clock.step(-40 * DAY);
    assert_quota_spent(&gateway, &key, END_OF_MAY);
    // A start with a wrong clock changes nothing either.
    for wrong in [-40 * DAY, 70 * DAY] {
        clock.step(wrong);
    }
    let setup = gateway.shut_down();
    let gateway = setup.start();
    assert_quota_spent(&gateway, &key, END_OF_MAY);
    clock.step(-70 * DAY);
    let gateway = gateway.restart();
    assert_quota_spent(&gateway, &key, END_OF_MAY);
}

#[test]
fn on_redis_a_month_begins_on_time_and_one_clock_step_begins_no_other_month() {
    let (gateway_clock, redis_clock) =
        (FakeClock::starting_at(SHORTLY_BEFORE_MAY), FakeClock::starting_at(SHORTLY_BEFORE_MAY));
    let server = RedisServer::start_with_env(&redis_clock.environment_variables());
    let setup = setup(&gateway_clock).with_redis(&server).set_text("store.deadline", "2s");
    let made = setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let (gateway, key) = (setup.start(), made.stdout.trim_end());
    spend_two_months(&gateway, key);
    // Only one clock steps: back over the month's end, and ahead over the next.
    let jumps = || gateway.stderr().matches("clock jumped by").count();
    for step in [-DAY, 40 * DAY] {
        gateway_clock.step(step);
        assert_quota_spent(&gateway, key, END_OF_MAY);
        gateway_clock.step(-step);
        let before = jumps();
        redis_clock.step(step);
        wait_until("the step was noticed", || jumps() > before);
        assert_quota_spent(&gateway, key, END_OF_MAY);
        redis_clock.step(-step);
        assert_quota_spent(&gateway, key, END_OF_MAY);
    }
    // The nodes report again the counts that Redis expired.
    let counted = || gateway.cli(&["usage", "--json"]).expect(0).json()[0]["month_count"] == LIMIT;
    wait_until("Redis has the counts again", counted);
    // Both clocks step back: April is over, also for a gateway that starts.
    gateway_clock.step(-DAY);
    redis_clock.step(-DAY);
    let gateway = gateway.restart();
    assert_quota_spent(&gateway, key, END_OF_MAY);
    gateway_clock.step(DAY);
    redis_clock.step(DAY);
    // Both clocks step together, as on a host with gateway and server.
    let jumps = || gateway.stderr().matches("clock jumped by").count();
    for step in [31 * DAY, -40 * DAY, 300 * DAY] {
        let before = jumps();
        redis_clock.step(step);
        gateway_clock.step(step);
        wait_until("the step was noticed", || jumps() > before);
        assert_quota_spent(&gateway, key, END_OF_MAY);
        gateway_clock.step(-step);
        redis_clock.step(-step);
        assert_quota_spent(&gateway, key, END_OF_MAY);
    }
}

/// The seconds to the reset, from a counted response and from a 429.
fn seconds_to_reset(gateway: &Gateway, key: &str, spent: &str) -> [u64; 2] {
    let counted = gateway.get(DOMAIN, key).expect(200);
    let (_, left) = counted.header("RateLimit").unwrap().rsplit_once(";t=").unwrap();
    let refused = gateway.get(DOMAIN, spent).expect(429);
    [left, refused.header("Retry-After").unwrap()].map(|seconds| seconds.parse().unwrap())
}

/// Asserts that steps of a clock change no key and no reported time.
fn assert_clock_step_has_no_effect(gateway: &Gateway, step: impl Fn(i64)) {
    let good = gateway.create_active_key("good", &["--plan", "large", "--expires", "12h"]);
    let spent = gateway.create_active_key("spent", &["--expires", "2d", "--plan", "free"]);
    let expired = gateway.create_active_key("short", &["--plan", "large", "--expires", "3s"]);
    assert_eq!(spend_all(gateway, &spent), LIMIT);
    for _ in 0..40 {
        // The account then holds leased calls, so that its calls don't wait for the store.
        gateway.get(DOMAIN, &good).expect(200);
    }
    wait_until("it has expired", || gateway.get(DOMAIN, &expired).status == 401);
    let before = seconds_to_reset(gateway, &good, &spent);
    for by in [DAY, -DAY, 40 * DAY, -40 * DAY] {
        step(by);
        for _ in 0..3 {
            gateway.get(DOMAIN, &expired).expect(401);
            let now = seconds_to_reset(gateway, &good, &spent);
            let apart = [before[0].abs_diff(now[0]), before[1].abs_diff(now[1])];
            assert!(apart.iter().all(|apart| *apart < 60), "{by}: {before:?} {now:?}");
        }
        step(-by);
    }
}

fn with_fast_path(setup: Setup, fast_path: bool) -> Setup {
    setup.set("plans.large", "1000000").set("listen.fast_path", &fast_path.to_string())
}

#[test]
fn on_sqlite_a_clock_step_neither_revives_nor_ends_a_key() {
    std::thread::scope(|scope| {
        for fast_path in [false, true] {
            scope.spawn(move || {
                let clock = FakeClock::starting_at("2031-04-10T12:00:00Z");
                let gateway = with_fast_path(setup(&clock), fast_path).start();
                assert_clock_step_has_no_effect(&gateway, |by| clock.step(by));
            });
        }
    });
}

#[test]
fn a_step_of_the_redis_clock_neither_revives_nor_ends_a_key() {
    let (gateway_clock, redis_clock) = (
        FakeClock::starting_at("2031-04-10T12:00:00Z"),
        FakeClock::starting_at("2031-04-10T12:00:00Z"),
    );
    let server = RedisServer::start_with_env(&redis_clock.environment_variables());
    let setup = with_fast_path(setup(&gateway_clock).with_redis(&server), true)
        .set_text("store.deadline", "2s");
    setup.cli(&["store", "init"]).expect(0);
    let gateway = setup.start();
    assert_clock_step_has_no_effect(&gateway, |by| {
        redis_clock.step(by);
        wait_until("the step was seen, or taken back", || {
            ((redis_clock.unix_seconds() - gateway_clock.unix_seconds()).abs() > DAY / 2)
                == is_clock_doubted(&gateway)
        });
    });
}

#[test]
fn on_redis_a_step_of_the_machine_clock_changes_no_key_and_no_reset_time() {
    let (gateway_clock, redis_clock) = (
        FakeClock::starting_at("2031-04-10T12:00:00Z"),
        FakeClock::starting_at("2031-04-10T12:00:00Z"),
    );
    let server = RedisServer::start_with_env(&redis_clock.environment_variables());
    let setup = with_fast_path(setup(&gateway_clock).with_redis(&server), false)
        .set_text("store.deadline", "2s");
    setup.cli(&["store", "init"]).expect(0);
    assert_clock_step_has_no_effect(&setup.start(), |by| gateway_clock.step(by));
}

pub fn is_clock_doubted(gateway: &Gateway) -> bool {
    let is_clock_reported = gateway.readyz().json()["degraded"].to_string().contains("clock: ");
    let metric = gateway.sum_of_samples("riskgate_clock_suspect", &[]) == 1.0;
    is_clock_reported && metric
}

#[test]
fn logged_times_follow_the_machine_clock_and_logged_durations_do_not() {
    let clock = FakeClock::starting_at("2031-04-10T12:00:00Z");
    let gateway = setup(&clock).start();
    let key = gateway.create_active_key("acme", &[]);
    for step in [0, 2 * DAY - 600, 1_200, -1_200] {
        clock.step(step);
        gateway.get(DOMAIN, &key).expect(200);
    }
    wait_until("all is logged", || {
        gateway.read_access_log().iter().filter(|l| l["path"] == DOMAIN).count() == 4
    });
    let lines = gateway.read_access_log();
    let mut calls = lines.iter().filter(|line| line["path"] == DOMAIN);
    let mut next = || calls.next().unwrap()["time"].as_str().unwrap().to_owned();
    for day in ["2031-04-10T12:", "2031-04-12T11:5", "2031-04-12T12:1", "2031-04-12T11:5"] {
        let time = next();
        assert!(time.starts_with(day), "{time}");
    }
    for line in &lines {
        assert!(line["duration_us"].as_u64().unwrap() < 5_000_000, "{line}");
    }
}

#[test]
fn a_redis_clock_far_ahead_at_a_start_is_reported_and_begins_no_month() {
    let (gateway_clock, redis_clock) = (
        FakeClock::starting_at("2031-04-10T12:00:00Z"),
        FakeClock::starting_at("2031-04-10T12:00:00Z"),
    );
    let server = RedisServer::start_with_env(&redis_clock.environment_variables());
    let setup = || setup(&gateway_clock).with_redis(&server).set_text("store.deadline", "2s");
    // A new server whose clock is wrong from the start.
    redis_clock.step(70 * DAY);
    let made = setup().cli(&["keys", "create", "--account", "acme"]).expect(0);
    let (gateway, key) = (setup().start(), made.stdout.trim_end());
    assert_eq!(spend_all(&gateway, key), LIMIT);
    assert_quota_spent(&gateway, key, END_OF_APRIL);
    assert!(is_clock_doubted(&gateway), "{}", gateway.readyz().text());
    redis_clock.step(-70 * DAY);
    wait_until("the clock is no longer doubted", || !is_clock_doubted(&gateway));
    // The clock jumps while no gateway runs, so far that Redis would have expired the counts.
    drop(gateway.shut_down());
    for jump in [70 * DAY, 200 * DAY] {
        redis_clock.step(jump);
        let gateways = [setup().start(), setup().start()];
        for gateway in &gateways {
            assert_quota_spent(gateway, key, END_OF_APRIL);
            wait_until("riskgate reports it", || is_clock_doubted(gateway));
            assert_eq!(gateway.readyz().status, 200, "it serves");
        }
        redis_clock.step(-jump);
        for gateway in &gateways {
            wait_until("the clock is no longer doubted", || !is_clock_doubted(gateway));
            assert_quota_spent(gateway, key, END_OF_APRIL);
        }
    }
    let listed = setup().cli(&["usage", "--json"]).expect(0).json();
    assert_eq!(
        (&listed[0]["month"], &listed[0]["month_count"]),
        (&"2031-04".into(), &LIMIT.into())
    );
}

/// Wrong clocks made the gateway count calls in May; now the clocks show April again. Asserts that
/// riskgate reports the command `store repair-month 2031-04`. The command must fail while a gateway
/// runs; without a running gateway, it must restore April with the counts that April had.
fn assert_month_can_be_repaired(gateway: Gateway, key: &str, store: &str) {
    assert_quota_spent(&gateway, key, END_OF_MAY);
    wait_until("riskgate reports what to do", || {
        gateway.readyz().text().contains("riskgate store repair-month 2031-04")
    });
    let words = ["store", "repair-month", "2031-04", "--json"];
    let refused = gateway.cli(&words).expect(1);
    assert_eq!(
        refused.stderr,
        "expected no running gateway, but found one; stop it, and repeat the command\n",
        "{store}"
    );
    let setup = gateway.shut_down();
    for month in ["2031-05", "2031-03", "2027-01"] {
        let refused = setup.cli(&["store", "repair-month", month]).expect(1);
        assert!(refused.stderr.contains("set it right first"), "{}", refused.stderr);
    }
    setup.cli(&["store", "repair-month", "April"]).expect(2);
    let done = setup.cli(&words).expect(0).json();
    let expected = serde_json::json!({
        "month": "2031-04", "was": "2031-05", "changed": true, "dropped": 1,
    });
    assert_eq!(done, expected);
    let told = setup.cli(&words[..3]).expect(0).stderr;
    let expected = "nothing to repair: the store counts in no later month than 2031-04; the time that \
                    gateways believed is deleted: the next gateway believes the clock at its start\n";
    assert_eq!(told, expected);
    let again = setup.cli(&words).expect(0).json();
    assert_eq!((&again["changed"], &again["dropped"]), (&false.into(), &0.into()));
    let gateway = setup.start();
    assert_eq!(reset_and_month_count(&gateway, key), (END_OF_APRIL.to_owned(), 7));
    assert!(!is_clock_doubted(&gateway), "{}", gateway.readyz().text());
    assert_eq!(spend_all(&gateway, key), LIMIT - 7);
    assert_quota_spent(&gateway, key, END_OF_APRIL);
}

#[test]
fn a_month_that_ran_ahead_in_sqlite_is_reported_and_can_be_repaired() {
    let clock = FakeClock::starting_at("2031-04-20T12:00:00Z");
    let gateway = setup(&clock).start();
    let key = gateway.create_active_key("acme", &[]);
    (0..7).for_each(|_| drop(gateway.get(DOMAIN, &key).expect(200)));
    let setup = gateway.shut_down();
    // If the machine was booted again, riskgate believes a clock that is less than a month ahead.
    forget_boot(&setup);
    clock.step(20 * DAY);
    let gateway = setup.start();
    assert_eq!(spend_all(&gateway, &key), LIMIT);
    let setup = gateway.shut_down();
    clock.step(-20 * DAY);
    assert_month_can_be_repaired(setup.start(), &key, "sqlite");
}

#[test]
fn a_month_that_ran_ahead_in_redis_is_reported_and_can_be_repaired() {
    let (gateway_clock, redis_clock) = (
        FakeClock::starting_at("2031-04-20T12:00:00Z"),
        FakeClock::starting_at("2031-04-20T12:00:00Z"),
    );
    let server = RedisServer::start_with_env(&redis_clock.environment_variables());
    let setup = setup(&gateway_clock).with_redis(&server).set_text("store.deadline", "2s");
    let made = setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let (gateway, key) = (setup.start(), made.stdout.trim_end());
    (0..7).for_each(|_| drop(gateway.get(DOMAIN, key).expect(200)));
    let setup = gateway.shut_down();
    // If the machine was booted again, riskgate believes clocks that are less than a month ahead.
    server.run(&["HDEL", "riskgate:{ring}:meta", "time"]);
    gateway_clock.step(20 * DAY);
    redis_clock.step(20 * DAY);
    let gateway = setup.start();
    assert_eq!(spend_all(&gateway, key), LIMIT);
    let setup = gateway.shut_down();
    gateway_clock.step(-20 * DAY);
    redis_clock.step(-20 * DAY);
    assert_month_can_be_repaired(setup.start(), key, "redis");
}

#[test]
fn a_node_with_a_wrong_clock_does_not_change_the_month_in_redis() {
    let (gateway_clock, redis_clock) = (
        FakeClock::starting_at("2031-04-20T12:00:00Z"),
        FakeClock::starting_at("2031-04-20T12:00:00Z"),
    );
    let server = RedisServer::start_with_env(&redis_clock.environment_variables());
    let setup = || setup(&gateway_clock).with_redis(&server).set_text("store.deadline", "2s");
    let made = setup().cli(&["keys", "create", "--account", "acme"]).expect(0);
    let key = made.stdout.trim_end();
    for wrong in [20 * DAY, 70 * DAY, -40 * DAY] {
        gateway_clock.step(wrong);
        let gateway = setup().start();
        assert_eq!(reset_and_month_count(&gateway, key).0, END_OF_APRIL, "{wrong}");
        gateway.get(DOMAIN, key).expect(200);
        gateway.shut_down();
        gateway_clock.step(-wrong);
    }
    let month = server.run(&["HGET", "riskgate:{ring}:meta", "month"]);
    assert_eq!(month, "375", "April 2031, since January 2000");
}

#[test]
fn on_redis_a_wrong_machine_clock_does_not_change_how_long_a_key_lasts() {
    let (gateway_clock, redis_clock) = (
        FakeClock::starting_at("2031-04-20T12:00:00Z"),
        FakeClock::starting_at("2031-04-20T12:00:00Z"),
    );
    let server = RedisServer::start_with_env(&redis_clock.environment_variables());
    let setup = setup(&gateway_clock).with_redis(&server).set_text("store.deadline", "2s");
    setup.cli(&["store", "init"]).expect(0);
    let gateway = setup.start();
    for wrong in [-2 * DAY, 2 * DAY] {
        gateway_clock.step(wrong);
        let create = ["keys", "create", "--account", "acme", "--json", "--expires"];
        let made = gateway.cli(&[&create[..], &["12h"]].concat()).expect(0);
        assert!(made.stderr.contains("warning: the server's clock is"), "{}", made.stderr);
        let (id, key) = (made.json()["id"].clone(), made.json()["key"].clone());
        let opens = |key: &str| gateway.get("/v1/usage", key).status == 200;
        wait_until("the key is accepted", || opens(key.as_str().unwrap()));
        let rotate = ["keys", "rotate", id.as_str().unwrap(), "--overlap", "2s"];
        gateway.cli(&rotate).expect(0);
        wait_until("its time is over", || !opens(key.as_str().unwrap()));
        gateway_clock.step(-wrong);
    }
}
