//! `riskgate table lookup`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::failure::CommandFailure;
use crate::dns::apply_fact_if_usable;
use crate::model::domain::Domain;
use crate::model::month::format_rfc3339;
use crate::model::verdict::Score;
use crate::quota::unix_now;
use crate::store::{DnsFactRow, Store};
use crate::table::{Table, TableAnswer, TableInputs};

/// Writes the answer for each name. It comes from the table, or from what `store` has learned from
/// the DNS if no list decides. Returns one text for each name that is not a domain.
pub fn print_lookups(
    out: &mut dyn Write,
    names: &[String],
    sources: &TableInputs,
    unknown_score: Option<Score>,
    mut store: Option<Store>,
    json: bool,
) -> Result<Vec<String>, CommandFailure> {
    let table = Table::build(sources, unix_now())?;
    let mut faults = Vec::new();
    let mut values = Vec::new();
    for name in names {
        let domain = match Domain::parse(name) {
            Ok(domain) => domain,
            Err(error) => {
                faults.push(format!("domain: {error}"));
                continue;
            }
        };
        let found = table.lookup(&domain, unix_now());
        let row = read_learned_row(&mut store, &domain)?.filter(|_| found.is_undecided_by_lists());
        let applied = row.and_then(|row| {
            Some((apply_fact_if_usable(found, &row.mx, row.expires_at, unix_now())?, row))
        });
        let (found, learned) = applied.map_or((found, None), |(found, row)| (found, Some(row)));
        let found = found.with_unknown_score(unknown_score);
        if json {
            values.push(lookup_json(&domain, &found, learned.as_ref()));
        } else {
            write_lookup(out, &domain, &found, learned.as_ref())?;
        }
    }
    if json {
        writeln!(out, "{:#}", Value::Array(values))?;
    }
    Ok(faults)
}

/// Reads the fact that some node has learned about a domain from the DNS. Returns None if there is
/// no such fact or no store.
fn read_learned_row(
    store: &mut Option<Store>,
    domain: &Domain,
) -> Result<Option<DnsFactRow>, CommandFailure> {
    let Some(store) = store else { return Ok(None) };
    Ok(store.find_dns_fact(domain.as_str())?)
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
    if let Some(DnsFactRow { mx, expires_at: until, .. }) = learned {
        writeln!(out, "  learned  {mx}, until {}", format_rfc3339(*until))?;
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
    Ok(())
}

fn lookup_json(domain: &Domain, found: &TableAnswer, learned: Option<&DnsFactRow>) -> Value {
    let why = found.explain();
    json!({
        "domain": domain.as_str(),
        "answer": verdict_json(found),
        "row": found.matched_name_offset.map(|at| &domain.as_str()[at..]),
        "rule": why.rule.as_str(),
        "source": found.verdict_source().as_str(),
        "learned": learned.map(|row| &row.mx),
        "did_you_mean": found.suggest_provider(domain),
        "lists": why.lists.iter().map(|list| &list.file).collect::<Vec<_>>(),
        "sources": why.sources.iter().map(|source| &source.name).collect::<Vec<_>>(),
    })
}

pub fn verdict_json(found: &TableAnswer) -> Value {
    json!({
        "risk_score": found.verdict.score.value(),
        "reason": found.verdict.reason.as_str(),
        "is_free_provider": found.verdict.is_free_provider,
        "is_corporate_email": found.verdict.is_corporate_email,
        "mx_provider_label": found.mail_service_label,
        "rule": found.verdict.rule.as_str(),
    })
}
