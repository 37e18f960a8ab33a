//! Asks resolvers, at a pace, and reads what they say.
//!
//! No timer runs while a query waits for its slot: a low rate is no fault of the resolvers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::time::{Instant, timeout};

use super::finding::{self, DnsFinding, Mx, Next, Reachability, Reply};
use super::options::DnsOptions;
use super::pacer::Pacer;

/// For a resolver to answer, tried twice.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Large providers that are asked for, until one is known.
const PROBES: usize = 3;
/// For resolvers to answer all that is asked about one name.
const NAME_TIMEOUT: Duration = Duration::from_secs(15);

/// Asks resolvers about names.
pub struct DnsClient {
    resolver: TokioResolver,
    pacer: Arc<Pacer>,
    name_timeout: Duration,
}

impl DnsClient {
    /// Asks the resolvers of these options, or those of the system. Clients of one pacer share its
    /// rate.
    ///
    /// # Errors
    /// If none are named and the system's are not known.
    pub fn new(options: &DnsOptions, pacer: Arc<Pacer>) -> Result<DnsClient, String> {
        let config = match options.resolvers.is_empty() {
            false => {
                let servers = options.resolvers.iter().map(|address| name_server(*address));
                ResolverConfig::from_name_servers(servers.collect())
            }
            true => {
                let read = read_system_conf().map_err(|error| {
                    format!(
                        "expected the system's resolvers in /etc/resolv.conf, but found {error}"
                    )
                });
                ResolverConfig::from_name_servers(read?.0.name_servers().to_vec())
            }
        };
        let mut asked = ResolverOpts::default();
        asked.timeout = QUERY_TIMEOUT;
        asked.attempts = 1;
        // What is known is kept elsewhere, with a bound of its own.
        asked.cache_size = 0;
        asked.use_hosts_file = ResolveHosts::Never;
        let resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let resolver = resolver.with_options(asked).build();
        Ok(DnsClient {
            resolver: resolver.map_err(|error| format!("expected resolvers, but found {error}"))?,
            pacer,
            name_timeout: NAME_TIMEOUT,
        })
    }

    /// What the DNS says of a name. Hosts that are known are believed to be there.
    pub async fn ask(&self, name: &str, is_known: impl Fn(&str) -> bool) -> DnsFinding {
        let mut left = self.name_timeout;
        match finding::read_mx(self.query(name, RecordType::MX, &mut left, pick_mx).await) {
            Next::Finding(finding) => finding,
            Next::OwnAddresses(ttl) => {
                let (reach, shorter) = self.reach(name, &mut left).await;
                finding::read_own_addresses(reach, ttl.min(shorter))
            }
            Next::Hosts(hosts, all, ttl) => {
                let (mut reaches, mut least) = (Vec::new(), ttl);
                for host in &hosts {
                    let known = is_known(host).then_some((Reachability::Reachable, ttl));
                    let (reach, shorter) = match known {
                        Some(known) => known,
                        None => self.reach(host, &mut left).await,
                    };
                    reaches.push(reach);
                    if matches!(reach, Reachability::Reachable | Reachability::Unclear) {
                        break;
                    }
                    least = least.min(shorter);
                }
                finding::read_hosts(&hosts, all, &reaches, least)
            }
        }
    }

    /// Whether the resolvers know the mail hosts of one of these large providers: those that do not
    /// would call everybody undeliverable. Without providers they are believed.
    ///
    /// # Errors
    /// If they know none of the first few, with what was found.
    pub async fn probe(&self, providers: &[String]) -> Result<(), String> {
        let mut problem = None;
        for provider in providers.iter().take(PROBES) {
            self.pacer.wait_for_next_slot().await;
            let found = match self.look_up(provider, RecordType::MX, QUERY_TIMEOUT, pick_mx).await {
                Reply::Records(hosts, _) if hosts.iter().any(|mx| !mx.host.is_empty()) => {
                    return Ok(());
                }
                Reply::Records(..) | Reply::NoRecords(_) => "none".to_owned(),
                Reply::NoSuchName(_) => "no such name".to_owned(),
                Reply::Unclear(why) => why,
            };
            problem = Some(format!("expected the mail hosts of {provider}, but found {found}"));
        }
        problem.map_or(Ok(()), Err)
    }

