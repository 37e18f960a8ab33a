//! While the store does not answer, riskgate serves or refuses calls as configured, and reports the
//! outage. Afterwards it has counted each call correctly.

use rusqlite::Connection;

use crate::harness::{Gateway, Setup, get, wait_until};

const DOMAIN: &str = "/v1/public/domain/first.test";

fn start_gateway_and_make_a_call(on_failure: &str, limit: u64) -> (Gateway, String) {
    let setup =
        Setup::new().set_text("store.on_failure", on_failure).set_text("store.deadline", "300ms");
    let gateway = setup.set("plans.free", &limit.to_string()).start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get(DOMAIN, &key).expect(200);
    (gateway, key)
}

/// While this value lives, no other process can write to the store.
fn lock_store(gateway: &Gateway) -> Connection {
    let store = Connection::open(gateway.path("riskgate.db")).unwrap();
    store.busy_timeout(crate::harness::TEST_TIMEOUT).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    store
}

fn is_store_down(gateway: &Gateway) -> bool {
    gateway.sum_of_samples("riskgate_store_down", &[]) == 1.0
}

fn readyz_reports_store(gateway: &Gateway) -> bool {
    let degraded = gateway.readyz().json()["degraded"].to_string();
    degraded.contains("store")
}

#[test]
fn with_on_failure_open_an_outage_shows_in_readyz_and_every_served_call_is_counted() {
    let (gateway, key) = start_gateway_and_make_a_call("open", 10_000);
    let locked = lock_store(&gateway);
    let mut connection = gateway.connect();
    let mut served = 1;
    let mut ask = || {
        let answer = connection.send_request(&get(DOMAIN).key(&key));
        assert!(matches!(answer.status, 200 | 500), "{}", answer.text());
        if answer.status == 500 {
            assert_eq!(answer.header("X-Fail-Open"), Some("true"));
            assert_eq!(answer.json()["error"], "internal_error");
        }
        served += u64::from(answer.status == 200);
        answer.status
    };
    wait_until("the store counts as down", || {
        ask();
        is_store_down(&gateway)
    });
    for _ in 0..300 {
        assert_eq!(ask(), 200, "once the store counts as down, no call waits for it");
    }
    assert!(readyz_reports_store(&gateway));
    assert_eq!(gateway.readyz().status, 200, "it serves");
    drop(locked);
    wait_until("the store is back", || !is_store_down(&gateway) && !readyz_reports_store(&gateway));
    wait_until("every call is settled", || {
        gateway.sum_of_samples("riskgate_store_unsettled_calls", &[]) == 0.0
    });
    assert_eq!(gateway.get_month_count(&key), served);
    assert_eq!(gateway.restart().get_month_count(&key), served);
}

#[test]
fn with_on_failure_closed_an_outage_gets_a_500_and_refused_calls_are_not_counted() {
    let (gateway, key) = start_gateway_and_make_a_call("closed", 500);
    let locked = lock_store(&gateway);
    let mut served = 1;
    wait_until("the leased calls are spent", || {
        let status = gateway.get(DOMAIN, &key).status;
        served += u64::from(status == 200);
        status == 500
    });
    let refused = gateway.get(DOMAIN, &key).expect(500);
    assert_eq!(
        refused.text(),
        r#"{"error":"internal_error","message":"Something went wrong on our side. Let your user through.","detail":null}"#
    );
    assert_eq!(refused.header("X-Fail-Open"), Some("true"));
    // Requests that need no store still work: an unknown key still gets a 401.
    gateway.send_request(&get(DOMAIN)).expect(401);
    gateway.get("/nowhere", &key).expect(404);
    drop(locked);
    wait_until("the store is back", || {
        let status = gateway.get(DOMAIN, &key).status;
        served += u64::from(status == 200);
        status == 200
    });
    assert_eq!(gateway.restart().get_month_count(&key), served);
}

#[test]
fn with_on_failure_open_an_outage_admits_no_call_beyond_a_limit_known_to_be_spent() {
    let (gateway, key) = start_gateway_and_make_a_call("open", 40);
    let locked = lock_store(&gateway);
    let mut served = 1;
    wait_until("the store counts as down", || {
        served += u64::from(gateway.get(DOMAIN, &key).status == 200);
        is_store_down(&gateway)
    });
    for _ in 0..80 {
        served += u64::from(gateway.get(DOMAIN, &key).status == 200);
    }
    assert_eq!(served, 40);
    drop(locked);
    wait_until("the store is back", || !is_store_down(&gateway));
    gateway.get(DOMAIN, &key).expect(429);
    assert_eq!(gateway.restart().get_month_count(&key), 40);
}

#[test]
fn if_the_store_files_vanish_a_known_key_never_gets_a_401() {
    let (gateway, key) = start_gateway_and_make_a_call("open", 10_000);
    for file in ["riskgate.db", "riskgate.db-wal", "riskgate.db-shm"] {
        let path = gateway.path(file);
        if path.exists() {
            std::fs::rename(&path, gateway.path(&format!("{file}.away"))).unwrap();
        }
    }
    for _ in 0..200 {
        let status = gateway.get(DOMAIN, &key).status;
        assert!(matches!(status, 200 | 500), "{status}");
    }
}
