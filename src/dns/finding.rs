//! Interprets DNS answers: where a name's mail goes, and for how long that is known.
//!
//! No I/O. An unclear answer never makes a name undeliverable or parked. If riskgate wrongly called
//! a name undeliverable, the operator would lose a customer.

use std::net::IpAddr;

use crate::model::public_address::is_public_address;
use crate::store::{DnsFactRow, MAX_ADDRESSES_PER_DNS_FACT};
use crate::table::IMPLICIT_MX;

/// The outcomes of a finding, as a metric labels them.
pub(super) const OUTCOME_LABELS: [&str; 4] = ["host", "no_mail", "parked", "unknown"];

/// A shorter TTL counts as this many seconds.
const MIN_TTL_SECONDS: i64 = 300;
/// A longer TTL of records counts as this many seconds.
const MAX_TTL_SECONDS: i64 = 7 * 86_400;
/// A longer TTL of a negative answer, or of a parked name, counts as this many seconds (RFC 2308
/// section 5).
const MAX_NEGATIVE_TTL_SECONDS: i64 = 3 * 3_600;
/// The most hosts of one name whose addresses are looked up.
pub(super) const MAX_CHECKED_HOSTS: usize = 4;

/// The answer to one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DnsAnswer<T> {
    /// Records, and the shortest of their TTLs, in seconds.
    Records(Vec<T>, u32),
    /// The name exists but has no records of this type. The number is the negative answer's TTL, in
    /// seconds.
    NoData(u32),
    /// The name does not exist. The number is the negative answer's TTL, in seconds.
    NxDomain(u32),
    /// No reliable answer, and why.
    Unclear(String),
}

/// Whether mail can reach the addresses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reachability {
    /// The host has an address that is neither loopback nor unspecified, even if the address is
    /// private.
    Reachable,
    /// All addresses are loopback or unspecified.
    Loopback,
    /// The host has no address.
    NoAddress,
    /// There was no reliable answer.
    Unclear,
}

impl Reachability {
    /// Whether mail surely can't reach the host.
    pub(super) fn is_dead(self) -> bool {
        matches!(self, Reachability::Loopback | Reachability::NoAddress)
    }
}

/// One MX record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MxRecord {
    pub preference: u16,
    /// The host in lower case without a trailing dot; empty for the root (null MX).
    pub host: String,
}

/// What the DNS queries about a name found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsFinding {
    /// The name's mail host, or that it has none. The value is as in a list of kind `mx`.
    Mx {
        /// The MX host that `interpret_hosts` chooses, or `.`, `nxdomain` or `parked`.
        mx_value: String,
        /// The first public addresses of that host, sorted; empty if there are none, or if they
        /// were not looked up.
        addresses: Vec<IpAddr>,
        /// How long the finding holds, in seconds.
        ttl_seconds: i64,
    },
    /// The name has no MX record; its own address receives its mail (RFC 5321 section 5.1).
    ImplicitMx {
        /// How long the finding holds, in seconds.
        ttl_seconds: i64,
    },
    /// No reliable answer, and why.
    Unknown(String),
}

impl DnsFinding {
    fn from_mx_value(text: impl Into<String>, ttl: u32, is_negative: bool) -> DnsFinding {
        let (mx_value, ttl_seconds) = (text.into(), clamp_ttl(ttl, is_negative));
        DnsFinding::Mx { mx_value, addresses: Vec::new(), ttl_seconds }
    }

    /// Adds the addresses of the MX host that the finding names.
    pub(super) fn with_host_addresses(mut self, found_addresses: Vec<IpAddr>) -> DnsFinding {
        if let DnsFinding::Mx { addresses, .. } = &mut self {
            *addresses = found_addresses.into_iter().map(|ip| ip.to_canonical()).collect();
            addresses.retain(|address| is_public_address(*address));
            addresses.sort_unstable();
            addresses.dedup();
            addresses.truncate(MAX_ADDRESSES_PER_DNS_FACT);
        }
        self
    }

    /// The finding's outcome, one of `OUTCOME_LABELS`.
    pub fn outcome_label(&self) -> &'static str {
        match self {
            DnsFinding::Mx { mx_value: text, .. } => match text.as_str() {
                "." | "nxdomain" => OUTCOME_LABELS[1],
                "parked" => OUTCOME_LABELS[2],
                _ => OUTCOME_LABELS[0],
            },
            DnsFinding::ImplicitMx { .. } => OUTCOME_LABELS[0],
            DnsFinding::Unknown(_) => OUTCOME_LABELS[3],
        }
    }

    /// Whether the finding says that mail can't reach the name: no mail host, no such name, or
    /// parked. A resolver that denies every name says the same.
    pub fn denies_mail(&self) -> bool {
        [OUTCOME_LABELS[1], OUTCOME_LABELS[2]].contains(&self.outcome_label())
    }

    /// Turns the finding into the fact to keep about a name. `now` is in seconds since 1970. `None`
    /// for an unknown finding.
    pub(super) fn into_fact(self, name: &str, now: i64) -> Option<DnsFactRow> {
        let (mx, addresses, ttl_seconds) = match self {
            DnsFinding::Mx { mx_value, addresses, ttl_seconds } => {
                (mx_value, addresses, ttl_seconds)
            }
            DnsFinding::ImplicitMx { ttl_seconds } => {
                (IMPLICIT_MX.to_owned(), Vec::new(), ttl_seconds)
            }
            DnsFinding::Unknown(_) => return None,
        };
        let expires_at = now.saturating_add(ttl_seconds);
        Some(DnsFactRow { name: name.to_owned(), mx, addresses, expires_at })
    }
}

