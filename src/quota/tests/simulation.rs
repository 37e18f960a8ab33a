//! Many short simulated runs of the ledger under faults. The seed of a run decides its events.
//!
//! The node, lease, calendar and store are the shipped code. Only time, the network between node
//! and store, and the order of events are simulated. `checks.rs` checks what the ledger promises,
//! after each event and at the end of each run. If a run breaks a promise, its seed is printed.
//! To repeat one run with its events, or to simulate a range of seeds:
//!
//! ```text
//! RISKGATE_TEST_SEEDS=4711 cargo test --lib simulation -- --nocapture
//! RISKGATE_TEST_SEEDS=0..100000 cargo test --lib simulation
//! ```

mod calls;
mod checks;
mod faults;
mod lease_state;
mod network;
mod random;
mod run;
mod sabotage;
mod simulated_store;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use run::Simulation;
use sabotage::SabotagedStore;
use simulated_store::SimulatedStore;

/// How many seeds are run on each store by default; `scripts/nightly` runs many more.
const DEFAULT_SEEDS: u64 = 300;

/// The seeds to run, and whether each run prints its events.
fn seeds_to_run() -> (Range<u64>, bool) {
    let parse_seed = |text: &str| text.parse::<u64>().expect("a seed");
    let Ok(text) = std::env::var("RISKGATE_TEST_SEEDS") else {
        // `scripts/test` derives the first seed from the commit.
        let first = std::env::var("RISKGATE_TEST_SEED").map_or(0, |first| parse_seed(&first));
        return (first..first + DEFAULT_SEEDS, false);
    };
    match text.split_once("..") {
        Some((from, to)) => (parse_seed(from)..parse_seed(to), false),
        None => (parse_seed(&text)..parse_seed(&text) + 1, true),
    }
}

fn run_seeds(open_store: impl Fn() -> SimulatedStore + Sync) {
    let (seeds, is_verbose) = seeds_to_run();
    let threads = if is_verbose { 1 } else { 2 };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (seeds, open_store) = (seeds.clone(), &open_store);
            scope.spawn(move || {
                let mut store = SabotagedStore::new(open_store(), None);
                for seed in seeds.skip(thread as usize).step_by(threads as usize) {
                    let run_seed =
                        AssertUnwindSafe(|| Simulation::new(seed, &mut store, is_verbose).run());
                    if let Err(panic) = catch_unwind(run_seed) {
                        eprintln!("RISKGATE_TEST_SEEDS={seed} breaks a promise");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

#[test]
fn no_simulated_run_with_sqlite_breaks_a_promise() {
    run_seeds(SimulatedStore::sqlite);
}

#[test]
fn no_simulated_run_with_redis_breaks_a_promise() {
    let server = simulated_store::RedisServer::start();
    run_seeds(|| SimulatedStore::redis(&server));
}

#[test]
fn no_simulated_run_with_a_cluster_breaks_a_promise() {
    let cluster = simulated_store::RedisCluster::start(1);
    run_seeds(|| SimulatedStore::cluster(&cluster));
}
