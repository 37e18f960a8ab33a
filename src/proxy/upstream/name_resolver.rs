//! Resolves the names of the upstream servers, and keeps the last good answer of each name.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::task::JoinSet;

use super::server_name::ServerName;
use crate::support::dns_resolver::read_resolver_config;

/// How long one of the two attempts of a query may take.
const QUERY_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// The most addresses that are used of all names together.
const MAX_SERVERS: usize = 1_000;

/// An address of an upstream server, with what the DNS says of its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTarget {
    /// Where the server listens.
    pub address: SocketAddr,
    /// A server with a higher number is asked only if no server with a lower one is healthy.
    pub priority: u16,
    /// The share of the requests, among the servers of one priority.
    pub weight: u16,
}

/// What one round of queries found.
#[derive(Debug, Default)]
pub struct Resolution {
    /// The servers of all names. Names without an answer have their last good one.
    pub targets: Vec<ServerTarget>,
    /// One line for each name that got no answer.
    pub problems: Vec<String>,
}

/// A record of a service: where one of its servers is (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServiceRecord {
    priority: u16,
    weight: u16,
    port: u16,
    host: String,
}

/// Resolves the names of the upstream servers.
pub struct NameResolver {
    names: Vec<ServerName>,
    /// The resolvers to query; those of the system if empty.
    resolver_addresses: Vec<SocketAddr>,
    last_good_addresses: HashMap<String, Vec<IpAddr>>,
    last_good_services: HashMap<String, Vec<ServiceRecord>>,
}

impl NameResolver {
    /// Creates a resolver that knows no answers yet.
    pub fn new(names: Vec<ServerName>, resolver_addresses: Vec<SocketAddr>) -> NameResolver {
        let (last_good_addresses, last_good_services) = Default::default();
        NameResolver { names, resolver_addresses, last_good_addresses, last_good_services }
    }

    /// Returns true if no server has a name, so that there is nothing to query.
    pub fn has_only_addresses(&self) -> bool {
        self.names.iter().all(|name| matches!(name, ServerName::Address(_)))
    }

    /// Queries all names at the same time.
    pub async fn resolve(&mut self) -> Resolution {
        let mut problems = Vec::new();
        if !self.has_only_addresses() {
            // The system's file may have changed, so it is read each time.
            match create_resolver(&self.resolver_addresses) {
                Ok(resolver) => self.query_all_names(&resolver, &mut problems).await,
                Err(why) => problems.push(why),
            }
        }
        let mut targets = self.list_targets();
        if targets.len() > MAX_SERVERS {
            let found = targets.len();
            problems.push(format!("expected at most {MAX_SERVERS} addresses, but found {found}"));
            targets.truncate(MAX_SERVERS);
        }
        Resolution { targets, problems }
    }

    async fn query_all_names(&mut self, resolver: &TokioResolver, problems: &mut Vec<String>) {
        let services = self.names.iter().filter_map(|name| match name {
            ServerName::Service(service) => Some(service.clone()),
            _ => None,
        });
        let queries: JoinSet<Answer<ServiceRecord>> =
            services.map(|service| query_service(resolver.clone(), service)).collect();
        keep_good_answers(queries.join_all().await, &mut self.last_good_services, problems);
        let named = self.names.iter().filter_map(|name| match name {
            ServerName::Host { host, .. } => Some(host),
            _ => None,
        });
        let targets = self.last_good_services.values().flatten().map(|record| &record.host);
        let mut hosts: Vec<String> = named.chain(targets).cloned().collect();
        hosts.sort_unstable();
        hosts.dedup();
        // Records of a service can't make riskgate query without an end.
        hosts.truncate(MAX_SERVERS);
        self.last_good_addresses.retain(|host, _| hosts.contains(host));
        let queries: JoinSet<Answer<IpAddr>> =
            hosts.into_iter().map(|host| query_addresses(resolver.clone(), host)).collect();
        keep_good_answers(queries.join_all().await, &mut self.last_good_addresses, problems);
    }

