//! `riskgate table suggest-hosts`: proposes mail hosts and addresses of disposable operators.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::super::failure::CommandFailure;
use super::super::store_access::{COMMAND_STORE_TIMEOUT, open_store_to_read, read_table_inputs};
use super::dns::{MX_LIST_HEADER, MX_LIST_HEADER_WITH_ADDRESSES, read_name_list};
use crate::config::Config;
use crate::management::read_present_time;
use crate::model::domain::{DnsName, Domain};
use crate::model::month::format_rfc3339;
use crate::model::verdict::Rule;
use crate::store::Store;
use crate::table::Table;

/// The most names that are printed as examples for each host or address.
const EXAMPLES_PER_CLUSTER: usize = 5;

/// The registrable domains whose mail a host or an address receives, in three sets by what the
/// table says of each domain.
#[derive(Default)]
struct Cluster {
    /// Domains in the lists of disposable domains.
    listed_as_disposable: BTreeSet<String>,
    /// Domains that the table lists as real, and the owners of MX hosts that it knows as real.
    protected: BTreeSet<String>,
    /// All other domains.
    unlisted: BTreeSet<String>,
}

/// The domains behind each registrable domain of MX hosts, and behind each address.
struct Clusters<'t> {
    table: &'t Table,
    /// In seconds since 1970.
    now: i64,
    by_host: BTreeMap<String, Cluster>,
    by_address: BTreeMap<IpAddr, Cluster>,
}

/// Prints the hosts and addresses that at least `min_names` domains use, those with the most
/// disposable domains first. Prints with each the line to add to a list, or why a person should not
/// add it.
///
/// Reads the output of `riskgate table resolve` at `resolved_names_path`. Without this path, or if
/// `dns.learn` is on, reads what riskgate learned from the DNS.
pub fn suggest_disposable_hosts(
    out: &mut dyn Write,
    resolved_names_path: Option<&Path>,
    min_names: usize,
    json: bool,
    config: &Config,
) -> Result<(), CommandFailure> {
    let now = read_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT);
    let table = Table::build(&read_table_inputs(config), now)?;
    let (by_host, by_address) = (BTreeMap::new(), BTreeMap::new());
    let mut clusters = Clusters { table: &table, now, by_host, by_address };
    if let Some(path) = resolved_names_path {
        clusters.read_resolved_names_file(path)?;
    }
    let needs_store = resolved_names_path.is_none() || config.reloadable.dns.is_learning_enabled;
    if needs_store && let Some(mut store) = open_store_to_read(config)? {
        clusters.add_learned_facts(&mut store)?;
    }
    // A listed address needs no proposal, unless a protected domain uses it: then a person must
    // remove it from its list.
    clusters.by_address.retain(|address, cluster| {
        !table.is_listed_mx_address(*address) || !cluster.protected.is_empty()
    });
    let today = format_rfc3339(now).chars().take(10).collect::<String>();
    let hosts =
        suggest_rows(clusters.by_host, min_names, |host| format!("{host},{host},disposable"));
    let addresses = suggest_rows(clusters.by_address, min_names, |address| {
        format!("{address},,riskgate table suggest-hosts,{today}")
    });
    if json {
        let to_json = |all: &[SuggestedRow], key: &str| -> Vec<Value> {
            all.iter().map(|row| row.to_json(key)).collect()
        };
        let object = json!({ "hosts": to_json(&hosts, "host"), "addresses": to_json(&addresses, "address") });
        writeln!(out, "{object:#}")?;
        return Ok(());
    }
    writeln!(out, "# Review each host before you add it: forwarders and hosting companies serve")?;
    writeln!(out, "# disposable names too, and must never be listed here.")?;
    writeln!(out, "suffix,label,class")?;
    hosts.iter().try_for_each(|row| row.write_text(out))?;
    if !addresses.is_empty() {
        writeln!(out, "# Addresses of MX hosts, for a list of kind mx_address.")?;
        writeln!(out, "address,label,source,date")?;
        addresses.iter().try_for_each(|row| row.write_text(out))?;
    }
    Ok(())
}

