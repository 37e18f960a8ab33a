//! The answers that follow from the MX host of an unlisted name, or from an address of that host.
//!
//! No I/O. The build computes the answers. When `dns` has learned a name's MX host, `mx_lookup`
//! selects the answer.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::model::domain::self_and_parent_offsets;
use crate::model::verdict::Rule;

/// The answers for names whose MX host is at or below a suffix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MxSuffixAnswerIndexes {
    pub suffix: String,
    #[serde(flatten)]
    pub indexes: MxAnswerIndexes,
}

/// The indexes of the answers that an MX host gives to names in no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MxAnswerIndexes {
    /// Replaces the answer of `Rule::Unknown`. If this answer flags a name, it replaces every other
    /// answer that DNS records may change and that has no index of its own.
    pub(super) unknown: u16,
    /// Replaces the answer of `Rule::BulkName`.
    pub(super) bulk_name: u16,
    /// Replaces the answer of `Rule::MailInName`.
    pub(super) mail_in_name: u16,
}

impl MxAnswerIndexes {
    pub(super) fn all(self) -> [u16; 3] {
        [self.unknown, self.bulk_name, self.mail_in_name]
    }
}

/// The answer for names whose MX host has a listed address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MxAddressAnswer {
    pub address: IpAddr,
    /// The index of the answer.
    pub answer: u16,
}

/// Finds the value of the longest suffix of a host that the map contains.
pub(super) fn find_longest_suffix<'m, T>(
    suffixes: &'m HashMap<String, T>,
    host: &str,
) -> Option<&'m T> {
    self_and_parent_offsets(host).find_map(|start| suffixes.get(&host[start..]))
}

/// The value of the MX fact about a name that has an address but no MX record. The mail of such a
/// name goes to its address (RFC 5321 section 5.1).
pub const IMPLICIT_MX: &str = "address";

/// The rule that follows from a special value in a list of kind `mx`; `None` for a host name.
pub(super) fn rule_for_special_mx(mx_value: &str) -> Option<Rule> {
    match mx_value {
        "." | "nxdomain" => Some(Rule::NoMail),
        "parked" | "localhost" => Some(Rule::Parked),
        _ => None,
    }
}
