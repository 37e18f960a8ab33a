//! The key ring: which key opens which account, made from the store and a key file.
//!
//! Owns keys in memory, by digest, and what they allow. It is immutable: a change makes a new
//! ring, which shares with the old one what did not change. It never holds a key's text, and knows
//! no header.

mod change;
mod fault;
mod file;
mod key;
mod key_ring;
mod limits;
mod merge;
mod origins;
mod token;

pub use fault::{RingError, RingFault};
pub use file::{DeclaredKey, KeyFileError, NAME_FORM, hash_text, is_name, read_key_file};
pub use key::{Account, Key};
pub use key_ring::KeyRing;
pub use limits::{DEFAULT_PLAN, Plans};
pub use merge::{MergedKey, merge};
pub use token::{SHORTEST_KEY, Token, TokenError, digest};

#[cfg(test)]
mod tests;
