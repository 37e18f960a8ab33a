//! `[dns]`: what is learned of names that no list has.

use std::net::{IpAddr, SocketAddr};

use super::settings::Settings;
use super::written::Written;
use crate::dns::DnsOptions;

/// Where resolvers listen.
const PORT: u16 = 53;

impl Settings {
    /// `[dns]`.
    pub fn dns(&mut self) -> DnsOptions {
        let address = |text: &String| {
            let alone = || Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, PORT));
            text.parse().ok().or_else(alone)
        };
        let parse = |written: &Written| {
            let texts = written.texts()?;
            texts.iter().map(address).collect::<Option<Vec<SocketAddr>>>()
        };
        let expected = "a list of addresses such as [\"10.0.0.2\", \"[::1]:5353\"]";
        DnsOptions {
            learn: self.flag("dns.learn", false),
            resolvers: self.parsed("dns.resolvers", expected, parse).unwrap_or_default(),
            rate: self.count("dns.rate", 1..=10_000, 50) as u32,
            concurrency: self.count("dns.concurrency", 1..=64, 16) as usize,
        }
    }
}
