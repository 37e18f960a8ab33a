//! How answers of the DNS are read: what a name's mail comes to, and for how long that holds.
//!
//! Values only. Whatever is not clear is "not known", and nothing follows from it: a wrong
//! "undeliverable" costs somebody a customer.

use crate::table::IMPLICIT_MX;

/// The words for a metric, in the order of what they stand for.
pub(super) const OUTCOMES: [&str; 4] = ["host", "no_mail", "parked", "unknown"];

/// An answer counts for so long at least, in seconds, whatever its TTL.
const MIN_TTL: i64 = 300;
/// That there are records is believed for so long at most.
const MAX_TTL: i64 = 7 * 86_400;
/// That there are none is believed for so long at most (RFC 2308 section 5).
const MAX_NEGATIVE_TTL: i64 = 3 * 3_600;
/// Hosts of one name that are looked at.
pub(super) const MAX_HOSTS: usize = 4;

/// What came of one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DnsAnswer<T> {
    /// Records, and the shortest of their TTLs.
    Records(Vec<T>, u32),
    /// The zone says that there are none of this kind; and its TTL for that.
    NoData(u32),
    /// The zone says that there is no such name.
    NxDomain(u32),
    /// Nobody who should know says either.
    Unclear(String),
}

/// Where the addresses of a host lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reachability {
    /// Somewhere.
    Reachable,
    /// To whoever asks, or nowhere.
    Loopback,
    /// It has none.
    NoAddress,
    /// Not known.
    Unclear,
}

/// One MX record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MxRecord {
    pub preference: u16,
    /// Lower case, no trailing dot; empty for the root.
    pub host: String,
}

/// What the DNS says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsFinding {
    /// As in a list of kind `mx`: a host, or a word in its place.
    Mx {
        /// The word or the host.
        text: String,
        /// For how many seconds.
        ttl_seconds: i64,
    },
    /// The name has no MX record, and an address of its own gets its mail (RFC 5321 section 5.1).
    ImplicitMx {
        /// For how many seconds.
        ttl_seconds: i64,
    },
    /// Nothing that could be believed, and why.
    Unknown(String),
}

impl DnsFinding {
    fn mx(text: impl Into<String>, ttl: u32, is_negative: bool) -> DnsFinding {
        DnsFinding::Mx { text: text.into(), ttl_seconds: clamp_ttl(ttl, is_negative) }
    }

    /// The outcome, in a word.
    pub fn outcome(&self) -> &'static str {
        match self {
            DnsFinding::Mx { text, .. } => match text.as_str() {
                "." | "nxdomain" => OUTCOMES[1],
                "parked" => OUTCOMES[2],
                _ => OUTCOMES[0],
            },
            DnsFinding::ImplicitMx { .. } => OUTCOMES[0],
            DnsFinding::Unknown(_) => OUTCOMES[3],
        }
    }

    /// What is kept of it, and for how many seconds it holds.
    pub(super) fn into_fact(self) -> Option<(String, i64)> {
        match self {
            DnsFinding::Mx { text, ttl_seconds: holds_for } => Some((text, holds_for)),
            DnsFinding::ImplicitMx { ttl_seconds: holds_for } => {
                Some((IMPLICIT_MX.to_owned(), holds_for))
            }
            DnsFinding::Unknown(_) => None,
        }
    }
}

fn clamp_ttl(ttl: u32, is_negative: bool) -> i64 {
    i64::from(ttl).clamp(MIN_TTL, if is_negative { MAX_NEGATIVE_TTL } else { MAX_TTL })
}

/// What follows from the MX records alone, or which hosts to ask about, best first.
pub(super) enum MxOutcome {
    Finding(DnsFinding),
    /// These hosts, of how many, and the TTL.
    Hosts(Vec<String>, usize, u32),
    /// There are no MX records, so the name itself is the host (RFC 5321 section 5.1).
    ImplicitMx(u32),
}

/// Reads the MX records of a name.
pub(super) fn interpret_mx(reply: DnsAnswer<MxRecord>) -> MxOutcome {
    let (mut records, ttl) = match reply {
        DnsAnswer::Records(records, ttl) => (records, ttl),
        DnsAnswer::NxDomain(ttl) => {
            return MxOutcome::Finding(DnsFinding::mx("nxdomain", ttl, true));
        }
        DnsAnswer::NoData(ttl) => return MxOutcome::ImplicitMx(ttl),
        DnsAnswer::Unclear(why) => return MxOutcome::Finding(DnsFinding::Unknown(why)),
    };
    // RFC 7505: alone it says that no mail is taken; beside others it says nothing.
    if records.iter().all(|mx| mx.host.is_empty()) {
        return MxOutcome::Finding(DnsFinding::mx(".", ttl, false));
    }
    records.retain(|mx| !mx.host.is_empty());
    records.sort_unstable();
    records.dedup_by(|a, b| a.host == b.host);
    let host_count = records.len();
    let hosts = records.into_iter().take(MAX_HOSTS).map(|mx| mx.host).collect();
    MxOutcome::Hosts(hosts, host_count, ttl)
}

