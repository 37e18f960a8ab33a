//! An override, as lists show it. `override_rows` parses it.

use crate::model::verdict::{Reason, Score};

/// An override, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideListRow {
    /// The name in its canonical form.
    pub domain: String,
    /// Whether the row covers only the name itself.
    pub is_exact: bool,
    /// The reason of the verdict. If this field or one of the next four is `None`, the row keeps
    /// the value that lists and rules give.
    pub reason: Option<Reason>,
    /// The risk score.
    pub score: Option<Score>,
    /// Whether the domain is a free provider.
    pub is_free_provider: Option<bool>,
    /// Whether the domain is that of a company.
    pub is_corporate_email: Option<bool>,
    /// The label of the domain's mail service; empty if the row removes the label.
    pub mx_provider_label: Option<String>,
    /// The note for people.
    pub note: String,
    /// The last day on which the row counts; empty if the row has no end.
    pub until: String,
    /// When the row no longer counts, in seconds since 1970: after its last day.
    pub(super) end: Option<i64>,
    /// The line of the file, counted from 1.
    pub line: u32,
    /// The whole row, with all columns and without a line feed.
    pub text: String,
}

impl OverrideListRow {
    /// Whether the row no longer counts at `now`, in seconds since 1970.
    pub fn has_ended(&self, now: i64) -> bool {
        self.end.is_some_and(|end| end <= now)
    }
}