    /// Lists the servers of all names by what is known of them. An address that two names share is
    /// listed once, as the first name has it.
    fn list_targets(&self) -> Vec<ServerTarget> {
        let mut targets: Vec<ServerTarget> = Vec::new();
        let mut add = |target: ServerTarget| {
            if targets.iter().all(|known| known.address != target.address) {
                targets.push(target);
            }
        };
        let addresses_of = |host: &String| self.last_good_addresses.get(host).into_iter().flatten();
        for name in &self.names {
            match name {
                ServerName::Address(address) => {
                    add(ServerTarget { address: *address, priority: 0, weight: 1 });
                }
                ServerName::Host { host, port } => addresses_of(host).for_each(|ip| {
                    let address = SocketAddr::new(*ip, *port);
                    add(ServerTarget { address, priority: 0, weight: 1 });
                }),
                ServerName::Service(service) => {
                    for record in self.last_good_services.get(service).into_iter().flatten() {
                        let ServiceRecord { priority, weight, port, .. } = *record;
                        addresses_of(&record.host).for_each(|ip| {
                            let address = SocketAddr::new(*ip, port);
                            add(ServerTarget { address, priority, weight });
                        });
                    }
                }
            }
        }
        targets
    }
}

fn create_resolver(addresses: &[SocketAddr]) -> Result<TokioResolver, String> {
    let (config, mut options) = read_resolver_config(addresses)?;
    options.timeout = QUERY_ATTEMPT_TIMEOUT;
    // One retry, so two attempts.
    options.attempts = 1;
    // An answer counts until the next round, so a cache would only be in the way.
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Always;
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let resolver = builder.with_options(options).build();
    resolver.map_err(|error| format!("expected resolvers, but found {error}"))
}

/// A name, and its answer or why there is none.
type Answer<T> = (String, Result<Vec<T>, String>);

async fn query_addresses(resolver: TokioResolver, host: String) -> Answer<IpAddr> {
    let found = resolver.lookup_ip(host.as_str()).await;
    let addresses = found.map(|lookup| lookup.iter().collect()).map_err(|why| describe(&why));
    (host, addresses)
}

async fn query_service(resolver: TokioResolver, service: String) -> Answer<ServiceRecord> {
    // The search list of the system is for names of hosts.
    let found = resolver.lookup(format!("{service}."), RecordType::SRV).await;
    let read = |data: &RData| match data {
        // The root as target means that there is no such service.
        RData::SRV(record) if !record.target.is_root() => Some(ServiceRecord {
            priority: record.priority,
            weight: record.weight,
            port: record.port,
            host: record.target.to_ascii().trim_end_matches('.').to_ascii_lowercase(),
        }),
        _ => None,
    };
    let records = found
        .map_err(|why| describe(&why))
        .map(|lookup| lookup.answers().iter().filter_map(|record| read(&record.data)).collect());
    (service, records)
}

fn describe(error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => "no such name".to_owned(),
            ResponseCode::NoError => "none".to_owned(),
            code => code.to_string(),
        },
        error => error.to_string(),
    }
}

/// Replaces the answers of names that have a good one. Reports the others.
fn keep_good_answers<T>(
    found: Vec<Answer<T>>,
    last_good: &mut HashMap<String, Vec<T>>,
    problems: &mut Vec<String>,
) {
    for (name, answer) in found {
        let why = match answer {
            Ok(records) if !records.is_empty() => {
                last_good.insert(name, records);
                continue;
            }
            Ok(_) => "none".to_owned(),
            Err(why) => why,
        };
        let kept = match last_good.contains_key(&name) {
            true => "; the last good answer is used",
            false => "",
        };
        problems.push(format!("{name}: expected its addresses in the DNS, but found {why}{kept}"));
    }
    problems.sort_unstable();
}
