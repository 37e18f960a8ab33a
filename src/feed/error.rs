//! The error of a feed's update.

/// Why an update failed. The feed then keeps its last good list.
#[derive(Debug, thiserror::Error)]
#[error("{at}: {message}")]
pub struct FeedError {
    /// The feed, the URL or the file with the fault.
    pub(super) at: String,
    pub(super) message: String,
}

impl FeedError {
    pub(super) fn new(at: impl Into<String>, message: impl Into<String>) -> FeedError {
        FeedError { at: at.into(), message: message.into() }
    }
}
