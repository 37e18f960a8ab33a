//! `riskgate table diff`.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::failure::CommandFailure;
use crate::management::verdict_to_json;
use crate::table::{Table, TableAnswer, TableLocation, TableRow};

/// Prints the rows that differ between two tables.
pub fn print_diff(
    out: &mut dyn Write,
    old: PathBuf,
    new: PathBuf,
    json: bool,
) -> Result<(), CommandFailure> {
    let (old, new) =
        (Table::load(&TableLocation::Path(old))?, Table::load(&TableLocation::Path(new))?);
    let mut added: Vec<TableRow> =
        new.iter_rows().filter(|row| old.find_row(row.name).is_none()).collect();
    let mut removed = Vec::new();
    let mut changed = Vec::new();
    for row in old.iter_rows() {
        match new.find_row(row.name) {
            None => removed.push(row),
            Some(now) if !row.has_same_answers(&now) => changed.push((row, now)),
            Some(_) => {}
        }
    }
    added.sort_by_key(|row| row.name);
    removed.sort_by_key(|row| row.name);
    changed.sort_by_key(|(row, _)| row.name);
    if json {
        let names = |rows: &[TableRow]| rows.iter().map(|row| json!(row.name)).collect::<Vec<_>>();
        let table =
            |table: &Table| json!({ "version": table.version(), "rows": table.row_count() });
        let changes: Vec<Value> = changed
            .iter()
            .map(|(before, now)| {
                let (old, new) = (row_to_json(before), row_to_json(now));
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
        writeln!(out, "+ {}  {}", row.name, describe_row(row))?;
    }
    for row in &removed {
        writeln!(out, "- {}  {}", row.name, describe_row(row))?;
    }
    for (before, now) in &changed {
        writeln!(out, "~ {}  {} -> {}", before.name, describe_row(before), describe_row(now))?;
    }
    Ok(())
}

fn row_to_json(row: &TableRow) -> Value {
    let mut value = verdict_to_json(&row.own_answer);
    // `below` is the answer for names below the row's name. It is left out if it is the row's own
    // answer, and null if the row does not cover these names.
    if row.answer_below.as_ref().is_none_or(|below| verdict_to_json(below) != value) {
        value["below"] = row.answer_below.as_ref().map_or(Value::Null, verdict_to_json);
    }
    value
}

fn describe_row(row: &TableRow) -> String {
    let describe = |found: &TableAnswer| {
        let verdict = &found.verdict;
        let mut text = format!("{} {}", verdict.reason, verdict.score.value());
        let flags =
            [(verdict.is_free_provider, " free"), (verdict.is_corporate_email, " corporate")];
        flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, flag)| text.push_str(flag));
        if let Some(label) = found.mail_service_label {
            text.push_str(&format!(" {label:?}"));
        }
        text
    };
    let own = describe(&row.own_answer);
    match row.answer_below.as_ref().map(describe) {
        Some(below) if below == own => own,
        Some(below) => format!("{own}, below it {below}"),
        None => format!("{own}, alone"),
    }
}
