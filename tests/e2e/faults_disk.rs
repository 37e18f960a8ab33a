//! Disks that are full: calls are counted or refused as configured, nothing that was counted is
//! lost, and a log without room costs its lines and no request.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Crowd, Disk, Gateway, Setup, get, until_true};

const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 100_000;
/// The most that one process holds unspent of that.
const LEASE: u64 = 64;
const LATE: Duration = Duration::from_secs(5);

fn setup(disk: &Disk) -> Setup {
    let inside = disk.inside();
    let words: Vec<&str> = inside.iter().map(String::as_str).collect();
    Setup::new().under(&words).set("plans.free", &LIMIT.to_string())
}

/// A gateway whose store lies on the disk.
fn start(disk: &Disk, on_failure: &str) -> (Gateway, String) {
    let store = disk.path().join("store.db");
    let setup = setup(disk).text("store.url", &format!("sqlite:{}", store.display()));
    let setup = setup.text("store.on_failure", on_failure).text("store.deadline", "300ms");
    let gateway = setup.start();
    let key = gateway.key("acme", &[]);
    (gateway, key)
}

fn is_down(gateway: &Gateway) -> bool {
    gateway.metric("riskgate_store_down", &[]) == 1.0
}

#[test]
fn on_a_full_disk_an_open_gateway_serves_and_settles_when_there_is_room_again() {
    let disk = Disk::of("2m");
    let (gateway, key) = start(&disk, "open");
    let crowd = Crowd::new(DOMAIN, &key).pausing(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        crowd.come(scope, gateway.http, 4);
        until_true("calls are under way", || crowd.said().admitted > 100);
        let descriptors = gateway.descriptors();
        disk.fill();
        until_true("the store counts as down", || is_down(&gateway));
        assert!(gateway.readyz().text().contains("store: down"));
        assert_eq!(gateway.readyz().status, 200, "it serves");
        gateway.ask(&get(DOMAIN)).expect(401);
        let before = crowd.said();
        until_true("it serves", || crowd.said().admitted > before.admitted + 200);
        assert_eq!(crowd.said().failed, before.failed, "it is known to be down");
        disk.free();
        until_true("the store is back", || !is_down(&gateway));
        until_true("no descriptor is left over", || gateway.descriptors() <= descriptors + 2);
    });
    until_true("every call is settled", || {
        gateway.metric("riskgate_store_unsettled_calls", &[]) == 0.0
    });
    let said = crowd.said();
    assert_eq!((said.exhausted, said.unknown), (0, 0), "{said:?}");
    assert!(crowd.took().1 < LATE, "{:?}", crowd.took());
    assert_eq!(gateway.month_count(&key), said.admitted);
    assert_eq!(gateway.restart().month_count(&key), said.admitted);
}

#[test]
fn on_a_full_disk_a_closed_gateway_refuses_and_forgets_nothing_when_it_is_killed() {
    let disk = Disk::of("2m");
    let (mut gateway, key) = start(&disk, "closed");
    let crowd = Crowd::new(DOMAIN, &key).pausing(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        crowd.come(scope, gateway.http, 4);
        until_true("calls are under way", || crowd.said().admitted > 100);
        disk.fill();
        until_true("what was leased is spent", || crowd.said().failed > 50);
        until_true("that is told", || gateway.readyz().text().contains("store: down"));
    });
    let served = crowd.said().admitted;
    assert!(crowd.took().1 < LATE, "{:?}", crowd.took());
    gateway.kill();
    disk.free();
    let gateway = gateway.start_again();
    let counted = gateway.month_count(&key);
    // What was spent of the lease in hand is published each second, and not from a full disk.
    assert!(counted <= served && served <= counted + LEASE, "{counted} of {served}");
    gateway.get(DOMAIN, &key).expect(200);
    assert_eq!(gateway.cli(&["usage", "--json"]).expect(0).json()[0]["account"], "acme");
}

#[test]
fn a_log_without_room_costs_its_lines_and_no_request() {
    let disk = Disk::of("600k");
    let log = disk.path().join("access.log");
    let gateway = setup(&disk).text("log.path", &log.display().to_string()).start();
    let key = gateway.key("acme", &[]);
    let dropped = || gateway.metric("riskgate_access_log_dropped", &[]);
    // Not so fast that the log alone fills the disk.
    let crowd = Crowd::new(DOMAIN, &key).pausing(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        crowd.come(scope, gateway.http, 4);
        until_true("calls are under way", || crowd.said().admitted > 100);
        disk.fill();
        until_true("lines are dropped", || dropped() > 100.0);
        let served = crowd.said().admitted;
        until_true("requests go on", || crowd.said().admitted > served + 200);
        let full = disk.read("access.log").len();
        disk.free();
        until_true("lines are written again", || disk.read("access.log").len() > full);
    });
    let said = crowd.said();
    assert_eq!((said.failed, said.unknown), (0, 0), "{said:?}");
    assert!(crowd.took().1 < LATE, "{:?}", crowd.took());
    gateway.get("/v1/usage", &key).expect(200);
    let dropped = dropped() as u64;
    gateway.end();
    let lines = disk.read("access.log");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let lines: Vec<Value> = lines.lines().map(parse).collect();
    assert_eq!(lines.last().unwrap()["route"], "usage", "it goes on once there is room");
    let logged = lines.iter().filter(|line| line["route"] == "domain").count() as u64;
    assert_eq!(logged + dropped, said.admitted, "{logged} logged, {dropped} dropped");
}
