//! How answers of the DNS are read: what a name's mail comes to, and for how long that holds.
//!
//! Values only. Whatever is not clear is "not known", and nothing follows from it: a wrong
//! "undeliverable" costs somebody a customer.

use crate::table::OWN_ADDRESSES;

/// The words for a metric, in the order of what they stand for.
pub(super) const WORDS: [&str; 4] = ["host", "no_mail", "parked", "not_known"];

/// An answer counts for so long at least, in seconds, whatever its TTL.
const MIN_TTL: i64 = 300;
/// That there are records is believed for so long at most.
const MAX_TTL: i64 = 7 * 86_400;
/// That there are none is believed for so long at most (RFC 2308 section 5).
const MAX_NEGATIVE_TTL: i64 = 3 * 3_600;
/// Hosts of one name that are looked at.
pub(super) const HOSTS: usize = 4;

/// What came of one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply<T> {
    /// Records, and the shortest of their TTLs.
    Records(Vec<T>, u32),
    /// The zone says that there are none of this kind; and its TTL for that.
    NoRecords(u32),
    /// The zone says that there is no such name.
    NoSuchName(u32),
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
    Nowhere,
    /// Not known.
    Unclear,
}

/// One MX record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mx {
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
        holds_for: i64,
    },
    /// The name has no MX record, and an address of its own gets its mail (RFC 5321 section 5.1).
    OwnAddresses {
        /// For how many seconds.
        holds_for: i64,
    },
    /// Nothing that could be believed, and why.
    NotKnown(String),
}

impl DnsFinding {
    fn mx(text: impl Into<String>, ttl: u32, is_negative: bool) -> DnsFinding {
        DnsFinding::Mx { text: text.into(), holds_for: holds_for(ttl, is_negative) }
    }

    /// The outcome, in a word.
    pub fn word(&self) -> &'static str {
        match self {
            DnsFinding::Mx { text, .. } => match text.as_str() {
                "." | "nxdomain" => WORDS[1],
                "parked" => WORDS[2],
                _ => WORDS[0],
            },
            DnsFinding::OwnAddresses { .. } => WORDS[0],
            DnsFinding::NotKnown(_) => WORDS[3],
        }
    }

    /// What is kept of it, and for how many seconds it holds.
    pub(super) fn into_fact(self) -> Option<(String, i64)> {
        match self {
            DnsFinding::Mx { text, holds_for } => Some((text, holds_for)),
            DnsFinding::OwnAddresses { holds_for } => Some((OWN_ADDRESSES.to_owned(), holds_for)),
            DnsFinding::NotKnown(_) => None,
        }
    }
}

fn holds_for(ttl: u32, is_negative: bool) -> i64 {
    i64::from(ttl).clamp(MIN_TTL, if is_negative { MAX_NEGATIVE_TTL } else { MAX_TTL })
}

/// What follows from the MX records alone, or which hosts to ask about, best first.
pub(super) enum Next {
    Finding(DnsFinding),
    /// These hosts, of how many, and the TTL.
    Hosts(Vec<String>, usize, u32),
    /// There are no MX records, so the name itself is the host (RFC 5321 section 5.1).
    OwnAddresses(u32),
}

/// Reads the MX records of a name.
pub(super) fn read_mx(reply: Reply<Mx>) -> Next {
    let (mut records, ttl) = match reply {
        Reply::Records(records, ttl) => (records, ttl),
        Reply::NoSuchName(ttl) => return Next::Finding(DnsFinding::mx("nxdomain", ttl, true)),
        Reply::NoRecords(ttl) => return Next::OwnAddresses(ttl),
        Reply::Unclear(why) => return Next::Finding(DnsFinding::NotKnown(why)),
    };
    // RFC 7505: alone it says that no mail is taken; beside others it says nothing.
    if records.iter().all(|mx| mx.host.is_empty()) {
        return Next::Finding(DnsFinding::mx(".", ttl, false));
    }
    records.retain(|mx| !mx.host.is_empty());
    records.sort_unstable();
    records.dedup_by(|a, b| a.host == b.host);
    let all = records.len();
    let hosts = records.into_iter().take(HOSTS).map(|mx| mx.host).collect();
    Next::Hosts(hosts, all, ttl)
}

/// What follows from a name's MX hosts: the best one that mail can get to, and nothing else, since
/// `reaches` are known in the order of the hosts until one is not dead.
pub(super) fn read_hosts(
    hosts: &[String],
    all: usize,
    reaches: &[Reachability],
    ttl: u32,
) -> DnsFinding {
    let is_dead =
        |reach: &Reachability| matches!(reach, Reachability::Loopback | Reachability::Nowhere);
    match reaches.iter().position(|reach| !is_dead(reach)) {
        Some(alive) => DnsFinding::mx(&hosts[alive], ttl, false),
        // One that was not looked at may be there.
        None if all > reaches.len() => DnsFinding::mx(&hosts[0], ttl, false),
        None => DnsFinding::mx("parked", ttl, true),
    }
}

