//! Locking for the quota modules.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even a poisoned one: every holder keeps the data consistent at each step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
