//! Requests that a client can repeat for a day: the second request changes nothing, and its answer
//! has the same key.
//!
//! If the answer to the creation of a key gets lost, the client does not know the key. The client
//! then sends the request again with the same `Idempotency-Key`, and gets the same key. riskgate
//! stores the text of no key. riskgate derives the text of such a key from three values: a random
//! salt, which the store keeps for a day, and the admin token and the `Idempotency-Key` of the
//! client, which the store does not know.

use super::fault::ManagementFault;
use crate::keys::{Token, sha256};
use crate::store::{RepeatableRequestRow, Store};

/// In a salt, separates the random digits from the prefix of the key. A repeated request takes this
/// prefix, even if `keys.prefix` has changed. No prefix contains the separator.
const SALT_PREFIX_SEPARATOR: char = ':';

/// A request with an `Idempotency-Key`.
pub struct RepeatableRequest<'r> {
    /// The name of the admin token.
    pub token_name: &'r str,
    /// The text of the admin token.
    pub token_text: &'r [u8],
    /// The `Idempotency-Key`.
    pub idempotency_key: &'r str,
    /// What the request asks for: its target and body.
    pub content: Vec<u8>,
}

impl RepeatableRequest<'_> {
    fn record_id(&self) -> String {
        hash_parts(&[b"request", self.token_name.as_bytes(), self.idempotency_key.as_bytes()])
    }

    fn content_digest(&self) -> String {
        hash_parts(&[b"content", &self.content])
    }

    /// Derives the text of the API key that this request creates. The key begins with the prefix in
    /// the salt. A salt of an earlier version of riskgate has no prefix: then the key begins with
    /// `present_prefix`, the present `keys.prefix`.
    pub(super) fn derive_token(
        &self,
        present_prefix: &str,
        salt: &str,
    ) -> Result<Token, ManagementFault> {
        let prefix = salt.split_once(SALT_PREFIX_SEPARATOR).map_or(present_prefix, |(_, it)| it);
        let (token, key) = (self.token_text, self.idempotency_key.as_bytes());
        let seed = hash_parts(&[b"key", salt.as_bytes(), token, key]);
        let derived = Token::derive(prefix, seed.as_bytes());
        derived.map_err(|error| ManagementFault::NoRandomBits(error.to_string()))
    }

    /// Finds what the store remembers of the request, if the client made it before.
    ///
    /// # Errors
    /// Returns a fault if the `Idempotency-Key` belongs to another request.
    pub(super) fn find_record(
        &self,
        store: &mut Store,
    ) -> Result<Option<RepeatableRequestRow>, ManagementFault> {
        let Some(record) = store.find_repeatable_request(&self.record_id())? else {
            return Ok(None);
        };
        match record.digest == self.content_digest() {
            true => Ok(Some(record)),
            false => Err(ManagementFault::invalid(
                "Idempotency-Key",
                "a new text for another request",
                "that of an earlier request",
            )),
        }
    }

    /// Creates what the store has to remember of a new request, which adds the key `key_id`.
    pub(super) fn create_record(
        &self,
        key_id: &str,
        key_prefix: &str,
    ) -> Result<RepeatableRequestRow, ManagementFault> {
        let mut salt = [0u8; 16];
        getrandom::fill(&mut salt)
            .map_err(|error| ManagementFault::NoRandomBits(error.to_string()))?;
        Ok(RepeatableRequestRow {
            id: self.record_id(),
            digest: self.content_digest(),
            salt: format!("{}{SALT_PREFIX_SEPARATOR}{key_prefix}", hex::encode(salt)),
            key_id: key_id.to_owned(),
        })
    }
}

/// Computes a SHA-256 of these parts, in hexadecimal. Hashes each part first, so that two different
/// lists of parts never give the same bytes.
fn hash_parts(parts: &[&[u8]]) -> String {
    let digests: Vec<u8> = parts.iter().flat_map(|part| sha256(part)).collect();
    hex::encode(sha256(&digests))
}
