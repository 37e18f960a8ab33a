//! Parses the lists in CSV: overrides, labels of names, labels of MX suffixes, MX facts, and
//! addresses of MX hosts.
//!
//! This module checks each field. `resolve` and `rules` decide which answer a name's rows give.

use std::borrow::Cow;
use std::net::IpAddr;

use super::fault::{TableFault, quote_excerpt};
use super::manifest::ListKind;
use super::mx;
use super::override_list_row::OverrideListRow;
use super::override_rows::{
    OVERRIDE_COLUMNS, OverrideFields, REQUIRED_OVERRIDE_COLUMN_COUNT, add_row_to_fault, parse_label,
};
use super::rows::{
    Coverage, ListLineContext, MxAddressRow, MxClass, ParsedLists, RowFacts, parse_name,
};
use super::rules::{self, OverrideRow};
use crate::model::domain::DnsName;
use crate::model::month::parse_day_as_unix_seconds;
use crate::model::public_address::is_public_address;

/// Whether the header of a CSV list was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// The next line should be the header.
    Expected,
    /// The header was read and has this many columns.
    Read(usize),
    /// The header has too few or too many columns. This is told once, and no row is read.
    OfOtherColumns,
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
    let is_override = context.list_kind == ListKind::Override && required == required_columns;
    // The two optional columns stand together.
    let completed = match optional.iter().map(|it| &**it).collect::<Vec<_>>()[..] {
        ["note"] if is_override => {
            Some("note,until at the end of the header, and a comma at the end of each row")
        }
        ["until"] if is_override => {
            Some("note,until at the end of the header, and a comma before the last day of each row")
        }
        _ => None,
    };
    if let Some(expected) = completed {
        let found = format!("…,{} alone", optional.join(","));
        return Err(TableFault::expected(context.format_location(""), expected, found));
    }
    let separator = match fields {
        [field] if field.contains(';') => ", with commas between the names",
        _ if is_override => ", perhaps with note,until behind it",
        _ => "",
    };
    let expected = format!("the header {}{separator}", required_columns.join(","));
    Err(context.fault("", &expected, &fields.join(",")))
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
        if *header_state == HeaderState::OfOtherColumns {
            return Ok(());
        }
        let HeaderState::Read(header_column_count) = *header_state else {
            let checked = check_header(context, required_columns, &fields);
            // After a header with a wrong name, or without one of the optional columns, the lines
            // below it are checked. If the header has too few or too many columns, they are not.
            let column_count = match context.list_kind {
                ListKind::Override => {
                    fields.len().clamp(required_columns.len(), OVERRIDE_COLUMNS.len())
                }
                _ => required_columns.len(),
            };
            let column_count = checked.as_ref().copied().unwrap_or(column_count);
            *header_state = match column_count == fields.len() {
                true => HeaderState::Read(column_count),
                false => HeaderState::OfOtherColumns,
            };
            return checked.map(drop);
        };
        if fields.len() != header_column_count {
            let columns = if header_column_count > required_columns.len() {
                &OVERRIDE_COLUMNS[..header_column_count]
            } else {
                required_columns
            };
            let expected = format!("{header_column_count} fields ({})", columns.join(","));
            let quotes = match fields.len() > header_column_count {
                true => "; write a text with a comma between double quotes",
                false => "",
            };
            let found = format!("{}{quotes}", fields.len());
            return Err(TableFault::expected(context.format_location(""), expected, found));
        }
        if context.list_kind == ListKind::MxAddress {
            return self.parse_and_add_mx_address(context, required_columns, &fields);
        }
        if context.list_kind == ListKind::Override {
            return self.parse_and_add_override(context, &fields);
        }
        let (name, parsed) = parse_name(context, required_columns[0], fields[0].clone())?;
        self.refuse_repeated_name(context, required_columns[0], name.clone(), false)?;
        match context.list_kind {
            ListKind::Label => {
                let label = parse_label(context, required_columns[1], &fields[1])?;
                let label_number = self.labels.intern(label);
                let facts = RowFacts { label_number, ..RowFacts::default() };
                self.push_unless_icann_suffix(context, name, &parsed, false, facts);
            }
            ListKind::MxLabel => {
                let label = parse_label(context, required_columns[1], &fields[1])?;
                let label = self.labels.intern(label);
                let class = parse_mx_class(context, &fields[2])?;
                self.label_and_class_by_mx_suffix.insert(name.into_owned(), (label, class));
            }
            _ => {
                let facts = self.parse_mx_fact(context, &fields[1])?;
                self.push_unless_icann_suffix(context, name, &parsed, true, facts);
            }
        }
        Ok(())
    }

    /// Fails if an earlier line of the list has this name with the same coverage. Records the line.
    fn refuse_repeated_name(
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

    /// Adds an address of MX hosts. Each row must have a source and a date, because an address gets
    /// another owner sooner than a name does. Only people read the source and the date.
    fn parse_and_add_mx_address(
        &mut self,
        context: &ListLineContext,
        columns: &[&str],
        fields: &[Cow<'a, str>],
    ) -> Result<(), TableFault> {
        let fault = |at: usize, expected: &str| context.fault(columns[at], expected, &fields[at]);
        let address = fields[0].parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let address = address
            .filter(|address| is_public_address(*address))
            .ok_or_else(|| fault(0, "a public IPv4 or IPv6 address"))?;
        self.refuse_repeated_name(context, columns[0], address.to_string().into(), false)?;
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
        fields: &[Cow<'a, str>],
    ) -> Result<(), TableFault> {
        let parsed = OverrideFields::parse(context, fields)
            .map_err(|fault| add_row_to_fault(fault, context, fields))?;
        let (name, covers_subtree) = (parsed.name.clone(), parsed.covers_subtree);
        self.refuse_repeated_name(context, OVERRIDE_COLUMNS[0], name, covers_subtree)?;
        if let Some(rows) = &mut self.override_list_rows {
            rows.push(OverrideListRow::new(fields, &parsed, context.line_number));
        }
        if parsed.end.is_some_and(|end| self.record_override_end(end)) {
            return Ok(());
        }
        let label_number = match parsed.label.as_deref() {
            Some("") => Some(0),
            label => label.map(|label| self.labels.intern(label)),
        };
        let coverage = if covers_subtree { Coverage::AcrossSuffixes } else { Coverage::NameOnly };
        let facts = RowFacts::default();
        self.push_row(context, parsed.name.clone(), &parsed.parsed_name, coverage, facts);
        self.overrides.push(OverrideRow {
            name: parsed.name,
            covers_subtree,
            reason: parsed.reason,
            score: parsed.score,
            is_free_provider: parsed.is_free_provider,
            is_corporate_email: parsed.is_corporate_email,
            label_number,
            list_number: context.list_number,
            line_number: context.line_number,
        });
        Ok(())
    }

    /// Records when an override ends. If the override has ended, counts it as expired and returns
    /// true. Otherwise updates the time of the next end, and returns false.
    fn record_override_end(&mut self, end: i64) -> bool {
        let has_expired = end <= self.build_time;
        if has_expired {
            self.expired_override_count += 1;
        } else {
            self.next_override_expiry =
                Some(self.next_override_expiry.map_or(end, |next| next.min(end)));
        }
        has_expired
    }

    fn parse_mx_fact(
        &self,
        context: &ListLineContext,
        mx_value: &str,
    ) -> Result<RowFacts, TableFault> {
        if let Some(rule) = mx::rule_for_special_mx(mx_value) {
            return Ok(RowFacts { fact_bits: rules::rule_bit(rule), ..RowFacts::default() });
        }
        let host = DnsName::parse(mx_value).map_err(|error| {
            let found = format!("{} ({error})", quote_excerpt(mx_value));
            let expected = "a host, ., nxdomain or parked";
            TableFault::expected(context.format_location("mx"), expected, found)
        })?;
        let found = mx::find_longest_suffix(&self.label_and_class_by_mx_suffix, host.as_str());
        let Some((label, class)) = found else { return Ok(RowFacts::default()) };
        Ok(RowFacts { fact_bits: class.fact_bits(), label_number: *label, vote_bits: 0 })
    }
}

fn parse_mx_class(context: &ListLineContext, text: &str) -> Result<MxClass, TableFault> {
    match text {
        "consumer" => Ok(MxClass::Consumer),
        "professional" => Ok(MxClass::Professional),
        "shared" => Ok(MxClass::Shared),
        "disposable" => Ok(MxClass::Disposable),
        _ => {
            let expected = "consumer, professional, shared or disposable";
            Err(context.fault("class", expected, text))
        }
    }
}
