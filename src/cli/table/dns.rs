//! `riskgate table resolve` and `riskgate table suggest-hosts`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write};
use std::path::Path;
use std::sync::Arc;

use super::super::failure::CommandFailure;
use super::super::output::{print_message, print_progress, print_result};
use super::super::store_access::STORE_TIMEOUT;
use crate::config::{Config, StoreOptions};
use crate::dns::{DnsClient, DnsFinding, NameQueryTasks, Pacer};
use crate::management::read_present_time;
use crate::model::domain::{DnsName, Domain};
use crate::model::verdict::Rule;
use crate::store::Store;
use crate::support::regular_file::{read_regular_text, write_atomically};
use crate::table::Table;

/// The largest list of names, in bytes.
const MAX_NAME_LIST_BYTES: u64 = 1 << 30;
/// The first line of lists of kind `mx`.
const MX_LIST_HEADER: &str = "domain,mx\n";
/// A line tells the progress whenever so many names are resolved.
const NAMES_PER_PROGRESS_LINE: usize = 1_000;
/// The most names that are printed as examples for each proposed host.
const EXAMPLES_PER_HOST: usize = 5;

/// Opens the store, which has the learned DNS results. Returns None if `dns.learn` is off. If the
/// store does not answer, prints a message and returns None; look-ups then use the table alone.
pub fn open_store_with_dns_facts(config: &Config) -> Option<Store> {
    let StoreOptions { url, redis, .. } = &config.startup.store;
    if !config.reloadable.dns.is_learning_enabled {
        return None;
    }
    let opened = Store::open_existing(url, redis, STORE_TIMEOUT).and_then(|mut store| {
        store.find_dns_fact("a.test")?;
        Ok(store)
    });
    match opened {
        Ok(store) => Some(store),
        Err(error) => {
            print_message(format!("expected the learned DNS results, but found: {error}"));
            None
        }
    }
}

/// Queries the DNS for names, and writes the results.
pub fn resolve_names(
    names_path: &Path,
    output: Option<&Path>,
    config: &Config,
) -> Result<(), CommandFailure> {
    let text = match names_path.to_str() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().take(MAX_NAME_LIST_BYTES).read_to_string(&mut text)?;
            text
        }
        _ => read_name_list(names_path)?,
    };
    let now = read_present_time(&config.startup.store, STORE_TIMEOUT);
    let table = Arc::new(Table::build(&config.reloadable.table, now)?);
    let (names, invalid_lines) = parse_domains(&text, &table, now);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let findings =
        runtime.block_on(query_names(names, &table, config)).map_err(CommandFailure::failed)?;
    let mut list = MX_LIST_HEADER.to_owned();
    let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
    let (mut rows, mut without_mx) = (0, 0);
    for (name, finding) in findings {
        match finding {
            DnsFinding::ImplicitMx { .. } => without_mx += 1,
            // List rows can't contain underscores.
            DnsFinding::Mx { mx_value: text, .. }
                if text != "." && DnsName::parse(&text).is_err() =>
            {
                *unknown.entry(format!("a host that lists can't hold: {text}")).or_default() += 1;
            }
            DnsFinding::Mx { mx_value: text, .. } => {
                rows += 1;
                list.push_str(&format!("{name},{text}\n"));
            }
            DnsFinding::Unknown(why) => *unknown.entry(why).or_default() += 1,
        }
    }
    match output {
        Some(path) => write_atomically(path, list.as_bytes())
            .map_err(|error| CommandFailure::failed(format!("{}: {error}", path.display())))?,
        None => print_result(list)?,
    }
    let failed: usize = unknown.values().sum();
    print_message(format!("{rows} names, {without_mx} with an address alone, {failed} not known"));
    for (why, count) in unknown {
        print_message(format!("  {count}: {why}"));
    }
    if invalid_lines > 0 {
        print_message(format!("{invalid_lines} lines without a domain name"));
    }
    Ok(())
}

/// Returns the domain of each line of a text, and the number of lines without a domain. A
/// special-use name counts as no domain, because it is not in the public DNS.
fn parse_domains(text: &str, table: &Table, now: i64) -> (BTreeSet<String>, usize) {
    let mut invalid_lines = 0;
    let mut domains = BTreeSet::new();
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    let is_header =
        |line: &str| MX_LIST_HEADER.starts_with(line.split(',').next().unwrap_or_default());
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let word = line.split([',', ' ', '\t', ';']).next().unwrap_or_default();
        match Domain::parse(word.trim_matches(['"', '='])) {
            Ok(domain) if table.lookup(&domain, now).verdict.rule != Rule::SpecialUse => {
                domains.insert(domain.as_str().to_owned());
            }
            _ if is_header(line) => {}
            _ => invalid_lines += 1,
        }
    }
    (domains, invalid_lines)
}

