//! The rows of overrides: their columns, how a row is parsed, and the rows that operators see.
//!
//! A file of overrides and the overrides of a store have the same format. `rules` decides how an
//! override changes a verdict.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;

use super::csv;
use super::fault::{TableFault, TableFaults, fault_from_read_error, quote_excerpt};
use super::location::read_list_file;
use super::manifest::{ListKind, ListOrigin, ListSpec};
use super::override_list_row::OverrideListRow;
use super::rows::{ListLineContext, ParsedLists, parse_name};
use crate::model::domain::DnsName;
use crate::model::month::{SECONDS_PER_DAY, parse_day_as_unix_seconds};
use crate::model::verdict::{Reason, Score};
use crate::model::visible_text::is_control_or_invisible;
use crate::support::excerpt::Excerpt;

/// The columns of an override. A file may leave out the last two together: a note for people, and
/// the last day on which the row counts.
pub(super) const OVERRIDE_COLUMNS: [&str; 9] = [
    "domain",
    "scope",
    "reason",
    "risk_score",
    "is_free_provider",
    "is_corporate_email",
    "mx_provider_label",
    "note",
    "until",
];
/// The number of columns that every file of overrides has.
pub(super) const REQUIRED_OVERRIDE_COLUMN_COUNT: usize = 7;
/// The most bytes of a new row, without the fields of the row that it replaces.
const MAX_NEW_ROW_BYTES: usize = 4_096;

/// What an override does with a name.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OverrideAction {
    /// The name is safe, with score 0.
    Allow,
    /// The name is disposable, with score 100.
    Deny,
}

/// An override to write.
#[derive(Clone, Debug)]
pub struct NewOverride<'a> {
    /// The name.
    pub name: &'a DnsName,
    /// What the override does.
    pub action: OverrideAction,
    /// Whether the override covers only the name itself, not the names below it.
    pub is_exact: bool,
    /// A note for people, on one line.
    pub note: &'a str,
    /// The last day on which the override counts, such as `2026-12-31`, in UTC. `None`: no end.
    pub last_day: Option<&'a str>,
}

impl NewOverride<'_> {
    /// Checks that a table can read the row of this override, and that the row is not too long.
    /// Does not check that the last day is still to come.
    ///
    /// # Errors
    /// Returns the first faulty value.
    pub fn check(&self) -> Result<(), InvalidOverride> {
        let invalid = |field, expected, found| Err(InvalidOverride { field, expected, found });
        if let Some(until) = self.last_day.filter(|day| parse_day_as_unix_seconds(day).is_none()) {
            let expected = "today or a later day such as 2030-12-31";
            return invalid("until", expected, quote_excerpt(until));
        }
        if self.note.chars().any(is_control_or_invisible) {
            let found = "a control or invisible character".to_owned();
            return invalid("note", "visible text on one line", found);
        }
        let length = self.to_row_text(None).len();
        if length > MAX_NEW_ROW_BYTES {
            let expected = "a note with which the row has at most 4096 bytes";
            return invalid("note", expected, format!("a row of {length} bytes"));
        }
        // No e-mail domain has a single label, so the row could never match.
        if self.is_exact && !self.name.as_str().contains('.') {
            let expected = "an override that also covers the names below a top-level domain";
            return invalid("exact", expected, format!("exact for {}", self.name));
        }
        Ok(())
    }

    /// The text of the row. `replaced` is the text of the row that this one replaces, if there is
    /// one. The new row keeps its `is_free_provider`, `is_corporate_email` and `mx_provider_label`.
    pub fn to_row_text(&self, replaced: Option<&str>) -> String {
        let scope = if self.is_exact { "exact" } else { "subtree" };
        let (reason, score) = match self.action {
            OverrideAction::Allow => ("safe", "0"),
            OverrideAction::Deny => ("disposable", "100"),
        };
        let replaced = replaced.and_then(|row| csv::parse_fields(row).ok()).unwrap_or_default();
        let kept = |column: usize| replaced.get(column).map_or("", |field| field);
        let name = self.name.as_str();
        let (note, until) = (self.note, self.last_day.unwrap_or(""));
        let fields = [name, scope, reason, score, kept(4), kept(5), kept(6), note, until];
        csv::format_line(&fields).trim_end().to_owned()
    }
}

