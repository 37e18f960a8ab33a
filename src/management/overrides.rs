//! Allows and denies domains, and clears and lists the overrides.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::{Value, json};

use super::fault::ManagementFault;
use super::keys::check_has_no_key;
use super::override_file::OverrideFile;
use super::present_time::read_machine_time;
use super::stored_overrides::{KnownOverrides, default_overrides_path, take_over_default_file};
use crate::config::{TextKind, guess_text};
use crate::model::domain::{DnsName, Domain, map_name_part, name_to_unicode};
use crate::model::month::format_rfc3339;
use crate::model::verdict::{Reason, Score};
use crate::store::{
    ChangeAuthor, OverrideUpdate, SourceState, Store, StoreError, StoredOverride, StoredOverrides,
};
use crate::table::{NewOverride, OverrideAction, OverrideListRow, Table, TableInputs};

/// How often a change is tried at most while others change the overrides of the same domain.
const MAX_UPDATE_TRIES: usize = 16;

/// An override to set, for one or more domains.
#[derive(Clone, Debug)]
pub struct OverrideRequest<'a> {
    /// The domains. Unless `is_exact`, the override also covers the names below each domain.
    pub domains: &'a [String],
    /// What the override does.
    pub action: OverrideAction,
    /// Whether the override covers only the domains themselves.
    pub is_exact: bool,
    /// A note for people, on one line.
    pub note: &'a str,
    /// The last day on which the override counts, such as `2026-12-31`, in UTC. `None` if the
    /// override has no end.
    pub until: Option<&'a str>,
    /// Whether to deny a domain even if the lists protect it or a name below it, or are faulty.
    pub is_forced: bool,
}

impl OverrideRequest<'_> {
    /// Checks the domains, the note and the last day, before a command opens the store. If
    /// `is_store_missing`, checks all that [`set_overrides`] checks, because that would leave a new
    /// store behind.
    ///
    /// # Errors
    /// Returns a fault if one of them is wrong.
    pub fn check(
        &self,
        inputs: &TableInputs,
        is_store_missing: bool,
    ) -> Result<(), ManagementFault> {
        let names = self.parse_names()?;
        if is_store_missing {
            let now = read_machine_time();
            self.check_at(&names, &OverrideFile::read(inputs), now)?;
            return self.check_protection(inputs, &names, now);
        }
        names.iter().try_for_each(|name| check_new_override(&self.to_new_override(name), None))
    }

    /// Checks the values, and that no row of the operator's file decides a name.
    fn check_at(
        &self,
        names: &[DnsName],
        file: &OverrideFile,
        now: i64,
    ) -> Result<(), ManagementFault> {
        let check = |name: &DnsName| check_new_override(&self.to_new_override(name), Some(now));
        names.iter().try_for_each(check)?;
        names.iter().try_for_each(|name| file.check_does_not_decide(name, now))
    }

    /// Checks that the lists protect no name of a denial that is not forced.
    fn check_protection(
        &self,
        inputs: &TableInputs,
        names: &[DnsName],
        now: i64,
    ) -> Result<(), ManagementFault> {
        match self.action == OverrideAction::Deny && !self.is_forced {
            true => check_lists_do_not_protect(inputs, names, self.is_exact, now),
            false => Ok(()),
        }
    }

    /// Parses the domains, each once.
    fn parse_names(&self) -> Result<Vec<DnsName>, ManagementFault> {
        let mut names =
            self.domains.iter().map(|it| parse_name(it)).collect::<Result<Vec<_>, _>>()?;
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(names)
    }

    fn to_new_override<'a>(&'a self, name: &'a DnsName) -> NewOverride<'a> {
        NewOverride {
            name,
            action: self.action,
            is_exact: self.is_exact,
            note: self.note,
            last_day: self.until,
        }
    }
}

/// A finished change of the overrides of a domain.
#[derive(Clone, Debug)]
pub struct OverrideChange {
    /// The name in its canonical form.
    pub domain: String,
    /// `allowed`, `denied` or `cleared`.
    pub action: &'static str,
    /// The texts of the rows that the change replaced or removed.
    pub replaced: Vec<String>,
    /// What is faulty beside the change, and may therefore keep the change from being in effect.
    pub warnings: Vec<String>,
}

