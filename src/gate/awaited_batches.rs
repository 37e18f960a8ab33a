//! Limits how many bodies of batches are awaited at the same time.

use tokio::sync::{Semaphore, SemaphorePermit};

/// The most requests whose body is awaited at the same time. It bounds their memory to 64 MiB.
const MAX_AWAITED_BATCHES: usize = 256;

/// The permits to wait for a body.
pub struct AwaitedBatches(Semaphore);

impl Default for AwaitedBatches {
    fn default() -> AwaitedBatches {
        AwaitedBatches(Semaphore::new(MAX_AWAITED_BATCHES))
    }
}

impl AwaitedBatches {
    /// Returns a permit to wait for one more body; `None` if there are too many.
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.0.try_acquire().ok()
    }
}
