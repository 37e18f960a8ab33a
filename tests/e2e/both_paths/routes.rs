//! What riskgate answers itself: domains, checks, top domains, and which path leads where.

mod check_answer;
mod cors;
pub mod dns;
mod domain_batch;
mod domain_lookup;
mod prefixes;
mod site;
mod syvel_sdk;
mod top_domains;