impl Clusters<'_> {
    fn read_resolved_names_file(&mut self, path: &Path) -> Result<(), CommandFailure> {
        let text = read_name_list(path)?;
        let header = text.lines().next().unwrap_or_default();
        if ![MX_LIST_HEADER, MX_LIST_HEADER_WITH_ADDRESSES].contains(&header) {
            let expected = format!("{}:1: expected the header {MX_LIST_HEADER}", path.display());
            return Err(CommandFailure::failed(format!("{expected}, but found {header:?}")));
        }
        for line in text.lines().skip(1) {
            let Some((name, rest)) = line.trim().split_once(',') else { continue };
            let (host, addresses) = rest.split_once(',').unwrap_or((rest, ""));
            let addresses: Vec<IpAddr> =
                addresses.split(' ').filter_map(|text| text.parse().ok()).collect();
            self.add_name(name, host, &addresses);
        }
        Ok(())
    }

    fn add_learned_facts(&mut self, store: &mut Store) -> Result<(), CommandFailure> {
        let mut version = 0;
        loop {
            let (facts, next) = store.read_dns_facts_page(version)?;
            for fact in facts {
                self.add_name(&fact.name, &fact.mx, &fact.addresses);
            }
            if std::mem::replace(&mut version, next) == next {
                return Ok(());
            }
        }
    }

    /// Counts the registrable domain of `name` in the cluster of its MX host and in the clusters of
    /// the host's addresses. A host that the table knows, or that belongs to the domain itself,
    /// gets no cluster. If the table knows the owner of the host as real, the owner counts as a
    /// protected domain of the addresses.
    fn add_name(&mut self, name: &str, mx_value: &str, addresses: &[IpAddr]) {
        let Ok(domain) = Domain::parse(name) else { return };
        let registrable_domain =
            domain.as_str()[domain.registrable_start().unwrap_or(0)..].to_owned();
        let answer = self.table.lookup(&domain, self.now);
        let count_in = |cluster: &mut Cluster| {
            let names = match answer.verdict.rule {
                Rule::DisposableA | Rule::DisposableB | Rule::DisposableC | Rule::DisposableD => {
                    &mut cluster.listed_as_disposable
                }
                _ if answer.is_listed_as_real() => &mut cluster.protected,
                _ => &mut cluster.unlisted,
            };
            names.insert(registrable_domain.clone());
        };
        if let Ok(host) = DnsName::parse(mx_value)
            && let Some(start) = host.registrable_start()
            && host.as_str()[start..] != registrable_domain
            && !self.table.is_known_mx_host(host.as_str())
        {
            count_in(self.by_host.entry(host.as_str()[start..].to_owned()).or_default());
        }
        let real_owner = DnsName::parse(mx_value)
            .ok()
            .filter(|host| self.table.is_known_as_real(host.as_str(), self.now))
            .map(|host| host.as_str()[host.registrable_start().unwrap_or(0)..].to_owned());
        for address in addresses {
            let cluster = self.by_address.entry(*address).or_default();
            count_in(cluster);
            cluster.protected.extend(real_owner.clone());
        }
    }
}

/// A host or an address, the domains that use it, and the row that would list it.
struct SuggestedRow {
    name: String,
    cluster: Cluster,
    row: String,
}

/// Returns the hosts or addresses with at least `min_names` domains, those with the most disposable
/// domains first. `format_row` makes the row that would list a host or an address.
fn suggest_rows<K: ToString>(
    clusters: BTreeMap<K, Cluster>,
    min_names: usize,
    format_row: impl Fn(&K) -> String,
) -> Vec<SuggestedRow> {
    let enough = clusters.into_iter().filter(|(_, cluster)| cluster.domain_count() >= min_names);
    let mut rows: Vec<SuggestedRow> = enough
        .map(|(key, cluster)| {
            let row = format_row(&key);
            SuggestedRow { name: key.to_string(), cluster, row }
        })
        .collect();
    rows.sort_by_key(|row| {
        Reverse((row.cluster.listed_as_disposable.len(), row.cluster.unlisted.len()))
    });
    rows
}

impl Cluster {
    fn domain_count(&self) -> usize {
        self.listed_as_disposable.len() + self.protected.len() + self.unlisted.len()
    }
}

impl SuggestedRow {
    /// Says why a person should not list this host or address. `None` if none of its domains is
    /// protected, and fewer are unlisted than disposable.
    fn find_objection(&self) -> Option<&'static str> {
        let Cluster { listed_as_disposable, protected, unlisted } = &self.cluster;
        if !protected.is_empty() {
            Some("do not add it: a protected name uses it")
        } else if unlisted.len() >= listed_as_disposable.len() {
            // Such a host may belong to a hosting company, which serves anybody.
            Some("not proposed: most of its names are in no list")
        } else {
            None
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Cluster { listed_as_disposable: listed, protected, unlisted } = &self.cluster;
        let examples: Vec<&str> = self.examples().collect();
        writeln!(
            out,
            "# {} listed, {} protected, {} in no list: {}",
            listed.len(),
            protected.len(),
            unlisted.len(),
            examples.join(" ")
        )?;
        match self.find_objection() {
            Some(objection) => writeln!(out, "# {} ({objection})", self.name),
            None => writeln!(out, "{}", self.row),
        }
    }

    fn to_json(&self, key: &str) -> Value {
        let Cluster { listed_as_disposable: listed, protected, unlisted } = &self.cluster;
        let objection = self.find_objection();
        json!({
            key: self.name,
            "listed": listed.len(),
            "protected": protected.len(),
            "unlisted": unlisted.len(),
            "examples": self.examples().collect::<Vec<_>>(),
            "row": objection.is_none().then_some(&self.row),
            "objection": objection,
        })
    }

    /// Some of the domains: protected ones first, because they decide whether the row may be added.
    fn examples(&self) -> impl Iterator<Item = &str> {
        let Cluster { listed_as_disposable: listed, protected, unlisted } = &self.cluster;
        let names = protected.iter().chain(listed).chain(unlisted);
        names.take(EXAMPLES_PER_CLUSTER).map(String::as_str)
    }
}