/// A value that no new override can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOverride {
    /// `until`, `note` or `exact`.
    pub field: &'static str,
    /// What was expected.
    pub expected: &'static str,
    /// What was found.
    pub found: String,
}

/// The parsed fields of an override. If a field is `None`, the override keeps the value that lists
/// and rules give.
pub(super) struct OverrideFields<'a> {
    pub name: Cow<'a, str>,
    pub parsed_name: DnsName,
    pub covers_subtree: bool,
    pub reason: Option<Reason>,
    pub score: Option<Score>,
    pub is_free_provider: Option<bool>,
    pub is_corporate_email: Option<bool>,
    /// The label; empty if the override removes it.
    pub label: Option<String>,
    /// When the override ends, in seconds since 1970: at the end of its last day. `None`: never.
    pub end: Option<i64>,
}

impl<'a> OverrideFields<'a> {
    /// Parses the fields of a row, which has all the columns of its header.
    pub(super) fn parse(
        context: &ListLineContext,
        fields: &[Cow<'a, str>],
    ) -> Result<OverrideFields<'a>, TableFault> {
        let fault =
            |at: usize, expected: &str| context.fault(OVERRIDE_COLUMNS[at], expected, &fields[at]);
        let non_empty =
            |column: usize| fields.get(column).map(|it| &**it).filter(|it| !it.is_empty());
        let flag = |column: usize| {
            let flag = non_empty(column).map(parse_flag);
            flag.map(|flag| flag.ok_or_else(|| fault(column, "true or false"))).transpose()
        };
        let (name, parsed_name) = parse_name(context, OVERRIDE_COLUMNS[0], fields[0].clone())?;
        let covers_subtree = match &*fields[1] {
            "subtree" => true,
            "exact" if !parsed_name.as_str().contains('.') => {
                return Err(fault(1, "subtree, since no e-mail domain has only one label"));
            }
            "exact" => false,
            _ => return Err(fault(1, "exact or subtree")),
        };
        let reason = non_empty(2).map(|name| {
            let expected = "safe, disposable, undeliverable or role_account";
            Reason::parse(name).ok_or_else(|| fault(2, expected))
        });
        let score = non_empty(3).map(|text| {
            let score = text.parse::<u8>().ok().and_then(Score::new);
            score.ok_or_else(|| fault(3, "an integer from 0 to 100"))
        });
        let (reason, score) = (reason.transpose()?, score.transpose()?);
        let (is_free_provider, is_corporate_email) = (flag(4)?, flag(5)?);
        let end = non_empty(8).map(|last_day| {
            let day = parse_day_as_unix_seconds(last_day);
            // The row still counts on its last day.
            day.map(|day| day + SECONDS_PER_DAY).ok_or_else(|| fault(8, "a day such as 2026-12-31"))
        });
        let end = end.transpose()?;
        let label = match non_empty(6) {
            Some("-") => Some(String::new()),
            Some(label) => Some(parse_label(context, OVERRIDE_COLUMNS[6], label)?.to_owned()),
            None => None,
        };
        if (reason, score, is_free_provider.or(is_corporate_email), &label)
            == (None, None, None, &None)
        {
            let expected = "a row that sets a field";
            return Err(TableFault::expected(context.format_location(""), expected, "none set"));
        }
        Ok(OverrideFields {
            name,
            parsed_name,
            covers_subtree,
            reason,
            score,
            is_free_provider,
            is_corporate_email,
            label,
            end,
        })
    }
}

/// Adds the row to a fault of one of its fields. Leaves out fields that may be addresses.
pub(super) fn add_row_to_fault(
    fault: TableFault,
    context: &ListLineContext,
    fields: &[Cow<'_, str>],
) -> TableFault {
    let is_at = |at: &String, column: &str| *at == context.format_location(column);
    let column = match &fault {
        TableFault::Expected { at, .. } => {
            OVERRIDE_COLUMNS.iter().position(|column| is_at(at, column))
        }
        _ => None,
    };
    let is_shown = |field: &&Cow<'_, str>| !field.contains(['@', '"', '\n', '\r', ',']);
    let shown =
        |field: &Cow<'_, str>| if is_shown(&field) { field.to_string() } else { "…".into() };
    let shown: Vec<String> = fields.iter().map(shown).collect();
    let marked = column.map_or(0..shown.join(",").chars().count(), |at| {
        let before: usize = shown[..at].iter().map(|field| field.chars().count() + 1).sum();
        before..before + shown[at].chars().count()
    });
    fault.with_excerpt(Excerpt::new(context.line_number as usize, shown.join(","), marked))
}

/// Parses `true` or `false`, which spreadsheets write in upper case.
fn parse_flag(text: &str) -> Option<bool> {
    let text = text.trim();
    match (text.eq_ignore_ascii_case("true"), text.eq_ignore_ascii_case("false")) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

pub(super) fn parse_label<'t>(
    context: &ListLineContext,
    column: &str,
    text: &'t str,
) -> Result<&'t str, TableFault> {
    if text.is_empty() || text.len() > 255 || text.chars().any(is_control_or_invisible) {
        let expected = "a label of 1 to 255 bytes without control or invisible characters";
        return Err(context.fault(column, expected, text));
    }
    Ok(text)
}

