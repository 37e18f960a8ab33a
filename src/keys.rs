//! The key ring: all API keys and their accounts, built from the store and a key file.
//!
//! Owns the keys in memory, by digest, with the origins and the limit of each key. A ring is
//! immutable. A change of the store builds a new ring, which shares the unchanged keys with the old
//! ring where it can. A ring never holds the text of a key. This module knows no HTTP headers.

mod account_name;
mod allowed_origins;
mod changes;
mod fault;
mod key;
mod key_file;
mod key_ring;
mod limits;
mod merge;
mod token;

pub use account_name::{UnfitAccountName, warn_of_unfit_accounts};
pub use fault::{RingError, RingFault};
pub use key::{Account, Key};
pub use key_file::{
    CONFIG_SECTIONS, DeclaredKey, ID_OR_ACCOUNT_FORMAT, KeyFileError, find_unknown_plans,
    format_key_hash, is_valid_id_or_account, locate_plan_fault, parse_sha256_field, read_key_file,
};
pub use key_ring::KeyRing;
pub use limits::{AccountSources, Plans, collect_accounts};
pub use merge::{MergedKey, merge_keys};
pub use token::{MIN_KEY_LEN, Token, TokenError, has_generated_key, hide_keys, sha256};

#[cfg(test)]
mod tests;
