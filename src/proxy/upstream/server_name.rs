//! The names of upstream servers in the config.

use std::fmt;
use std::net::SocketAddr;

/// A server in `upstream.servers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// An address and a port, such as `10.0.0.1:9000`.
    Address(SocketAddr),
    /// A host and a port, such as `check.internal:9000`: one server for each address of the host.
    Host {
        /// The host in lower case. A dot at its end says that the name is complete: the search list
        /// of the system does not apply to it.
        host: String,
        /// The port of each address.
        port: u16,
    },
    /// A service such as `_check._tcp.internal`: one server for each address of the targets in its
    /// SRV records (RFC 2782).
    Service(String),
}

impl ServerName {
    /// Returns true if the name leads to this machine, by loopback or an unspecified address.
    pub fn is_on_loopback(&self) -> bool {
        match self {
            ServerName::Address(address) => {
                let ip = address.ip().to_canonical();
                ip.is_loopback() || ip.is_unspecified()
            }
            ServerName::Host { .. } => {
                let host = self.host().unwrap_or_default();
                host == "localhost" || host.ends_with(".localhost")
            }
            ServerName::Service(_) => false,
        }
    }

    /// Returns true if this server is surely the listener at this address of this machine.
    pub fn is_listener_at(&self, listener: SocketAddr) -> bool {
        let ip = listener.ip();
        // The same port on another machine is another server, so the address counts as well.
        match self {
            ServerName::Address(address) => {
                address.port() == listener.port()
                    && (address.ip() == ip
                        || self.is_on_loopback() && ip.is_unspecified()
                        || address.ip().is_unspecified() && ip.is_loopback())
            }
            ServerName::Host { port, .. } => {
                *port == listener.port()
                    && self.is_on_loopback()
                    && (ip.is_loopback() || ip.is_unspecified())
            }
            ServerName::Service(_) => false,
        }
    }

    /// Parses the name of a server. Returns `None` if the text has none of the three forms.
    pub fn parse(text: &str) -> Option<ServerName> {
        if let Ok(address) = text.parse() {
            return Some(ServerName::Address(address));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if is_host_name(host, false) => {
                Some(ServerName::Host { host: host.to_ascii_lowercase(), port: port.parse().ok()? })
            }
            None if text.starts_with('_') && text.contains('.') && is_host_name(text, true) => {
                Some(ServerName::Service(text.trim_end_matches('.').to_ascii_lowercase()))
            }
            _ => None,
        }
    }

    /// The host without the port and without a dot at its end, as certificates name it. `None` for
    /// a service, whose hosts are in the DNS.
    pub fn host(&self) -> Option<String> {
        match self {
            ServerName::Address(address) => Some(address.ip().to_string()),
            ServerName::Host { host, .. } => Some(host.trim_end_matches('.').to_owned()),
            ServerName::Service(_) => None,
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerName::Address(address) => address.fmt(formatter),
            ServerName::Host { host, port } => write!(formatter, "{host}:{port}"),
            ServerName::Service(name) => formatter.write_str(name),
        }
    }
}

/// Returns true for a name whose labels have letters, digits, hyphens and underscores, such as
/// `check_1.internal`. Names of containers have underscores. The first label of a service begins
/// with `_`, and the first label of a host does not.
fn is_host_name(text: &str, is_service: bool) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(allowed)
    };
    text.len() <= 253 && text.split('.').all(is_label) && text.starts_with('_') == is_service
}

#[cfg(test)]
mod tests;