impl OverrideChange {
    /// Renders the change for `--json` and the admin API.
    pub fn to_json(&self) -> Value {
        let OverrideChange { domain, action, replaced, warnings } = self;
        json!({ "domain": domain, "action": action, "replaced": replaced, "warnings": warnings })
    }
}

/// Writes an override of each domain into the store, in one step. Running gateways apply the
/// overrides. Returns the change of each domain, all with the same warnings.
///
/// An exact override replaces the exact override of the name. An override that covers the names
/// below replaces all overrides of the name. Before the change, the store takes over the default
/// file, unless that is faulty.
///
/// # Errors
/// Returns a fault, and sets no override, in these cases:
/// - A value is faulty.
/// - The lists protect a name or, unless the denial is exact, a name below it, and the denial is
///   not forced. If the lists are faulty, a denial must be forced.
/// - A row of the operator's file decides a name.
/// - The store fails, can't take the default file over, or refuses the change because others keep
///   changing the overrides of a name.
pub fn set_overrides(
    store: &mut Store,
    inputs: &TableInputs,
    author: &ChangeAuthor,
    request: &OverrideRequest<'_>,
) -> Result<Vec<OverrideChange>, ManagementFault> {
    let names = request.parse_names()?;
    let now = store.now().unix_now;
    let file = OverrideFile::read(inputs);
    request.check_at(&names, &file, now)?;
    take_over_unless_faulty(store, inputs, author, &file)?;
    // If the store has lost overrides, an operator repairs it by setting an override.
    let known = KnownOverrides::read_despite_loss(store, inputs)?;
    let mut inputs_now = known.add_to_copy_of(inputs);
    if file.is_faulty() {
        inputs_now.overrides_path = None;
    }
    let mut warnings: Vec<String> = file.warning().into_iter().collect();
    if let Err(faults) = Table::build(&inputs_now, now) {
        let meaning = "running gateways apply the override to the lists that they read last";
        warnings.push(format!("{faults}; {meaning}"));
    }
    request.check_protection(inputs, &names, now)?;
    let replaced = update_rows(store, author, &names, |name, before| {
        let new = request.to_new_override(name);
        let is_replaced = |row: &&StoredOverride| row.is_exact == new.is_exact || !new.is_exact;
        let same_scope = before.iter().find(|row| row.is_exact == new.is_exact);
        let row = StoredOverride {
            domain: name.as_str().to_owned(),
            is_exact: new.is_exact,
            text: new.to_row_text(same_scope.map(|row| row.text.as_str())),
            author: author.clone(),
            created_at: now,
        };
        let kept = before.iter().filter(|row| !is_replaced(row)).cloned();
        Ok(std::iter::once(row).chain(kept).collect())
    })?;
    let action = if request.action == OverrideAction::Allow { "allowed" } else { "denied" };
    let change = |(name, replaced): (&DnsName, Vec<String>)| {
        let (domain, warnings) = (name.as_str().to_owned(), warnings.clone());
        OverrideChange { domain, action, replaced, warnings }
    };
    Ok(names.iter().zip(replaced).map(change).collect())
}

/// Lets the store take over the default file. A faulty default file stays in use.
fn take_over_unless_faulty(
    store: &mut Store,
    inputs: &TableInputs,
    author: &ChangeAuthor,
    file: &OverrideFile,
) -> Result<(), ManagementFault> {
    if file.is_faulty() {
        return Ok(());
    }
    take_over_default_file(store, inputs, author).map(drop)
}

fn check_lists_do_not_protect(
    inputs: &TableInputs,
    names: &[DnsName],
    is_exact: bool,
    now: i64,
) -> Result<(), ManagementFault> {
    let lists = TableInputs { overrides_path: None, stored_overrides: None, ..inputs.clone() };
    let table = Table::build(&lists, now).map_err(|faults| {
        let all: Vec<&str> = names.iter().map(DnsName::as_str).collect();
        ManagementFault::ForceRequired(format!(
            "{}: expected lists that tell whether they protect it, but found {faults}",
            all.join(", ")
        ))
    })?;
    let below = if is_exact { HashMap::new() } else { find_protected_names_below(&table, names) };
    let is_protected = |name: &DnsName| {
        Domain::parse(name.as_str()).is_ok_and(|it| table.lookup(&it, now).is_protected())
    };
    let describe = |name: &DnsName| {
        let protected = match is_protected(name) {
            true => name.to_string(),
            false => below.get(name.as_str())?.describe(),
        };
        Some(format!("{name}: the lists protect {protected}"))
    };
    let protected: Vec<String> = names.iter().filter_map(describe).collect();
    match protected.is_empty() {
        true => Ok(()),
        false => Err(ManagementFault::ForceRequired(protected.join("\n"))),
    }
}

