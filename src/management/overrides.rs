//! Allows and denies domains, and lists the overrides.

use std::path::Path;

use serde_json::{Value, json};

use super::fault::ManagementFault;
use crate::model::domain::{DnsName, Domain};
use crate::model::month::format_rfc3339;
use crate::model::verdict::Rule;
use crate::store::{AuditOperation, Change, ChangeAuthor, SourceState, Store};
use crate::table::{
    NewOverride, OverrideAction, OverrideFile, OverrideListRow, PreparedOverrideFile, Table,
    TableInputs, TableRow,
};

/// An override to set.
#[derive(Clone, Debug)]
pub struct OverrideRequest<'a> {
    /// The domain. The override also covers the names below it.
    pub domain: &'a str,
    /// What the override does.
    pub action: OverrideAction,
    /// Whether the override covers only the domain itself.
    pub is_exact: bool,
    /// A note for people, on one line.
    pub note: &'a str,
    /// The last day on which the override counts, such as `2026-12-31`, in UTC. `None`: no end.
    pub until: Option<&'a str>,
    /// Whether to deny a name that the lists protect.
    pub is_forced: bool,
}

/// A finished change of the file of overrides.
#[derive(Clone, Debug)]
pub struct OverrideChange {
    /// The name in its canonical form.
    pub domain: String,
    /// `allowed`, `denied` or `cleared`.
    pub action: &'static str,
    /// The texts of the rows that the change replaced or removed.
    pub replaced: Vec<String>,
    /// The absolute path of the file.
    pub file: String,
}

impl OverrideChange {
    /// Renders the change for `--json` and the admin API.
    pub fn to_json(&self) -> Value {
        json!({ "domain": self.domain, "action": self.action, "replaced": self.replaced })
    }
}

/// Writes an override to the file. Running gateways apply it.
///
/// # Errors
/// Returns a fault if a value is faulty, if the lists protect the name, or if the table, the store
/// or the file fails.
pub fn set_override(
    store: &mut Store,
    inputs: &TableInputs,
    author: &ChangeAuthor,
    request: &OverrideRequest<'_>,
) -> Result<OverrideChange, ManagementFault> {
    let (file, name) = (find_override_file(inputs)?, parse_name(request.domain)?);
    let now = store.now().unix_now;
    let new = NewOverride {
        name: &name,
        action: request.action,
        is_exact: request.is_exact,
        note: request.note,
        last_day: request.until,
    };
    new.check()
        .map_err(|found| ManagementFault::invalid(found.field, found.expected, found.found))?;
    // Days in this form sort as text.
    let today = format_rfc3339(now);
    if let Some(until) = request.until.filter(|until| *until < &today[..10]) {
        let expected = "today or a later day such as 2030-12-31";
        return Err(ManagementFault::invalid("until", expected, format!("{until:?}")));
    }
    // If the table can't be built even without the new row, gateways would not apply the row.
    Table::build(inputs, now)?;
    if request.action == OverrideAction::Deny && !request.is_forced {
        let lists = TableInputs { overrides_path: None, ..inputs.clone() };
        let table = Table::build(&lists, now)?;
        if let Some(protected) = find_protected_name(&table, &name, request.is_exact, now) {
            return Err(ManagementFault::Conflict(format!(
                "{name}: the lists protect {protected}; to deny it too, use force"
            )));
        }
    }
    let prepared = file.prepare_override(&new)?;
    let action = if request.action == OverrideAction::Allow { "allowed" } else { "denied" };
    let replaced = prepared.removed_rows.clone();
    record_and_write(store, author, inputs, &name, prepared)?;
    let (domain, file) = (name.as_str().to_owned(), file.display_path());
    Ok(OverrideChange { domain, action, replaced, file })
}

/// Checks that there is something to clear, before a store is opened for it.
///
/// # Errors
/// As [`clear_override`].
pub fn check_override_exists(inputs: &TableInputs, domain: &str) -> Result<(), ManagementFault> {
    prepare_removal(inputs, domain).map(drop)
}

fn prepare_removal(
    inputs: &TableInputs,
    domain: &str,
) -> Result<(DnsName, PreparedOverrideFile), ManagementFault> {
    let (file, name) = (find_override_file(inputs)?, parse_name(domain)?);
    match file.prepare_removal(&name)? {
        Some(prepared) => Ok((name, prepared)),
        None => {
            let line = format!("{name}: expected an override, but found none");
            Err(ManagementFault::NotFound(line))
        }
    }
}