fn clamp_ttl(ttl: u32, is_negative: bool) -> i64 {
    i64::from(ttl).clamp(
        MIN_TTL_SECONDS,
        if is_negative { MAX_NEGATIVE_TTL_SECONDS } else { MAX_TTL_SECONDS },
    )
}

/// What the MX records mean: a finding, or hosts whose addresses must be looked up.
pub(super) enum MxInterpretation {
    Finding(DnsFinding),
    /// The best hosts in order of preference, the number of all hosts, and the TTL in seconds.
    Hosts(Vec<String>, usize, u32),
    /// There are no MX records, so the name itself is the mail host (RFC 5321 section 5.1). The
    /// number is the TTL of the negative answer, in seconds.
    ImplicitMx(u32),
}

/// Interprets the MX records of a name.
pub(super) fn interpret_mx(answer: DnsAnswer<MxRecord>) -> MxInterpretation {
    let (mut records, ttl) = match answer {
        DnsAnswer::Records(records, ttl) => (records, ttl),
        DnsAnswer::NxDomain(ttl) => {
            return MxInterpretation::Finding(DnsFinding::from_mx_value("nxdomain", ttl, true));
        }
        DnsAnswer::NoData(ttl) => return MxInterpretation::ImplicitMx(ttl),
        DnsAnswer::Unclear(why) => return MxInterpretation::Finding(DnsFinding::Unknown(why)),
    };
    // RFC 7505: a null MX means that the domain receives no mail, unless there are other records.
    if records.iter().all(|mx| mx.host.is_empty()) {
        return MxInterpretation::Finding(DnsFinding::from_mx_value(".", ttl, false));
    }
    records.retain(|mx| may_be_mail_host(&mx.host));
    if records.is_empty() {
        let why = "an MX record without the name of a host".to_owned();
        return MxInterpretation::Finding(DnsFinding::Unknown(why));
    }
    records.sort_unstable();
    records.dedup_by(|a, b| a.host == b.host);
    let host_count = records.len();
    let hosts = records.into_iter().take(MAX_CHECKED_HOSTS).map(|mx| mx.host).collect();
    MxInterpretation::Hosts(hosts, host_count, ttl)
}

/// Whether a mail server may be at this MX host. A name of one label is no public host, and could
/// be taken for a special value such as `nxdomain`. `localhost` is kept, because it is itself a
/// special value: the domain is parked.
fn may_be_mail_host(host: &str) -> bool {
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (host.contains('.') || host == "localhost") && host.bytes().all(is_host_byte)
}

/// The finding from a name's MX hosts: the first host that is not dead. If all hosts are dead, the
/// name is parked. If all checked hosts are dead and further hosts were not checked, the finding is
/// the first host. `checked_reachabilities` has one value for each checked host. The caller checks
/// the hosts in their order, up to the first that is not dead.
pub(super) fn interpret_hosts(
    hosts_by_preference: &[String],
    total_host_count: usize,
    checked_reachabilities: &[Reachability],
    ttl: u32,
) -> DnsFinding {
    match checked_reachabilities.iter().position(|reachability| !reachability.is_dead()) {
        Some(first_live) => DnsFinding::from_mx_value(&hosts_by_preference[first_live], ttl, false),
        // A host whose addresses were not looked up may be reachable.
        None if total_host_count > checked_reachabilities.len() => {
            DnsFinding::from_mx_value(&hosts_by_preference[0], ttl, false)
        }
        None => DnsFinding::from_mx_value("parked", ttl, true),
    }
}

/// The finding about a name without MX records, from its own addresses.
pub(super) fn interpret_implicit_mx(reachability: Reachability, ttl: u32) -> DnsFinding {
    match reachability {
        Reachability::Reachable => DnsFinding::ImplicitMx { ttl_seconds: clamp_ttl(ttl, true) },
        Reachability::Loopback => DnsFinding::from_mx_value("parked", ttl, true),
        Reachability::NoAddress => DnsFinding::from_mx_value(".", ttl, true),
        Reachability::Unclear => DnsFinding::Unknown("no answer about its addresses".to_owned()),
    }
}

#[cfg(test)]
mod tests;
