//! A sign-up that succeeded, as riskgate keeps it to count. The record has no part of an address.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;

/// The longest time for which a sign-up counts, in seconds. Stores delete older ones.
pub const SIGN_UP_LIFETIME_SECONDS: i64 = 30 * 86_400;
/// A sign-up whose time is later than now by more than this was made by a clock that was ahead, and
/// a store deletes it. The clocks of nodes differ by less.
const MAX_KEPT_AHEAD_SECONDS: i64 = 86_400;

/// The times of the sign-ups that a store keeps at this time, in seconds since 1970.
pub fn times_of_kept_sign_ups(unix_now: i64) -> RangeInclusive<i64> {
    let earliest = unix_now.saturating_sub(SIGN_UP_LIFETIME_SECONDS);
    earliest..=unix_now.saturating_add(MAX_KEPT_AHEAD_SECONDS)
}

/// The first 16 bytes of HMAC-SHA-256 (RFC 2104) of a value under the inbox secret. The pseudonym
/// stands for the value. Without the secret, nobody can compute the pseudonym of a guessed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pseudonym(pub [u8; 16]);

impl fmt::Display for Pseudonym {
    /// Writes 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A sign-up that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignUp {
    /// When, by the believed time, in seconds since 1970.
    pub at: i64,
    /// The canonical inbox: that of all addresses of one mailbox.
    pub inbox: Pseudonym,
    /// The address itself.
    pub address: Pseudonym,
    /// The registrable domain of the inbox; `None` if the sign-up does not count for it.
    pub domain: Option<Pseudonym>,
    /// The network of the client; `None` if it is not known, or the sign-up does not count for it.
    pub client: Option<Pseudonym>,
}

/// Deletes the sign-ups of an inbox that were written before this entry. Those of other inboxes
/// stay, and a sign-up that is made afterwards counts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxDeletion {
    /// When, by the believed time, in seconds since 1970.
    pub at: i64,
    /// The inbox.
    pub inbox: Pseudonym,
}

impl InboxDeletion {
    /// Whether the deletion covers a sign-up that was not written before it: one of the inbox that
    /// is not later.
    pub fn covers_unwritten(&self, sign_up: &SignUp) -> bool {
        self.inbox == sign_up.inbox && sign_up.at <= self.at
    }
}

/// What a store keeps of sign-ups, in the order of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignUpEntry {
    /// A sign-up.
    SignUp(SignUp),
    /// Deletes the sign-ups before it.
    Deletion(InboxDeletion),
}

impl SignUpEntry {
    /// The time of the entry, in seconds since 1970.
    pub fn at(&self) -> i64 {
        match self {
            SignUpEntry::SignUp(sign_up) => sign_up.at,
            SignUpEntry::Deletion(deletion) => deletion.at,
        }
    }

    /// The inbox that the entry is about.
    pub fn inbox(&self) -> Pseudonym {
        match self {
            SignUpEntry::SignUp(sign_up) => sign_up.inbox,
            SignUpEntry::Deletion(deletion) => deletion.inbox,
        }
    }
}

/// Returns the sign-ups that no later entry deletes, in their order, and the deletions, the latest
/// first. The caller must apply the deletions to sign-ups that it read before these entries.
pub fn apply_deletions(entries: &[SignUpEntry]) -> (Vec<SignUp>, Vec<InboxDeletion>) {
    let (mut sign_ups, mut deletions): (Vec<SignUp>, Vec<InboxDeletion>) = Default::default();
    let mut deleted = HashSet::new();
    for entry in entries.iter().rev() {
        match entry {
            SignUpEntry::SignUp(sign_up) if deleted.contains(&sign_up.inbox) => {}
            SignUpEntry::SignUp(sign_up) => sign_ups.push(*sign_up),
            SignUpEntry::Deletion(deletion) => {
                deleted.insert(deletion.inbox);
                deletions.push(*deletion);
            }
        }
    }
    sign_ups.reverse();
    (sign_ups, deletions)
}

#[cfg(test)]
mod tests;
