//! Parses the lists in CSV: overrides, labels of names, labels of MX suffixes, MX facts, and
//! addresses of MX hosts.
//!
//! This module checks each field. `resolve` and `rules` decide which answer a name's rows give.

use std::borrow::Cow;
use std::net::IpAddr;

use super::fault::{TableFault, quote_excerpt};
use super::manifest::ListKind;
use super::mx;
use super::rows::{
    Coverage, ListLineContext, MxAddressRow, MxClass, ParsedLists, RowFacts, parse_name,
};
use super::rules::{self, OverrideRow};
use super::source_packages::SECONDS_PER_DAY;
use crate::model::domain::DnsName;
use crate::model::month::parse_day_as_unix_seconds;
use crate::model::public_address::is_public_address;
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
pub(super) const REQUIRED_OVERRIDE_COLUMN_COUNT: usize = 7;

/// Whether the header of a CSV list was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// The next line should be the header.
    Expected,
    /// The header was read and has this many columns.
    Read(usize),
}

/// The columns that a CSV list of this kind must have; `None` for a kind whose lists are not CSV.
pub(super) fn required_columns_of(kind: ListKind) -> Option<&'static [&'static str]> {
    match kind {
        ListKind::Override => Some(&OVERRIDE_COLUMNS[..REQUIRED_OVERRIDE_COLUMN_COUNT]),
        ListKind::Label => Some(&["domain", "label"]),
        ListKind::MxLabel => Some(&["suffix", "label", "class"]),
        ListKind::Mx => Some(&["domain", "mx"]),
        ListKind::MxAddress => Some(&["address", "label", "source", "date"]),
        _ => None,
    }
}

