//! Where DNS resolvers are found, and how they are reached.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hickory_resolver::Resolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::{
    DnsUdpSocket, RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use hickory_resolver::system_conf::read_system_conf;
use tokio::net::UdpSocket;

/// The file that names the resolvers of the system.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The file in which Linux lists the addresses of IPv6, each with the interface that has it.
const INTERFACES_FILE: &str = "/proc/net/if_inet6";

/// A client of DNS resolvers.
pub type DnsResolver = Resolver<RuntimeWithScopeIds>;

/// Where the resolvers are, and what applies to queries.
pub struct ResolverSettings {
    /// The resolvers. Those of the system have its search list.
    pub config: ResolverConfig,
    /// The options of queries.
    pub options: ResolverOpts,
    runtime: RuntimeWithScopeIds,
}

impl ResolverSettings {
    /// Returns the resolvers at these addresses. Without addresses, returns those of the system,
    /// with its search list and options.
    ///
    /// # Errors
    /// If there are no addresses and the system's resolvers can't be read.
    pub fn read(addresses: &[SocketAddr]) -> Result<ResolverSettings, String> {
        let (config, options, scopes) = if addresses.is_empty() {
            let (config, options) = read_system_conf().map_err(|error| {
                format!("expected the system's resolvers in {RESOLV_CONF}, but found {error}")
            })?;
            (config, options, read_system_scope_ids())
        } else {
            let servers = addresses.iter().map(|address| name_server_config(*address)).collect();
            let config = ResolverConfig::from_name_servers(servers);
            (config, ResolverOpts::default(), scope_ids_of_addresses(addresses))
        };
        let runtime =
            RuntimeWithScopeIds { inner: TokioRuntimeProvider::new(), scopes: scopes.into() };
        Ok(ResolverSettings { config, options, runtime })
    }

    /// Creates a client of the resolvers with these options.
    ///
    /// # Errors
    /// If the resolver library refuses the settings.
    pub fn build(&self, options: ResolverOpts) -> Result<DnsResolver, String> {
        let builder = Resolver::builder_with_config(self.config.clone(), self.runtime.clone());
        let resolver = builder.with_options(options).build();
        resolver.map_err(|error| format!("expected resolvers, but found {error}"))
    }
}

fn name_server_config(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.to_vec())
}

/// The interface through which a link-local address is reached: its number by the address.
type ScopeIds = HashMap<Ipv6Addr, u32>;

fn scope_ids_of_addresses(addresses: &[SocketAddr]) -> ScopeIds {
    let scoped = |address: &SocketAddr| match address {
        SocketAddr::V6(address) if address.scope_id() != 0 => {
            Some((*address.ip(), address.scope_id()))
        }
        _ => None,
    };
    addresses.iter().filter_map(scoped).collect()
}

/// Reads the scopes of the system's resolvers, which the resolver library drops. An address whose
/// interface is unknown has no scope.
fn read_system_scope_ids() -> ScopeIds {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let resolv_conf = read(RESOLV_CONF);
    match resolv_conf.contains('%') {
        true => parse_scope_ids(&resolv_conf, &read(INTERFACES_FILE)),
        false => ScopeIds::new(),
    }
}

/// Reads the `nameserver` lines that name an interface, such as `nameserver fe80::1%eth0`.
/// `interfaces` is the text of [`INTERFACES_FILE`].
fn parse_scope_ids(resolv_conf: &str, interfaces: &str) -> ScopeIds {
    let find_index = |name: &str| {
        let mut lines = interfaces.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|fields| fields.get(5) == Some(&name))?;
        u32::from_str_radix(line.get(1)?, 16).ok()
    };
    let scoped = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, interface) = match (words.next(), words.next()) {
            (Some("nameserver"), Some(server)) => server.split_once('%')?,
            _ => return None,
        };
        let index = interface.parse().ok().or_else(|| find_index(interface))?;
        Some((address.parse().ok()?, index))
    };
    let mut scopes = ScopeIds::new();
    for (address, index) in resolv_conf.lines().filter_map(scoped) {
        scopes.entry(address).or_insert(index);
    }
    scopes
}

/// Tokio's sockets, which reach a link-local address through its interface.
#[derive(Clone)]
pub struct RuntimeWithScopeIds {
    inner: TokioRuntimeProvider,
    scopes: Arc<ScopeIds>,
}

impl RuntimeWithScopeIds {
    fn add_scope_id(&self, mut server: SocketAddr) -> SocketAddr {
        if let SocketAddr::V6(address) = &mut server
            && let Some(scope) = self.scopes.get(address.ip())
        {
            address.set_scope_id(*scope);
        }
        server
    }
}

impl RuntimeProvider for RuntimeWithScopeIds {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocketWithScopeId;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> TokioHandle {
        self.inner.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        bind: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        self.inner.connect_tcp(self.add_scope_id(server), bind, timeout)
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<UdpSocketWithScopeId>>>> {
        let server = self.add_scope_id(server);
        Box::pin(async move {
            Ok(UdpSocketWithScopeId { socket: UdpSocket::bind(local).await?, server })
        })
    }
}

/// A socket for queries to one resolver.
pub struct UdpSocketWithScopeId {
    socket: UdpSocket,
    /// The resolver, with its scope.
    server: SocketAddr,
}

impl DnsUdpSocket for UdpSocketWithScopeId {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        DnsUdpSocket::poll_recv_from(&self.socket, context, buffer)
    }

    fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let is_server = (target.ip(), target.port()) == (self.server.ip(), self.server.port());
        let target = if is_server { self.server } else { target };
        DnsUdpSocket::poll_send_to(&self.socket, context, bytes, target)
    }
}

#[cfg(test)]
mod tests;
