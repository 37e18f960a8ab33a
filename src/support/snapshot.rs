//! State that is swapped under running requests.
//!
//! Owns the one pointer to a value that changes whole. Readers take a snapshot and keep it for
//! their request; writers publish a new value and never touch the old one.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

/// A value that is replaced as a whole while others read it.
#[derive(Debug)]
pub struct SnapshotCell<T: Send + Sync + 'static>(ArcSwap<T>);

impl<T: Send + Sync + 'static> SnapshotCell<T> {
    /// Holds `value` until the first [`Live::publish`].
    pub fn new(value: T) -> SnapshotCell<T> {
        SnapshotCell(ArcSwap::from_pointee(value))
    }

    /// The value as it is now, for a moment: not to be kept over an await.
    pub fn peek(&self) -> Guard<Arc<T>> {
        self.0.load()
    }

    /// The value as it is now, to keep.
    pub fn snapshot(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// Replaces the value. The old one is dropped here if nobody holds it, so call this from a
    /// thread that may take its time.
    pub fn publish(&self, value: T) {
        drop(self.0.swap(Arc::new(value)));
    }
}
