//! The byte layout of a table, and how it is written and checked.
//!
//! A compiled file and a table in memory have the same layout. riskgate checks all bytes of a table
//! once, before the first look-up: magic, format, length, checksum, then every offset. The checksum
//! detects accidents, not attacks. A program that downloads tables must verify their origin.

pub(super) mod decode;
pub(super) mod encode;
pub(super) mod parts;
pub(super) mod sections;
