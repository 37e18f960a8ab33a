//! Sends DNS queries at a limited rate, and interprets the answers.
//!
//! A query first waits for a slot of the [`Pacer`]. The wait does not count towards a timeout,
//! because a low rate is not a fault of the resolvers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::time::{Instant, timeout};

use super::finding::{self, DnsAnswer, DnsFinding, MxInterpretation, MxRecord, Reachability};
use super::options::DnsOptions;
use super::pacer::Pacer;
use crate::support::dns_resolver::{DnsResolver, ResolverSettings};

/// The longest time of each of the two attempts of a query. A query that probes the resolvers has
/// this time for both attempts together.
const LEARNING_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// A check of the resolvers queries at most this many large providers.
const MAX_PROBED_PROVIDERS: usize = 3;
/// How long the resolvers may take for all queries about one name.
const TIMEOUT_PER_NAME: Duration = Duration::from_secs(15);

/// What the queries about the addresses of a host found.
struct CheckedHost {
    reachability: Reachability,
    addresses: Vec<IpAddr>,
    /// For how many seconds the result holds.
    ttl: u32,
}

impl CheckedHost {
    fn without_addresses(reachability: Reachability, ttl: u32) -> CheckedHost {
        CheckedHost { reachability, addresses: Vec::new(), ttl }
    }
}

/// Resolves the mail hosts of names.
pub struct DnsClient {
    resolver: DnsResolver,
    /// The addresses of the resolvers, each as often as it has ways to be reached.
    resolver_addresses: Vec<SocketAddr>,
    pacer: Arc<Pacer>,
    timeout_per_name: Duration,
}

impl DnsClient {
    /// A client for the resolvers of these options, or of the system. Clients with the same pacer
    /// share its rate.
    ///
    /// # Errors
    /// If the resolvers can't be read or used.
    pub fn new(options: &DnsOptions, pacer: Arc<Pacer>) -> Result<DnsClient, String> {
        let mut settings = ResolverSettings::read(&options.resolver_addresses)?;
        // A name in no list is complete, so the system's search list does not apply.
        settings.config =
            ResolverConfig::from_name_servers(settings.config.name_servers().to_vec());
        let mut resolver_options = ResolverOpts::default();
        resolver_options.timeout = LEARNING_ATTEMPT_TIMEOUT;
        // One retry, so two attempts.
        resolver_options.attempts = 1;
        // riskgate has its own cache of facts, with its own bound.
        resolver_options.cache_size = 0;
        resolver_options.use_hosts_file = ResolveHosts::Never;
        let resolver = settings.build(resolver_options)?;
        let servers = settings.config.name_servers().iter();
        let resolver_addresses = servers
            .flat_map(|it| it.connections.iter().map(|way| SocketAddr::new(it.ip, way.port)))
            .collect();
        Ok(DnsClient { resolver, resolver_addresses, pacer, timeout_per_name: TIMEOUT_PER_NAME })
    }

    /// Whether another client asks the same resolvers.
    pub fn has_resolvers_of(&self, other: &DnsClient) -> bool {
        self.resolver_addresses == other.resolver_addresses
    }

    /// Finds the mail hosts of a name with one or more queries. `known_answer` returns what is
    /// known of a host. If the same is known of all hosts that would be checked, the first one
    /// counts as reachable, and its addresses are not queried. Otherwise the addresses are queried,
    /// because a dead host of a good provider could stand before the live host of another provider.
    pub async fn query_mail_hosts<A: PartialEq>(
        &self,
        name: &str,
        known_answer: impl Fn(&str) -> Option<A>,
    ) -> DnsFinding {
        let mut time_left = self.timeout_per_name;
        match finding::interpret_mx(
            self.query_at_limited_rate(name, RecordType::MX, &mut time_left, extract_mx_record)
                .await,
        ) {
            MxInterpretation::Finding(finding) => finding,
            MxInterpretation::ImplicitMx(ttl) => {
                let checked = self.check_reachability(name, &mut time_left).await;
                finding::interpret_implicit_mx(checked.reachability, ttl.min(checked.ttl))
            }
            MxInterpretation::Hosts(hosts, host_count, ttl) => {
                let (mut reachabilities, mut addresses) = (Vec::new(), Vec::new());
                let mut min_ttl = ttl;
                let first = hosts.first().and_then(|host| known_answer(host));
                let are_alike =
                    first.is_some() && hosts.iter().all(|host| known_answer(host) == first);
                for host in &hosts {
                    let checked = match are_alike {
                        true => CheckedHost::without_addresses(Reachability::Reachable, ttl),
                        false => self.check_reachability(host, &mut time_left).await,
                    };
                    reachabilities.push(checked.reachability);
                    if !checked.reachability.is_dead() {
                        addresses = checked.addresses;
                        break;
                    }
                    min_ttl = min_ttl.min(checked.ttl);
                }
                finding::interpret_hosts(&hosts, host_count, &reachabilities, min_ttl)
                    .with_host_addresses(addresses)
            }
        }
    }

    /// Checks that the resolvers know the mail hosts of at least one of the first three of these
    /// large providers. Resolvers that know none would make every name undeliverable. If
    /// `providers` is empty, the check passes.
    ///
    /// # Errors
    /// If the resolvers know the mail hosts of none of these providers. The error tells what the
    /// resolvers answered about the last of them.
    pub async fn probe_resolvers(&self, providers: &[String]) -> Result<(), String> {
        let mut problem = None;
        for provider in providers.iter().take(MAX_PROBED_PROVIDERS) {
            self.pacer.wait_for_priority_slot().await;
            let found = match self
                .query_with_timeout(
                    provider,
                    RecordType::MX,
                    LEARNING_ATTEMPT_TIMEOUT,
                    extract_mx_record,
                )
                .await
            {
                DnsAnswer::Records(hosts, _) if hosts.iter().any(|mx| !mx.host.is_empty()) => {
                    return Ok(());
                }
                DnsAnswer::Records(..) | DnsAnswer::NoData(_) => "none".to_owned(),
                DnsAnswer::NxDomain(_) => "no such name".to_owned(),
                DnsAnswer::Unclear(why) => why,
            };
            problem = Some(format!("expected the mail hosts of {provider}, but found {found}"));
        }
        problem.map_or(Ok(()), Err)
    }

