//! The addresses of one host in the DNS, and what happens to them if a query fails.
//!
//! riskgate queries the addresses of IPv4 and of IPv6 separately. If a query fails, its known
//! addresses stay. An answer replaces them, even an answer that the host has no such addresses. But
//! if neither query finds an address, all known addresses stay: a fault of riskgate's own network
//! must not look like a missing host.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::Hosts;
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};

use crate::support::dns_resolver::{DnsResolver, ResolverSettings};

/// How long one of the two attempts of a query may take.
const UPSTREAM_QUERY_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// The addresses of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// The complete name that has these addresses: the host, or the host in a domain of the search
    /// list.
    complete_name: String,
    /// The addresses of IPv4, and those of IPv6.
    by_family: [Vec<IpAddr>; 2],
}

impl HostAddresses {
    /// All addresses.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.by_family.iter().flatten().copied()
    }
}

/// What the queries about a host found.
#[derive(Debug, PartialEq, Eq)]
pub struct HostQueryResult {
    /// The addresses from now on; `None` if no address was found, so that the known ones stay.
    pub addresses: Option<HostAddresses>,
    /// Why a query failed, if riskgate had to keep known addresses or has none.
    pub problem: Option<String>,
}

/// The answer of one query.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FamilyAnswer {
    Found(Vec<IpAddr>),
    /// The answer says that the host has no such addresses.
    Absent(String),
    Failed(String),
}

/// Queries the addresses of hosts.
#[derive(Clone)]
pub struct HostResolver {
    /// The resolver of IPv4 addresses, and that of IPv6 addresses.
    by_family: [DnsResolver; 2],
    hosts_file: Arc<Hosts>,
    search: Vec<Name>,
    /// riskgate looks a host with at least this many dots up as it is, before it adds a domain of
    /// the search list.
    ndots: usize,
}

impl HostResolver {
    /// Creates a client of the resolvers at these addresses, or of the system's resolvers.
    ///
    /// # Errors
    /// Returns an error if the system's resolvers can't be read.
    pub fn new(addresses: &[SocketAddr]) -> Result<HostResolver, String> {
        let settings = ResolverSettings::read(addresses)?;
        let mut options = settings.options.clone();
        options.timeout = UPSTREAM_QUERY_ATTEMPT_TIMEOUT;
        // One retry, so two attempts.
        options.attempts = 1;
        // Each round must ask the DNS again, so the resolver has no cache.
        options.cache_size = 0;
        // riskgate asks the hosts file itself, before it adds a domain of the search list.
        options.use_hosts_file = ResolveHosts::Never;
        let build = |strategy| {
            let mut options = options.clone();
            options.ip_strategy = strategy;
            settings.build(options)
        };
        // Only without a search list does the domain of this machine count (resolv.conf(5)).
        let search = match settings.config.search() {
            [] => settings.config.domain().cloned().into_iter().collect(),
            listed => listed.to_vec(),
        };
        Ok(HostResolver {
            by_family: [build(LookupIpStrategy::Ipv4Only)?, build(LookupIpStrategy::Ipv6Only)?],
            hosts_file: Arc::new(Hosts::from_system().unwrap_or_default()),
            search,
            ndots: options.ndots,
        })
    }

    /// The resolver to query for the records of services.
    pub fn service_resolver(&self) -> &DnsResolver {
        &self.by_family[0]
    }

    /// Queries the addresses of a host. `last_good` are its known addresses.
    pub async fn query_host(
        self,
        host: String,
        last_good: Option<HostAddresses>,
    ) -> HostQueryResult {
        if let Some(addresses) = find_in_hosts_file(&self.hosts_file, &host) {
            return HostQueryResult { addresses: Some(addresses), problem: None };
        }
        let mut problem = None;
        for complete_name in list_complete_names(&host, &self.search, self.ndots) {
            let [four, six] = &self.by_family;
            let answers =
                tokio::join!(query_family(four, &complete_name), query_family(six, &complete_name));
            let known = last_good.as_ref().filter(|known| known.complete_name == complete_name);
            match combine_answers(complete_name, [answers.0, answers.1], known) {
                Ok(found) => return found,
                // The known addresses belong to this name, so riskgate asks for no further name of
                // the search list.
                Err(why) if known.is_some() => {
                    return HostQueryResult { addresses: None, problem: Some(why) };
                }
                Err(why) => problem = Some(why),
            }
        }
        HostQueryResult { addresses: None, problem: problem.or_else(|| Some("none".to_owned())) }
    }
}

