use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::model::route_label::RouteLabel;
use crate::quota::FailurePolicy;
use crate::quota::calendar::Calendar;
use crate::quota::clock::BootClock;
use crate::quota::key_usage::{DayCache, UsageDay};
use crate::quota::node::Node;
use crate::store::redis_server::RedisServer;
use crate::store::{MonthlyLimit, RedisOptions, StoreUrl};
use crate::support::serving_flag::ServingFlag;
use tempfile::TempDir;

/// The last second of November 2026.
const NOVEMBER_END: i64 = 1_796_083_199;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A worker that no thread runs, and the folder of its store.
fn open_worker() -> (Worker, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let url = StoreUrl::Sqlite(folder.path().join("store.db"));
    let open = || Store::open(&url, &RedisOptions::default(), TIMEOUT).unwrap();
    let boot_clock = BootClock::new();
    let calendar = Calendar::new(None, NOVEMBER_END, boot_clock.seconds());
    let shared = SharedWithWorker {
        node: Node::new([7; 16], calendar, FailurePolicy::Closed, 0),
        boot_clock,
        days: DayCache::default(),
        started_at: Instant::now(),
        store_deadline: TIMEOUT,
        serving: ServingFlag::new_serving(),
        usage_reader: Mutex::new(open()),
        usage_reads_in_flight: AtomicU64::new(0),
    };
    let mut worker = Worker::new(Arc::new(shared), open(), None, false);
    assert!(worker.probe_store());
    (worker, folder)
}

/// Opens leases that have each spent a call and hold more.
fn open_active_leases(worker: &mut Worker, names: impl Iterator<Item = String>) -> Vec<Arc<Lease>> {
    let shared = Arc::clone(&worker.shared);
    let month = Month::containing(NOVEMBER_END);
    let open = |name: String| shared.node.open_lease(&name, MonthlyLimit::Calls(1_000));
    let leases: Vec<_> = names.map(open).collect();
    leases.iter().for_each(|lease| lease.record_requested_month(month));
    worker.track_leases(&leases);
    worker.report_waiting_and_due_leases(leases.clone());
    for lease in &leases {
        assert!(shared.node.try_charge(lease, month, 1).is_some(), "{}", lease.account());
    }
    leases
}

/// Lets `keys` keys of the account count one call on each of ten routes.
fn count_calls_of_keys(lease: &Lease, keys: usize) {
    let day = UsageDay::new(Month::containing(NOVEMBER_END), 30);
    for key in 0..keys {
        let usage = lease.usage_of_key(&format!("key_{key}"));
        RouteLabel::ALL.iter().for_each(|route| usage.count_calls(*route, day, 1));
    }
}

fn stored_counts(worker: &mut Worker, account: &str) -> usize {
    let month = Month::containing(NOVEMBER_END);
    worker.store.read_daily_usage(month, Some(account), None, usize::MAX).unwrap().len()
}

#[test]
fn a_lease_that_needs_calls_does_not_wait_for_all_leases_of_a_tick() {
    let (mut worker, _folder) = open_worker();
    let active = 3 * MAX_BATCH_LEASES;
    open_active_leases(&mut worker, (0..active).map(|number| format!("active-{number}")));
    worker.begin_tick();
    assert_eq!(worker.due_at_tick.len(), active);
    open_active_leases(&mut worker, ["in need".to_owned()].into_iter());
    assert_eq!(worker.due_at_tick.len(), active - MAX_BATCH_LEASES, "the tick goes on as well");
    let (waiting, is_tick_requested, is_closing) = worker.wait_for_leases(Duration::ZERO);
    assert!(waiting.is_empty() && !is_tick_requested && !is_closing, "it did not wait for a call");
    while !worker.due_at_tick.is_empty() {
        worker.report_waiting_and_due_leases(Vec::new());
    }
    let month = Month::containing(NOVEMBER_END);
    let spent: u64 =
        worker.store.read_usage(month, None).unwrap().iter().map(|row| row.spent).sum();
    assert_eq!(active as u64, spent, "the totals of the tick, without the new lease");
}

