mod before_first_probe;
mod node;
mod simulation;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::model::month::Month;
use crate::model::route_label::RouteLabel;
use crate::store::redis_server::RedisServer;
use crate::store::{MonthlyLimit, RedisOptions, Store, StoreUrl};
use crate::support::machine_clock::machine_unix_now as unix_now;
use crate::support::serving_flag::ServingFlag;
use std::path::Path;

/// The last second of November 2026, in Unix seconds, so that the next month is near.
const NOVEMBER_END: i64 = 1_796_083_199;
/// A timeout that no test reaches, even on a busy disk.
const TIMEOUT: Duration = Duration::from_secs(60);
const IN_DECEMBER: i64 = NOVEMBER_END + 2;

fn open_store(path: &Path) -> Store {
    let url = StoreUrl::Sqlite(path.to_owned());
    Store::open(&url, &RedisOptions::default(), TIMEOUT).unwrap()
}

fn start_ledger(path: &Path, on_failure: FailurePolicy) -> Arc<Ledger> {
    let open = || open_store(path);
    let options = LedgerOptions {
        store_deadline: TIMEOUT,
        on_failure,
        max_unsettled: 1_000,
        serving: ServingFlag::new_serving(),
    };
    Arc::new(Ledger::start(open(), open(), options, NOVEMBER_END).unwrap())
}

fn stored_spent_and_leased(path: &Path, month: Month) -> (u64, u64) {
    let mut store = open_store(path);
    let rows = store.read_usage(month, Some("acme")).unwrap();
    rows.first().map_or((0, 0), |row| (row.spent, row.leased))
}

async fn count_admitted(ledgers: &[Arc<Ledger>], limit: MonthlyLimit, calls: usize) -> usize {
    let tasks: Vec<_> = (0..calls)
        .map(|call| {
            let ledger = Arc::clone(&ledgers[call % ledgers.len()]);
            tokio::spawn(async move {
                let lease = ledger.open_lease("acme", limit);
                let month = ledger.month_to_charge(NOVEMBER_END);
                match ledger.charge(&lease, month, 1).await {
                    Ok(_) => 1,
                    Err(denial) => {
                        assert_eq!(denial, Denial::Exhausted);
                        0
                    }
                }
            })
        })
        .collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_limit_is_admitted() {
    for limit in [0u64, 1, 7, 100, 1000] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let node = [start_ledger(&path, FailurePolicy::Open)];
        let sum = count_admitted(&node, MonthlyLimit::Calls(limit), 4 * limit as usize + 3).await;
        assert_eq!(sum as u64, limit);
        node[0].close();
        assert_eq!(stored_spent_and_leased(&path, Month::containing(NOVEMBER_END)), (limit, limit));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_together_admit_exactly_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let nodes =
        [start_ledger(&path, FailurePolicy::Open), start_ledger(&path, FailurePolicy::Open)];
    let mut sum = count_admitted(&nodes, MonthlyLimit::Calls(500), 1500).await;
    // The calls that an idle node held are returned within two seconds.
    for _ in 0..40 {
        if sum >= 500 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        sum += count_admitted(&nodes, MonthlyLimit::Calls(500), 20).await;
    }
    assert_eq!(sum, 500);
}

#[tokio::test]
async fn remaining_is_exact_for_every_call() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder.path().join("store.db"), FailurePolicy::Open);
    let lease = ledger.open_lease("acme", MonthlyLimit::Calls(1000));
    for call in 1..=1000 {
        let charge = ledger.charge(&lease, ledger.month_to_charge(NOVEMBER_END), 1).await.unwrap();
        assert_eq!(charge.remaining, Some(1000 - call));
    }
    let unlimited = ledger.open_lease("other", MonthlyLimit::Unlimited);
    let charge = ledger.charge(&unlimited, ledger.month_to_charge(NOVEMBER_END), 1).await.unwrap();
    assert_eq!(charge.remaining, None);
}

#[tokio::test]
async fn a_crash_loses_at_most_one_lease() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let first = start_ledger(&path, FailurePolicy::Open);
    let lease = first.open_lease("acme", MonthlyLimit::Calls(1000));
    for _ in 0..300 {
        first.charge(&lease, first.month_to_charge(NOVEMBER_END), 1).await.unwrap();
    }
    // The ledger is not closed, as after kill -9. Its row stays in the store, including the calls
    // that it held unspent.
    std::mem::forget(first);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (_, leased) = stored_spent_and_leased(&path, Month::containing(NOVEMBER_END));
    assert!((300..=310).contains(&leased), "{leased}");
    let second = [start_ledger(&path, FailurePolicy::Open)];
    let sum = count_admitted(&second, MonthlyLimit::Calls(1000), 1100).await;
    assert!((690..=700).contains(&sum), "{sum}");
}

