//! Parses the lists in CSV: overrides, labels, labels by MX, and MX facts.
//!
//! Each field is checked here; `resolve` and `rules` decide what the rows mean together.

use std::borrow::Cow;

use super::fault::{TableFault, quote_excerpt};
use super::manifest::ListKind;
use super::mx;
use super::rows::{Coverage, LineContext, MxClass, ParsedLists, RowFacts, parse_name};
use super::rules::{self, OverrideRow};
use super::source_packages::SECONDS_PER_DAY;
use crate::model::domain::DnsName;
use crate::model::month::parse_day_as_unix_seconds;
use crate::model::verdict::{Reason, Score};

/// The columns of an override. A file may leave out the last two: a note for people, and the last
/// day on which the row counts.
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
pub(super) const REQUIRED_OVERRIDE_COLUMNS: usize = 7;

/// Whether the header of a CSV list was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// The next line should be the header.
    Expected,
    /// The header was read and has this many columns.
    Read(usize),
}

/// The header of a CSV list; `None` for a list of names.
pub(super) fn columns_of(kind: ListKind) -> Option<&'static [&'static str]> {
    match kind {
        ListKind::Override => Some(&OVERRIDE_COLUMNS[..REQUIRED_OVERRIDE_COLUMNS]),
        ListKind::Label => Some(&["domain", "label"]),
        ListKind::MxLabel => Some(&["suffix", "label", "class"]),
        ListKind::Mx => Some(&["domain", "mx"]),
        _ => None,
    }
}

impl<'a> ParsedLists<'a> {
    /// Parses one line of a CSV list. The first line must be the header.
    pub(super) fn parse_csv_line(
        &mut self,
        context: &LineContext,
        columns: &[&str],
        header: &mut HeaderState,
        fields: Vec<Cow<'a, str>>,
    ) -> Result<(), TableFault> {
        let HeaderState::Read(width) = *header else {
            *header = HeaderState::Read(columns.len());
            let (required, optional) = fields.split_at(fields.len().min(columns.len()));
            let has_optional_columns = context.kind == ListKind::Override
                && optional == &OVERRIDE_COLUMNS[REQUIRED_OVERRIDE_COLUMNS..];
            if required == columns && (optional.is_empty() || has_optional_columns) {
                *header = HeaderState::Read(fields.len());
                return Ok(());
            }
            let expected = format!("the header {}", columns.join(","));
            return Err(TableFault::expected(
                context.location(""),
                expected,
                quote_excerpt(&fields.join(",")),
            ));
        };
        if fields.len() != width {
            let columns = if width > columns.len() { &OVERRIDE_COLUMNS } else { columns };
            let expected = format!("{width} fields ({})", columns.join(","));
            return Err(TableFault::expected(
                context.location(""),
                expected,
                fields.len().to_string(),
            ));
        }
        let (name, parsed) = parse_name(context, columns[0], fields[0].clone())?;
        let covers_subtree = match context.kind {
            ListKind::Override => parse_covers_subtree(context, &fields[1], &parsed)?,
            _ => false,
        };
        if let Some(first) = self.first_lines.insert((name.clone(), covers_subtree), context.line) {
            return Err(TableFault::Duplicate {
                at: context.location(columns[0]),
                what: quote_excerpt(&name),
                first,
            });
        }
        match context.kind {
            ListKind::Override => {
                self.parse_override(context, name, &parsed, covers_subtree, &fields)
            }
            ListKind::Label => {
                let label = parse_label(context, columns[1], &fields[1])?;
                let label = self.labels.intern(label);
                let facts = RowFacts { fact_bits: 0, label, votes: 0 };
                self.push_unless_icann_suffix(context, name, &parsed, false, facts);
                Ok(())
            }
            ListKind::MxLabel => {
                let label = self.labels.intern(parse_label(context, columns[1], &fields[1])?);
                let class = parse_mx_class(context, &fields[2])?;
                self.mx_labels.insert(name.into_owned(), (label, class));
                Ok(())
            }
            _ => {
                let facts = self.parse_mx_fact(context, &fields[1])?;
                self.push_unless_icann_suffix(context, name, &parsed, true, facts);
                Ok(())
            }
        }
    }

