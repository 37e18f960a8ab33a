//! Keys, accounts, plans and the monthly quota.

mod key_file;
pub mod keys;
mod plans;