/// Returns the number of columns of a header. Only a list of overrides has optional columns.
fn check_header(
    context: &ListLineContext,
    required_columns: &[&str],
    fields: &[Cow<'_, str>],
) -> Result<usize, TableFault> {
    let (required, optional) = fields.split_at(fields.len().min(required_columns.len()));
    let has_optional_columns = context.list_kind == ListKind::Override
        && optional == &OVERRIDE_COLUMNS[REQUIRED_OVERRIDE_COLUMN_COUNT..];
    if required == required_columns && (optional.is_empty() || has_optional_columns) {
        return Ok(fields.len());
    }
    let separator = match fields {
        [field] if field.contains(';') => ", with commas between the names",
        _ => "",
    };
    let expected = format!("the header {}{separator}", required_columns.join(","));
    let found = quote_excerpt(&fields.join(","));
    Err(TableFault::expected(context.format_location(""), expected, found))
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

impl<'a> ParsedLists<'a> {
    /// Parses one line of a CSV list, and adds what it says. The first line must be the header.
    pub(super) fn parse_and_add_csv_line(
        &mut self,
        context: &ListLineContext,
        required_columns: &[&str],
        header_state: &mut HeaderState,
        fields: Vec<Cow<'a, str>>,
    ) -> Result<(), TableFault> {
        let HeaderState::Read(header_column_count) = *header_state else {
            let checked = check_header(context, required_columns, &fields);
            // After a faulty header, the lines below it are checked against the required columns.
            let column_count = checked.as_ref().copied().unwrap_or(required_columns.len());
            *header_state = HeaderState::Read(column_count);
            return checked.map(drop);
        };
        if fields.len() != header_column_count {
            let columns = if header_column_count > required_columns.len() {
                &OVERRIDE_COLUMNS
            } else {
                required_columns
            };
            let expected = format!("{header_column_count} fields ({})", columns.join(","));
            return Err(TableFault::expected(
                context.format_location(""),
                expected,
                fields.len().to_string(),
            ));
        }
        if context.list_kind == ListKind::MxAddress {
            return self.parse_and_add_mx_address(context, required_columns, &fields);
        }
        let (name, parsed) = parse_name(context, required_columns[0], fields[0].clone())?;
        let covers_subtree = match context.list_kind {
            ListKind::Override => parse_covers_subtree(context, &fields[1], &parsed)?,
            _ => false,
        };
        self.check_first_line(context, required_columns[0], name.clone(), covers_subtree)?;
        match context.list_kind {
            ListKind::Override => {
                self.parse_and_add_override(context, name, &parsed, covers_subtree, &fields)
            }
            ListKind::Label => {
                let label = parse_label(context, required_columns[1], &fields[1])?;
                let label = self.labels.intern(label);
                let facts = RowFacts { fact_bits: 0, label_number: label, vote_bits: 0 };
                self.push_unless_icann_suffix(context, name, &parsed, false, facts);
                Ok(())
            }
            ListKind::MxLabel => {
                let label =
                    self.labels.intern(parse_label(context, required_columns[1], &fields[1])?);
                let class = parse_mx_class(context, &fields[2])?;
                self.label_and_class_by_mx_suffix.insert(name.into_owned(), (label, class));
                Ok(())
            }
            _ => {
                let facts = self.parse_mx_fact(context, &fields[1])?;
                self.push_unless_icann_suffix(context, name, &parsed, true, facts);
                Ok(())
            }
        }
    }

    /// Fails if an earlier line of the list has this name, with the same coverage.
    fn check_first_line(
        &mut self,
        context: &ListLineContext,
        column: &str,
        name: Cow<'a, str>,
        covers_subtree: bool,
    ) -> Result<(), TableFault> {
        let key = (name.clone(), covers_subtree);
        match self.first_line_by_name.insert(key, context.line_number) {
            Some(first) => Err(TableFault::Duplicate {
                at: context.format_location(column),
                what: quote_excerpt(&name),
                first,
            }),
            None => Ok(()),
        }
    }

    /// Adds an address of MX hosts. The source and the date are for people, but each row must have
    /// them: an address gets another owner sooner than a name does.
    fn parse_and_add_mx_address(
        &mut self,
        context: &ListLineContext,
        columns: &[&str],
        fields: &[Cow<'a, str>],
    ) -> Result<(), TableFault> {
        let fault = |column: usize, expected: &str| {
            let at = context.format_location(columns[column]);
            TableFault::expected(at, expected, quote_excerpt(&fields[column]))
        };
        let address = fields[0].parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let address = address
            .filter(|address| is_public_address(*address))
            .ok_or_else(|| fault(0, "a public IPv4 or IPv6 address"))?;
        self.check_first_line(context, columns[0], address.to_string().into(), false)?;
        let label_number = match &*fields[1] {
            "" => 0,
            label => self.labels.intern(parse_label(context, columns[1], label)?),
        };
        if fields[2].is_empty() {
            return Err(fault(2, "where the address was published or measured"));
        }
        if parse_day_as_unix_seconds(&fields[3]).is_none() {
            return Err(fault(3, "a day such as 2026-12-31"));
        }
        let list_number = context.list_number;
        self.mx_addresses.push(MxAddressRow { address, label_number, list_number });
        Ok(())
    }

    fn parse_and_add_override(
        &mut self,
        context: &ListLineContext,
        name: Cow<'a, str>,
        parsed_name: &DnsName,
        covers_subtree: bool,
        fields: &[Cow<'a, str>],
    ) -> Result<(), TableFault> {
        let column_fault = |column: usize, expected: &str| {
            TableFault::expected(
                context.format_location(OVERRIDE_COLUMNS[column]),
                expected,
                quote_excerpt(&fields[column]),
            )
        };
        let non_empty = |column: usize| Some(&*fields[column]).filter(|text| !text.is_empty());
        let parse_flag = |column: usize| {
            let flag = non_empty(column).map(parse_flag);
            flag.map(|flag| flag.ok_or_else(|| column_fault(column, "true or false"))).transpose()
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
            return Err(TableFault::expected(context.format_location(""), expected, "none set"));
        }
        let coverage = if covers_subtree { Coverage::AcrossSuffixes } else { Coverage::NameOnly };
        self.push_row(context, name.clone(), parsed_name, coverage, RowFacts::default());
        self.overrides.push(OverrideRow {
            name,
            covers_subtree,
            reason,
            score,
            is_free_provider: is_free,
            is_corporate_email: is_corporate,
            label_number: label,
            list_number: context.list_number,
            line_number: context.line_number,
        });
        Ok(())
    }

    /// Records when an override with this last day expires. If it has expired, counts it and
    /// returns true. Otherwise updates the time of the next expiry, and returns false.
    fn record_expiry(
        &mut self,
        context: &ListLineContext,
        last_day: &str,
    ) -> Result<bool, TableFault> {
        let day = parse_day_as_unix_seconds(last_day).ok_or_else(|| {
            TableFault::expected(
                context.format_location("until"),
                "a day such as 2026-12-31",
                quote_excerpt(last_day),
            )
        })?;
        // The row still counts on its last day.
        let end = day + SECONDS_PER_DAY;
        let has_expired = end <= self.build_time;
        if has_expired {
            self.expired_override_count += 1;
        } else {
            self.next_override_expiry =
                Some(self.next_override_expiry.map_or(end, |next| next.min(end)));
        }
        Ok(has_expired)
    }

    fn parse_mx_fact(
        &self,
        context: &ListLineContext,
        mx_value: &str,
    ) -> Result<RowFacts, TableFault> {
        if let Some(rule) = mx::rule_for_special_mx(mx_value) {
            return Ok(RowFacts {
                fact_bits: rules::rule_bit(rule),
                label_number: 0,
                vote_bits: 0,
            });
        }
        let host = DnsName::parse(mx_value).map_err(|error| {
            let expected = "a host, ., nxdomain or parked";
            TableFault::expected(
                context.format_location("mx"),
                expected,
                format!("{} ({error})", quote_excerpt(mx_value)),
            )
        })?;
        let found = mx::find_longest_suffix(&self.label_and_class_by_mx_suffix, host.as_str());
        let Some((label, class)) = found else { return Ok(RowFacts::default()) };
        Ok(RowFacts { fact_bits: class.fact_bits(), label_number: *label, vote_bits: 0 })
    }
}

/// Parses the scope of an override. Returns true if the override covers the names below its name.
fn parse_covers_subtree(
    context: &ListLineContext,
    scope: &str,
    name: &DnsName,
) -> Result<bool, TableFault> {
    match scope {
        "subtree" => Ok(true),
        // No e-mail domain has a single label, so the row could never match.
        "exact" if !name.as_str().contains('.') => {
            let expected = "subtree, since no e-mail domain has only one label";
            Err(TableFault::expected(
                context.format_location("scope"),
                expected,
                quote_excerpt(scope),
            ))
        }
        "exact" => Ok(false),
        _ => Err(TableFault::expected(
            context.format_location("scope"),
            "exact or subtree",
            quote_excerpt(scope),
        )),
    }
}

fn parse_label<'t>(
    context: &ListLineContext,
    column: &str,
    text: &'t str,
) -> Result<&'t str, TableFault> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        let expected = "a label of 1 to 255 bytes without control characters";
        return Err(TableFault::expected(
            context.format_location(column),
            expected,
            quote_excerpt(text),
        ));
    }
    Ok(text)
}

fn parse_mx_class(context: &ListLineContext, text: &str) -> Result<MxClass, TableFault> {
    match text {
        "consumer" => Ok(MxClass::Consumer),
        "professional" => Ok(MxClass::Professional),
        "shared" => Ok(MxClass::Shared),
        "disposable" => Ok(MxClass::Disposable),
        _ => {
            let expected = "consumer, professional, shared or disposable";
            Err(TableFault::expected(
                context.format_location("class"),
                expected,
                quote_excerpt(text),
            ))
        }
    }
}