#[tokio::test]
async fn a_refunded_call_can_be_spent_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let ledger = start_ledger(&path, FailurePolicy::Open);
    let lease = ledger.open_lease("acme", MonthlyLimit::Calls(3));
    let month = ledger.month_to_charge(NOVEMBER_END);
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(ledger.charge(&lease, month, 1).await.unwrap());
    }
    assert_eq!(ledger.charge(&lease, month, 1).await.err(), Some(Denial::Exhausted));
    assert!(ledger.refund(&lease, calls.pop().unwrap()));
    assert_eq!(ledger.read_spent_by_all(&lease, month).await, Ok(2));
    // The worker may be returning the unspent call to the store; then the call waits for it.
    ledger.charge(&lease, month, 1).await.unwrap();
    assert_eq!(ledger.charge(&lease, month, 1).await.err(), Some(Denial::Exhausted));
    // A refund in a past month has no effect.
    wait_until(|| ledger.month_to_charge(IN_DECEMBER) > month).await;
    let next = ledger.month_to_charge(IN_DECEMBER);
    ledger.charge(&lease, next, 1).await.unwrap();
    assert!(!ledger.refund(&lease, calls.pop().unwrap()));
    assert_eq!(ledger.read_spent_by_all(&lease, next).await, Ok(1));
    ledger.close();
    assert_eq!(stored_spent_and_leased(&path, month), (3, 3));
    assert_eq!(stored_spent_and_leased(&path, next), (1, 1));
}

#[tokio::test]
async fn a_month_does_not_reopen_when_the_clock_steps_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let first = start_ledger(&path, FailurePolicy::Open);
    let before = first.month_to_charge(NOVEMBER_END);
    wait_until(|| first.month_to_charge(IN_DECEMBER) > before).await;
    let later = first.month_to_charge(IN_DECEMBER);
    assert_eq!(first.month_to_charge(NOVEMBER_END), later);
    let lease = first.open_lease("acme", MonthlyLimit::Calls(10));
    first.charge(&lease, later, 1).await.unwrap();
    first.close();
    // The earlier month does not begin again after a restart either.
    assert_eq!(start_ledger(&path, FailurePolicy::Open).month_to_charge(NOVEMBER_END), later);
}

#[tokio::test]
async fn a_changed_limit_applies_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder.path().join("store.db"), FailurePolicy::Open);
    let month = ledger.month_to_charge(NOVEMBER_END);
    let lease = ledger.open_lease("acme", MonthlyLimit::Calls(10_000));
    for _ in 0..200 {
        ledger.charge(&lease, month, 1).await.unwrap();
    }
    ledger.open_lease("acme", MonthlyLimit::Calls(150));
    assert_eq!(ledger.charge(&lease, month, 1).await.err(), Some(Denial::Exhausted));
    ledger.open_lease("acme", MonthlyLimit::Calls(201));
    assert_eq!(ledger.charge(&lease, month, 1).await.unwrap().remaining, Some(0));
    assert_eq!(ledger.charge(&lease, month, 1).await.err(), Some(Denial::Exhausted));
    ledger.open_lease("acme", MonthlyLimit::Unlimited);
    assert_eq!(ledger.charge(&lease, month, 1).await.unwrap().remaining, None);
    assert_eq!(ledger.read_spent_by_all(&lease, month).await, Ok(202));
}

#[tokio::test]
async fn calls_in_an_outage_follow_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let ledger = start_ledger(&path, FailurePolicy::Open);
    let month = ledger.month_to_charge(NOVEMBER_END);
    let lease = ledger.open_lease("acme", MonthlyLimit::Calls(100));
    ledger.charge(&lease, month, 1).await.unwrap();
    let breaker = rusqlite::Connection::open(&path).unwrap();
    breaker.execute_batch("ALTER TABLE ledger RENAME TO elsewhere").unwrap();
    for _ in 0..50 {
        ledger.charge(&lease, month, 1).await.unwrap();
    }
    assert!(ledger.status().store_down);
    assert!(ledger.status().unsettled_calls > 40);
    ledger.set_on_failure(FailurePolicy::Closed);
    assert_eq!(ledger.charge(&lease, month, 1).await.err(), Some(Denial::StoreUnavailable));
    breaker.execute_batch("ALTER TABLE elsewhere RENAME TO ledger").unwrap();
    let is_settled = || !ledger.status().store_down && ledger.status().unsettled_calls == 0;
    for _ in 0..100 {
        if is_settled() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(is_settled());
    assert_eq!(ledger.read_spent_by_all(&lease, month).await, Ok(51));
    ledger.close();
    assert_eq!(stored_spent_and_leased(&path, month), (51, 51));
}