#[test]
fn counts_that_a_batch_leaves_out_follow_within_the_tick() {
    let (mut worker, _folder) = open_worker();
    let [busy, other] =
        &open_active_leases(&mut worker, ["busy", "other"].into_iter().map(str::to_owned))[..]
    else {
        panic!("two leases");
    };
    count_calls_of_keys(busy, 450);
    count_calls_of_keys(other, 50);
    worker.begin_tick();
    worker.report_waiting_and_due_leases(Vec::new());
    assert_eq!(stored_counts(&mut worker, "busy"), 1_000);
    assert_eq!(stored_counts(&mut worker, "other"), 500, "each account has a share");
    assert!(worker.due_at_tick.is_empty() && !busy.is_fully_reported());
    for _ in 0..2 {
        worker.report_waiting_and_due_leases(Vec::new());
    }
    assert!(worker.with_more_counts.is_empty());
    assert_eq!(["busy", "other"].map(|name| stored_counts(&mut worker, name)), [4_500, 500]);
    let held = busy.change_accounting(|_, atomic_lease| atomic_lease.load().held());
    assert!(held > 0, "a lease keeps its calls while its counts follow");
}

#[test]
fn a_failure_within_a_tick_makes_no_busy_lease_look_idle() {
    let (mut worker, _folder) = open_worker();
    let active = 2 * MAX_BATCH_LEASES;
    let leases =
        open_active_leases(&mut worker, (0..active).map(|number| format!("active-{number}")));
    worker.begin_tick();
    let mut server = RedisServer::start();
    let url = StoreUrl::parse(&server.url()).unwrap();
    let failing = Store::open(&url, &RedisOptions::default(), Duration::from_millis(250)).unwrap();
    server.kill();
    let store = std::mem::replace(&mut worker.store, failing);
    worker.report_due_leases();
    assert!(!worker.is_store_healthy && worker.due_at_tick.is_empty(), "the tick has ended");
    worker.store = store;
    assert!(worker.probe_store());
    let month = Month::containing(NOVEMBER_END);
    for lease in &leases {
        assert!(worker.shared.node.try_charge(lease, month, 1).is_some());
    }
    worker.begin_tick();
    while !worker.due_at_tick.is_empty() {
        worker.report_waiting_and_due_leases(Vec::new());
    }
    let held = |lease: &Arc<Lease>| lease.change_accounting(|_, it| it.load().held());
    assert!(leases.iter().all(|lease| held(lease) > 0));
}

#[test]
fn the_last_reports_carry_all_counts() {
    let (mut worker, folder) = open_worker();
    let leases = open_active_leases(&mut worker, (0..3).map(|number| format!("a{number}")));
    leases.iter().for_each(|lease| count_calls_of_keys(lease, 250));
    worker.send_last_reports_and_stop();
    assert!(leases.iter().all(|lease| lease.is_fully_reported()));
    let url = StoreUrl::Sqlite(folder.path().join("store.db"));
    let mut store = Store::open(&url, &RedisOptions::default(), TIMEOUT).unwrap();
    let month = Month::containing(NOVEMBER_END);
    assert_eq!(store.read_daily_usage(month, None, None, usize::MAX).unwrap().len(), 7_500);
}

#[test]
fn only_a_read_of_the_file_shows_that_sqlite_can_be_read_again() {
    let (mut worker, _folder) = open_worker();
    let node = &Arc::clone(&worker.shared).node;
    let has_failed = || node.health.is_unreadable.load(Ordering::Relaxed);
    node.record_probe_outcome(Some(&StoreError::Conflict("a test".to_owned())));
    assert!(worker.probe_store() && has_failed(), "a probe reads nothing");
    worker.is_time_unread = true;
    assert!(worker.probe_store() && !has_failed());
}
