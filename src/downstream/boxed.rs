//! Boxed futures for rare branches.

use std::pin::Pin;

/// Boxes a future, so that a rare branch doesn't enlarge every connection's future. It takes a
/// function that creates the future, because a future that moves through the enclosing async
/// function would take up space there all the same.
pub(super) fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
}