#[tokio::test]
async fn a_call_refunded_late_can_be_spent_by_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let nodes =
        [start_ledger(&path, FailurePolicy::Open), start_ledger(&path, FailurePolicy::Open)];
    let lease = nodes[0].open_lease("acme", MonthlyLimit::Calls(1));
    let month = nodes[0].month_to_charge(NOVEMBER_END);
    let charge = nodes[0].charge(&lease, month, 1).await.unwrap();
    // The lease is fully reported, so the worker no longer tracks it.
    wait_until(|| lease.is_fully_reported() && lease.mark_tracked_by_worker()).await;
    lease.unmark_tracked_by_worker();
    assert!(nodes[0].refund(&lease, charge));
    let other = nodes[1].open_lease("acme", MonthlyLimit::Calls(1));
    let mut admitted = 0;
    for _ in 0..400 {
        admitted += usize::from(nodes[1].charge(&other, month, 1).await.is_ok());
        if admitted > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(admitted, 1);
}

#[tokio::test]
async fn remaining_is_exact_above_32_bits() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = start_ledger(&folder.path().join("store.db"), FailurePolicy::Open);
    for limit in [u64::from(u32::MAX), (1 << 32) + 3, 10_000_000_000, 1 << 52] {
        let lease = ledger.open_lease(&format!("with {limit}"), MonthlyLimit::Calls(limit));
        for call in 1..=300 {
            let charge =
                ledger.charge(&lease, ledger.month_to_charge(NOVEMBER_END), 1).await.unwrap();
            assert_eq!(charge.remaining, Some(limit - call));
        }
        // The count is also exact after the limit has changed by more than 2^32.
        ledger.open_lease(lease.account(), MonthlyLimit::Calls(limit * 3));
        let charge = ledger.charge(&lease, ledger.month_to_charge(NOVEMBER_END), 1).await.unwrap();
        assert_eq!(charge.remaining, Some(limit * 3 - 301));
    }
}

#[tokio::test]
async fn a_grant_below_the_admitted_calls_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let ledger = start_ledger(&path, FailurePolicy::Closed);
    let lease = ledger.open_lease("acme", MonthlyLimit::Calls(1_000));
    let month = ledger.month_to_charge(NOVEMBER_END);
    for _ in 0..30 {
        ledger.charge(&lease, month, 1).await.unwrap();
    }
    // Another program overwrites the node's row: with a newer sequence than the node has reported,
    // and with almost no leased calls.
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.busy_timeout(TIMEOUT).unwrap();
    raw.execute("UPDATE ledger SET sequence = 1000000, leased = 2, spent = 1", []).unwrap();
    let mut admitted = 30;
    for _ in 0..200 {
        admitted += u64::from(ledger.charge(&lease, month, 1).await.is_ok());
        assert_eq!(lease.own_spent(month), admitted, "nothing wraps");
    }
    assert!(admitted < 60, "{admitted}");
}

/// A ledger on a server, on a machine whose clock shows `now`.
fn start_ledger_on_server(server: &RedisServer, now: i64) -> Arc<Ledger> {
    start_ledger_on_server_within(server, now, TIMEOUT)
}

/// A ledger on a server, with this deadline of the store, on a machine whose clock shows `now`.
fn start_ledger_on_server_within(
    server: &RedisServer,
    now: i64,
    deadline: Duration,
) -> Arc<Ledger> {
    let url = StoreUrl::parse(&server.url()).unwrap();
    let open = || Store::open(&url, &RedisOptions::default(), deadline).unwrap();
    let options = LedgerOptions {
        store_deadline: deadline,
        on_failure: FailurePolicy::Closed,
        max_unsettled: 0,
        serving: ServingFlag::new_serving(),
    };
    Arc::new(Ledger::start(open(), open(), options, now).unwrap())
}

