//! The key ring: which key opens which account, made from the store and a key file.
//!
//! Owns keys in memory, by digest, and what they allow. It is immutable: a change makes a new
//! ring, which shares with the old one what did not change. It never holds a key's text, and knows
//! no header.

mod allowed_origins;
mod changes;
mod fault;
mod key;
mod key_file;
mod key_ring;
mod limits;
mod merge;
mod token;

pub use fault::{RingError, RingFault};
pub use key::{Account, Key};
pub use key_file::{
    DeclaredKey, KeyFileError, NAME_FORMAT, format_key_hash, is_valid_name, read_key_file,
};
pub use key_ring::KeyRing;
pub use limits::{DEFAULT_PLAN, Plans};
pub use merge::{MergedKey, merge_keys};
pub use token::{MIN_KEY_LEN, Token, TokenError, sha256};

#[cfg(test)]
mod tests;