/// Checks the values of an override; if `now` is given, also that its last day is not over.
fn check_new_override(new: &NewOverride<'_>, now: Option<i64>) -> Result<(), ManagementFault> {
    new.check()
        .map_err(|found| ManagementFault::invalid(found.field, found.expected, found.found))?;
    check_has_no_key("note", new.note)?;
    let Some(now) = now else { return Ok(()) };
    // Days such as 2026-12-31 sort as text.
    let today = format_rfc3339(now);
    match new.last_day.filter(|until| *until < &today[..10]) {
        Some(until) => {
            let expected = "today or a later day such as 2030-12-31";
            Err(ManagementFault::invalid("until", expected, format!("{until:?}")))
        }
        None => Ok(()),
    }
}

/// Checks whether [`clear_override`] may find an override to clear, before a command opens the
/// store. `is_store_missing` says that the store does not exist yet; the command would create it. A
/// store knows the time, so only [`clear_override`] tells which rows of a file have ended.
///
/// # Errors
/// Returns a fault if the name is faulty, and in these cases if the store is missing:
/// - The file of `table.overrides` has a row of the name: the operator must remove this row.
/// - The default file, which the store would take over, is faulty or has no row of the name.
pub fn check_override_may_exist(
    inputs: &TableInputs,
    domain: &str,
    is_store_missing: bool,
) -> Result<(), ManagementFault> {
    let name = parse_name(domain)?;
    if !is_store_missing {
        return Ok(());
    }
    OverrideFile::read(inputs).check_has_no_row(&name, read_machine_time())?;
    let default = default_overrides_path(inputs);
    let rows = default.map(|path| OverrideListRow::read_file(path)).transpose()?;
    match rows.unwrap_or_default().iter().any(|row| row.domain == name.as_str()) {
        true => Ok(()),
        false => Err(no_override_fault(&name)),
    }
}

/// Removes all overrides of a domain from the store. Before the change, the store takes over the
/// default file, unless that is faulty.
///
/// # Errors
/// Returns a fault if the domain is no name or has no override in the store, if the operator's file
/// has a row of the domain, or if a file or the store fails.
pub fn clear_override(
    store: &mut Store,
    inputs: &TableInputs,
    author: &ChangeAuthor,
    domain: &str,
) -> Result<OverrideChange, ManagementFault> {
    let name = parse_name(domain)?;
    let file = OverrideFile::read(inputs);
    file.check_has_no_row(&name, store.now().unix_now)?;
    take_over_unless_faulty(store, inputs, author, &file)?;
    let has_damaged_row = has_damaged_row(store, &name)?;
    let names = std::slice::from_ref(&name);
    let replaced = update_rows(store, author, names, |name, before| match before {
        [] if !has_damaged_row => Err(no_override_fault(name)),
        _ => Ok(Vec::new()),
    })?;
    let replaced = replaced.concat();
    let (domain, warnings) = (name.as_str().to_owned(), file.warning().into_iter().collect());
    Ok(OverrideChange { domain, action: "cleared", replaced, warnings })
}

/// Returns true if the store has only rows of the name that can't be read.
fn has_damaged_row(store: &mut Store, name: &DnsName) -> Result<bool, StoreError> {
    if !store.find_overrides(name.as_str())?.is_empty() {
        return Ok(false);
    }
    let damaged = store.remaining_overrides()?.unwrap_or_default().damaged;
    // A server names the scope after the name.
    Ok(damaged.iter().any(|row| row.split(' ').next() == Some(name.as_str())))
}

fn no_override_fault(name: &DnsName) -> ManagementFault {
    ManagementFault::NotFound(format!("{name}: expected an override, but found none"))
}

