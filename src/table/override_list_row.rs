//! An override, as lists show it. `override_rows` parses it.

/// An override, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideListRow {
    /// The name in its canonical form.
    pub domain: String,
    /// Whether the row covers only the name itself.
    pub is_exact: bool,
    /// The reason of the verdict.
    pub reason: String,
    /// The note for people.
    pub note: String,
    /// The last day on which the row counts; empty if it has no end.
    pub until: String,
    /// The line of the file, counted from 1.
    pub line: u32,
    /// The whole row, with all columns and without a line feed.
    pub text: String,
}
