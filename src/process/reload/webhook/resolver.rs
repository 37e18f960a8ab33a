//! Resolves the receiver's name, and leaves out the addresses to which riskgate must not connect.

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::model::public_address::is_public_address;

/// The addresses to which riskgate may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedAddresses {
    /// Only public addresses.
    Public,
    /// Only addresses that are not public. The receiver's URL has no TLS, so messages must stay in
    /// the operator's own network.
    Private,
    /// All addresses.
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

    /// Describes what riskgate found if none of the receiver's addresses is allowed.
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
/// without a second look-up, because a second one could have another result.
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
