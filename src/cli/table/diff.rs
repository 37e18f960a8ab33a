//! `riskgate table diff`.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::failure::Failure;
use super::lookup::answer_json;
use crate::table::{Found, Row, Source, Table};

/// Shows what one table says and the other does not.
pub fn diff(out: &mut dyn Write, old: PathBuf, new: PathBuf, json: bool) -> Result<(), Failure> {
    let (old, new) = (Table::load(&Source::Path(old))?, Table::load(&Source::Path(new))?);
    let mut added: Vec<Row> = new.names().filter(|row| old.row_of(row.name).is_none()).collect();
    let mut removed = Vec::new();
    let mut changed = Vec::new();
    for row in old.names() {
        match new.row_of(row.name) {
            None => removed.push(row),
            Some(now) if !row.says_the_same(&now) => changed.push((row, now)),
            Some(_) => {}
        }
    }
    added.sort_by_key(|row| row.name);
    removed.sort_by_key(|row| row.name);
    changed.sort_by_key(|(row, _)| row.name);
    if json {
        let names = |rows: &[Row]| rows.iter().map(|row| json!(row.name)).collect::<Vec<_>>();
        let table = |table: &Table| json!({ "version": table.version(), "rows": table.rows() });
        let changes: Vec<Value> = changed
            .iter()
            .map(|(before, now)| {
                let (old, new) = (row_json(before), row_json(now));
                json!({ "domain": before.name, "old": old, "new": new })
            })
            .collect();
        let value = json!({
            "old": table(&old),
            "new": table(&new),
            "added": names(&added),
            "removed": names(&removed),
            "changed": changes,
        });
        return Ok(writeln!(out, "{value:#}")?);
    }
    let (a, r, c) = (added.len(), removed.len(), changed.len());
    writeln!(out, "{} -> {}", old.version(), new.version())?;
    writeln!(out, "{a} added, {r} removed, {c} changed")?;
    for row in &added {
        writeln!(out, "+ {}  {}", row.name, said(row))?;
    }
    for row in &removed {
        writeln!(out, "- {}  {}", row.name, said(row))?;
    }
    for (before, now) in &changed {
        writeln!(out, "~ {}  {} -> {}", before.name, said(before), said(now))?;
    }
    Ok(())
}

fn row_json(row: &Row) -> Value {
    let mut value = answer_json(&row.own);
    // What covers names below only matters where it is something else.
    if row.below.as_ref().is_none_or(|below| answer_json(below) != value) {
        value["below"] = row.below.as_ref().map_or(Value::Null, answer_json);
    }
    value
}

fn said(row: &Row) -> String {
    let words = |found: &Found| {
        let verdict = &found.verdict;
        let mut words = format!("{} {}", verdict.reason, verdict.score.value());
        let flags =
            [(verdict.is_free_provider, " free"), (verdict.is_corporate_email, " corporate")];
        flags.iter().filter(|(is, _)| *is).for_each(|(_, word)| words.push_str(word));
        if let Some(label) = found.label {
            words.push_str(&format!(" {label:?}"));
        }
        words
    };
    let own = words(&row.own);
    match row.below.as_ref().map(words) {
        Some(below) if below == own => own,
        Some(below) => format!("{own}, below it {below}"),
        None => format!("{own}, alone"),
    }
}