async fn query_names(
    names: BTreeSet<String>,
    table: &Arc<Table>,
    config: &Config,
) -> Result<BTreeMap<Arc<str>, DnsFinding>, String> {
    let pacer = Arc::new(Pacer::new(config.reloadable.dns.max_queries_per_second));
    let client = Arc::new(DnsClient::new(&config.reloadable.dns, pacer)?);
    client.probe_resolvers(table.resolver_probe_providers()).await?;
    let count = names.len();
    let mut names = names.into_iter();
    let mut queries = NameQueryTasks::default();
    let mut findings = BTreeMap::new();
    loop {
        while queries.in_flight_name_count() < config.reloadable.dns.max_names_in_flight
            && let Some(name) = names.next()
        {
            let (client, table) = (Arc::clone(&client), Arc::clone(table));
            let name: Arc<str> = name.into();
            queries.spawn_name_query(Arc::clone(&name), async move {
                client.query_mail_hosts(&name, |host| table.known_mx_answer(host)).await
            });
        }
        match queries.next_finding().await {
            Some(finding) => {
                findings.extend([finding]);
                if findings.len().is_multiple_of(NAMES_PER_PROGRESS_LINE) {
                    print_progress(format!("{} of {count} names resolved", findings.len()));
                }
            }
            None => return Ok(findings),
        }
    }
}

/// The registrable domains whose mail a host receives, by what the table says of them.
#[derive(Default)]
struct HostDomains {
    /// In the lists of disposable domains.
    listed_as_disposable: BTreeSet<String>,
    /// The table has a row for them and does not flag them.
    protected: BTreeSet<String>,
    /// All others.
    others: BTreeSet<String>,
}

/// Prints each MX host that serves at least `min_listed` disposable domains, fewer other domains
/// than disposable ones, and no protected domain. Prints examples for each host.
/// `resolved_names_path` is the output of `riskgate table resolve`.
pub fn suggest_disposable_hosts(
    out: &mut dyn Write,
    resolved_names_path: &Path,
    min_listed: usize,
    config: &Config,
) -> Result<(), CommandFailure> {
    let now = read_present_time(&config.startup.store, STORE_TIMEOUT);
    let table = Table::build(&config.reloadable.table, now)?;
    let mut hosts: BTreeMap<String, HostDomains> = BTreeMap::new();
    let text = read_name_list(resolved_names_path)?;
    if !text.starts_with(MX_LIST_HEADER) {
        let expected = format!(
            "{}:1: expected the header {}",
            resolved_names_path.display(),
            MX_LIST_HEADER.trim_end()
        );
        let found = text.lines().next().unwrap_or_default();
        return Err(CommandFailure::failed(format!("{expected}, but found {found:?}")));
    }
    for line in text.lines().skip(1) {
        let Some((name, host)) = line.trim().split_once(',') else { continue };
        let (Ok(domain), Ok(host)) = (Domain::parse(name), DnsName::parse(host)) else { continue };
        // Known hosts need no proposal.
        let known = table.is_known_mx_host(host.as_str()) || host.as_str() == domain.as_str();
        let Some(host_registrable_offset) = host.registrable_start().filter(|_| !known) else {
            continue;
        };
        let served = hosts.entry(host.as_str()[host_registrable_offset..].to_owned()).or_default();
        let registrable_offset = domain.registrable_start().unwrap_or_default();
        let registrable_domain = domain.as_str()[registrable_offset..].to_owned();
        let found = table.lookup(&domain, now);
        match found.verdict.rule {
            Rule::DisposableA | Rule::DisposableB | Rule::DisposableC | Rule::DisposableD => {
                served.listed_as_disposable.insert(registrable_domain)
            }
            _ if found.matched_name_offset.is_some() && !found.verdict.reason.is_flagged() => {
                served.protected.insert(registrable_domain)
            }
            _ => served.others.insert(registrable_domain),
        };
    }
    let mut proposed: Vec<(String, HostDomains)> = hosts
        .into_iter()
        // A host that serves as many other domains as disposable ones is shared by many operators.
        .filter(|(_, served)| {
            served.listed_as_disposable.len() >= min_listed && served.protected.is_empty()
        })
        .filter(|(_, served)| served.others.len() < served.listed_as_disposable.len())
        .collect();
    proposed.sort_by_key(|(_, served)| std::cmp::Reverse(served.listed_as_disposable.len()));
    writeln!(out, "# Review each host before you add it: forwarders and hosting companies serve")?;
    writeln!(out, "# disposable names too, and must never be listed here.")?;
    writeln!(out, "suffix,label,class")?;
    for (host, HostDomains { listed_as_disposable: listed, others, .. }) in proposed {
        let examples: Vec<&str> =
            listed.iter().take(EXAMPLES_PER_HOST).map(String::as_str).collect();
        let (listed, others) = (listed.len(), others.len());
        writeln!(
            out,
            "# {listed} listed, 0 protected, {others} in no list: {}",
            examples.join(" ")
        )?;
        writeln!(out, "{host},{host},disposable")?;
    }
    Ok(())
}

fn read_name_list(path: &Path) -> Result<String, CommandFailure> {
    read_regular_text(path, MAX_NAME_LIST_BYTES).map_err(|found| {
        let expected = format!("{}: expected a list of names", path.display());
        CommandFailure::failed(format!("{expected}, but found {found}"))
    })
}
