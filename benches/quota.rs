//! Measures what charging a call costs. Prints the time of a charge in memory, beside an atomic
//! counter and the crate governor. Asserts a maximum of store operations. Prints the latencies of
//! requests while the store is stopped, beside those while it runs.
//!
//! Run `cargo bench --bench quota`; add `-- --quick` for a short run.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};
use riskgate::quota::{Charge, FailurePolicy, Lease, Ledger, LedgerOptions};
use riskgate::store::{MonthlyLimit, RedisOptions, Store, StoreUrl};
use riskgate::support::serving_flag::ServingFlag;
use tokio::runtime::Runtime;

#[path = "../tests/support/free_ports.rs"]
mod free_ports;
#[path = "../tests/support/redis_server.rs"]
mod redis_server;
#[path = "quota/stalled.rs"]
mod stalled;

/// 2026-11-21.
const NOW_UNIX_SECONDS: i64 = 1_795_219_200;
/// One thread spends this many calls in a row before it refunds them. The number is less than half
/// of a lease, so that the ledger requests no new lease.
const CALLS_PER_BATCH: usize = 12;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let runtime = Runtime::new().expect("a runtime");
    bench_charges(&runtime, if quick { 300 } else { 3_000 });
    bench_store_operations(&runtime);
    stalled::bench_stopped_store(if quick { 400 } else { 4_000 });
}

fn start_ledger(folder: &tempfile::TempDir) -> Ledger {
    let url = StoreUrl::Sqlite(folder.path().join("store.db"));
    let deadline = Duration::from_secs(5);
    let open = || Store::open(&url, &RedisOptions::default(), deadline).expect("a store");
    let options = LedgerOptions {
        store_deadline: deadline,
        on_failure: FailurePolicy::Closed,
        max_unsettled: 0,
        serving: ServingFlag::new_serving(),
    };
    Ledger::start(open(), open(), options, NOW_UNIX_SECONDS).expect("a ledger")
}

// --- one charge ---

/// An implementation whose charges the bench times. `charge` spends a call of an account; the bench
/// refunds the call after it has taken the time.
trait MeasuredCharger: Sync {
    type SpentCall;
    fn charge(&self, account: usize) -> Option<Self::SpentCall>;
    fn refund(&self, account: usize, spent: Self::SpentCall);
    /// Makes sure that the account has calls to spend.
    fn refill(&self, account: usize);
}

struct AtomicCounters(Vec<PaddedCounter>);

#[repr(align(128))]
struct PaddedCounter(AtomicU64);

impl MeasuredCharger for AtomicCounters {
    type SpentCall = ();
    fn charge(&self, account: usize) -> Option<()> {
        let decrement = |left: u64| left.checked_sub(1);
        let counter = &self.0[account].0;
        counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, decrement).ok().map(drop)
    }
    fn refund(&self, account: usize, (): ()) {
        self.0[account].0.fetch_add(1, Ordering::AcqRel);
    }
    fn refill(&self, _: usize) {}
}

struct RiskgateLedger<'r> {
    ledger: Ledger,
    leases: Vec<Arc<Lease>>,
    runtime: &'r Runtime,
}

impl MeasuredCharger for RiskgateLedger<'_> {
    type SpentCall = Charge;
    fn charge(&self, account: usize) -> Option<Charge> {
        self.ledger.try_charge(&self.leases[account], self.ledger.month_to_charge(NOW_UNIX_SECONDS))
    }
    fn refund(&self, account: usize, spent: Charge) {
        self.ledger.refund(&self.leases[account], spent);
    }
    fn refill(&self, account: usize) {
        let lease = &self.leases[account];
        // 64 charges raise the measured rate, so that the lease has calls left for the timed one.
        for _ in 0..64 {
            let charge =
                self.ledger.charge(lease, self.ledger.month_to_charge(NOW_UNIX_SECONDS), 1);
            let _ = self.runtime.block_on(charge).expect("a call");
        }
    }
}

struct DirectLimiter(governor::DefaultDirectRateLimiter<governor::middleware::NoOpMiddleware>);
struct KeyedLimiter(governor::DefaultKeyedRateLimiter<String>, Vec<String>);

fn unlimited_quota() -> Quota {
    Quota::per_second(NonZeroU32::MAX)
}

impl MeasuredCharger for DirectLimiter {
    type SpentCall = ();
    fn charge(&self, _: usize) -> Option<()> {
        self.0.check().ok()
    }
    fn refund(&self, _: usize, (): ()) {}
    fn refill(&self, _: usize) {}
}

impl MeasuredCharger for KeyedLimiter {
    type SpentCall = ();
    fn charge(&self, account: usize) -> Option<()> {
        self.0.check_key(&self.1[account]).ok()
    }
    fn refund(&self, _: usize, (): ()) {}
    fn refill(&self, _: usize) {}
}