/// What follows from a name's MX hosts: the best one that mail can get to, and nothing else, since
/// `reaches` are known in the order of the hosts until one is not dead.
pub(super) fn interpret_hosts(
    hosts: &[String],
    host_count: usize,
    reachabilities: &[Reachability],
    ttl: u32,
) -> DnsFinding {
    let is_dead = |reachability: &Reachability| {
        matches!(reachability, Reachability::Loopback | Reachability::NoAddress)
    };
    match reachabilities.iter().position(|reachability| !is_dead(reachability)) {
        Some(first_live) => DnsFinding::mx(&hosts[first_live], ttl, false),
        // One that was not looked at may be there.
        None if host_count > reachabilities.len() => DnsFinding::mx(&hosts[0], ttl, false),
        None => DnsFinding::mx("parked", ttl, true),
    }
}

/// What follows where the name itself would be the host.
pub(super) fn interpret_implicit_mx(reachability: Reachability, ttl: u32) -> DnsFinding {
    match reachability {
        Reachability::Reachable => DnsFinding::ImplicitMx { ttl_seconds: clamp_ttl(ttl, true) },
        Reachability::Loopback => DnsFinding::mx("parked", ttl, true),
        Reachability::NoAddress => DnsFinding::mx(".", ttl, true),
        Reachability::Unclear => DnsFinding::Unknown("no answer about its addresses".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mx(preference: u16, host: &str) -> MxRecord {
        MxRecord { preference, host: host.to_owned() }
    }

    fn interpret(reply: DnsAnswer<MxRecord>) -> DnsFinding {
        match interpret_mx(reply) {
            MxOutcome::Finding(said) => said,
            MxOutcome::Hosts(hosts, host_count, ttl) => {
                let reachabilities = vec![Reachability::Reachable; hosts.len()];
                interpret_hosts(&hosts, host_count, &reachabilities, ttl)
            }
            MxOutcome::ImplicitMx(ttl) => interpret_implicit_mx(Reachability::Reachable, ttl),
        }
    }

    fn mx_finding(text: &str, holds_for: i64) -> DnsFinding {
        DnsFinding::Mx { text: text.to_owned(), ttl_seconds: holds_for }
    }

    #[test]
    fn mail_goes_to_the_host_of_the_lowest_preference() {
        let records = vec![mx(20, "a.test"), mx(10, "z.test"), mx(10, "b.test")];
        assert_eq!(interpret(DnsAnswer::Records(records, 3_600)), mx_finding("b.test", 3_600));
    }

    #[test]
    fn a_null_mx_says_no_mail_alone_and_nothing_beside_others() {
        assert_eq!(interpret(DnsAnswer::Records(vec![mx(0, "")], 600)), mx_finding(".", 600));
        let beside = vec![mx(0, ""), mx(10, "a.test")];
        assert_eq!(interpret(DnsAnswer::Records(beside, 600)), mx_finding("a.test", 600));
    }

    #[test]
    fn an_unclear_answer_is_unknown() {
        assert_eq!(
            interpret(DnsAnswer::Unclear("x".to_owned())),
            DnsFinding::Unknown("x".to_owned())
        );
        assert_eq!(interpret(DnsAnswer::Unclear("x".to_owned())).outcome(), "unknown");
        let unclear = interpret_implicit_mx(Reachability::Unclear, 60);
        assert!(matches!(unclear, DnsFinding::Unknown(_)));
    }

    #[test]
    fn a_name_without_mx_is_its_own_host_if_it_has_an_address() {
        let own = interpret(DnsAnswer::NoData(600));
        assert_eq!(own, DnsFinding::ImplicitMx { ttl_seconds: 600 });
        assert_eq!(own.outcome(), "host");
        let itself = interpret(DnsAnswer::Records(vec![mx(10, "name.test")], 600));
        assert_eq!(itself, mx_finding("name.test", 600), "an MX record that names the name itself");
        assert_eq!(interpret_implicit_mx(Reachability::NoAddress, 600), mx_finding(".", 600));
        assert_eq!(interpret_implicit_mx(Reachability::Loopback, 600), mx_finding("parked", 600));
        assert_eq!(interpret_implicit_mx(Reachability::NoAddress, 600).outcome(), "no_mail");
    }

    #[test]
    fn hosts_are_dead_only_if_all_of_them_are_known_to_be() {
        use Reachability::{Loopback, NoAddress, Reachable, Unclear};
        let hosts: Vec<String> = ["a.test", "b.test"].map(str::to_owned).to_vec();
        let text = |reachabilities: &[Reachability], host_count| match interpret_hosts(
            &hosts,
            host_count,
            reachabilities,
            600,
        ) {
            DnsFinding::Mx { text, .. } => text,
            finding => finding.outcome().to_owned(),
        };
        assert_eq!(text(&[Loopback, NoAddress], 2), "parked");
        assert_eq!(text(&[Loopback, Reachable], 2), "b.test");
        assert_eq!(text(&[Unclear], 2), "a.test");
        assert_eq!(text(&[NoAddress, NoAddress], 3), "a.test", "a third was not looked at");
    }

    #[test]
    fn an_answer_holds_as_long_as_its_ttl_within_bounds_and_a_negative_one_shorter() {
        for (ttl, positive, negative) in [
            (0, 300, 300),
            (7_200, 7_200, 7_200),
            (86_400, 86_400, 10_800),
            (u32::MAX, 604_800, 10_800),
        ] {
            assert_eq!(
                interpret(DnsAnswer::Records(vec![mx(1, "a.test")], ttl)),
                mx_finding("a.test", positive)
            );
            assert_eq!(interpret(DnsAnswer::NxDomain(ttl)), mx_finding("nxdomain", negative));
        }
    }
}
