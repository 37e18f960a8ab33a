//! The bytes of a table: how they are laid out, written and checked.
//!
//! A compiled file and a table in memory are the same bytes. They are checked once, as a whole,
//! before anything looks a name up: magic, format, length, checksum, then every offset. A
//! checksum finds accidents, not attackers; who fetches tables must check where they come from.

pub(super) mod decode;
pub(super) mod encode;
pub(super) mod parts;
pub(super) mod sections;
