//! Resolves the receiver's name, and leaves out the addresses that riskgate must not connect to.

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::model::public_address::is_public_address;

/// The addresses to which riskgate may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedAddresses {
    /// Only public ones.
    Public,
    /// Only those that are not public: without TLS, messages stay in the operator's own network.
    Private,
    /// All.
    All,
}

impl AllowedAddresses {
    fn contains(self, address: std::net::IpAddr) -> bool {
        match self {
            AllowedAddresses::Public => is_public_address(address),
            AllowedAddresses::Private => !is_public_address(address),
            AllowedAddresses::All => true,
        }
    }

    /// Says what riskgate found if no address is left.
    fn describe_absence(self) -> &'static str {
        match self {
            AllowedAddresses::Public => {
                "no public address of the receiver; webhook.allow_private allows others"
            }
            AllowedAddresses::Private => {
                "only public addresses of the receiver; use https:// for them"
            }
            AllowedAddresses::All => "no address of the receiver",
        }
    }
}

/// Resolves names as ureq does, and keeps only allowed addresses. ureq connects to these addresses
/// without a second look-up, which could have another result.
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
        for address in resolved.iter().filter(|address| self.0.contains(address.ip())) {
            allowed.push(*address);
        }
        match allowed.is_empty() {
            false => Ok(allowed),
            true => Err(Error::Io(std::io::Error::other(self.0.describe_absence()))),
        }
    }
}
