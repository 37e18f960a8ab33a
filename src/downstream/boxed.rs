//! Boxed futures for rare branches.

use std::pin::Pin;

/// Boxes a future, so that a rare branch doesn't enlarge every connection's future. `make` creates
/// the future: if the caller created it and passed it here, the caller's own future would still
/// reserve space for it.
pub(super) fn box_future<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
}
