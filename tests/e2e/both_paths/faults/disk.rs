//! While the disk of the store is full, riskgate counts or refuses calls as configured, and loses
//! no counted call. While the disk of the access log is full, it drops log lines, but no requests.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Gateway, LoadGenerator, Setup, TestDisk, get, max_held_calls, wait_until};

const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 100_000;
const LATENCY_LIMIT: Duration = Duration::from_secs(5);

fn setup_on_disk(disk: &TestDisk) -> Setup {
    let inside = disk.namespace_command_prefix();
    let words: Vec<&str> = inside.iter().map(String::as_str).collect();
    Setup::new().run_under(&words).set("plans.free", &LIMIT.to_string())
}

/// A gateway whose store lies on the disk.
fn start_gateway_with_key(disk: &TestDisk, on_failure: &str) -> (Gateway, String) {
    let store = disk.path().join("store.db");
    let setup = setup_on_disk(disk).set_text("store.url", &format!("sqlite:{}", store.display()));
    let setup = setup.set_text("store.on_failure", on_failure).set_text("store.deadline", "300ms");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

fn is_store_down(gateway: &Gateway) -> bool {
    gateway.sum_of_samples("riskgate_store_down", &[]) == 1.0
}

#[test]
fn on_a_full_disk_with_on_failure_open_calls_are_served_and_settled_later() {
    let disk = TestDisk::in_memory("2m");
    let (gateway, key) = start_gateway_with_key(&disk, "open");
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        clients.spawn_clients(scope, gateway.http, 4);
        wait_until("calls are under way", || clients.response_counts().admitted > 100);
        let descriptors = gateway.open_descriptor_count();
        disk.fill_up();
        wait_until("the store counts as down", || is_store_down(&gateway));
        assert!(gateway.readyz().text().contains("store: down"));
        assert_eq!(gateway.readyz().status, 200, "it serves");
        gateway.send_request(&get(DOMAIN)).expect(401);
        let before = clients.response_counts();
        wait_until("it serves", || clients.response_counts().admitted > before.admitted + 200);
        assert_eq!(
            clients.response_counts().internal_errors,
            before.internal_errors,
            "it is known to be down"
        );
        disk.remove_filler();
        wait_until("the store is back", || !is_store_down(&gateway));
        wait_until("no descriptor is left over", || {
            gateway.open_descriptor_count() <= descriptors + 2
        });
    });
    wait_until("every call is settled", || {
        gateway.sum_of_samples("riskgate_store_unsettled_calls", &[]) == 0.0
    });
    let counts = clients.response_counts();
    assert_eq!((counts.quota_exceeded, counts.unknown), (0, 0), "{counts:?}");
    assert!(clients.latency_p99_and_max().1 < LATENCY_LIMIT, "{:?}", clients.latency_p99_and_max());
    assert_eq!(gateway.get_month_count(&key), counts.admitted);
    assert_eq!(gateway.restart().get_month_count(&key), counts.admitted);
}

#[test]
fn on_a_full_disk_with_on_failure_closed_a_kill_loses_at_most_one_lease() {
    let disk = TestDisk::in_memory("2m");
    let (mut gateway, key) = start_gateway_with_key(&disk, "closed");
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        clients.spawn_clients(scope, gateway.http, 4);
        wait_until("calls are under way", || clients.response_counts().admitted > 100);
        disk.fill_up();
        wait_until("the leased calls are spent", || clients.response_counts().internal_errors > 50);
        wait_until("riskgate reports it", || gateway.readyz().text().contains("store: down"));
    });
    let served = clients.response_counts().admitted;
    assert!(clients.latency_p99_and_max().1 < LATENCY_LIMIT, "{:?}", clients.latency_p99_and_max());
    gateway.kill();
    disk.remove_filler();
    let gateway = gateway.start_after_exit();
    let counted = gateway.get_month_count(&key);
    // A gateway reports the spent part of its lease every second, but can't on a full disk.
    assert!(
        counted <= served && served <= counted + max_held_calls(LIMIT),
        "{counted} of {served}"
    );
    gateway.get(DOMAIN, &key).expect(200);
    assert_eq!(gateway.cli(&["usage", "--json"]).expect(0).json()[0]["account"], "acme");
}

#[test]
fn a_full_disk_under_the_access_log_drops_lines_and_fails_no_request() {
    let disk = TestDisk::in_memory("600k");
    let log = disk.path().join("access.log");
    let gateway = setup_on_disk(&disk).set_text("log.path", &log.display().to_string()).start();
    let key = gateway.create_active_key("acme", &[]);
    let dropped = || gateway.sum_of_samples("riskgate_access_log_lines_dropped_total", &[]);
    // The calls come slowly enough that the log alone does not fill the disk.
    let clients = LoadGenerator::new(DOMAIN, &key).with_pause(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _stop_guard = clients.stop_on_drop();
        clients.spawn_clients(scope, gateway.http, 4);
        wait_until("calls are under way", || clients.response_counts().admitted > 100);
        disk.fill_up();
        wait_until("lines are dropped", || dropped() > 100.0);
        let served = clients.response_counts().admitted;
        wait_until("requests go on", || clients.response_counts().admitted > served + 200);
        let full = disk.read_file("access.log").len();
        disk.remove_filler();
        wait_until("lines are written again", || disk.read_file("access.log").len() > full);
    });
    let counts = clients.response_counts();
    assert_eq!((counts.internal_errors, counts.unknown), (0, 0), "{counts:?}");
    assert!(clients.latency_p99_and_max().1 < LATENCY_LIMIT, "{:?}", clients.latency_p99_and_max());
    gateway.get("/v1/usage", &key).expect(200);
    let dropped = dropped() as u64;
    gateway.shut_down();
    let lines = disk.read_file("access.log");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let lines: Vec<Value> = lines.lines().map(parse).collect();
    assert_eq!(
        lines.last().unwrap()["route"],
        "usage",
        "the log continues once the disk has space"
    );
    let logged = lines.iter().filter(|line| line["route"] == "domain").count() as u64;
    assert_eq!(logged + dropped, counts.admitted, "{logged} logged, {dropped} dropped");
}
