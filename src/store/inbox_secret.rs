//! The inbox secret, from which riskgate computes the pseudonyms of a sign-up.

use std::fmt;

use super::error::StoreError;

/// The inbox secret: random bytes that a node draws, and that all nodes of a store share. A person
/// who knows these bytes can tell whether a pseudonym stands for a guessed address.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredInboxSecret {
    /// The random bytes.
    pub secret: [u8; 32],
    /// When the node drew the bytes, by the believed time, in Unix seconds.
    pub created_at: i64,
}

/// The mark of the inbox ids that nodes make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredIdMark {
    /// A text that is the same on two nodes if and only if both make the same ids.
    pub mark: String,
    /// Changes whenever a node with this mark confirms it, so that other nodes see that it lives.
    /// `None` if only earlier versions of riskgate, which confirm no mark, have written one.
    pub confirmation: Option<String>,
}

impl fmt::Debug for StoredInboxSecret {
    /// Writes everything but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let created_at = &self.created_at;
        f.debug_struct("StoredInboxSecret").field("created_at", created_at).finish_non_exhaustive()
    }
}

impl StoredInboxSecret {
    /// Returns the secret that a store keeps if a node gives it `known`: the older one of `stored`
    /// and `known`. If both were created in the same second, the one with the smaller bytes is
    /// kept.
    pub(super) fn choose_kept(
        stored: Option<&StoredInboxSecret>,
        known: &StoredInboxSecret,
    ) -> StoredInboxSecret {
        let age = |it: &&StoredInboxSecret| (it.created_at, it.secret);
        stored.map_or(known, |stored| std::cmp::min_by_key(stored, known, age)).clone()
    }

    /// The text that a store keeps: `CREATED_AT SECRET`, with the secret in hexadecimal.
    pub(super) fn to_stored_text(&self) -> String {
        format!("{} {}", self.created_at, hex::encode(self.secret))
    }

    /// Parses a text of [`StoredInboxSecret::to_stored_text`]. Fails for any other text, because a
    /// new secret in place of a damaged one would change all pseudonyms. `location` names the
    /// store.
    pub(super) fn from_stored_text(
        text: &str,
        location: &str,
    ) -> Result<StoredInboxSecret, StoreError> {
        let parse = || {
            let (created_at, digits) = text.split_once(' ')?;
            let mut secret = [0; 32];
            hex::decode_to_slice(digits, &mut secret).ok()?;
            Some(StoredInboxSecret { secret, created_at: created_at.parse().ok()? })
        };
        parse().ok_or_else(|| StoreError::Unusable {
            location: location.to_owned(),
            expected: "the inbox secret that was written",
            found: "a damaged one; restore a backup of the store".to_owned(),
        })
    }
}
