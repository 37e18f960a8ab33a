//! Many short lives of the ledger under every kind of misfortune, each drawn from a seed.
//!
//! Runs the shipped node, lease, calendar and store; only time, the network between node and
//! store, and the order of events are made here. After each event, and at the end of each life,
//! the promises are checked. A life that breaks one is named by its seed:
//!
//! ```text
//! RISKGATE_TEST_SIMULATION_SEEDS=4711 cargo test --lib simulation -- --nocapture
//! RISKGATE_TEST_SIMULATION_SEEDS=0..100000 cargo test --lib simulation
//! ```

mod checks;
mod engine;
mod faults;
mod network;
mod random;
mod run;
mod sabotage;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::SimulatedStore;
use run::Simulation;
use sabotage::SabotagedStore;

/// Lives for each store in a usual run; `scripts/test --all` runs 100,000 in all.
const DEFAULT_SEEDS: u64 = 2_000;

/// Seeds to run, and whether each life is to tell its story.
fn seeds() -> (Range<u64>, bool) {
    let Ok(text) = std::env::var("RISKGATE_TEST_SIMULATION_SEEDS") else {
        return (0..DEFAULT_SEEDS, false);
    };
    let number =
        |text: &str| text.parse().expect("RISKGATE_TEST_SIMULATION_SEEDS: a seed or a range a..b");
    match text.split_once("..") {
        Some((from, to)) => (number(from)..number(to), false),
        None => (number(&text)..number(&text) + 1, true),
    }
}

fn run(engine: impl Fn() -> SimulatedStore + Sync) {
    let (seeds, tells) = seeds();
    let threads = if tells { 1 } else { 2 };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (seeds, engine) = (seeds.clone(), &engine);
            scope.spawn(move || {
                let mut engine = SabotagedStore::new(engine(), None);
                for seed in seeds.skip(thread as usize).step_by(threads as usize) {
                    let life = AssertUnwindSafe(|| Simulation::new(seed, &mut engine, tells).run());
                    if let Err(panic) = catch_unwind(life) {
                        eprintln!("RISKGATE_TEST_SIMULATION_SEEDS={seed} breaks a promise");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

#[test]
fn no_simulated_run_with_sqlite_breaks_a_promise() {
    run(SimulatedStore::sqlite);
}

#[test]
fn no_simulated_run_with_redis_breaks_a_promise() {
    let server = engine::RedisServer::start();
    run(|| SimulatedStore::redis(&server));
}
