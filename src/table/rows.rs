//! The rows of lists. A row is one fact about one name, with its line number.
//!
//! Owns the types that all list parsers share. `lists` and `csv_lists` parse the text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use super::fault::{TableFault, quote_excerpt};
use super::manifest::ListKind;
use super::override_list_row::OverrideListRow;
use super::rules::{self, OverrideRow};
use super::seen_days::SeenDays;
use crate::model::domain::{DnsName, SuffixKind};
use crate::model::verdict::Rule;

/// The kind of mail service behind an MX suffix.
#[derive(Clone, Copy)]
pub(super) enum MxClass {
    Consumer,
    Professional,
    Shared,
    Disposable,
}

impl MxClass {
    /// The fact about a name with such an MX host.
    pub(super) fn fact_bits(self) -> u32 {
        match self {
            MxClass::Professional => rules::rule_bit(Rule::Professional),
            MxClass::Disposable => rules::rule_bit(Rule::DisposableMx),
            // Such a host serves all kinds of customers, so it says nothing about a name.
            MxClass::Consumer | MxClass::Shared => 0,
        }
    }
}

/// Which names a row covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coverage {
    /// Only the name.
    NameOnly,
    /// The name and the names below it, but not across a public suffix.
    Subdomains,
    /// The name and all names below it, also across public suffixes.
    AcrossSuffixes,
}

/// One fact about one name.
pub(super) struct Row<'a> {
    pub name: Cow<'a, str>,
    /// The facts, as bits that `rules` defines.
    pub fact_bits: u32,
    /// The number of the label, counted from 1; 0 for none.
    pub label_number: u32,
    /// The sources that vote for the name, bit 0 for `a`.
    pub vote_bits: u32,
    pub line_number: u32,
    /// The number of the list in the table.
    pub list_number: u8,
    pub coverage: Coverage,
    /// When the row's feed had the name; unknown for other lists.
    pub seen_days: SeenDays,
    /// The byte offset at which the registrable domain begins in the name. `NO_REGISTRABLE_DOMAIN`
    /// if the name is a public suffix.
    pub registrable_start: u8,
}

/// Takes the place of the registrable domain's offset if the name is a public suffix. No name is
/// long enough for this offset.
pub(super) const NO_REGISTRABLE_DOMAIN: u8 = u8::MAX;

/// The rows of all lists.
#[derive(Default)]
pub(super) struct ParsedLists<'a> {
    pub rows: Vec<Row<'a>>,
    pub overrides: Vec<OverrideRow<'a>>,
    pub labels: InternedLabels,
    pub tlds: Vec<Cow<'a, str>>,
    pub top_list_seed: Vec<Cow<'a, str>>,
    /// For each list, the number of its rows.
    pub row_count_by_list: Vec<u32>,
    /// For each list, the number of its rows without effect; see `ListInfo::ignored`.
    pub ignored_row_count_by_list: Vec<u32>,
    pub label_and_class_by_mx_suffix: HashMap<String, (u32, MxClass)>,
    pub mx_addresses: Vec<MxAddressRow>,
    /// The rows of lists of kind `seen`, sorted by name once all lists are parsed.
    pub seen_rows: Vec<SeenDaysRow<'a>>,
    /// The time of the build, in seconds since 1970. It decides which overrides have expired.
    pub build_time: i64,
    /// The number of expired overrides.
    pub expired_override_count: u32,
    /// When the next override expires, in seconds since 1970.
    pub next_override_expiry: Option<i64>,
    /// The rows of overrides with their texts; `None` if a table is built, which needs no texts.
    pub override_list_rows: Option<Vec<OverrideListRow>>,
    /// The line of each name in the list that is being parsed, to find duplicates. The flag in the
    /// key is true for an override that covers the names below its name.
    pub first_line_by_name: HashMap<(Cow<'a, str>, bool), u32>,
}

/// One row of a list of kind `mx_address`.
pub(super) struct MxAddressRow {
    pub address: IpAddr,
    /// The number of the label, counted from 1; 0 for none.
    pub label_number: u32,
    /// The number of the list in the table.
    pub list_number: u8,
}

/// One row of a list of kind `seen`.
pub(super) struct SeenDaysRow<'a> {
    pub name: Cow<'a, str>,
    pub days: SeenDays,
    /// The vote bit of the list's source. The days count only if this source votes for the name.
    pub vote_bit: u32,
}

/// The labels of mail services, each with a number.
#[derive(Default)]
pub(super) struct InternedLabels {
    pub texts: Vec<String>,
    numbers_by_text: HashMap<String, u32>,
}

