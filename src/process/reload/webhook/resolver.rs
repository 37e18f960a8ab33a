//! Resolves the receiver's name, and leaves out the addresses that riskgate must not connect to.

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::webhook::is_public_address;

/// The addresses to which riskgate may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedAddresses {
    /// Public ones alone.
    Public,
    /// All others alone: without TLS, messages stay in the operator's own network.
    Private,
    /// All.
    All,
}

impl AllowedAddresses {
    fn contain(self, address: std::net::IpAddr) -> bool {
        match self {
            AllowedAddresses::Public => is_public_address(address),
            AllowedAddresses::Private => !is_public_address(address),
            AllowedAddresses::All => true,
        }
    }

    /// Why no address is left.
    fn explain(self) -> &'static str {
        match self {
            AllowedAddresses::Public => {
                "expected a public address of the receiver, but found others only; \
                 webhook.allow_private allows them"
            }
            AllowedAddresses::Private => {
                "expected an address in your own network for http://, but found public ones only; \
                 use https://"
            }
            AllowedAddresses::All => "expected an address of the receiver, but found none",
        }
    }
}

/// Resolves names as ureq does, and keeps only allowed addresses. riskgate connects to the addresses
/// that this resolver returns: there is no second look-up, which could have another result.
#[derive(Debug)]
pub(super) struct FilteringResolver(pub(super) AllowedAddresses);

impl Resolver for FilteringResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let resolved = DefaultResolver::default().resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for address in resolved.iter().filter(|address| self.0.contain(address.ip())) {
            allowed.push(*address);
        }
        match allowed.is_empty() {
            false => Ok(allowed),
            true => Err(Error::Io(std::io::Error::other(self.0.explain()))),
        }
    }
}
