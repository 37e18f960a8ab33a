//! `[dns]`: queries for names that no list has.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::settings::{NO_NAME_HERE, Settings, is_host_name};
use crate::dns::DnsOptions;

/// The default port of resolvers.
const DNS_PORT: u16 = 53;
/// What to write in place of the file with the resolvers of the system.
const HINT_FOR_RESOLVER_FILE: &str = "remove this line: without it, riskgate asks the resolvers of \
                                      /etc/resolv.conf";

impl Settings {
    /// Reads `[dns]`.
    pub fn read_dns_options(&mut self) -> DnsOptions {
        DnsOptions {
            is_learning_enabled: self.read_boolean("dns.learn", false),
            resolver_addresses: self.read_resolver_addresses("dns.resolvers"),
            max_queries_per_second: self.read_integer("dns.rate", 1..=10_000, 50) as u32,
            max_names_in_flight: self.read_integer("dns.concurrency", 1..=64, 16) as usize,
        }
    }

    /// Reads the addresses of DNS resolvers. An empty list means the resolvers of the system.
    pub fn read_resolver_addresses(&mut self, key: &str) -> Vec<SocketAddr> {
        let address = |text: &String| {
            let with_default_port =
                || Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, DNS_PORT));
            text.parse().ok().or_else(with_default_port)
        };
        let parse =
            |texts: &[String]| texts.iter().map(address).collect::<Option<Vec<SocketAddr>>>();
        let expected = "a list of addresses such as [\"10.0.0.2\", \"[::1]:5353\"]";
        let resolvers = self.parse_list(key, expected, parse);
        if resolvers.is_none() {
            self.amend_hints_of_list(key, |texts, hint| {
                if texts.iter().any(|it| it.starts_with('/')) {
                    return Some(HINT_FOR_RESOLVER_FILE.to_owned());
                }
                let has_name = texts.iter().any(|it| is_host_name(it));
                hint.or_else(|| has_name.then(|| NO_NAME_HERE.to_owned()))
            });
        }
        let without_brackets = self.texts_of(key).find(|text| has_port_without_brackets(text));
        if let Some(text) = without_brackets {
            let (address, port) = text.rsplit_once(':').unwrap_or_default();
            let problem = format!("expected [ and ] around {address}, but found {text:?}");
            let hint = format!(
                "write \"[{address}]:{port}\", or \"[{text}]:{DNS_PORT}\" for the address {text}"
            );
            self.warn_at_value(key, &problem, Some(hint));
        }
        resolvers.unwrap_or_default()
    }
}

/// Whether the last group of an IPv6 address is surely meant as the port of a resolver: those of
/// DNS, of DNS over TLS, and of mDNS, which many take for tests.
fn has_port_without_brackets(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
        && text.rsplit_once(':').is_some_and(|(address, port)| {
            matches!(port, "53" | "853" | "5353") && address.parse::<Ipv6Addr>().is_ok()
        })
}
