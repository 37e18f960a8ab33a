//! Who the client is: the peer of the connection, or the client that trusted proxies report.

use std::net::IpAddr;

use http::HeaderName;
use http::header::FORWARDED;

use crate::message::forwarded::iter_elements_from_right;
use crate::message::request_head::members_of_list;
use crate::model::network::{Networks, parse_hop_address};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAddressRule {
    /// The proxies in front of riskgate whose forwarding fields are trusted.
    pub trusted_proxies: Networks,
    /// Where the address comes from.
    pub source: ClientAddressSource,
}

impl ClientAddressRule {
    /// Returns true if riskgate reads the client's address in `Forwarded`.
    pub(super) fn reads_forwarded(&self) -> bool {
        self.source == ClientAddressSource::Forwarded
    }

    /// Returns the address of the client. With [`ClientAddressSource::Peer`], this is the peer.
    /// Otherwise, this is the first hop that is no trusted proxy, counted from the peer. Each
    /// trusted proxy has appended the hop before it to the field, so riskgate reads the field from
    /// the right. If a trusted proxy reports no valid address, this proxy counts as the client. If
    /// all hops are trusted proxies, the one farthest from riskgate counts. `read_values` returns
    /// the values of a field in their order.
    pub(super) fn find_client<'h, V: Iterator<Item = &'h [u8]>>(
        &self,
        peer: Option<IpAddr>,
        read_values: impl FnOnce(HeaderName) -> V,
    ) -> Option<IpAddr> {
        let name = match self.source {
            ClientAddressSource::Peer => return peer,
            ClientAddressSource::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            ClientAddressSource::Forwarded => FORWARDED,
        };
        let mut client = peer?;
        if !self.trusted_proxies.contains(client) {
            return Some(client);
        }
        let lines: Vec<&[u8]> = read_values(name).collect();
        for line in lines.into_iter().rev() {
            let hops: &mut dyn Iterator<Item = Option<IpAddr>> = match self.source {
                ClientAddressSource::Forwarded => &mut iter_elements_from_right(line)
                    .map(|element| parse_hop_address(&element?.node?)),
                _ => &mut members_of_list(line)
                    .rev()
                    .map(|member| parse_hop_address(std::str::from_utf8(member).ok()?)),
            };
            for reported in hops {
                let Some(reported) = reported else { return Some(client) };
                client = reported;
                if !self.trusted_proxies.contains(client) {
                    return Some(client);
                }
            }
        }
        Some(client)
    }
}

#[cfg(test)]
mod tests;