    fn parse_override(
        &mut self,
        context: &LineContext,
        name: Cow<'a, str>,
        parsed: &DnsName,
        covers_subtree: bool,
        fields: &[Cow<'a, str>],
    ) -> Result<(), TableFault> {
        let column_fault = |column: usize, expected: &str| {
            TableFault::expected(
                context.location(OVERRIDE_COLUMNS[column]),
                expected,
                quote_excerpt(&fields[column]),
            )
        };
        let non_empty = |column: usize| Some(&*fields[column]).filter(|text| !text.is_empty());
        let parse_flag = |column: usize| match non_empty(column) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(column_fault(column, "true or false")),
        };
        let reason = match non_empty(2) {
            None => None,
            Some(name) => Some(Reason::parse(name).ok_or_else(|| {
                column_fault(2, "safe, disposable, undeliverable or role_account")
            })?),
        };
        let score = match non_empty(3) {
            None => None,
            Some(text) => Some(
                text.parse::<u8>()
                    .ok()
                    .and_then(Score::new)
                    .ok_or_else(|| column_fault(3, "an integer from 0 to 100"))?,
            ),
        };
        let (is_free, is_corporate) = (parse_flag(4)?, parse_flag(5)?);
        if let Some(text) = fields.get(8).filter(|text| !text.is_empty())
            && self.record_expiry(context, text)?
        {
            return Ok(());
        }
        let label = match non_empty(6) {
            None => None,
            Some("-") => Some(0),
            Some(_) => {
                Some(self.labels.intern(parse_label(context, OVERRIDE_COLUMNS[6], &fields[6])?))
            }
        };
        let flags = is_free.or(is_corporate);
        if (reason, score, flags, label) == (None, None, None, None) {
            let expected = "a row that sets a field";
            return Err(TableFault::expected(context.location(""), expected, "none set"));
        }
        let coverage = if covers_subtree { Coverage::AcrossSuffixes } else { Coverage::NameOnly };
        self.push_row(context, name.clone(), parsed, coverage, RowFacts::default());
        self.overrides.push(OverrideRow {
            name,
            covers_subtree,
            reason,
            score,
            is_free,
            is_corporate,
            label,
            list: context.list_number,
            line: context.line,
        });
        Ok(())
    }

    /// Records the expiry of an override with this last day. If the override has expired, counts it
    /// and returns true. Otherwise returns false, and the override may become the next to expire.
    fn record_expiry(&mut self, context: &LineContext, text: &str) -> Result<bool, TableFault> {
        let day = parse_day_as_unix_seconds(text).ok_or_else(|| {
            TableFault::expected(
                context.location("until"),
                "a day such as 2026-12-31",
                quote_excerpt(text),
            )
        })?;
        // The row still counts on its last day.
        let end = day + SECONDS_PER_DAY;
        let has_expired = end <= self.now;
        if has_expired {
            self.expired_overrides += 1;
        } else {
            self.next_override_expiry =
                Some(self.next_override_expiry.map_or(end, |next| next.min(end)));
        }
        Ok(has_expired)
    }

    fn parse_mx_fact(&self, context: &LineContext, text: &str) -> Result<RowFacts, TableFault> {
        if let Some(rule) = mx::rule_for_special_mx(text) {
            return Ok(RowFacts { fact_bits: rules::rule_bit(rule), label: 0, votes: 0 });
        }
        let host = DnsName::parse(text).map_err(|error| {
            let expected = "a host, ., nxdomain or parked";
            TableFault::expected(
                context.location("mx"),
                expected,
                format!("{} ({error})", quote_excerpt(text)),
            )
        })?;
        let found = mx::find_longest_suffix(&self.mx_labels, host.as_str());
        let Some((label, class)) = found else { return Ok(RowFacts::default()) };
        Ok(RowFacts { fact_bits: class.fact_bits(), label: *label, votes: 0 })
    }
}

/// Parses the scope of an override. Returns true if the override covers the names below its name.
fn parse_covers_subtree(
    context: &LineContext,
    text: &str,
    name: &DnsName,
) -> Result<bool, TableFault> {
    match text {
        "subtree" => Ok(true),
        // No e-mail domain has a single label, so the row could never match.
        "exact" if !name.as_str().contains('.') => {
            let expected = "subtree, since no e-mail domain has only one label";
            Err(TableFault::expected(context.location("scope"), expected, quote_excerpt(text)))
        }
        "exact" => Ok(false),
        _ => Err(TableFault::expected(
            context.location("scope"),
            "exact or subtree",
            quote_excerpt(text),
        )),
    }
}

fn parse_label<'t>(context: &LineContext, key: &str, text: &'t str) -> Result<&'t str, TableFault> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        let expected = "a label of 1 to 255 bytes without control characters";
        return Err(TableFault::expected(context.location(key), expected, quote_excerpt(text)));
    }
    Ok(text)
}

fn parse_mx_class(context: &LineContext, text: &str) -> Result<MxClass, TableFault> {
    match text {
        "consumer" => Ok(MxClass::Consumer),
        "professional" => Ok(MxClass::Professional),
        "shared" => Ok(MxClass::Shared),
        "disposable" => Ok(MxClass::Disposable),
        _ => {
            let expected = "consumer, professional, shared or disposable";
            Err(TableFault::expected(context.location("class"), expected, quote_excerpt(text)))
        }
    }
}
