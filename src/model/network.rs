//! Networks of client addresses, and which addresses count as one client.
//!
//! No I/O: this module only compares addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// A list of networks, each written as an address (`10.0.0.7`) or as a prefix (`10.0.0.0/8`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Parses a list. `None` if a text is neither an address nor a network, or is an IPv6 network,
    /// other than `::/0`, of which only a part is IPv4-mapped.
    pub fn parse(texts: &[String]) -> Option<Networks> {
        texts.iter().map(|text| parse_network(text)).collect::<Option<Vec<IpNet>>>().map(Networks)
    }

    /// Whether the list has no network.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a network contains all addresses of its family.
    pub fn contains_all_addresses(&self) -> bool {
        self.0.iter().any(|network| network.prefix_len() == 0)
    }

    /// Whether a network contains this address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Returns the network that is meant by a text with an address inside of the network, such as
/// `10.0.0.0/8` for `10.0.0.1/8`. `None` for any other text.
pub fn network_around(text: &str) -> Option<String> {
    let network = IpNet::from_str(text).ok()?;
    (network.trunc() != network).then(|| network.trunc().to_string())
}

fn parse_network(text: &str) -> Option<IpNet> {
    match IpAddr::from_str(text) {
        Ok(address) => Some(IpNet::from(address.to_canonical())),
        Err(_) => to_canonical(IpNet::from_str(text).ok()?),
    }
}

/// Returns a network of IPv4-mapped addresses as the network of these IPv4 addresses, and any other
/// network unchanged. `None` if only a part of the network is mapped, because
/// [`Networks::contains`] takes a mapped address for an IPv4 address. `::/0` is allowed.
fn to_canonical(network: IpNet) -> Option<IpNet> {
    const MAPPED_PREFIX_BITS: u8 = 96;
    let IpNet::V6(v6_network) = network else { return Some(network) };
    let first = v6_network.network();
    match (first.to_ipv4_mapped(), v6_network.prefix_len().checked_sub(MAPPED_PREFIX_BITS)) {
        (Some(first), Some(prefix_bits)) => Ipv4Net::new(first, prefix_bits).ok().map(IpNet::V4),
        _ => {
            let mapped = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
            let is_everything = v6_network.prefix_len() == 0;
            (is_everything || !v6_network.contains(&mapped)).then_some(network)
        }
    }
}

/// Parses the address of a hop in `X-Forwarded-For` or `Forwarded`, with or without a port. The
/// port may be obfuscated. The zone of an IPv6 address (RFC 4007 section 11), which names an
/// interface of the proxy, is ignored. `None` for any other text, such as `unknown` and an
/// obfuscated name.
pub fn parse_hop_address(text: &str) -> Option<IpAddr> {
    let has_zone = text.contains('%');
    let (start, rest) = text.split_once('%').unwrap_or((text, ""));
    // A bracket and a port may follow the zone.
    let end = rest.find(']').map_or("", |at| &rest[at..]);
    let text = [start, end].concat();
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let is_port = port.is_empty() || is_node_port(port.strip_prefix(':')?);
            IpAddr::V6(address.parse().ok().filter(|_| is_port)?)
        }
        None => match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) | Err(_) if has_zone => return None,
            Ok(address) => address,
            Err(_) => {
                let (address, port) = text.split_once(':')?;
                IpAddr::V4(address.parse().ok().filter(|_| is_node_port(port))?)
            }
        },
    };
    Some(address.to_canonical())
}

/// Returns true for a port, and for an obfuscated one (RFC 7239 section 6).
fn is_node_port(text: &str) -> bool {
    let is_obfuscated = |rest: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !rest.is_empty() && rest.bytes().all(is_allowed)
    };
    text.strip_prefix('_').map_or_else(|| text.parse::<u16>().is_ok(), is_obfuscated)
}

/// The network of a client whose sign-ups are counted: an IPv4 /24 or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignUpNetwork {
    bytes: [u8; 8],
    length: usize,
}

impl SignUpNetwork {
    /// The bytes of the network: three of IPv4, eight of IPv6.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl From<IpAddr> for SignUpNetwork {
    fn from(address: IpAddr) -> SignUpNetwork {
        let mut bytes = [0; 8];
        let length = match address.to_canonical() {
            IpAddr::V4(address) => {
                bytes[..3].copy_from_slice(&address.octets()[..3]);
                3
            }
            IpAddr::V6(address) => {
                bytes.copy_from_slice(&address.octets()[..8]);
                8
            }
        };
        SignUpNetwork { bytes, length }
    }
}

/// The addresses that count as one client: an IPv4 address, or an IPv6 /64, because a household or
/// a host usually has a whole /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientPrefix(IpAddr);

impl fmt::Display for ClientPrefix {
    /// Writes the address, or the first address of the /64.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<IpAddr> for ClientPrefix {
    fn from(address: IpAddr) -> ClientPrefix {
        match address.to_canonical() {
            IpAddr::V4(address) => ClientPrefix(address.into()),
            IpAddr::V6(address) => {
                let host_mask = u128::from(u64::MAX);
                ClientPrefix(IpAddr::V6((u128::from(address) & !host_mask).into()))
            }
        }
    }
}

/// Replaces 0.0.0.0 and :: with the loopback address. A listener on them accepts connections to the
/// loopback address.
pub fn loopback_if_unspecified(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests;
