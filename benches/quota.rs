//! What admitting a call costs: in memory, in operations of the store, and while the store hangs.
//!
//! `cargo bench --bench quota`; `-- --quick` for a short look. Each figure stands beside a plain
//! one, and everything that is counted is checked.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};
use riskgate::quota::{Charge, FailurePolicy, Lease, Ledger, LedgerOptions};
use riskgate::store::{MonthlyLimit, RedisOptions, Store, StoreUrl};
use tokio::runtime::Runtime;

#[path = "../tests/support/redis_server.rs"]
mod redis_server;
#[path = "quota/stalled.rs"]
mod stalled;

/// 2026-11-21.
const NOW: i64 = 1_795_219_200;
/// Calls that one thread spends in a row before it gives them back: less than half of a lease, so
/// that none is asked for.
const CALLS_PER_BATCH: usize = 12;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let runtime = Runtime::new().expect("a runtime");
    bench_charges(&runtime, if quick { 300 } else { 3_000 });
    bench_store_operations(&runtime);
    stalled::bench_stopped_store(if quick { 400 } else { 4_000 });
}

fn ledger(folder: &tempfile::TempDir) -> Ledger {
    let url = StoreUrl::Sqlite(folder.path().join("store.db"));
    let patience = Duration::from_secs(5);
    let open = || Store::open(&url, &RedisOptions::default(), patience).expect("a store");
    let options =
        LedgerOptions { deadline: patience, on_failure: FailurePolicy::Closed, max_unsettled: 0 };
    Ledger::start(open(), open(), options, NOW).expect("a ledger")
}

// --- one charge ---

/// Spends one of `accounts`; what it returns is given back outside of the time that is taken.
trait ChargeBench: Sync {
    type Spent;
    fn charge(&self, account: usize) -> Option<Self::Spent>;
    fn refund(&self, account: usize, spent: Self::Spent);
    /// Makes sure that there is something to spend.
    fn refill(&self, account: usize);
}

struct AtomicCounters(Vec<Padded>);

#[repr(align(128))]
struct Padded(AtomicU64);

