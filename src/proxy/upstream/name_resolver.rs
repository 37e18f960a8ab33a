//! Resolves the names of the upstream servers, and keeps the last good answer of each name.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::task::JoinSet;

use super::host_addresses::{
    HostAddresses, HostQueryResult, HostResolver, describe_lookup_error, parse_host,
};
use super::server_name::ServerName;
use crate::support::dns_resolver::DnsResolver;

/// The most addresses of all names together that riskgate uses.
const MAX_SERVERS: usize = 1_000;

/// An address of an upstream server, with the priority and the weight that the DNS gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTarget {
    /// Where the server listens.
    pub address: SocketAddr,
    /// riskgate asks a server with a higher number only if no server with a lower number is
    /// healthy.
    pub priority: u16,
    /// The server's share of the requests, relative to the other servers of its priority.
    pub weight: u16,
}

/// What one round of queries found.
#[derive(Debug, Default)]
pub struct Resolution {
    /// The first 1,000 servers. A name that got no answer keeps its last good answer.
    pub targets: Vec<ServerTarget>,
    /// One line for each name that got no answer, and for each other problem.
    pub problems: Vec<String>,
}

/// A record of a service: where one of its servers is (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServiceRecord {
    priority: u16,
    weight: u16,
    port: u16,
    /// The target, with a dot at its end.
    host: String,
}

/// Resolves the names of the upstream servers.
pub struct NameResolver {
    names: Vec<ServerName>,
    /// The resolvers to query; those of the system if empty.
    resolver_addresses: Vec<SocketAddr>,
    last_good_addresses: HashMap<String, HostAddresses>,
    last_good_services: HashMap<String, Vec<ServiceRecord>>,
}

impl NameResolver {
    /// Creates a resolver that knows no answers yet.
    pub fn new(names: Vec<ServerName>, resolver_addresses: Vec<SocketAddr>) -> NameResolver {
        let (last_good_addresses, last_good_services) = Default::default();
        NameResolver { names, resolver_addresses, last_good_addresses, last_good_services }
    }

    /// Returns true if the config names all servers by their addresses.
    pub fn has_only_addresses(&self) -> bool {
        self.names.iter().all(|name| matches!(name, ServerName::Address(_)))
    }

