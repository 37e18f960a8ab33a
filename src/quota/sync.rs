//! Locks of this directory.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock is taken all the same: every holder leaves its numbers whole at each step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