/// Returns the nanoseconds of one charge: the median over the batches of all threads.
fn median_charge_nanoseconds<C: MeasuredCharger>(
    bench: &C,
    accounts: usize,
    threads: usize,
    batches: usize,
) -> f64 {
    (0..accounts).for_each(|account| bench.refill(account));
    let barrier = Barrier::new(threads);
    let mut times: Vec<f64> = std::thread::scope(|scope| {
        let run = |thread: usize| {
            let barrier = &barrier;
            move || {
                barrier.wait();
                nanoseconds_per_charge(bench, accounts, thread, batches)
            }
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
    });
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn nanoseconds_per_charge<C: MeasuredCharger>(
    bench: &C,
    accounts: usize,
    thread: usize,
    batches: usize,
) -> Vec<f64> {
    let mut times = Vec::with_capacity(batches);
    let (mut account, mut call_count) = (thread * 7, 0);
    while times.len() < batches {
        let mut spent = Vec::with_capacity(CALLS_PER_BATCH);
        let started = Instant::now();
        for step in 0..CALLS_PER_BATCH {
            spent.push(black_box(bench.charge((account + step) % accounts)));
        }
        let elapsed = started.elapsed();
        let is_complete = spent.iter().all(Option::is_some);
        for (step, spent) in spent.into_iter().enumerate() {
            call_count += 1;
            // One call in 256 stays spent. Else the ledger would see no spent call for a second and
            // return the lease to the store.
            if let Some(spent) = spent.filter(|_| call_count % 256 != 0) {
                bench.refund((account + step) % accounts, spent);
            }
        }
        if is_complete {
            times.push(elapsed.as_secs_f64() * 1e9 / CALLS_PER_BATCH as f64);
        } else {
            // The ledger had returned the unused lease to the store, so this batch is not counted.
            (0..CALLS_PER_BATCH).for_each(|step| bench.refill((account + step) % accounts));
        }
        account += CALLS_PER_BATCH;
    }
    times
}

fn bench_charges(runtime: &Runtime, batches: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("one charge of a leased call, ns (median; in brackets: relative to atomic)\n");
    println!("{:<28}{:>8}{:>18}{:>18}", "", "atomic", "riskgate", "governor");
    for accounts in [1, 1_000] {
        for threads in [1, cores] {
            let folder = tempfile::tempdir().expect("a folder");
            let ledger = start_ledger(&folder);
            let lease =
                |n| ledger.open_lease(&format!("account-{n}"), MonthlyLimit::Calls(1_000_000_000));
            let leases = (0..accounts).map(lease).collect();
            let riskgate = RiskgateLedger { ledger, leases, runtime };
            let atomic = AtomicCounters(
                (0..accounts).map(|_| PaddedCounter(AtomicU64::new(1 << 40))).collect(),
            );
            let names: Vec<String> = (0..accounts).map(|n| format!("account-{n}")).collect();
            // The benches take turns, so that other load on the machine affects all of them alike.
            let mut figures = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..5 {
                figures[0].push(median_charge_nanoseconds(&atomic, accounts, threads, batches));
                figures[1].push(median_charge_nanoseconds(&riskgate, accounts, threads, batches));
                figures[2].push(match accounts {
                    1 => {
                        let limiter = DirectLimiter(RateLimiter::direct(unlimited_quota()));
                        median_charge_nanoseconds(&limiter, accounts, threads, batches)
                    }
                    _ => {
                        let limiter =
                            KeyedLimiter(RateLimiter::keyed(unlimited_quota()), names.clone());
                        median_charge_nanoseconds(&limiter, accounts, threads, batches)
                    }
                });
            }
            let [atomic, riskgate, governor] = figures.map(|mut figures| {
                figures.sort_by(f64::total_cmp);
                figures[figures.len() / 2]
            });
            println!(
                "{:<28}{atomic:>8.1}{:>18}{:>18}",
                format!("{accounts} accounts, {threads} threads"),
                format!("{riskgate:.1} ({:.1})", riskgate / atomic),
                format!("{governor:.1} ({:.1})", governor / atomic),
            );
        }
    }
    println!();
}

// --- store operations ---

/// Counts the store operations for 1,000 calls of an account with a limit of 10,000, far below it.
fn bench_store_operations(runtime: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = Arc::new(start_ledger(&folder));
    let lease = ledger.open_lease("acme", MonthlyLimit::Calls(10_000));
    let spend = |calls: u64| {
        runtime.block_on(async {
            for _ in 0..calls {
                let _ = ledger
                    .charge(&lease, ledger.month_to_charge(NOW_UNIX_SECONDS), 1)
                    .await
                    .expect("a call");
                // The rate of a busy connection.
                tokio::time::sleep(Duration::from_micros(50)).await;
            }
        });
    };
    spend(1_000);
    let before = ledger.status().store_commits;
    spend(1_000);
    let operations = ledger.status().store_commits - before;
    println!("store operations for 1,000 calls of 10,000: {operations} (at most 40)\n");
    assert!(operations <= 40, "{operations} store operations for 1,000 calls");
    assert_eq!(
        runtime
            .block_on(ledger.read_spent_by_all(&lease, ledger.month_to_charge(NOW_UNIX_SECONDS))),
        Ok(2_000)
    );
}
