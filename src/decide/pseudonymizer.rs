//! Pseudonyms of inboxes, addresses, domains, networks and buckets of rates: the first 16 bytes of
//! HMAC-SHA-256 (RFC 2104, RFC 6234) under the inbox secret.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::model::network::SignUpNetwork;
use crate::model::sign_up::Pseudonym;

use super::inbox::CanonicalInbox;

/// The length of the shortest secret, in bytes.
pub const MIN_SECRET_BYTES: usize = 32;

/// The secret of inbox ids, from the store or from `inbox.secret_file`. `Debug` does not print the
/// secret.
#[derive(Clone, PartialEq, Eq)]
pub struct InboxSecret(Vec<u8>);

/// Makes pseudonyms. `Debug` does not print the secret.
#[derive(Clone)]
pub struct Pseudonymizer(Hmac<Sha256>);

/// Whose sign-ups are counted together; `decide.scope` in the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignUpScope<'a> {
    /// All sign-ups.
    Deployment,
    /// The sign-ups of this account.
    Account(&'a str),
}

impl std::fmt::Debug for Pseudonymizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl InboxSecret {
    /// The secret, if it has [`MIN_SECRET_BYTES`] or more.
    pub fn new(bytes: &[u8]) -> Option<InboxSecret> {
        (bytes.len() >= MIN_SECRET_BYTES).then(|| InboxSecret(bytes.to_vec()))
    }
}

impl std::fmt::Debug for InboxSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Pseudonymizer {
    /// Makes pseudonyms under this secret.
    pub fn new(secret: &InboxSecret) -> Pseudonymizer {
        match Hmac::new_from_slice(&secret.0) {
            Ok(hmac) => Pseudonymizer(hmac),
            Err(_) => unreachable!("HMAC takes a key of any length"),
        }
    }

    /// The id of an inbox. In the scope of the deployment, the id is made of the inbox's text
    /// alone, so that operators can compute the ids of the users that they have.
    pub fn inbox_id(&self, inbox: &CanonicalInbox, scope: SignUpScope<'_>) -> Pseudonym {
        self.pseudonym("", inbox.as_str().as_bytes(), scope)
    }

    /// A text that two nodes have in common if and only if they have the same secret and the same
    /// kind of scope.
    pub fn inbox_id_mark(&self, ids_are_by_account: bool) -> String {
        let scope = if ids_are_by_account { "account" } else { "deployment" };
        self.pseudonym("ids", scope.as_bytes(), SignUpScope::Deployment).to_string()
    }

    /// The pseudonym of an address. `text` is that of
    /// [`canonical_address_text`](super::canonical_address_text).
    pub fn address_pseudonym(&self, text: &str, scope: SignUpScope<'_>) -> Pseudonym {
        self.pseudonym("address", text.as_bytes(), scope)
    }

    /// The pseudonym of a registrable domain.
    pub fn domain_pseudonym(&self, registrable_name: &str, scope: SignUpScope<'_>) -> Pseudonym {
        self.pseudonym("domain", registrable_name.as_bytes(), scope)
    }

    /// The pseudonym of a client's network.
    pub fn network_pseudonym(&self, network: SignUpNetwork, scope: SignUpScope<'_>) -> Pseudonym {
        self.pseudonym("client", network.as_bytes(), scope)
    }

    /// The pseudonym of the bucket of a client's rate.
    pub fn rate_bucket_pseudonym(&self, name: &str) -> Pseudonym {
        self.pseudonym("rate", name.as_bytes(), SignUpScope::Deployment)
    }

    /// Computes the HMAC of scope, kind and value, with a NUL behind the account and the kind. No
    /// address, domain or name of an account has a NUL, so values of different kinds or scopes
    /// never give the same input.
    fn pseudonym(&self, kind: &str, value: &[u8], scope: SignUpScope<'_>) -> Pseudonym {
        let mut hmac = self.0.clone();
        if let SignUpScope::Account(account) = scope {
            hmac.update(b"account\0");
            hmac.update(account.as_bytes());
            hmac.update(b"\0");
        }
        if !kind.is_empty() {
            hmac.update(kind.as_bytes());
            hmac.update(b"\0");
        }
        hmac.update(value);
        let digest = hmac.finalize().into_bytes();
        let mut start = [0; 16];
        start.copy_from_slice(&digest[..16]);
        Pseudonym(start)
    }
}
