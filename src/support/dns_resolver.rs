//! Where DNS resolvers are found.

use std::net::SocketAddr;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::system_conf::read_system_conf;

/// Returns the resolvers at these addresses. Without addresses, returns those of the system, with
/// its search list and options.
///
/// # Errors
/// If there are no addresses and the system's resolvers can't be read.
pub fn read_resolver_config(
    addresses: &[SocketAddr],
) -> Result<(ResolverConfig, ResolverOpts), String> {
    if addresses.is_empty() {
        return read_system_conf().map_err(|error| {
            format!("expected the system's resolvers in /etc/resolv.conf, but found {error}")
        });
    }
    let servers = addresses.iter().map(|address| name_server_config(*address)).collect();
    Ok((ResolverConfig::from_name_servers(servers), ResolverOpts::default()))
}

fn name_server_config(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.to_vec())
}
