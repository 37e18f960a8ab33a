//! A sign-up that succeeded, as riskgate keeps it to count. It has no part of an address.

use std::fmt;

/// How long a sign-up counts and is kept, in seconds.
pub const SIGN_UP_SECONDS: i64 = 30 * 86_400;

/// The first 16 bytes of HMAC-SHA-256 (RFC 2104) of a value under the inbox secret. It stands for
/// the value. Whoever doesn't know the secret can't compute it for a guessed value.
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
    /// The registrable domain of the inbox; `None` if it is not counted.
    pub domain: Option<Pseudonym>,
    /// The network of the client; `None` if it is not known.
    pub client: Option<Pseudonym>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pseudonym_is_written_as_32_digits() {
        let mut bytes = [0; 16];
        bytes[15] = 0xaf;
        assert_eq!(Pseudonym(bytes).to_string(), "000000000000000000000000000000af");
    }
}
