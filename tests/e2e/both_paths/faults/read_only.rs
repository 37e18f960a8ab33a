//! If the disk becomes read-only while a gateway runs, riskgate counts or refuses calls as
//! configured, and loses no counted call. It recovers by itself when the disk accepts writes again.

use std::time::Duration;

use crate::harness::{Gateway, LoadGenerator, Setup, TestDisk, get, max_held_calls, wait_until};

const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 100_000;
const LATENCY_LIMIT: Duration = Duration::from_secs(5);

/// A gateway whose store and log lie on the disk.
fn start_gateway_with_key(disk: &TestDisk, on_failure: &str) -> (Gateway, String) {
    let inside = disk.namespace_command_prefix();
    let words: Vec<&str> = inside.iter().map(String::as_str).collect();
    let lies = |name: &str| disk.path().join(name).display().to_string();
    let setup = Setup::new().run_under(&words).set("plans.free", &LIMIT.to_string());
    let setup = setup.set_text("store.url", &format!("sqlite:{}", lies("store.db")));
    let setup = setup.set_text("store.on_failure", on_failure).set_text("store.deadline", "1500ms");
    let gateway = setup.set_text("log.path", &lies("access.log")).start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

fn is_store_down(gateway: &Gateway) -> bool {
    gateway.sum_of_samples("riskgate_store_down", &[]) == 1.0
}

/// Each call has a log line or was counted as a dropped line; no line is incomplete.
fn assert_calls_logged_or_dropped(disk: &TestDisk, calls: u64, dropped: u64) {
    let lines = disk.read_file("access.log");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let lines: Vec<serde_json::Value> = lines.lines().map(parse).collect();
    let logged = lines.iter().filter(|line| line["route"] == "domain").count() as u64;
    assert_eq!(logged + dropped, calls, "{logged} logged, {dropped} dropped");
    assert_eq!(lines.last().unwrap()["route"], "usage", "it goes on");
}

#[test]
fn on_a_read_only_disk_with_on_failure_open_calls_are_served_and_settled_later() {
    let disk = TestDisk::file_backed("16m");
    let (gateway, key) = start_gateway_with_key(&disk, "open");
    let dropped = || gateway.sum_of_samples("riskgate_access_log_lines_dropped_total", &[]);
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        clients.spawn_clients(scope, gateway.http, 4);
        wait_until("calls are under way", || clients.response_counts().admitted > 100);
        disk.refuse_writes();
        wait_until("the store counts as down", || is_store_down(&gateway));
        assert!(gateway.readyz().text().contains("store: down"));
        assert_eq!(gateway.readyz().status, 200, "it serves");
        gateway.send_request(&get(DOMAIN)).expect(401);
        let before = clients.response_counts();
        wait_until("lines are dropped", || dropped() > 100.0);
        wait_until("it serves", || clients.response_counts().admitted > before.admitted + 200);
        assert_eq!(
            clients.response_counts().internal_errors,
            before.internal_errors,
            "it is known to be down"
        );
        let logged = disk.read_file("access.log").len();
        disk.allow_writes();
        wait_until("the store is back", || !is_store_down(&gateway));
        wait_until("lines are written again", || disk.read_file("access.log").len() > logged);
    });
    wait_until("every call is settled", || {
        gateway.sum_of_samples("riskgate_store_unsettled_calls", &[]) == 0.0
    });
    let counts = clients.response_counts();
    assert_eq!((counts.quota_exceeded, counts.unknown), (0, 0), "{counts:?}");
    assert!(clients.latency_p99_and_max().1 < LATENCY_LIMIT, "{:?}", clients.latency_p99_and_max());
    assert_eq!(gateway.get_month_count(&key), counts.admitted);
    let dropped = dropped() as u64;
    let gateway = gateway.restart();
    // The request without a key is not counted, but has a log line too.
    assert_calls_logged_or_dropped(&disk, counts.admitted + counts.internal_errors + 1, dropped);
    assert_eq!(gateway.get_month_count(&key), counts.admitted);
}

#[test]
fn on_a_read_only_disk_with_on_failure_closed_calls_are_refused_meanwhile() {
    let disk = TestDisk::file_backed("16m");
    let (gateway, key) = start_gateway_with_key(&disk, "closed");
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        clients.spawn_clients(scope, gateway.http, 4);
        wait_until("calls are under way", || clients.response_counts().admitted > 100);
        disk.refuse_writes();
        wait_until("the leased calls are spent", || clients.response_counts().internal_errors > 50);
        wait_until("riskgate reports it", || gateway.readyz().text().contains("store: down"));
        disk.allow_writes();
        let before = clients.response_counts();
        wait_until("it serves again", || {
            clients.response_counts().admitted > before.admitted + 100
        });
    });
    let counts = clients.response_counts();
    assert!(clients.latency_p99_and_max().1 < LATENCY_LIMIT, "{:?}", clients.latency_p99_and_max());
    assert_eq!(gateway.get_month_count(&key), counts.admitted);
    assert_eq!(gateway.restart().get_month_count(&key), counts.admitted);
}

#[test]
fn with_on_failure_open_calls_are_served_after_a_disk_error_and_old_counts_survive() {
    let disk = TestDisk::file_backed("16m");
    let (mut gateway, key) = start_gateway_with_key(&disk, "open");
    let connection = &mut gateway.connect();
    for _ in 0..100 {
        connection.send_request(&get(DOMAIN).key(&key)).expect(200);
    }
    let stated = || gateway.cli(&["usage", "--json"]).expect(0).json()[0]["month_count"].as_u64();
    wait_until("the leases are reported", || stated() == Some(100));
    disk.trigger_file_system_error();
    wait_until("the store counts as down", || is_store_down(&gateway));
    // Reads still succeed, so the store counts as up from time to time.
    let mut served = 0;
    wait_until("it is served without", || {
        served += u64::from(gateway.get(DOMAIN, &key).status == 200);
        served == 50
    });
    assert_eq!(gateway.get_month_count(&key), 150);
    gateway.send_signal("TERM");
    assert!(gateway.wait_for_exit().success());
    assert!(gateway.stderr().contains("unreported calls are lost"), "{}", gateway.stderr());
    disk.repair();
    let gateway = gateway.start_after_exit();
    let counted = gateway.get_month_count(&key);
    assert!((100..=100 + max_held_calls(LIMIT)).contains(&counted), "{counted}");
    wait_until("it serves", || gateway.get(DOMAIN, &key).status == 200);
}
