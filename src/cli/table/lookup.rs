//! `riskgate table lookup`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::Failure;
use crate::dns::still_counts;
use crate::domain::Domain;
use crate::month::rfc3339;
use crate::quota::unix_now;
use crate::store::{LearntRow, Store};
use crate::table::{Found, Table, TableSources};
use crate::verdict::Score;

/// Writes the answers; the faults of names that are none.
pub fn lookup(
    out: &mut dyn Write,
    names: &[String],
    sources: &TableSources,
    unknown_score: Option<Score>,
    mut store: Option<Store>,
    json: bool,
) -> Result<Vec<String>, Failure> {
    let table = Table::assemble(sources, unix_now())?;
    let mut refused = Vec::new();
    let mut values = Vec::new();
    for name in names {
        let domain = match Domain::parse(name) {
            Ok(domain) => domain,
            Err(error) => {
                refused.push(format!("domain: {error}"));
                continue;
            }
        };
        let found = table.lookup(&domain, unix_now());
        let learnt = learnt(&mut store, &domain)?.filter(|_| found.yields_to_dns());
        let found = learnt.as_ref().map_or(found, |row| found.with_mx(&row.mx));
        let found = found.with_unknown_score(unknown_score);
        if json {
            values.push(found_json(&domain, &found, learnt.as_ref()));
        } else {
            write_found(out, &domain, &found, learnt.as_ref())?;
        }
    }
    if json {
        writeln!(out, "{:#}", Value::Array(values))?;
    }
    Ok(refused)
}

/// What nodes have learnt of a domain, as far as it still counts.
fn learnt(store: &mut Option<Store>, domain: &Domain) -> Result<Option<LearntRow>, Failure> {
    let Some(store) = store else { return Ok(None) };
    Ok(store.learnt_of(domain.as_str())?.filter(|row| still_counts(row, unix_now())))
}

fn write_found(
    out: &mut dyn Write,
    domain: &Domain,
    found: &Found,
    learnt: Option<&LearntRow>,
) -> io::Result<()> {
    writeln!(out, "{{\"domain\":\"{domain}{}", found.tail())?;
    let why = found.explain();
    match found.matched {
        Some(0) => writeln!(out, "  row      {domain}")?,
        Some(at) => writeln!(out, "  row      {}, which covers {domain}", &domain.as_str()[at..])?,
        None => writeln!(out, "  row      none")?,
    }
    writeln!(out, "  rule     {}", why.rule.as_str())?;
    if let Some(LearntRow { mx, until, .. }) = learnt {
        writeln!(out, "  learnt   {mx}, until {}", rfc3339(*until))?;
    }
    if let Some(provider) = found.suggestion(domain) {
        writeln!(out, "  meant    {provider}, probably")?;
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

fn found_json(domain: &Domain, found: &Found, learnt: Option<&LearntRow>) -> Value {
    let why = found.explain();
    json!({
        "domain": domain.as_str(),
        "answer": answer_json(found),
        "row": found.matched.map(|at| &domain.as_str()[at..]),
        "rule": why.rule.as_str(),
        "source": found.source().as_str(),
        "learnt": learnt.map(|row| &row.mx),
        "did_you_mean": found.suggestion(domain),
        "lists": why.lists.iter().map(|list| &list.file).collect::<Vec<_>>(),
        "sources": why.sources.iter().map(|source| &source.name).collect::<Vec<_>>(),
    })
}

pub fn answer_json(found: &Found) -> Value {
    json!({
        "risk_score": found.verdict.score.value(),
        "reason": found.verdict.reason.as_str(),
        "is_free_provider": found.verdict.is_free_provider,
        "is_corporate_email": found.verdict.is_corporate_email,
        "mx_provider_label": found.label,
        "rule": found.verdict.rule.as_str(),
    })
}