/// Replaces the overrides of each name by what `change` returns for its present overrides, all in
/// one step. Returns for each name the texts of the overrides that are gone.
fn update_rows(
    store: &mut Store,
    author: &ChangeAuthor,
    names: &[DnsName],
    change: impl Fn(&DnsName, &[StoredOverride]) -> Result<Vec<StoredOverride>, ManagementFault>,
) -> Result<Vec<Vec<String>>, ManagementFault> {
    type RowsBeforeAndAfter = (Vec<StoredOverride>, Vec<StoredOverride>);
    for _ in 0..MAX_UPDATE_TRIES {
        let mut read = |name: &DnsName| -> Result<RowsBeforeAndAfter, ManagementFault> {
            let before = store.find_overrides(name.as_str())?;
            let after = change(name, &before)?;
            Ok((before, after))
        };
        let rows = names.iter().map(&mut read).collect::<Result<Vec<_>, _>>()?;
        let with_names = names.iter().zip(&rows);
        let updates = with_names.map(|(name, (before, after))| OverrideUpdate {
            domain: name.as_str(),
            before,
            after,
        });
        if store.update_overrides(author, &updates.collect::<Vec<_>>())? {
            let removed = |(before, after): &RowsBeforeAndAfter| {
                let removed = before.iter().filter(|row| !after.contains(row));
                removed.map(|row| row.text.clone()).collect()
            };
            return Ok(rows.iter().map(removed).collect());
        }
    }
    let all: Vec<&str> = names.iter().map(DnsName::as_str).collect();
    let found = "but found that others keep changing it; repeat the request";
    let expected = "expected an override that stays as it was read";
    Err(StoreError::Conflict(format!("{}: {expected}, {found}", all.join(", "))).into())
}

/// An override in a list.
#[derive(Clone, Debug)]
pub struct ListedOverride {
    /// The row.
    pub row: OverrideListRow,
    /// Where the row is.
    pub origin: OverrideOrigin,
}

/// Where the row of an override is.
#[derive(Clone, Debug)]
pub enum OverrideOrigin {
    /// In the store: who set it, and when, in Unix seconds.
    Store(ChangeAuthor, i64),
    /// In a file with this path, which wins over the store.
    File(String),
}

/// A text that a search looks for in names.
pub struct NameSearch {
    canonical: String,
    /// The text as names in Unicode have it; `None` if they can't contain it.
    unicode: Option<String>,
}

impl NameSearch {
    /// Searches for this text, in upper or lower case, in Unicode or as part of an A-label.
    pub fn new(text: &str) -> NameSearch {
        NameSearch { canonical: text.to_ascii_lowercase(), unicode: map_name_part(text) }
    }

    /// Returns true if the domain contains the text, in its canonical form or in Unicode.
    pub fn finds(&self, found: &ListedOverride) -> bool {
        let domain = &found.row.domain;
        domain.contains(&self.canonical)
            || self
                .unicode
                .as_ref()
                .is_some_and(|text| name_to_unicode(domain).is_some_and(|name| name.contains(text)))
    }
}

impl ListedOverride {
    /// Renders the override for the admin API.
    pub fn to_json(&self) -> Value {
        let row = &self.row;
        let action = match row.reason {
            Some(Reason::Safe) => "allow",
            Some(_) => "deny",
            None => "set",
        };
        let until = Some(&row.until).filter(|until| !until.is_empty());
        let (source, author, created_at) = match &self.origin {
            OverrideOrigin::Store(author, at) => {
                ("store".to_owned(), Some(author.actor.as_str()), Some(format_rfc3339(*at)))
            }
            OverrideOrigin::File(path) => (format!("{path}:{}", row.line), None, None),
        };
        json!({
            "domain": row.domain, "action": action, "exact": row.is_exact,
            "reason": row.reason.map(Reason::as_str), "risk_score": row.score.map(Score::value),
            "is_free_provider": row.is_free_provider,
            "is_corporate_email": row.is_corporate_email,
            "mx_provider_label": row.mx_provider_label, "note": row.note, "until": until,
            "source": source, "author": author, "created_at": created_at,
        })
    }
}