/// Returns the addresses that the hosts file has for a host. If the file has addresses of one
/// family only, riskgate does not ask the DNS for the other, as the C library does not.
fn find_in_hosts_file(hosts_file: &Hosts, host: &str) -> Option<HostAddresses> {
    let name = Name::from_ascii(host).ok()?;
    let by_family = [RecordType::A, RecordType::AAAA].map(|family| {
        let found = hosts_file.lookup_static_host(&Query::query(name.clone(), family));
        let records = found.iter().flat_map(|lookup| lookup.answers());
        records.filter_map(|record| record.data.ip_addr()).collect::<Vec<IpAddr>>()
    });
    let is_known = by_family.iter().any(|addresses| !addresses.is_empty());
    is_known.then(|| HostAddresses {
        complete_name: format!("{}.", host.trim_end_matches('.')),
        by_family,
    })
}

/// Lists the complete names for a host, in the order in which riskgate queries them. A host with a
/// dot at its end is complete.
fn list_complete_names(host: &str, search: &[Name], ndots: usize) -> Vec<String> {
    if host.ends_with('.') {
        return vec![host.to_owned()];
    }
    let complete = format!("{host}.");
    let mut names: Vec<String> = Vec::new();
    for domain in search {
        let domain = domain.to_ascii();
        let name = format!("{host}.{}.", domain.trim_matches('.'));
        if domain.trim_matches('.').is_empty() || names.contains(&name) {
            continue;
        }
        names.push(name);
    }
    let is_complete_first = host == "localhost" || host.split('.').count() > ndots;
    let at = if is_complete_first { 0 } else { names.len() };
    names.insert(at, complete);
    names
}

/// Parses a name as it is written. The resolver itself would refuse a `_` inside a label, which the
/// names of containers have.
pub fn parse_host(name: &str) -> Result<Name, NetError> {
    Name::from_ascii(name).map_err(NetError::from)
}

async fn query_family(resolver: &DnsResolver, complete_name: &str) -> FamilyAnswer {
    let Ok(name) = parse_host(complete_name) else {
        return FamilyAnswer::Failed("no name of a host".to_owned());
    };
    match resolver.lookup_ip(name).await {
        Ok(lookup) => match lookup.iter().collect::<Vec<IpAddr>>() {
            found if found.is_empty() => FamilyAnswer::Failed("none".to_owned()),
            found => FamilyAnswer::Found(found),
        },
        Err(error) if is_denial(&error) => FamilyAnswer::Absent(describe_lookup_error(&error)),
        Err(error) => FamilyAnswer::Failed(describe_lookup_error(&error)),
    }
}

/// Returns true if an answer says that the name has no such record. dnsmasq and the resolvers of
/// containers say so without the SOA record of a zone (RFC 2308 section 2.2). An answer that only
/// names other servers is a referral, and says nothing about records.
fn is_denial(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    match none.response_code {
        ResponseCode::NoError => none.soa.is_some() || none.ns.is_none(),
        // Without a SOA record, it is not sure that the name is missing.
        ResponseCode::NXDomain => none.soa.is_some(),
        _ => false,
    }
}

/// Says what a look-up found instead of records.
pub fn describe_lookup_error(error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => "no such name".to_owned(),
            ResponseCode::NoError => "none".to_owned(),
            code => code.to_string(),
        },
        error => error.to_string(),
    }
}

/// Combines the answers about one complete name with its known addresses.
///
/// # Errors
/// Returns an error if neither query found an address. The error says why.
fn combine_answers(
    complete_name: String,
    answers: [FamilyAnswer; 2],
    known: Option<&HostAddresses>,
) -> Result<HostQueryResult, String> {
    use FamilyAnswer::{Absent, Failed, Found};
    if !answers.iter().any(|answer| matches!(answer, Found(_))) {
        let failed = answers.iter().find(|answer| matches!(answer, Failed(_)));
        let (Absent(why) | Failed(why)) = failed.unwrap_or(&answers[0]) else {
            return Err("none".to_owned());
        };
        return Err(why.clone());
    }
    let (mut problem, mut by_family) = (None, [Vec::new(), Vec::new()]);
    for (index, answer) in answers.into_iter().enumerate() {
        let family = ["IPv4", "IPv6"][index];
        by_family[index] = match answer {
            Found(addresses) => addresses,
            Absent(_) => Vec::new(),
            Failed(why) => {
                let kept = known.map(|known| known.by_family[index].clone()).unwrap_or_default();
                if !kept.is_empty() {
                    problem = Some(format!("{why} for {family}"));
                }
                kept
            }
        };
    }
    Ok(HostQueryResult { addresses: Some(HostAddresses { complete_name, by_family }), problem })
}

#[cfg(test)]
mod tests;
