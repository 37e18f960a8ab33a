//! The settings of the upstream servers.

use std::net::SocketAddr;
use std::time::Duration;

use super::server_name::ServerName;
use super::tls::UpstreamTls;
use crate::model::network::Networks;

/// The settings of upstream connections, deadlines and health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// The servers.
    pub servers: Vec<ServerName>,
    /// How often the names of the servers are resolved again.
    pub resolve_interval: Duration,
    /// The resolvers for these names; if empty, riskgate uses the resolvers of the system.
    pub resolvers: Vec<SocketAddr>,
    /// The value of `Host` in upstream requests; the server's address and port if `None`.
    pub host_header: Option<String>,
    /// TLS to the servers; cleartext if `None`.
    pub tls: Option<UpstreamTls>,
    /// The most concurrent exchanges of all clients. riskgate refuses a further request at once.
    /// Exchanges that stream a body have limits of their own, which follow from this one and the
    /// next one.
    pub max_in_flight: usize,
    /// The most concurrent exchanges of one client: an address, or a /64 of IPv6.
    pub max_in_flight_per_address: usize,
    /// Clients in these networks are exempt from the limit per address.
    pub exempt_networks: Networks,
    /// The longest time to open a connection.
    pub connect_timeout: Duration,
    /// The longest time for the whole exchange of a check, from the request to the last byte of the
    /// response. A health check has the same time limit.
    pub exchange_time_limit: Duration,
    /// The longest time for which riskgate keeps an idle connection.
    pub idle_timeout: Duration,
    /// The interval of health checks; zero turns them off.
    pub health_interval: Duration,
    /// The path that a health check requests; if `None`, the check only opens a connection.
    pub health_path: Option<String>,
    /// For how long at most riskgate skips a server because it refused a connection.
    pub eject_for: Duration,
}

impl UpstreamOptions {
    /// Returns the share of `upstream.max_in_flight` that the clients of one address get, unless
    /// the config sets another: half of it, rounded up.
    pub fn default_max_in_flight_per_address(max_in_flight: usize) -> usize {
        max_in_flight.div_ceil(2)
    }
}
