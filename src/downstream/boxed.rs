//! Futures that few connections need.

use std::pin::Pin;

/// In a place of its own, as all that few connections need: the others hold no room for it. It is
/// made by a function, since what moves through an async one has its room there all the same.
pub(super) fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
}