    /// Queries all services at the same time, and then all hosts at the same time. Returns the
    /// servers of all names.
    pub async fn resolve(&mut self) -> Resolution {
        let mut problems = Vec::new();
        if !self.has_only_addresses() {
            // The system's file of resolvers may have changed, so riskgate reads it each time.
            match HostResolver::new(&self.resolver_addresses) {
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

    async fn query_all_names(&mut self, resolver: &HostResolver, problems: &mut Vec<String>) {
        let services = self.names.iter().filter_map(|name| match name {
            ServerName::Service(service) => Some(service.clone()),
            _ => None,
        });
        let queries: JoinSet<NameAnswer<ServiceRecord>> =
            services.map(|it| query_service(resolver.service_resolver().clone(), it)).collect();
        keep_good_answers(queries.join_all().await, &mut self.last_good_services, problems);
        let named = self.names.iter().filter_map(|name| match name {
            ServerName::Host { host, .. } => Some(host),
            _ => None,
        });
        let targets = self.last_good_services.values().flatten().map(|record| &record.host);
        let hosts = list_hosts_to_query(named, targets);
        self.last_good_addresses.retain(|host, _| hosts.contains(host));
        let queries: JoinSet<(String, HostQueryResult)> = hosts
            .into_iter()
            .map(|host| {
                let last_good = self.last_good_addresses.get(&host).cloned();
                let query = resolver.clone().query_host(host.clone(), last_good);
                async move { (host, query.await) }
            })
            .collect();
        for (host, HostQueryResult { addresses, problem }) in queries.join_all().await {
            let is_known = addresses.is_some() || self.last_good_addresses.contains_key(&host);
            problems.extend(problem.map(|why| describe_missing_answer(&host, &why, is_known)));
            if let Some(addresses) = addresses {
                self.last_good_addresses.insert(host, addresses);
            }
        }
        problems.sort_unstable();
    }

    /// Lists the servers of all names by their last good answers. If two names share an address,
    /// the address has the priority and the weight of the first name.
    fn list_targets(&self) -> Vec<ServerTarget> {
        let mut targets: Vec<ServerTarget> = Vec::new();
        let mut add = |target: ServerTarget| {
            if targets.iter().all(|known| known.address != target.address) {
                targets.push(target);
            }
        };
        let addresses_of = |host: &String| {
            self.last_good_addresses.get(host).into_iter().flat_map(HostAddresses::iter)
        };
        for name in &self.names {
            match name {
                ServerName::Address(address) => {
                    add(ServerTarget { address: *address, priority: 0, weight: 1 });
                }
                ServerName::Host { host, port } => addresses_of(host).for_each(|ip| {
                    let address = SocketAddr::new(ip, *port);
                    add(ServerTarget { address, priority: 0, weight: 1 });
                }),
                ServerName::Service(service) => {
                    for record in self.last_good_services.get(service).into_iter().flatten() {
                        let ServiceRecord { priority, weight, port, .. } = *record;
                        addresses_of(&record.host).for_each(|ip| {
                            let address = SocketAddr::new(ip, port);
                            add(ServerTarget { address, priority, weight });
                        });
                    }
                }
            }
        }
        targets
    }
}

/// Returns all hosts that the config names, and then targets of services, up to [`MAX_SERVERS`]
/// hosts in all. So the records of a service can't cause unlimited queries, and can't displace a
/// host of the config.
fn list_hosts_to_query<'h>(
    named: impl Iterator<Item = &'h String>,
    targets: impl Iterator<Item = &'h String>,
) -> Vec<String> {
    let named: BTreeSet<&String> = named.collect();
    let targets: BTreeSet<&String> = targets.filter(|host| !named.contains(host)).collect();
    let most_targets = MAX_SERVERS.saturating_sub(named.len());
    named.into_iter().chain(targets.into_iter().take(most_targets)).cloned().collect()
}

/// A name, and its answer or why it got none.
type NameAnswer<T> = (String, Result<Vec<T>, String>);

async fn query_service(resolver: DnsResolver, service: String) -> NameAnswer<ServiceRecord> {
    // The search list of the system does not apply to services.
    let found = match parse_host(&format!("{service}.")) {
        Ok(name) => resolver.lookup(name, RecordType::SRV).await,
        Err(error) => Err(error),
    };
    let read = |data: &RData| match data {
        // The root as target means that the service does not exist.
        RData::SRV(record) if !record.target.is_root() => Some(ServiceRecord {
            priority: record.priority,
            weight: record.weight,
            port: record.port,
            // RFC 2782: a target is a complete name.
            host: format!(
                "{}.",
                record.target.to_ascii().trim_end_matches('.').to_ascii_lowercase()
            ),
        }),
        _ => None,
    };
    let records = found
        .map_err(|why| describe_lookup_error(&why))
        .map(|lookup| lookup.answers().iter().filter_map(|record| read(&record.data)).collect());
    (service, records)
}

/// Replaces the last good answers of the names that got a good answer. Reports the other names.
fn keep_good_answers<T>(
    found: Vec<NameAnswer<T>>,
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
        problems.push(describe_missing_answer(&name, &why, last_good.contains_key(&name)));
    }
}

fn describe_missing_answer(name: &str, why: &str, has_last_good: bool) -> String {
    let kept = match has_last_good {
        true => "; the last good answer is used",
        false => "",
    };
    let name = name.trim_end_matches('.');
    format!("{name}: expected its addresses in the DNS, but found {why}{kept}")
}

#[cfg(test)]
mod tests;
