//! `riskgate table resolve`: queries the DNS for names, and writes a list of kind `mx`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use super::super::failure::CommandFailure;
use super::super::output::{print_message, print_progress, print_result};
use super::super::standard_input::read_standard_input;
use super::super::store_access::{COMMAND_STORE_TIMEOUT, read_table_inputs};
use crate::config::Config;
use crate::dns::{DnsClient, DnsFinding, NameQueryTasks, Pacer};
use crate::management::read_present_time;
use crate::model::domain::{DnsName, Domain};
use crate::model::verdict::Rule;
use crate::support::regular_file::{read_regular_text, write_atomically};
use crate::table::Table;

/// The largest list of names, in bytes.
const MAX_NAME_LIST_BYTES: u64 = 1 << 30;
/// The first line of lists of kind `mx`.
pub(super) const MX_LIST_HEADER: &str = "domain,mx";
/// The first line of a list whose rows have a third field: the addresses of the host, with spaces
/// between them.
pub(super) const MX_LIST_HEADER_WITH_ADDRESSES: &str = "domain,mx,addresses";
/// After each such number of resolved names, a line tells the progress.
const NAMES_PER_PROGRESS_LINE: usize = 1_000;

/// Queries the DNS for names. Writes the mail host of each name that has one in an MX record to
/// `output` or to standard output, with the addresses of the host if `with_addresses` is true.
pub fn resolve_names(
    names_path: &Path,
    output: Option<&Path>,
    with_addresses: bool,
    config: &Config,
) -> Result<(), CommandFailure> {
    let text = match names_path.to_str() {
        Some("-") => {
            let text = read_standard_input(MAX_NAME_LIST_BYTES, "a list of names");
            text.map_err(CommandFailure::failed)?
        }
        _ => read_name_list(names_path)?,
    };
    let now = read_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT);
    let table = Arc::new(Table::build(&read_table_inputs(config), now)?);
    let (names, invalid_lines) = parse_domains(&text, &table, now);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let findings =
        runtime.block_on(query_names(names, &table, config)).map_err(CommandFailure::failed)?;
    let mut list = match with_addresses {
        true => format!("{MX_LIST_HEADER_WITH_ADDRESSES}\n"),
        false => format!("{MX_LIST_HEADER}\n"),
    };
    let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
    let (mut rows, mut without_mx) = (0, 0);
    for (name, finding) in findings {
        match finding {
            DnsFinding::ImplicitMx { .. } => without_mx += 1,
            // A row of a list can't have this host, for example because of an underscore.
            DnsFinding::Mx { mx_value: text, .. }
                if text != "." && DnsName::parse(&text).is_err() =>
            {
                *unknown.entry(format!("a host that lists can't hold: {text}")).or_default() += 1;
            }
            DnsFinding::Mx { mx_value: text, addresses, .. } => {
                rows += 1;
                list.push_str(&format!("{name},{text}"));
                if with_addresses {
                    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
                    list.push_str(&format!(",{}", addresses.join(" ")));
                }
                list.push('\n');
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

/// Returns the domains of a text with one domain a line, and the number of lines without a domain.
/// A special-use name counts as no domain, because it is not in the public DNS. Empty lines,
/// comments and a header line don't count.
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

/// Reads a file with a list of names.
pub(super) fn read_name_list(path: &Path) -> Result<String, CommandFailure> {
    read_regular_text(path, MAX_NAME_LIST_BYTES).map_err(|found| {
        let expected = format!("{}: expected a list of names", path.display());
        CommandFailure::failed(format!("{expected}, but found {found}"))
    })
}
