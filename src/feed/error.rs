//! Why a feed keeps its last good list.

/// Why a feed keeps its last good list.
#[derive(Debug, thiserror::Error)]
#[error("{at}: {why}")]
pub struct FeedError {
    /// The feed, or the URL.
    pub(super) at: String,
    pub(super) why: String,
}

impl FeedError {
    pub(super) fn new(at: impl Into<String>, why: impl Into<String>) -> FeedError {
        FeedError { at: at.into(), why: why.into() }
    }
}
