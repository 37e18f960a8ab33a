//! Many short lives of the ledger under every kind of misfortune, each drawn from a seed.
//!
//! Runs the shipped node, lease, calendar and store; only time, the network between node and
//! store, and the order of events are made here. After each event, and at the end of each life,
//! the promises are checked. A life that breaks one is named by its seed:
//!
//! ```text
//! RISKGATE_SIMULATION=4711 cargo test --lib simulation -- --nocapture
//! RISKGATE_SIMULATION=0..100000 cargo test --lib simulation
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

use engine::Engine;
use run::World;
use sabotage::SabotagedStore;

/// Lives for each store in a usual run; `scripts/test --all` runs 100,000 in all.
const USUAL: u64 = 2_000;

/// Seeds to run, and whether each life is to tell its story.
fn seeds() -> (Range<u64>, bool) {
    let Ok(text) = std::env::var("RISKGATE_SIMULATION") else { return (0..USUAL, false) };
    let number = |text: &str| text.parse().expect("RISKGATE_SIMULATION: a seed or a range a..b");
    match text.split_once("..") {
        Some((from, to)) => (number(from)..number(to), false),
        None => (number(&text)..number(&text) + 1, true),
    }
}

fn run(engine: impl Fn() -> Engine + Sync) {
    let (seeds, tells) = seeds();
    let threads = if tells { 1 } else { 2 };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (seeds, engine) = (seeds.clone(), &engine);
            scope.spawn(move || {
                let mut engine = SabotagedStore::new(engine(), None);
                for seed in seeds.skip(thread as usize).step_by(threads as usize) {
                    let life = AssertUnwindSafe(|| World::new(seed, &mut engine, tells).live());
                    if let Err(panic) = catch_unwind(life) {
                        eprintln!("RISKGATE_SIMULATION={seed} breaks a promise");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

#[test]
fn no_life_with_the_embedded_store_breaks_a_promise() {
    run(Engine::sqlite);
}

#[test]
fn no_life_with_a_server_breaks_a_promise() {
    let server = engine::RedisServer::start();
    run(|| Engine::redis(&server));
}