impl OverrideListRow {
    pub(super) fn new(
        fields: &[Cow<'_, str>],
        parsed: &OverrideFields<'_>,
        line: u32,
    ) -> OverrideListRow {
        let field = |at: usize| fields.get(at).map_or("", |field| field);
        let all: Vec<&str> = (0..OVERRIDE_COLUMNS.len()).map(field).collect();
        OverrideListRow {
            domain: parsed.name.clone().into_owned(),
            is_exact: !parsed.covers_subtree,
            reason: parsed.reason,
            score: parsed.score,
            is_free_provider: parsed.is_free_provider,
            is_corporate_email: parsed.is_corporate_email,
            mx_provider_label: parsed.label.clone(),
            note: field(7).to_owned(),
            until: field(8).to_owned(),
            end: parsed.end,
            line,
            text: csv::format_line(&all).trim_end().to_owned(),
        }
    }

    /// What sets such a row, apart from its note; `None` if the row has other values than those of
    /// a new override.
    pub fn action(&self) -> Option<OverrideAction> {
        let has_own_labels = self.is_free_provider.is_some()
            || self.is_corporate_email.is_some()
            || self.mx_provider_label.is_some();
        match (self.reason, self.score.map(Score::value)) {
            _ if has_own_labels => None,
            (Some(Reason::Safe), Some(0)) => Some(OverrideAction::Allow),
            (Some(Reason::Disposable), Some(100)) => Some(OverrideAction::Deny),
            _ => None,
        }
    }

    /// Parses the text of one row with all columns.
    ///
    /// # Errors
    /// If no table can read the row.
    pub fn parse(text: &str) -> Result<OverrideListRow, TableFaults> {
        let rows = parse_override_rows("row", &render_override_list([text]))?;
        rows.into_iter().next().ok_or_else(|| TableFault::expected("row", "one row", "none").into())
    }

    /// Reads the rows of a file of overrides, expired ones included; none if there is no file.
    ///
    /// # Errors
    /// If the file can't be read, or one of its rows has a fault.
    pub fn read_file(path: &Path) -> Result<Vec<OverrideListRow>, TableFaults> {
        match read_list_file(path) {
            Ok(None) => Ok(Vec::new()),
            Err(found) => Err(fault_from_read_error(path, found).into()),
            Ok(Some(text)) => parse_override_rows(&path.display().to_string(), &text),
        }
    }
}

/// Parses the text of a file of overrides.
///
/// # Errors
/// Returns the faults of the rows, in which `name_in_faults` names the file.
pub fn parse_override_rows(
    name_in_faults: &str,
    text: &str,
) -> Result<Vec<OverrideListRow>, TableFaults> {
    let mut faults = TableFaults::default();
    let mut lists = ParsedLists::with_capacity(0, 1);
    lists.build_time = i64::MIN;
    lists.override_list_rows = Some(Vec::new());
    let (file, kind) = (name_in_faults.to_owned(), ListKind::Override);
    let list = ListSpec::added(file, kind, ListOrigin::Operator);
    lists.parse_and_add_list((0, &list), name_in_faults, text, (0, 0), &mut faults);
    faults.into_result()?;
    Ok(lists.override_list_rows.unwrap_or_default())
}

/// Renders rows, as [`OverrideListRow::text`] has them, as the text of a file of overrides.
pub fn render_override_list<'r>(rows: impl IntoIterator<Item = &'r str>) -> String {
    let mut text = csv::format_line(&OVERRIDE_COLUMNS);
    for row in rows {
        text.push_str(row);
        text.push('\n');
    }
    text
}
