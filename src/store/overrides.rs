//! The operator's overrides of domains in a store, as values.
//!
//! The store keeps each row as a text in the format of a file of overrides, beside the row's name
//! and scope. `table` decides what the text means.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::audit::{AuditOperation, Change, ChangeAuthor};
use super::error::StoreError;

/// The most overrides that a store has: about as many as a file of overrides of the largest size.
pub const MAX_STORED_OVERRIDES: usize = 1_000_000;
/// How many of the latest changes of overrides keep their ids.
pub(super) const KEPT_OVERRIDE_CHANGES: u64 = 1_000;
/// The most rows of the file that the record of a take-over lists.
const MAX_LISTED_ROWS: usize = 2_000;

/// An override in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOverride {
    /// The name in its canonical form.
    pub domain: String,
    /// Whether the override covers only the name itself.
    pub is_exact: bool,
    /// The whole row, as a file of overrides has it, without a line feed.
    pub text: String,
    /// Who set the override.
    pub author: ChangeAuthor,
    /// When the override was set, in Unix seconds by the believed time.
    pub created_at: i64,
}

impl StoredOverride {
    /// `exact` or `subtree`.
    pub(super) fn scope(&self) -> &'static str {
        scope_of(self.is_exact)
    }
}

pub(super) fn scope_of(is_exact: bool) -> &'static str {
    if is_exact { "exact" } else { "subtree" }
}

/// The version of the overrides in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridesVersion {
    /// The id of the store.
    pub store_id: String,
    /// Grows with each change. 0 before the first change.
    pub number: u64,
    /// A random id of the change that led to this version. A store that lost a change may reach the
    /// same number by another change, which has another id.
    pub change_id: String,
    /// How many overrides there are.
    pub count: u64,
}

impl OverridesVersion {
    /// Parses a text of [`OverridesVersion::to_stored_text`]. Without a text, no change was made
    /// yet. Returns `None` if riskgate did not write the text.
    pub(super) fn parse(store_id: String, text: Option<&str>) -> Option<OverridesVersion> {
        let mut parts = text.unwrap_or("0 - 0").split(' ');
        let (number, change_id, count) = (parts.next()?, parts.next()?, parts.next()?);
        let (number, count) = (number.parse().ok()?, count.parse().ok()?);
        Some(OverridesVersion { store_id, number, change_id: change_id.to_owned(), count })
    }

    /// Returns true if a store with the version `found` has lost the change that led to this
    /// version. `change_id` is the id that the store has for the number of this version, if any.
    pub fn is_lost(&self, found: &OverridesVersion, change_id: Option<&str>) -> bool {
        let is_other = |id: &str| id != self.change_id;
        // Version 0 is before all changes.
        self.number > 0
            && match found.number.cmp(&self.number) {
                Ordering::Less => true,
                Ordering::Equal => is_other(&found.change_id),
                Ordering::Greater => change_id.is_some_and(is_other),
            }
    }

    /// The version as both kinds of store keep it.
    pub(super) fn to_stored_text(&self) -> String {
        format!("{} {} {}", self.number, self.change_id, self.count)
    }
}

/// All overrides of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredOverrides {
    /// The version of the overrides. A row may already be newer than this version, but never older.
    pub version: OverridesVersion,
    /// The overrides, sorted by name, the exact one of a name first.
    pub rows: Vec<StoredOverride>,
    /// The names of rows that can't be read; on a server, each with its scope.
    pub damaged: Vec<String>,
}

/// A change of the overrides of one domain.
#[derive(Clone, Debug)]
pub struct OverrideUpdate<'o> {
    /// The domain.
    pub domain: &'o str,
    /// The overrides of the domain before the change that can be read. If the store has others, it
    /// changes nothing.
    pub before: &'o [StoredOverride],
    /// The overrides of the domain after the change. An override that is in `before` keeps its
    /// author and its time; any other override gets the author and the time of this change.
    pub after: &'o [StoredOverride],
}

impl OverrideUpdate<'_> {
    /// The change that the audit records. `removes_damaged_rows` says that the change also removes
    /// rows of the domain that can't be read.
    pub(super) fn to_change(&self, removes_damaged_rows: bool) -> Change {
        let texts = |rows: &[StoredOverride]| -> Value {
            let rows: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
            if rows.is_empty() { Value::Null } else { json!({ "rows": rows }) }
        };
        let (mut before, after) = (texts(self.before), texts(self.after));
        if removes_damaged_rows {
            before["damaged"] = json!(true);
        }
        let operation = match after {
            Value::Null => AuditOperation::OverrideClear,
            _ => AuditOperation::OverrideSet,
        };
        Change { operation, target: self.domain.to_owned(), before, after }
    }
}

/// The rows of a file of overrides that a store takes over, and how the store remembers the file.
#[derive(Clone, Debug)]
pub struct OverrideTakeOver<'o> {
    /// The absolute path of the file.
    pub path: &'o str,
    /// The rows of the file.
    pub rows: &'o [StoredOverride],
    /// The keys of the two source states by which the store remembers the file: first by its
    /// content, then by its path and machine. If the store has the first state, it takes nothing
    /// over. The caller looks for both states before it asks for a take-over.
    pub subjects: [String; 2],
}

impl OverrideTakeOver<'_> {
    /// The change that the audit records.
    pub(super) fn to_change(&self) -> Change {
        let texts = self.rows.iter().take(MAX_LISTED_ROWS).map(|row| row.text.as_str());
        let after = json!({ "rows_in_file": self.rows.len(), "rows": texts.collect::<Vec<_>>() });
        let (operation, target) = (AuditOperation::OverrideTakeOver, self.path.to_owned());
        Change { operation, target, before: Value::Null, after }
    }

    /// The state that the store remembers under each of the subjects.
    pub(super) fn remembered_state(&self) -> String {
        json!({ "path": self.path, "rows": self.rows.len().to_string() }).to_string()
    }
}

pub(super) fn too_many_overrides_error() -> StoreError {
    StoreError::Conflict(format!(
        "expected at most {MAX_STORED_OVERRIDES} overrides in the store, but found more; name a file \
         in table.overrides instead"
    ))
}

#[cfg(test)]
mod tests;
