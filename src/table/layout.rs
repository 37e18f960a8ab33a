//! The byte layout of a table, and how it is written and checked.
//!
//! A compiled file and a table in memory have the same layout. Before the first look-up in a table,
//! riskgate checks its bytes: magic, format, length, checksum, then the offsets that look-ups use.
//! The checksum detects accidents, not attacks. A program that downloads tables must verify their
//! origin.

pub(super) mod decode;
pub(super) mod encode;
pub(super) mod parts;
pub(super) mod sections;
