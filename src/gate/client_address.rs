//! Who the client is: the peer of the connection, or the client that trusted proxies report.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::model::network::Networks;

/// Where the client's address comes from; `listen.client_address` in the config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAddressSource {
    /// The peer of the connection.
    #[default]
    Peer,
    /// `X-Forwarded-For`, if the peer is a trusted proxy.
    XForwardedFor,
    /// `Forwarded` (RFC 7239), if the peer is a trusted proxy.
    Forwarded,
}

/// How riskgate finds the client's address.
#[derive(Clone, Debug, Default)]
pub struct ClientAddressRule {
    /// The proxies in front of riskgate whose forwarding fields are trusted.
    pub trusted_proxies: Networks,
    /// Where the address comes from.
    pub source: ClientAddressSource,
}

impl ClientAddressRule {
    /// Returns the address of the client: the first hop outside the trusted proxies, counted from
    /// the peer. Each trusted proxy reports the hop before it at the right end of its field. If a
    /// proxy reports no address, the client is that proxy. `read_values` returns the values of a
    /// field in their order; it is called only if the rule needs the field.
    pub(super) fn find_client<'h, V: Iterator<Item = &'h [u8]>>(
        &self,
        peer: Option<IpAddr>,
        read_values: impl FnOnce(&'static str) -> V,
    ) -> Option<IpAddr> {
        let (name, parse): (_, fn(&str) -> Option<IpAddr>) = match self.source {
            ClientAddressSource::Peer => return peer,
            ClientAddressSource::XForwardedFor => ("x-forwarded-for", parse_node),
            ClientAddressSource::Forwarded => ("forwarded", parse_forwarded_element),
        };
        let mut client = peer?;
        if !self.trusted_proxies.contains(client) {
            return Some(client);
        }
        let values: Vec<&[u8]> = read_values(name).collect();
        // From the right: a client could open a quote that would hide what proxies add after it.
        let elements = values.iter().rev().flat_map(|value| value.rsplit(|byte| *byte == b','));
        for element in elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty()) {
            let reported = std::str::from_utf8(element).ok().and_then(parse);
            let Some(reported) = reported else { break };
            client = reported;
            if !self.trusted_proxies.contains(client) {
                break;
            }
        }
        Some(client)
    }
}

/// Parses the address of one element of `Forwarded`, its parameter `for` (RFC 7239 section 4).
fn parse_forwarded_element(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    let value = value.trim();
    parse_node(value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value))
}

/// Parses an address, with or without a port. `None` for `unknown` and for an obfuscated name.
fn parse_node(text: &str) -> Option<IpAddr> {
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok();
    text.parse::<IpAddr>()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .or_else(|| in_brackets().map(IpAddr::from))
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(source: ClientAddressSource, peer: &str, values: &[&str]) -> Option<String> {
        let texts = ["10.0.0.0/8".to_owned(), "2001:db8:1::/48".to_owned()];
        let trusted_proxies = Networks::parse(&texts).unwrap();
        let rule = ClientAddressRule { trusted_proxies, source };
        let values = values.iter().map(|value| value.as_bytes());
        rule.find_client(peer.parse().ok(), |_| values).map(|address| address.to_string())
    }

    #[test]
    fn the_client_is_the_first_hop_from_the_right_that_is_no_trusted_proxy() {
        for (peer, values, client) in [
            ("10.0.0.1", &["192.0.2.1"][..], "192.0.2.1"),
            ("10.0.0.1", &["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["6.6.6.6, 192.0.2.1, 10.9.9.9"], "192.0.2.1"),
            ("10.0.0.1", &["6.6.6.6", "192.0.2.1 ,10.9.9.9", "2001:db8:1::7"], "192.0.2.1"),
            ("10.0.0.1", &["6.6.6.6,192.0.2.1,,  ,"], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.1:4711"], "192.0.2.1"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["::ffff:192.0.2.1"], "192.0.2.1"),
            // The peer is no proxy, so what it says does not count.
            ("192.0.2.9", &["6.6.6.6"], "192.0.2.9"),
            // All hops are proxies: the first of them is the client.
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // A proxy that reports no address.
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["6.6.6.6, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["6.6.6.6, _hidden"], "10.0.0.1"),
        ] {
            let found = find(ClientAddressSource::XForwardedFor, peer, values);
            assert_eq!(found.as_deref(), Some(client), "{peer} {values:?}");
        }
        assert_eq!(find(ClientAddressSource::XForwardedFor, "none", &["6.6.6.6"]), None);
        let found = find(ClientAddressSource::Peer, "10.0.0.1", &["6.6.6.6"]);
        assert_eq!(found.as_deref(), Some("10.0.0.1"));
    }

    #[test]
    fn forwarded_elements_are_read_from_the_right() {
        for (values, client) in [
            (&["for=192.0.2.1"][..], "192.0.2.1"),
            (&["For=6.6.6.6, proto=https;FOR=\"192.0.2.1:80\";by=10.0.0.7"], "192.0.2.1"),
            (&["for=6.6.6.6", "for=\"[2001:db8::1]:4711\" , for=10.0.0.2"], "2001:db8::1"),
            // A quote that the client left open hides nothing.
            (&["for=\"6.6.6.6, for=192.0.2.1"], "192.0.2.1"),
            (&["for=6.6.6.6, for=unknown"], "10.0.0.1"),
            (&["for=6.6.6.6, for=_secret;by=_x"], "10.0.0.1"),
            (&["for=6.6.6.6, proto=http"], "10.0.0.1"),
        ] {
            let found = find(ClientAddressSource::Forwarded, "10.0.0.1", values);
            assert_eq!(found.as_deref(), Some(client), "{values:?}");
        }
    }
}
