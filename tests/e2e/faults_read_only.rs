//! Disks that take no more writes while a gateway runs on them: calls are counted or refused as
//! configured, nothing that was counted is lost, and it recovers by itself once they do.

use std::time::Duration;

use crate::harness::{Crowd, Disk, Gateway, Setup, get, until_true};

const DOMAIN: &str = "/v1/public/domain/first.test";
const LIMIT: u64 = 100_000;
/// The most that one process holds unspent of that.
const LEASE: u64 = 64;
const LATE: Duration = Duration::from_secs(5);

/// A gateway whose store and log lie on the disk.
fn start(disk: &Disk, on_failure: &str) -> (Gateway, String) {
    let inside = disk.inside();
    let words: Vec<&str> = inside.iter().map(String::as_str).collect();
    let lies = |name: &str| disk.path().join(name).display().to_string();
    let setup = Setup::new().under(&words).set("plans.free", &LIMIT.to_string());
    let setup = setup.text("store.url", &format!("sqlite:{}", lies("store.db")));
    let setup = setup.text("store.on_failure", on_failure).text("store.deadline", "1500ms");
    let gateway = setup.text("log.path", &lies("access.log")).start();
    let key = gateway.key("acme", &[]);
    (gateway, key)
}

fn is_down(gateway: &Gateway) -> bool {
    gateway.metric("riskgate_store_down", &[]) == 1.0
}

/// Each call stands in the log, or was counted as dropped from it; no line is torn.
fn every_call_is_logged_or_dropped(disk: &Disk, calls: u64, dropped: u64) {
    let lines = disk.read("access.log");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let lines: Vec<serde_json::Value> = lines.lines().map(parse).collect();
    let logged = lines.iter().filter(|line| line["route"] == "domain").count() as u64;
    assert_eq!(logged + dropped, calls, "{logged} logged, {dropped} dropped");
    assert_eq!(lines.last().unwrap()["route"], "usage", "it goes on");
}

#[test]
fn on_a_read_only_disk_an_open_gateway_serves_and_settles_when_it_takes_writes_again() {
    let disk = Disk::in_a_file("16m");
    let (gateway, key) = start(&disk, "open");
    let dropped = || gateway.metric("riskgate_access_log_dropped", &[]);
    let crowd = Crowd::new(DOMAIN, &key).pausing(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        crowd.come(scope, gateway.http, 4);
        until_true("calls are under way", || crowd.said().admitted > 100);
        disk.refuse_writes();
        until_true("the store counts as down", || is_down(&gateway));
        assert!(gateway.readyz().text().contains("store: down"));
        assert_eq!(gateway.readyz().status, 200, "it serves");
        gateway.ask(&get(DOMAIN)).expect(401);
        let before = crowd.said();
        until_true("lines are dropped", || dropped() > 100.0);
        until_true("it serves", || crowd.said().admitted > before.admitted + 200);
        assert_eq!(crowd.said().failed, before.failed, "it is known to be down");
        let logged = disk.read("access.log").len();
        disk.take_writes();
        until_true("the store is back", || !is_down(&gateway));
        until_true("lines are written again", || disk.read("access.log").len() > logged);
    });
    until_true("every call is settled", || {
        gateway.metric("riskgate_store_unsettled_calls", &[]) == 0.0
    });
    let said = crowd.said();
    assert_eq!((said.exhausted, said.unknown), (0, 0), "{said:?}");
    assert!(crowd.took().1 < LATE, "{:?}", crowd.took());
    assert_eq!(gateway.month_count(&key), said.admitted);
    let dropped = dropped() as u64;
    let gateway = gateway.restart();
    // The one without a key is no call, and stands in the log too.
    every_call_is_logged_or_dropped(&disk, said.admitted + said.failed + 1, dropped);
    assert_eq!(gateway.month_count(&key), said.admitted);
}

#[test]
fn on_a_read_only_disk_a_closed_gateway_refuses_and_serves_when_it_takes_writes_again() {
    let disk = Disk::in_a_file("16m");
    let (gateway, key) = start(&disk, "closed");
    let crowd = Crowd::new(DOMAIN, &key).pausing(Duration::from_millis(2));
    std::thread::scope(|scope| {
        let _ending = crowd.ending();
        crowd.come(scope, gateway.http, 4);
        until_true("calls are under way", || crowd.said().admitted > 100);
        disk.refuse_writes();
        until_true("what was leased is spent", || crowd.said().failed > 50);
        until_true("that is told", || gateway.readyz().text().contains("store: down"));
        disk.take_writes();
        let before = crowd.said();
        until_true("it serves again", || crowd.said().admitted > before.admitted + 100);
    });
    let said = crowd.said();
    assert!(crowd.took().1 < LATE, "{:?}", crowd.took());
    assert_eq!(gateway.month_count(&key), said.admitted);
    assert_eq!(gateway.restart().month_count(&key), said.admitted);
}

#[test]
fn a_disk_that_fails_for_good_is_served_without_and_what_it_held_is_there_after_its_repair() {
    let disk = Disk::in_a_file("16m");
    let (mut gateway, key) = start(&disk, "open");
    let connection = &mut gateway.connect();
    for _ in 0..100 {
        connection.ask(&get(DOMAIN).key(&key)).expect(200);
    }
    let stated = || gateway.cli(&["usage", "--json"]).expect(0).json()[0]["month_count"].as_u64();
    until_true("they are stated", || stated() == Some(100));
    disk.fail();
    until_true("the store counts as down", || is_down(&gateway));
    // It still answers who only reads, so that it counts as back now and then.
    let mut served = 0;
    until_true("it is served without", || {
        served += u64::from(gateway.get(DOMAIN, &key).status == 200);
        served == 50
    });
    assert_eq!(gateway.month_count(&key), 150);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert!(gateway.stderr().contains("unspent calls are lost"), "{}", gateway.stderr());
    disk.repair();
    let gateway = gateway.start_again();
    let counted = gateway.month_count(&key);
    assert!((100..=100 + LEASE).contains(&counted), "{counted}");
    until_true("it serves", || gateway.get(DOMAIN, &key).status == 200);
}
