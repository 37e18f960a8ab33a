//! The settings of DNS look-ups.

use std::net::SocketAddr;

/// The settings of DNS look-ups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// Whether riskgate resolves unlisted names in the background.
    pub is_learning_enabled: bool,
    /// The addresses of the resolvers. If empty, riskgate uses the system's resolvers.
    pub resolver_addresses: Vec<SocketAddr>,
    /// The most queries that begin in a second. Retries, and copies to a second resolver, do not
    /// count.
    pub max_queries_per_second: u32,
    /// The most names that are resolved at the same time.
    pub max_names_in_flight: usize,
}