/// Removes the overrides of a domain from the file.
///
/// # Errors
/// Returns a fault if the domain has no override, or if the store or the file fails.
pub fn clear_override(
    store: &mut Store,
    inputs: &TableInputs,
    author: &ChangeAuthor,
    domain: &str,
) -> Result<OverrideChange, ManagementFault> {
    let file = find_override_file(inputs)?;
    let (name, prepared) = prepare_removal(inputs, domain)?;
    let replaced = prepared.removed_rows.clone();
    record_and_write(store, author, inputs, &name, prepared)?;
    let (domain, file) = (name.as_str().to_owned(), file.display_path());
    Ok(OverrideChange { domain, action: "cleared", replaced, file })
}

/// Lists the overrides in the order of the file.
///
/// # Errors
/// If the file can't be read.
pub fn list_overrides(inputs: &TableInputs) -> Result<Vec<OverrideListRow>, ManagementFault> {
    match &inputs.overrides_path {
        Some(path) => Ok(OverrideFile::new(path).read_rows()?),
        None => Ok(Vec::new()),
    }
}

/// Returns the state of the file of overrides with these rows, as the audit compares it.
pub fn override_file_state(path: &Path, rows: &[OverrideListRow]) -> SourceState {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let entry = |row: &OverrideListRow| {
        let scope = if row.is_exact { "exact" } else { "subtree" };
        (format!("{} {scope}", row.domain), row.text.clone())
    };
    let shared_subject = format!("overrides {}", path.display());
    SourceState::on_this_machine(shared_subject, rows.iter().map(entry).collect())
}

/// Records the change, and then writes the file. If the file can't be written, records that the
/// change was undone.
fn record_and_write(
    store: &mut Store,
    author: &ChangeAuthor,
    inputs: &TableInputs,
    name: &DnsName,
    prepared: PreparedOverrideFile,
) -> Result<(), ManagementFault> {
    let of_name = |rows: &[OverrideListRow]| -> Value {
        let rows = rows.iter().filter(|row| row.domain == name.as_str());
        let rows: Vec<&str> = rows.map(|row| row.text.as_str()).collect();
        if rows.is_empty() { Value::Null } else { json!({ "rows": rows }) }
    };
    let (before, after) = (of_name(&prepared.rows_before), of_name(&prepared.rows_after));
    let operation = match after {
        Value::Null => AuditOperation::OverrideClear,
        _ => AuditOperation::OverrideSet,
    };
    let path = inputs.overrides_path.clone().unwrap_or_default();
    let state_before = override_file_state(&path, &prepared.rows_before);
    let state_after = override_file_state(&path, &prepared.rows_after);
    let target = name.as_str().to_owned();
    let change = Change { operation, target, before, after };
    store.changes_by(author).record_change(&change, Some(&state_after))?;
    if let Err(fault) = prepared.write() {
        let undone = Change { before: change.after, after: change.before, ..change };
        // If this fails too, a gateway finds at its next start that the file differs from the
        // recorded state, and records the difference.
        let _ = store.changes_by(author).record_change(&undone, Some(&state_before));
        return Err(fault.into());
    }
    Ok(())
}

/// Returns the first name that the lists protect and that this denial would flag: `name` itself or,
/// unless the denial is exact, a name below it. None if there is no such name.
fn find_protected_name(table: &Table, name: &DnsName, is_exact: bool, now: i64) -> Option<String> {
    let is_protected = |domain: &Domain| table.lookup(domain, now).verdict.rule == Rule::Protected;
    if Domain::parse(name.as_str()).is_ok_and(|domain| is_protected(&domain)) {
        return Some(name.to_string());
    }
    let below = format!(".{name}");
    let is_below = |row: &TableRow<'_>| {
        row.own_answer.verdict.rule == Rule::Protected && row.name.ends_with(&below) && !is_exact
    };
    table.rows().find(is_below).map(|row| row.name.to_owned())
}

fn find_override_file(inputs: &TableInputs) -> Result<OverrideFile, ManagementFault> {
    let path = inputs.overrides_path.as_ref();
    path.map(|path| OverrideFile::new(path)).ok_or_else(|| {
        ManagementFault::File(vec!["table.overrides: expected a file, but found none".to_owned()])
    })
}

fn parse_name(text: &str) -> Result<DnsName, ManagementFault> {
    DnsName::parse(text).map_err(|error| {
        let error = error.to_string();
        let expected = error.strip_prefix("expected ").unwrap_or(&error);
        ManagementFault::invalid("domain", expected, format!("{text:?}"))
    })
}