#[tokio::test]
async fn the_store_is_told_the_time_at_once_when_the_process_begins_to_serve() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let serving = ServingFlag::default();
    let options = LedgerOptions {
        store_deadline: TIMEOUT,
        on_failure: FailurePolicy::Closed,
        max_unsettled: 0,
        serving: serving.clone(),
    };
    let ledger = Ledger::start(open_store(&path), open_store(&path), options, unix_now()).unwrap();
    let mut store = open_store(&path);
    // More than a tick.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(store.time_anchor().unwrap().is_none());
    serving.set_serving();
    ledger.tell_time();
    wait_until(|| store.time_anchor().unwrap().is_some()).await;
}

async fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..1_200 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the condition was not met within 30 s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_calls_restores_totals_of_a_stopped_node() {
    let mut server = RedisServer::start();
    let (spender, refused) =
        (start_ledger_on_server(&server, unix_now()), start_ledger_on_server(&server, unix_now()));
    let limit = MonthlyLimit::Calls(40);
    let lease = spender.open_lease("acme", limit);
    for _ in 0..40 {
        spender.charge(&lease, spender.month_to_charge(unix_now()), 1).await.unwrap();
    }
    let lease = refused.open_lease("acme", limit);
    let month = refused.month_to_charge(unix_now());
    assert_eq!(refused.charge(&lease, month, 1).await.err(), Some(Denial::Exhausted));
    spender.close();
    // The server restarts without data, and the node that spent the calls has stopped.
    server.kill();
    server.restart();
    wait_until(|| refused.status().store_recovering).await;
    wait_until(|| !refused.status().store_recovering).await;
    let fresh = start_ledger_on_server(&server, unix_now());
    let lease = fresh.open_lease("acme", limit);
    // The account recovers from the time of its first report on, so later than the store.
    let first_answer = async {
        loop {
            match fresh.charge(&lease, month, 1).await.err() {
                Some(Denial::StoreUnavailable) => {
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
                answer => return answer,
            }
        }
    };
    let answer = tokio::time::timeout(TIMEOUT, first_answer).await.unwrap();
    assert_eq!(answer, Some(Denial::Exhausted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_many_used_keys_gets_its_store_back_after_a_restart_of_the_server() {
    let mut server = RedisServer::start();
    // One script that wrote all counts would take longer.
    let ledger = start_ledger_on_server_within(&server, unix_now(), Duration::from_millis(250));
    let lease = ledger.open_lease("acme", MonthlyLimit::Calls(1_000));
    let month = ledger.month_to_charge(unix_now());
    ledger.charge(&lease, month, 1).await.unwrap();
    let day = key_usage::UsageDay::new(month, 1);
    for key in 0..20_000 {
        let usage = lease.usage_of_key(&format!("key_{key}"));
        RouteLabel::ALL.iter().for_each(|route| usage.count_calls(*route, day, 1));
    }
    wait_until(|| lease.is_fully_reported()).await;
    server.kill();
    server.restart();
    wait_until(|| ledger.status().store_recovering).await;
    wait_until(|| !ledger.status().store_recovering && lease.is_fully_reported()).await;
    let key = format!("riskgate:usage:{{acme}}:{month}");
    assert_eq!(server.run(&["HLEN", &key]), "200000");
    assert!(server.run(&["TTL", &key]).parse::<u64>().unwrap() > 429 * 86_400);
}

#[test]
fn each_new_node_knows_the_month_at_its_start() {
    let server = RedisServer::start();
    // The first node has written month 0, "no month", and the others read 0.
    let month = Month::containing(unix_now());
    let nodes: Vec<(Arc<Ledger>, Month)> = (0..20)
        .map(|_| start_ledger_on_server(&server, unix_now()))
        .map(|node| (Arc::clone(&node), node.month_to_charge(unix_now())))
        .collect();
    assert!(nodes.iter().all(|(_, named)| *named >= month));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_machine_clock_starts_no_month_early() {
    let mut server = RedisServer::start();
    server.kill();
    let wrong = start_ledger_on_server(&server, unix_now() + 40 * 86_400);
    server.restart();
    let now = Month::containing(unix_now());
    wait_until(|| wrong.month_to_charge(unix_now()) <= now).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let right = start_ledger_on_server(&server, unix_now());
    assert_eq!((wrong.month_to_charge(unix_now()), right.month_to_charge(unix_now())), (now, now));
}
