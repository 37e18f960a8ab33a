//! Why a feed keeps its last good list.

/// Why a feed keeps its last good list.
#[derive(Debug, thiserror::Error)]
#[error("{attempted_at}: {message}")]
pub struct FeedError {
    /// The feed, or the URL.
    pub(super) attempted_at: String,
    pub(super) message: String,
}

impl FeedError {
    pub(super) fn new(at: impl Into<String>, why: impl Into<String>) -> FeedError {
        FeedError { attempted_at: at.into(), message: why.into() }
    }
}
