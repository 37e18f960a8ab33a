use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[test]
fn a_thread_begins_again_after_a_panic() {
    let runs = AtomicU32::new(0);
    let run = || assert!(runs.fetch_add(1, Ordering::Relaxed) == 2, "a test");
    run_again_after_panics(run, Duration::ZERO);
    assert_eq!(runs.into_inner(), 3);
}
