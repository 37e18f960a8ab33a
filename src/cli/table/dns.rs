//! `riskgate table resolve` and `riskgate table suggest-hosts`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write};
use std::path::Path;
use std::sync::Arc;

use super::super::failure::Failure;
use super::super::output::{show, tell};
use super::super::store_access::PATIENCE;
use crate::config::{Config, StoreOptions};
use crate::dns::{DnsClient, DnsFinding, Pacer, Queries};
use crate::model::domain::{Domain, Name};
use crate::model::verdict::Rule;
use crate::quota::unix_now;
use crate::store::Store;
use crate::support::regular_file::{read_regular_text, write_beside};
use crate::table::Table;

/// The largest list of names, in bytes.
const LARGEST: u64 = 1 << 30;
/// What the lists of kind `mx` begin with.
const HEADER: &str = "domain,mx\n";
/// Names that stand beside a proposal.
const EXAMPLES: usize = 5;

/// The store that keeps what was learned, if anything is. One that does not answer is told, and the
/// table answers alone.
pub fn store(config: &Config) -> Option<Store> {
    let StoreOptions { url, redis, .. } = &config.store;
    if !config.dns.learn {
        return None;
    }
    let opened = Store::open_existing(url, redis, PATIENCE).and_then(|mut store| {
        store.learned_of("a.test")?;
        Ok(store)
    });
    match opened {
        Ok(store) => Some(store),
        Err(error) => {
            tell(format!("what was learned is not known: {error}"));
            None
        }
    }
}

/// Asks the DNS about names, and writes what it says.
pub fn resolve(names: &Path, output: Option<&Path>, config: &Config) -> Result<(), Failure> {
    let text = match names.to_str() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().take(LARGEST).read_to_string(&mut text)?;
            text
        }
        _ => read(names)?,
    };
    let table = Arc::new(Table::assemble(&config.table, unix_now())?);
    let (names, strange) = domains(&text, &table);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let said = runtime.block_on(ask_all(names, &table, config)).map_err(Failure::failed)?;
    let mut list = HEADER.to_owned();
    let mut not_known: BTreeMap<String, usize> = BTreeMap::new();
    let (mut rows, mut without_mx) = (0, 0);
    for (name, said) in said {
        match said {
            DnsFinding::OwnAddresses { .. } => without_mx += 1,
            // Lists hold no underscores.
            DnsFinding::Mx { text, .. } if text != "." && Name::parse(&text).is_err() => {
                *not_known.entry(format!("a host that lists can't hold: {text}")).or_default() += 1;
            }
            DnsFinding::Mx { text, .. } => {
                rows += 1;
                list.push_str(&format!("{name},{text}\n"));
            }
            DnsFinding::NotKnown(why) => *not_known.entry(why).or_default() += 1,
        }
    }
    match output {
        Some(path) => write_beside(path, list.as_bytes())
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?,
        None => show(list)?,
    }
    let failed: usize = not_known.values().sum();
    tell(format!("{rows} names, {without_mx} with an address alone, {failed} not known"));
    for (why, count) in not_known {
        tell(format!("  {count}: {why}"));
    }
    if strange > 0 {
        tell(format!("{strange} lines that name nothing that could be asked for"));
    }
    Ok(())
}

/// The domains that a text names, and how many lines name none. Names that are for special use are
/// nobody's business.
fn domains(text: &str, table: &Table) -> (BTreeSet<String>, usize) {
    let mut strange = 0;
    let mut domains = BTreeSet::new();
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    let is_header = |line: &str| HEADER.starts_with(line.split(',').next().unwrap_or_default());
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let word = line.split([',', ' ', '\t', ';']).next().unwrap_or_default();
        match Domain::parse(word.trim_matches(['"', '='])) {
            Ok(domain) if table.lookup(&domain, unix_now()).verdict.rule != Rule::SpecialUse => {
                domains.insert(domain.as_str().to_owned());
            }
            _ if is_header(line) => {}
            _ => strange += 1,
        }
    }
    (domains, strange)
}