/// Lists the overrides: first those of the file in its order, then those of the store. The file is
/// the operator's file, or a default file that the store has not taken over. Leaves out all rows of
/// a faulty file, which the table reports, and rows of the store that can't be read;
/// [`KnownOverrides::describe_problem`] names these.
///
/// # Errors
/// If the store fails, or has lost overrides.
pub fn list_overrides(
    store: &mut Store,
    inputs: &TableInputs,
) -> Result<Vec<ListedOverride>, ManagementFault> {
    let mut known = KnownOverrides::default();
    known.update_default_file_state(store, inputs)?;
    let mut all = Vec::new();
    if let Some(path) = &known.add_to_copy_of(inputs).overrides_path {
        let origin = OverrideOrigin::File(path.display().to_string());
        let rows = OverrideListRow::read_file(path).unwrap_or_default().into_iter();
        all.extend(rows.map(|row| ListedOverride { row, origin: origin.clone() }));
    }
    let StoredOverrides { rows, .. } = store.stored_overrides()?.unwrap_or_default();
    all.extend(rows.into_iter().filter_map(|stored| {
        let row = OverrideListRow::parse(&stored.text).ok()?;
        let origin = OverrideOrigin::Store(stored.author, stored.created_at);
        Some(ListedOverride { row, origin })
    }));
    Ok(all)
}

/// Reads a file of overrides, and returns its rows in the form that the audit compares.
///
/// # Errors
/// If the file can't be read, or is faulty.
pub fn read_override_file_state(path: &Path) -> Result<SourceState, ManagementFault> {
    let rows = OverrideListRow::read_file(path)?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let entry = |row: &OverrideListRow| {
        let scope = if row.is_exact { "exact" } else { "subtree" };
        (format!("{} {scope}", row.domain), row.text.clone())
    };
    let shared_subject = format!("overrides {}", path.display());
    Ok(SourceState::on_this_machine(shared_subject, rows.iter().map(entry).collect()))
}

/// The names below a domain that the lists protect; at least one.
struct ProtectedNamesBelow<'t> {
    count: usize,
    /// The shortest of the names, and of several such names the first one.
    shortest: &'t str,
}

impl ProtectedNamesBelow<'_> {
    fn describe(&self) -> String {
        let shortest = self.shortest;
        match self.count {
            1 => format!("{shortest}, which is below it"),
            count => format!("{count} names below it, such as {shortest}"),
        }
    }
}

/// Finds the names that the lists protect below each of these domains. Passes over the table once,
/// however many domains there are.
fn find_protected_names_below<'n, 't>(
    table: &'t Table,
    domains: &'n [DnsName],
) -> HashMap<&'n str, ProtectedNamesBelow<'t>> {
    fn parent<'a>(name: &&'a str) -> Option<&'a str> {
        name.split_once('.').map(|(_, parent)| parent)
    }
    let domains: HashSet<&str> = domains.iter().map(DnsName::as_str).collect();
    let mut found: HashMap<&str, ProtectedNamesBelow<'_>> = HashMap::new();
    for row in table.iter_rows().filter(|row| row.own_answer.is_protected()) {
        let parents = std::iter::successors(parent(&row.name), parent);
        for domain in parents.filter_map(|it| domains.get(it)).copied() {
            let first = ProtectedNamesBelow { count: 0, shortest: row.name };
            let below = found.entry(domain).or_insert(first);
            below.count += 1;
            if (row.name.len(), row.name) < (below.shortest.len(), below.shortest) {
                below.shortest = row.name;
            }
        }
    }
    found
}

fn parse_name(text: &str) -> Result<DnsName, ManagementFault> {
    DnsName::parse(text).map_err(|error| fault_of_domain(text, &error))
}

/// Makes the fault of a text in place of a domain, with the domain in it if there is one.
pub fn fault_of_domain(text: &str, error: &impl std::fmt::Display) -> ManagementFault {
    let lower_case = text.to_ascii_lowercase();
    // A name with other characters than the text would be another domain.
    let is_in_text = |it: &str| lower_case.contains(it);
    let is_domain = |it: &str| it.contains('.') && DnsName::parse(it).is_ok() && is_in_text(it);
    let meant = guess_text(text, TextKind::Domain, is_domain);
    ManagementFault::of_parse_error("domain", error, text).with_meant(meant)
}

#[cfg(test)]
mod tests;