    /// Where a host's addresses lead, and for how many seconds that holds.
    async fn reach(&self, host: &str, left: &mut Duration) -> (Reachability, u32) {
        let is_address = host.parse::<IpAddr>().is_ok();
        if is_address || host == "localhost" || host.ends_with(".localhost") {
            // Mail goes to no address that stands in the place of a name (RFC 5321 section 5.1).
            return (Reachability::Loopback, u32::MAX);
        }
        let mut all = (Reachability::Nowhere, u32::MAX);
        for kind in [RecordType::A, RecordType::AAAA] {
            let leads =
                |data: &RData| data.ip_addr().map(|ip| !ip.is_loopback() && !ip.is_unspecified());
            let (reach, ttl) = match self.query(host, kind, left, leads).await {
                Reply::Records(leads, ttl) if leads.contains(&true) => {
                    return (Reachability::Reachable, ttl);
                }
                Reply::Records(_, ttl) => (Reachability::Loopback, ttl),
                Reply::NoRecords(ttl) => (all.0, ttl),
                Reply::NoSuchName(ttl) => return (all.0, all.1.min(ttl)),
                Reply::Unclear(_) => return (Reachability::Unclear, 0),
            };
            all = (reach, all.1.min(ttl));
        }
        all
    }

    /// Asks one question about a name whose resolvers have this much time left.
    async fn query<T>(
        &self,
        name: &str,
        kind: RecordType,
        left: &mut Duration,
        pick: impl Fn(&RData) -> Option<T>,
    ) -> Reply<T> {
        self.pacer.wait_for_rate_slot().await;
        let begun = Instant::now();
        let reply = self.look_up(name, kind, *left, pick).await;
        *left = left.saturating_sub(begun.elapsed());
        reply
    }

    async fn look_up<T>(
        &self,
        name: &str,
        kind: RecordType,
        limit: Duration,
        pick: impl Fn(&RData) -> Option<T>,
    ) -> Reply<T> {
        // With its dot the name is whole, and is looked for below no other.
        let Ok(name) = Name::from_ascii(format!("{name}.")) else {
            return Reply::Unclear("no name that can be asked for".to_owned());
        };
        match timeout(limit, self.resolver.lookup(name.clone(), kind)).await {
            Ok(Ok(lookup)) => read_lookup(&lookup, pick),
            Ok(Err(error)) => read_error(&error, &name),
            Err(_) => Reply::Unclear(format!("no answer within {} s", limit.as_secs())),
        }
    }
}

fn pick_mx(data: &RData) -> Option<Mx> {
    let RData::MX(mx) = data else { return None };
    let host = mx.exchange.to_ascii().to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_owned();
    // What else may stand in a name is no host, and would break a list.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_host = host.bytes().all(plain);
    is_host.then_some(Mx { preference: mx.preference, host })
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.to_vec())
}

fn read_lookup<T>(lookup: &Lookup, pick: impl Fn(&RData) -> Option<T>) -> Reply<T> {
    let found =
        lookup.answers().iter().filter_map(|record| Some((pick(&record.data)?, record.ttl)));
    let (records, ttls): (Vec<T>, Vec<u32>) = found.unzip();
    match ttls.into_iter().min() {
        Some(ttl) => Reply::Records(records, ttl),
        None => Reply::Unclear("an answer without what was asked for".to_owned()),
    }
}

/// Only a zone that shows itself, by its SOA, is believed that something is not there: a referral
/// has none, and most resolvers that leave names out on purpose have none.
fn read_error<T>(error: &NetError, asked: &Name) -> Reply<T> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none))
            if none.soa.as_ref().is_some_and(|soa| soa.name.zone_of(asked)) =>
        {
            let ttl = none.negative_ttl.unwrap_or_default();
            match none.response_code {
                ResponseCode::NXDomain => Reply::NoSuchName(ttl),
                ResponseCode::NoError => Reply::NoRecords(ttl),
                code => Reply::Unclear(code.to_string()),
            }
        }
        error => Reply::Unclear(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
