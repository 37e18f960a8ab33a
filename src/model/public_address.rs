//! Which addresses are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns false for private, loopback, link-local, multicast and other special-purpose addresses
/// (IANA's registries), and for IPv6 addresses outside of 2000::/3. Within 192.0.0.0/24 and
/// 2001::/23, the few addresses that the internet routes count as not public. An IPv6 address that
/// contains an IPv4 address (mapped, NAT64 with the well-known prefix, 6to4) is public if the IPv4
/// address is.
pub fn is_public_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        // This network, private networks, loopback.
        (0 | 10 | 127, ..) => false,
        // Behind a carrier's NAT.
        (100, 64..=127, _) => false,
        // Link-local, with the metadata services of clouds.
        (169, 254, _) => false,
        (172, 16..=31, _) | (192, 168, _) => false,
        // Protocol assignments, and relays to 6to4.
        (192, 0, 0) | (192, 88, 99) => false,
        // Documentation.
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => false,
        // Benchmarks.
        (198, 18..=19, _) => false,
        // Multicast, reserved, broadcast.
        (224..=255, ..) => false,
        _ => true,
    }
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // IPv4-mapped, and NAT64 with the well-known prefix.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments, Teredo among them, and documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // All other unicast addresses of the internet. Outside are loopback, unspecified,
        // unique-local, link-local and multicast addresses, and local NAT64 prefixes.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests;
