//! What follows from the MX host of a name that no list has.
//!
//! Values only: the build works out the answers, and whoever has asked the DNS gets one of them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::model::domain::ancestor_offsets;
use crate::model::verdict::Rule;

/// The answers to names with an MX host at or below a suffix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MxAnswers {
    pub suffix: String,
    /// In the place of `Rule::Unknown`.
    pub unknown: u16,
    /// In the place of `Rule::MailInName`.
    pub mail_in_name: u16,
}

/// The same, to be asked.
pub(super) struct MxHosts(HashMap<String, (u16, u16)>);

impl MxHosts {
    pub(super) fn new(answers: &[MxAnswers]) -> MxHosts {
        let host = |entry: &MxAnswers| (entry.suffix.clone(), (entry.unknown, entry.mail_in_name));
        MxHosts(answers.iter().map(host).collect())
    }

    pub(super) fn find(&self, host: &str) -> Option<(u16, u16)> {
        find_longest_suffix(&self.0, host).copied()
    }
}

/// What a map says of the longest suffix of a host that it has.
pub(super) fn find_longest_suffix<'m, T>(
    suffixes: &'m HashMap<String, T>,
    host: &str,
) -> Option<&'m T> {
    ancestor_offsets(host).find_map(|start| suffixes.get(&host[start..]))
}

/// In the place of an MX host: the name has no MX record, but an address of its own, which gets its
/// mail (RFC 5321 section 5.1).
pub const IMPLICIT_MX: &str = "address";

/// The rule that a word in the place of an MX host stands for.
pub(super) fn rule_for_special_mx(text: &str) -> Option<Rule> {
    match text {
        "." | "nxdomain" => Some(Rule::NoMail),
        "parked" | "localhost" => Some(Rule::Parked),
        _ => None,
    }
}