    /// Returns whether mail can reach a host's addresses, the addresses, and for how many seconds
    /// this holds. IPv6 addresses are only queried if no IPv4 address is reachable.
    async fn check_reachability(&self, host: &str, time_left: &mut Duration) -> CheckedHost {
        let without_addresses = CheckedHost::without_addresses;
        let is_address = host.parse::<IpAddr>().is_ok();
        if is_address || host == "localhost" || host.ends_with(".localhost") {
            // Mail can't reach such a host. An MX host must be a name (RFC 5321 section 5.1), so an
            // address in its place counts like a loopback host.
            return without_addresses(Reachability::Loopback, u32::MAX);
        }
        let mut result_so_far = (Reachability::NoAddress, u32::MAX);
        for kind in [RecordType::A, RecordType::AAAA] {
            let is_dead = |ip: &IpAddr| ip.is_loopback() || ip.is_unspecified();
            let (reachability, ttl) = match self
                .query_at_limited_rate(host, kind, time_left, RData::ip_addr)
                .await
            {
                DnsAnswer::Records(addresses, ttl) if !addresses.iter().all(is_dead) => {
                    return CheckedHost { reachability: Reachability::Reachable, addresses, ttl };
                }
                DnsAnswer::Records(_, ttl) => (Reachability::Loopback, ttl),
                DnsAnswer::NoData(ttl) => (result_so_far.0, ttl),
                DnsAnswer::NxDomain(ttl) => {
                    return without_addresses(result_so_far.0, result_so_far.1.min(ttl));
                }
                DnsAnswer::Unclear(_) => return without_addresses(Reachability::Unclear, 0),
            };
            result_so_far = (reachability, result_so_far.1.min(ttl));
        }
        without_addresses(result_so_far.0, result_so_far.1)
    }

    /// Waits for a slot of the pacer, then sends one query. Subtracts the time that the query took
    /// from `time_left`, but not the wait.
    async fn query_at_limited_rate<T>(
        &self,
        name: &str,
        record_type: RecordType,
        time_left: &mut Duration,
        extract: impl Fn(&RData) -> Option<T>,
    ) -> DnsAnswer<T> {
        self.pacer.wait_for_slot().await;
        let started = Instant::now();
        let answer = self.query_with_timeout(name, record_type, *time_left, extract).await;
        *time_left = time_left.saturating_sub(started.elapsed());
        answer
    }

    /// Sends one query without waiting for a slot. If no answer comes within `time_limit`, returns
    /// `Unclear`.
    async fn query_with_timeout<T>(
        &self,
        name: &str,
        record_type: RecordType,
        time_limit: Duration,
        extract: impl Fn(&RData) -> Option<T>,
    ) -> DnsAnswer<T> {
        // The final dot makes the name absolute, so that no search domain is appended.
        let Ok(name) = Name::from_ascii(format!("{name}.")) else {
            return DnsAnswer::Unclear("not a valid DNS name".to_owned());
        };
        match timeout(time_limit, self.resolver.lookup(name.clone(), record_type)).await {
            Ok(Ok(lookup)) => answer_from_lookup(&lookup, extract),
            Ok(Err(error)) => answer_from_error(&error, &name),
            Err(_) => DnsAnswer::Unclear(format!("no answer within {} s", time_limit.as_secs())),
        }
    }
}

fn extract_mx_record(data: &RData) -> Option<MxRecord> {
    let RData::MX(mx) = data else { return None };
    let host = mx.exchange.to_ascii().to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_owned();
    Some(MxRecord { preference: mx.preference, host })
}

fn answer_from_lookup<T>(lookup: &Lookup, extract: impl Fn(&RData) -> Option<T>) -> DnsAnswer<T> {
    let found =
        lookup.answers().iter().filter_map(|record| Some((extract(&record.data)?, record.ttl)));
    let (records, ttls): (Vec<T>, Vec<u32>) = found.unzip();
    match ttls.into_iter().min() {
        Some(ttl) => DnsAnswer::Records(records, ttl),
        None => DnsAnswer::Unclear("an answer without records of the queried type".to_owned()),
    }
}

/// Turns a resolver's error into an answer. A negative answer counts only if it has the SOA record
/// of a zone that contains the name; otherwise the answer is `Unclear`. A referral has no SOA
/// record. Most resolvers that block names on purpose send no SOA record either.
fn answer_from_error<T>(error: &NetError, queried_name: &Name) -> DnsAnswer<T> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none))
            if none.soa.as_ref().is_some_and(|soa| soa.name.zone_of(queried_name)) =>
        {
            let ttl = none.negative_ttl.unwrap_or_default();
            match none.response_code {
                ResponseCode::NXDomain => DnsAnswer::NxDomain(ttl),
                ResponseCode::NoError => DnsAnswer::NoData(ttl),
                code => DnsAnswer::Unclear(code.to_string()),
            }
        }
        // The text of the library would contain the whole response.
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            DnsAnswer::Unclear(match none.response_code {
                ResponseCode::NoError | ResponseCode::NXDomain => {
                    "a negative answer without the SOA record of its zone".to_owned()
                }
                code => code.to_string(),
            })
        }
        error => DnsAnswer::Unclear(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
