//! How the DNS is asked.

use std::net::SocketAddr;

/// How the DNS is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// Whether names that no list has are asked in the background.
    pub learn: bool,
    /// Whom to ask; without any, those of the system.
    pub resolvers: Vec<SocketAddr>,
    /// Questions in a second.
    pub rate: u32,
    /// Names that are asked at the same time.
    pub concurrency: usize,
}
