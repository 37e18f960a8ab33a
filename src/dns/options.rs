//! The settings of DNS look-ups.

use std::net::SocketAddr;

/// The settings of DNS look-ups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// Whether riskgate resolves unlisted names in the background.
    pub learn: bool,
    /// The resolvers to use. If empty, those of the system.
    pub resolvers: Vec<SocketAddr>,
    /// The most queries per second.
    pub rate: u32,
    /// The most names that are resolved at the same time.
    pub concurrency: usize,
}
