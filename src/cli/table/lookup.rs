//! `riskgate table lookup`: shows the answers for domains, with their reasons.

use std::io::{self, Write};
use std::net::IpAddr;

use serde_json::Value;

use super::super::failure::CommandFailure;
use super::super::lookup_sources::LookupSources;
use crate::management::fault_of_domain;
use crate::model::domain::Domain;
use crate::model::month::{format_day, format_rfc3339};
use crate::store::DnsFactRow;
use crate::table::TableAnswer;

/// Writes the answer for each name that is a domain. Returns a message for each other name.
pub fn print_lookups(
    out: &mut dyn Write,
    names: &[String],
    mut sources: LookupSources,
    json: bool,
) -> Result<Vec<String>, CommandFailure> {
    let table = sources.build_table()?;
    let mut faults = Vec::new();
    let mut values = Vec::new();
    for name in names {
        let domain = match Domain::parse(name) {
            Ok(domain) => domain,
            Err(error) => {
                let fault = CommandFailure::from(fault_of_domain(name, &error));
                faults.extend(fault.message_lines);
                continue;
            }
        };
        let found = sources.explain(&table, &domain)?;
        if json {
            values.push(found.to_json(&domain));
        } else {
            write_lookup(out, &domain, &found.answer, found.learned.as_ref())?;
        }
    }
    if json {
        writeln!(out, "{:#}", Value::Array(values))?;
    }
    Ok(faults)
}

fn write_lookup(
    out: &mut dyn Write,
    domain: &Domain,
    found: &TableAnswer,
    learned: Option<&DnsFactRow>,
) -> io::Result<()> {
    writeln!(out, "{{\"domain\":\"{domain}{}", found.json_tail())?;
    let why = found.explain();
    match found.matched_name_offset {
        Some(0) => writeln!(out, "  row      {domain}")?,
        Some(at) => writeln!(out, "  row      {}, which covers {domain}", &domain.as_str()[at..])?,
        None => writeln!(out, "  row      none")?,
    }
    writeln!(out, "  rule     {}", why.rule.as_str())?;
    if let Some(DnsFactRow { mx, addresses, expires_at: until, .. }) = learned {
        let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let addresses = match addresses.as_slice() {
            [] => String::new(),
            all => format!(" ({})", all.join(", ")),
        };
        writeln!(out, "  learned  {mx}{addresses}, until {}", format_rfc3339(*until))?;
    }
    if let Some(provider) = found.suggest_provider(domain) {
        writeln!(out, "  suggest  {provider}, probably")?;
    }
    for list in why.lists {
        writeln!(out, "  list     {} ({})", list.file, list.kind)?;
    }
    for source in why.sources {
        let (name, version, date) = (&source.name, &source.version, &source.date);
        writeln!(out, "  source   {name} {version} ({date})")?;
    }
    match (why.first_seen.map(format_day), why.last_seen.map(format_day)) {
        (Some(first), Some(last)) => writeln!(out, "  seen     {first} to {last}")?,
        (None, Some(last)) => writeln!(out, "  seen     until {last}")?,
        _ => {}
    }
    if let Some(date) = found.evidence_unix_seconds().map(format_day) {
        writeln!(out, "  evidence {date}")?;
    }
    Ok(())
}