impl ChargeBench for AtomicCounters {
    type Spent = ();
    fn charge(&self, account: usize) -> Option<()> {
        let take = |left: u64| left.checked_sub(1);
        let word = &self.0[account].0;
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok().map(drop)
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

impl ChargeBench for RiskgateLedger<'_> {
    type Spent = Charge;
    fn charge(&self, account: usize) -> Option<Charge> {
        self.ledger.try_charge(&self.leases[account], self.ledger.month(NOW))
    }
    fn refund(&self, account: usize, spent: Charge) {
        self.ledger.refund(&self.leases[account], spent);
    }
    fn refill(&self, account: usize) {
        let lease = &self.leases[account];
        // Until the lease has grown to its full size.
        for _ in 0..64 {
            let charge = self.ledger.charge(lease, self.ledger.month(NOW));
            let _ = self.runtime.block_on(charge).expect("a call");
        }
    }
}

struct DirectLimiter(governor::DefaultDirectRateLimiter<governor::middleware::NoOpMiddleware>);
struct KeyedLimiter(governor::DefaultKeyedRateLimiter<String>, Vec<String>);

fn unlimited_quota() -> Quota {
    Quota::per_second(NonZeroU32::MAX)
}

impl ChargeBench for DirectLimiter {
    type Spent = ();
    fn charge(&self, _: usize) -> Option<()> {
        self.0.check().ok()
    }
    fn refund(&self, _: usize, (): ()) {}
    fn refill(&self, _: usize) {}
}

impl ChargeBench for KeyedLimiter {
    type Spent = ();
    fn charge(&self, account: usize) -> Option<()> {
        self.0.check_key(&self.1[account]).ok()
    }
    fn refund(&self, _: usize, (): ()) {}
    fn refill(&self, _: usize) {}
}

/// Nanoseconds for one charge on each thread: the median over many stretches.
fn median_nanoseconds<C: ChargeBench>(
    with: &C,
    accounts: usize,
    threads: usize,
    batches: usize,
) -> f64 {
    (0..accounts).for_each(|account| with.refill(account));
    let barrier = Barrier::new(threads);
    let mut times: Vec<f64> = std::thread::scope(|scope| {
        let run = |thread: usize| {
            let barrier = &barrier;
            move || {
                barrier.wait();
                time_batches(with, accounts, thread, batches)
            }
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
    });
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn time_batches<C: ChargeBench>(
    with: &C,
    accounts: usize,
    thread: usize,
    batches: usize,
) -> Vec<f64> {
    let mut times = Vec::with_capacity(batches);
    let (mut account, mut turn) = (thread * 7, 0);
    while times.len() < batches {
        let mut spent = Vec::with_capacity(CALLS_PER_BATCH);
        let begun = Instant::now();
        for step in 0..CALLS_PER_BATCH {
            spent.push(black_box(with.charge((account + step) % accounts)));
        }
        let took = begun.elapsed();
        let whole = spent.iter().all(Option::is_some);
        for (step, spent) in spent.into_iter().enumerate() {
            turn += 1;
            // Some stay spent: a lease of which nothing is spent is given back as idle.
            if let Some(spent) = spent.filter(|_| turn % 256 != 0) {
                with.refund((account + step) % accounts, spent);
            }
        }
        if whole {
            times.push(took.as_secs_f64() * 1e9 / CALLS_PER_BATCH as f64);
        } else {
            // The lease was given back as idle; that is not what is measured here.
            (0..CALLS_PER_BATCH).for_each(|step| with.refill((account + step) % accounts));
        }
        account += CALLS_PER_BATCH;
    }
    times
}

fn bench_charges(runtime: &Runtime, batches: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("one charge with the account in hand, ns (median; beside it: times the bare one)\n");
    println!("{:<28}{:>8}{:>18}{:>18}", "", "bare", "riskgate", "governor");
    for accounts in [1, 1_000] {
        for threads in [1, cores] {
            let folder = tempfile::tempdir().expect("a folder");
            let ledger = ledger(&folder);
            let lease =
                |n| ledger.lease(&format!("account-{n}"), MonthlyLimit::Calls(1_000_000_000));
            let leases = (0..accounts).map(lease).collect();
            let ours = RiskgateLedger { ledger, leases, runtime };
            let bare =
                AtomicCounters((0..accounts).map(|_| Padded(AtomicU64::new(1 << 40))).collect());
            let names: Vec<String> = (0..accounts).map(|n| format!("account-{n}")).collect();
            // In turns, so that what else the machine does falls on all alike.
            let mut figures = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..5 {
                figures[0].push(median_nanoseconds(&bare, accounts, threads, batches));
                figures[1].push(median_nanoseconds(&ours, accounts, threads, batches));
                figures[2].push(match accounts {
                    1 => {
                        let limiter = DirectLimiter(RateLimiter::direct(unlimited_quota()));
                        median_nanoseconds(&limiter, accounts, threads, batches)
                    }
                    _ => {
                        let limiter =
                            KeyedLimiter(RateLimiter::keyed(unlimited_quota()), names.clone());
                        median_nanoseconds(&limiter, accounts, threads, batches)
                    }
                });
            }
            let [bare, ours, governor] = figures.map(|mut figures| {
                figures.sort_by(f64::total_cmp);
                figures[figures.len() / 2]
            });
            println!(
                "{:<28}{bare:>8.1}{:>18}{:>18}",
                format!("{accounts} accounts, {threads} threads"),
                format!("{ours:.1} ({:.1})", ours / bare),
                format!("{governor:.1} ({:.1})", governor / bare),
            );
        }
    }
    println!();
}

// --- operations of the store ---

/// Operations of the store for 1,000 calls of an account of 10,000, far from its limit.
fn bench_store_operations(runtime: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = Arc::new(ledger(&folder));
    let lease = ledger.lease("acme", MonthlyLimit::Calls(10_000));
    let spend = |calls: u64| {
        runtime.block_on(async {
            for _ in 0..calls {
                let _ = ledger.charge(&lease, ledger.month(NOW)).await.expect("a call");
                // As quickly as requests would come on a busy connection.
                tokio::time::sleep(Duration::from_micros(50)).await;
            }
        });
    };
    spend(1_000);
    let before = ledger.status().store_commits;
    spend(1_000);
    let operations = ledger.status().store_commits - before;
    println!("operations of the store for 1,000 calls of 10,000: {operations} (at most 40)\n");
    assert!(operations <= 40, "{operations} operations of the store for 1,000 calls");
    assert_eq!(runtime.block_on(ledger.usage(&lease, ledger.month(NOW))), Ok(2_000));
}