/// What follows where the name itself would be the host.
pub(super) fn read_own_addresses(reach: Reachability, ttl: u32) -> DnsFinding {
    match reach {
        Reachability::Reachable => DnsFinding::OwnAddresses { holds_for: holds_for(ttl, true) },
        Reachability::Loopback => DnsFinding::mx("parked", ttl, true),
        Reachability::Nowhere => DnsFinding::mx(".", ttl, true),
        Reachability::Unclear => DnsFinding::NotKnown("no answer about its addresses".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mx(preference: u16, host: &str) -> Mx {
        Mx { preference, host: host.to_owned() }
    }

    fn said(reply: Reply<Mx>) -> DnsFinding {
        match read_mx(reply) {
            Next::Finding(said) => said,
            Next::Hosts(hosts, all, ttl) => {
                let reaches = vec![Reachability::Reachable; hosts.len()];
                read_hosts(&hosts, all, &reaches, ttl)
            }
            Next::OwnAddresses(ttl) => read_own_addresses(Reachability::Reachable, ttl),
        }
    }

    fn held(text: &str, holds_for: i64) -> DnsFinding {
        DnsFinding::Mx { text: text.to_owned(), holds_for }
    }

    #[test]
    fn mail_goes_to_the_host_of_the_lowest_preference() {
        let records = vec![mx(20, "a.test"), mx(10, "z.test"), mx(10, "b.test")];
        assert_eq!(said(Reply::Records(records, 3_600)), held("b.test", 3_600));
    }

    #[test]
    fn a_null_mx_says_no_mail_alone_and_nothing_beside_others() {
        assert_eq!(said(Reply::Records(vec![mx(0, "")], 600)), held(".", 600));
        let beside = vec![mx(0, ""), mx(10, "a.test")];
        assert_eq!(said(Reply::Records(beside, 600)), held("a.test", 600));
    }

    #[test]
    fn what_is_not_clear_is_not_known() {
        assert_eq!(said(Reply::Unclear("x".to_owned())), DnsFinding::NotKnown("x".to_owned()));
        assert_eq!(said(Reply::Unclear("x".to_owned())).word(), "not_known");
        let unclear = read_own_addresses(Reachability::Unclear, 60);
        assert!(matches!(unclear, DnsFinding::NotKnown(_)));
    }

    #[test]
    fn a_name_without_mx_is_its_own_host_if_it_has_an_address() {
        let own = said(Reply::NoRecords(600));
        assert_eq!(own, DnsFinding::OwnAddresses { holds_for: 600 });
        assert_eq!(own.word(), "host");
        let itself = said(Reply::Records(vec![mx(10, "name.test")], 600));
        assert_eq!(itself, held("name.test", 600), "an MX record that names the name itself");
        assert_eq!(read_own_addresses(Reachability::Nowhere, 600), held(".", 600));
        assert_eq!(read_own_addresses(Reachability::Loopback, 600), held("parked", 600));
        assert_eq!(read_own_addresses(Reachability::Nowhere, 600).word(), "no_mail");
    }

    #[test]
    fn hosts_are_dead_only_if_all_of_them_are_known_to_be() {
        use Reachability::{Loopback, Nowhere, Reachable, Unclear};
        let hosts: Vec<String> = ["a.test", "b.test"].map(str::to_owned).to_vec();
        let text = |reaches: &[Reachability], all| match read_hosts(&hosts, all, reaches, 600) {
            DnsFinding::Mx { text, .. } => text,
            finding => finding.word().to_owned(),
        };
        assert_eq!(text(&[Loopback, Nowhere], 2), "parked");
        assert_eq!(text(&[Loopback, Reachable], 2), "b.test");
        assert_eq!(text(&[Unclear], 2), "a.test");
        assert_eq!(text(&[Nowhere, Nowhere], 3), "a.test", "a third was not looked at");
    }

    #[test]
    fn an_answer_holds_as_long_as_its_ttl_within_bounds_and_a_negative_one_shorter() {
        for (ttl, positive, negative) in [
            (0, 300, 300),
            (7_200, 7_200, 7_200),
            (86_400, 86_400, 10_800),
            (u32::MAX, 604_800, 10_800),
        ] {
            assert_eq!(said(Reply::Records(vec![mx(1, "a.test")], ttl)), held("a.test", positive));
            assert_eq!(said(Reply::NoSuchName(ttl)), held("nxdomain", negative));
        }
    }
}
