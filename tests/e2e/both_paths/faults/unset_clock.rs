//! A machine, or a Redis server, whose clock was never set: it has no battery and no network yet.

use super::clock::{
    DOMAIN, END_OF_APRIL, END_OF_MAY, is_clock_doubted, reset_and_month_count, setup,
};
use crate::harness::{FakeClock, Setup, wait_until};
use crate::redis_server::RedisServer;

/// Makes the store believe that a gateway of another boot of the machine has told it the time.
pub fn forget_boot(setup: &Setup) {
    let store = rusqlite::Connection::open(setup.path("riskgate.db")).unwrap();
    let forget = "UPDATE meta SET value = substr(value, 1, instr(value, ' ')) || '1 other' \
                  WHERE key = 'time'";
    assert_eq!(store.execute(forget, []).unwrap(), 1);
}

#[test]
fn a_machine_whose_clock_was_never_set_waits_for_the_clock_and_then_serves_at_once() {
    for never_set in ["1970-01-01T00:05:00Z", "1999-12-31T23:00:00Z", "2000-02-01T00:00:00Z"] {
        let clock = FakeClock::starting_at(never_set);
        let setup = setup(&clock);
        let made = setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
        let key = made.stdout.trim_end();
        let ends = ["keys", "create", "--account", "acme", "--expires", "1h"];
        setup.cli(&ends).expect(1);
        let gateway = setup.start();
        let waiting = gateway.readyz();
        assert_eq!(waiting.status, 503);
        assert!(waiting.text().contains("waits until it is set"), "{}", waiting.text());
        let status = gateway.get_admin_page("/status").expect(200).json();
        let expected = "it does not know the time, so it answers each call that counts by 500";
        assert_eq!(status["not_ready"], expected);
        for _ in 0..3 {
            let refused = gateway.get(DOMAIN, key).expect(500);
            assert_eq!(refused.header("X-Fail-Open"), Some("true"));
            gateway.get("/v1/usage", key).expect(500);
        }
        clock.set_to("2031-04-20T12:00:00Z");
        wait_until("the gateway is ready", || gateway.readyz().status == 200);
        assert!(!is_clock_doubted(&gateway), "{}", gateway.readyz().text());
        gateway.get(DOMAIN, key).expect(200);
        assert_eq!(reset_and_month_count(&gateway, key), (END_OF_APRIL.to_owned(), 1));
        // After a restart without a clock, the gateway goes on with the latest time that it knew.
        let setup = gateway.shut_down();
        forget_boot(&setup);
        clock.set_to(never_set);
        let gateway = setup.start();
        gateway.get(DOMAIN, key).expect(200);
        assert!(is_clock_doubted(&gateway), "{}", gateway.readyz().text());
        clock.set_to("2031-05-02T12:00:00Z");
        wait_until("May has begun", || {
            reset_and_month_count(&gateway, key) == (END_OF_MAY.to_owned(), 0)
        });
        assert!(!is_clock_doubted(&gateway), "{}", gateway.readyz().text());
    }
}

#[test]
fn a_redis_server_whose_clock_was_never_set_holds_nothing_up() {
    let gateway_clock = FakeClock::starting_at("2031-04-20T12:00:00Z");
    let redis_clock = FakeClock::starting_at("1999-12-31T23:00:00Z");
    let server = RedisServer::start_with_env(&redis_clock.environment_variables());
    let setup = setup(&gateway_clock).with_redis(&server).set_text("store.deadline", "2s");
    let made = setup.cli(&["keys", "create", "--account", "acme"]).expect(0);
    let (gateway, key) = (setup.start(), made.stdout.trim_end());
    gateway.get(DOMAIN, key).expect(200);
    assert_eq!(reset_and_month_count(&gateway, key), (END_OF_APRIL.to_owned(), 1));
    wait_until("riskgate reports it", || is_clock_doubted(&gateway));
    redis_clock.set_to("2031-04-20T12:00:05Z");
    wait_until("the clock is no longer doubted", || !is_clock_doubted(&gateway));
    gateway.get(DOMAIN, key).expect(200);
}
