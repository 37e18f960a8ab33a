//! State that is replaced while requests use it.
//!
//! Owns the pointer to a value that is only replaced as a whole. Readers take a snapshot and keep
//! it for their request; writers publish a new value and never change the old one.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

/// The value of a [`SnapshotCell`] when it was read. A snapshot stays the same until it is dropped.
pub type Snapshot<T> = Guard<Arc<T>>;

/// A snapshot of a value that no cell holds.
pub fn snapshot_of<T>(value: Arc<T>) -> Snapshot<T> {
    Guard::from_inner(value)
}

/// A value that is replaced as a whole while others read it.
#[derive(Debug)]
pub struct SnapshotCell<T: Send + Sync + 'static>(ArcSwap<T>);

impl<T: Send + Sync + 'static> SnapshotCell<T> {
    /// Holds `value` until the first [`SnapshotCell::publish`].
    pub fn new(value: T) -> SnapshotCell<T> {
        SnapshotCell(ArcSwap::from_pointee(value))
    }

    /// The present value, for at most one request. A thread can take a few at the same time without
    /// writing to memory that other threads write to.
    pub fn peek(&self) -> Snapshot<T> {
        self.0.load()
    }

    /// The present value, to keep.
    pub fn snapshot(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// Replaces the value. If no reader holds the old value, it is dropped here; a large value
    /// should therefore be published from a thread that may block.
    pub fn publish(&self, value: T) {
        drop(self.0.swap(Arc::new(value)));
    }
}