async fn ask_all(
    names: BTreeSet<String>,
    table: &Arc<Table>,
    config: &Config,
) -> Result<BTreeMap<Arc<str>, DnsFinding>, String> {
    let pacer = Arc::new(Pacer::new(config.dns.rate));
    let client = Arc::new(DnsClient::new(&config.dns, pacer)?);
    client.probe(table.large_providers()).await?;
    let mut names = names.into_iter();
    let mut queries = Queries::default();
    let mut findings = BTreeMap::new();
    loop {
        while queries.count() < config.dns.concurrency
            && let Some(name) = names.next()
        {
            let (client, table) = (Arc::clone(&client), Arc::clone(table));
            let name: Arc<str> = name.into();
            queries.spawn(Arc::clone(&name), async move {
                client.ask(&name, |host| table.knows_mx_host(host)).await
            });
        }
        match queries.next_finding().await {
            Some(finding) => findings.extend([finding]),
            None => return Ok(findings),
        }
    }
}

/// What a host serves.
#[derive(Default)]
struct Served {
    listed: BTreeSet<String>,
    protected: BTreeSet<String>,
    others: BTreeSet<String>,
}

/// Proposes hosts that serve listed names, with what speaks for each.
pub fn suggest_hosts(
    out: &mut dyn Write,
    mx: &Path,
    min: usize,
    config: &Config,
) -> Result<(), Failure> {
    let table = Table::assemble(&config.table, unix_now())?;
    let mut hosts: BTreeMap<String, Served> = BTreeMap::new();
    let text = read(mx)?;
    if !text.starts_with(HEADER) {
        let expected = format!("{}:1: expected the header {}", mx.display(), HEADER.trim_end());
        let found = text.lines().next().unwrap_or_default();
        return Err(Failure::failed(format!("{expected}, but found {found:?}")));
    }
    for line in text.lines().skip(1) {
        let Some((name, host)) = line.trim().split_once(',') else { continue };
        let (Ok(domain), Ok(host)) = (Domain::parse(name), Name::parse(host)) else { continue };
        // Of whom something is known, nothing is to be proposed.
        let known = table.knows_mx_host(host.as_str()) || host.as_str() == domain.as_str();
        let Some(owner) = host.registrable_start().filter(|_| !known) else { continue };
        let served = hosts.entry(host.as_str()[owner..].to_owned()).or_default();
        let owned = domain.registrable_start().unwrap_or_default();
        let owned = domain.as_str()[owned..].to_owned();
        let found = table.lookup(&domain, unix_now());
        match found.verdict.rule {
            Rule::DisposableA | Rule::DisposableB | Rule::DisposableC | Rule::DisposableD => {
                served.listed.insert(owned)
            }
            _ if found.matched.is_some() && !found.verdict.reason.is_flagged() => {
                served.protected.insert(owned)
            }
            _ => served.others.insert(owned),
        };
    }
    let mut proposed: Vec<(String, Served)> = hosts
        .into_iter()
        // Whoever serves more names that nobody lists is shared by many.
        .filter(|(_, it)| it.listed.len() >= min && it.protected.is_empty())
        .filter(|(_, it)| it.others.len() < it.listed.len())
        .collect();
    proposed.sort_by_key(|(_, served)| std::cmp::Reverse(served.listed.len()));
    writeln!(
        out,
        "# Read each one before you take it over: forwarders and hosting companies serve"
    )?;
    writeln!(out, "# disposable names too, and are never to be listed here.")?;
    writeln!(out, "suffix,label,class")?;
    for (host, Served { listed, others, .. }) in proposed {
        let some: Vec<&str> = listed.iter().take(EXAMPLES).map(String::as_str).collect();
        let (listed, others) = (listed.len(), others.len());
        writeln!(out, "# {listed} listed, 0 protected, {others} in no list: {}", some.join(" "))?;
        writeln!(out, "{host},{host},disposable")?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    read_regular_text(path, LARGEST).map_err(|found| {
        let expected = format!("{}: expected a list of names", path.display());
        Failure::failed(format!("{expected}, but found {found}"))
    })
}