impl InternedLabels {
    /// The number of a label, counted from 1.
    pub(super) fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers_by_text.get(text) {
            return *number;
        }
        self.texts.push(text.to_owned());
        let number = self.texts.len() as u32;
        self.numbers_by_text.insert(text.to_owned(), number);
        number
    }
}

/// The list and the line that are being parsed, and the vote letters that the line may use.
pub(super) struct ListLineContext<'c> {
    pub list_number: u8,
    pub list_kind: ListKind,
    pub name_in_faults: &'c str,
    /// The vote letters of `sources.toml`, bit 0 for `a`.
    pub known_vote_bits: u32,
    /// The bit of the list's source; 0 if the manifest names none.
    pub source_vote_bit: u32,
    pub line_number: u32,
    /// The days of the following names in the file of a feed.
    pub seen_days: SeenDays,
}

impl ListLineContext<'_> {
    /// The line's location, as a fault shows it: file, line and `column`. An empty `column` is left
    /// out.
    pub(super) fn format_location(&self, column: &str) -> String {
        match column {
            "" => format!("{}:{}", self.name_in_faults, self.line_number),
            key => format!("{}:{}: {key}", self.name_in_faults, self.line_number),
        }
    }

    /// The fault of a text in a column, or of the whole line if `column` is empty.
    pub(super) fn fault(&self, column: &str, expected: &str, found: &str) -> TableFault {
        TableFault::expected(self.format_location(column), expected, quote_excerpt(found))
    }
}

impl<'a> ParsedLists<'a> {
    pub(super) fn with_capacity(row_capacity: usize, list_count: usize) -> ParsedLists<'a> {
        ParsedLists {
            rows: Vec::with_capacity(row_capacity),
            row_count_by_list: vec![0; list_count],
            ignored_row_count_by_list: vec![0; list_count],
            ..ParsedLists::default()
        }
    }

    /// Adds a row, and chooses which names it covers. If the row names an ICANN suffix and lists of
    /// this kind can't cover suffixes, counts the row as ignored instead. `is_exact` says that the
    /// row covers only its name.
    pub(super) fn push_unless_icann_suffix(
        &mut self,
        context: &ListLineContext,
        name: Cow<'a, str>,
        parsed_name: &DnsName,
        is_exact: bool,
        facts: RowFacts,
    ) {
        let suffix = parsed_name.kind_if_public_suffix();
        let covers_suffixes = matches!(
            context.list_kind,
            ListKind::SpecialUse | ListKind::Protected | ListKind::FreeSubdomain
        );
        let coverage = match suffix {
            _ if is_exact && (covers_suffixes || suffix != Some(SuffixKind::Icann)) => {
                Coverage::NameOnly
            }
            Some(_) if covers_suffixes => Coverage::AcrossSuffixes,
            Some(SuffixKind::Icann) => {
                self.ignored_row_count_by_list[usize::from(context.list_number)] += 1;
                return;
            }
            Some(SuffixKind::Private) => Coverage::NameOnly,
            None => Coverage::Subdomains,
        };
        self.push_row(context, name, parsed_name, coverage, facts);
    }

    pub(super) fn push_row(
        &mut self,
        context: &ListLineContext,
        name: Cow<'a, str>,
        parsed_name: &DnsName,
        coverage: Coverage,
        facts: RowFacts,
    ) {
        let registrable_start =
            parsed_name.registrable_start().and_then(|start| u8::try_from(start).ok());
        self.rows.push(Row {
            name,
            fact_bits: facts.fact_bits,
            label_number: facts.label_number,
            vote_bits: facts.vote_bits,
            line_number: context.line_number,
            list_number: context.list_number,
            coverage,
            seen_days: context.seen_days,
            registrable_start: registrable_start.unwrap_or(NO_REGISTRABLE_DOMAIN),
        });
    }
}

/// The facts of a line about its name.
#[derive(Default)]
pub(super) struct RowFacts {
    pub fact_bits: u32,
    pub label_number: u32,
    pub vote_bits: u32,
}

/// Parses a name. Returns its canonical text and the parsed name. A text that is already canonical
/// is not copied.
pub(super) fn parse_name<'t>(
    context: &ListLineContext,
    column: &str,
    text: Cow<'t, str>,
) -> Result<(Cow<'t, str>, DnsName), TableFault> {
    let name = DnsName::parse(&text).map_err(|error| {
        let error = error.to_string();
        let expected = match text.starts_with(['*', '.']) {
            true => "a name without *., because it stands for the names below it too",
            false => error.strip_prefix("expected ").unwrap_or(&error),
        };
        context.fault(column, expected, &text)
    })?;
    let canonical = match name.as_str() == text {
        true => text,
        false => Cow::Owned(name.as_str().to_owned()),
    };
    Ok((canonical, name))
}
