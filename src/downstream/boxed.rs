//! Boxed futures for rare branches.

use std::pin::Pin;

/// Boxes a future, so that a rare branch doesn't enlarge the future of every connection. The caller
/// passes a closure that makes the future: a future that the caller makes would take space in the
/// caller's own future.
pub(super) fn box_future<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
}
