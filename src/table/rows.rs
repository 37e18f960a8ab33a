//! Rows: one fact about one name, with its line.
//!
//! Owns the types that all list parsers share. `lists` and `csv_lists` parse the text.

use std::borrow::Cow;
use std::collections::HashMap;

use super::fault::{TableFault, quote_excerpt};
use super::manifest::ListKind;
use super::rules::{self, OverrideRow};
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
            // Such a host serves all kinds of customers, so nothing follows from it.
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
    pub label: u32,
    /// The sources that vote for the name, bit 0 for `a`.
    pub votes: u32,
    pub line: u32,
    /// The number of the list in the manifest.
    pub list: u8,
    pub coverage: Coverage,
    /// The byte offset of the registrable domain; `NO_REGISTRABLE` if the name is a public suffix.
    pub registrable_start: u8,
}

/// Marks a name that is a public suffix. No name is long enough for this offset.
pub(super) const NO_REGISTRABLE: u8 = u8::MAX;

/// The rows of all lists.
#[derive(Default)]
pub(super) struct ParsedLists<'a> {
    pub rows: Vec<Row<'a>>,
    pub overrides: Vec<OverrideRow<'a>>,
    pub labels: Labels,
    pub tlds: Vec<Cow<'a, str>>,
    pub seed: Vec<Cow<'a, str>>,
    /// The number of rows of each list.
    pub row_counts: Vec<u32>,
    /// The number of each list's rows that match nothing, for example because they name an ICANN
    /// suffix.
    pub ignored_counts: Vec<u32>,
    pub mx_labels: HashMap<String, (u32, MxClass)>,
    /// The time of the build, in seconds since 1970. It decides which overrides have expired.
    pub now: i64,
    /// The number of expired overrides.
    pub expired_overrides: u32,
    /// When the next override expires, in seconds since 1970.
    pub next_override_expiry: Option<i64>,
    /// The names that the current list had so far, with their first line, to find duplicates. The
    /// flag is true for an override of a subtree.
    pub first_lines: HashMap<(Cow<'a, str>, bool), u32>,
}

/// The texts of labels, each once.
#[derive(Default)]
pub(super) struct Labels {
    pub texts: Vec<String>,
    numbers_by_text: HashMap<String, u32>,
}

impl Labels {
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

/// The location of a line, and the vote letters that it may use.
pub(super) struct LineContext<'c> {
    pub list_number: u8,
    pub kind: ListKind,
    pub display_name: &'c str,
    /// The vote letters of `sources.toml`, bit 0 for `a`.
    pub known_votes: u32,
    pub line: u32,
}

impl LineContext<'_> {
    /// The line's location in a fault: file, line and column. `key` is the column, or empty.
    pub(super) fn location(&self, key: &str) -> String {
        match key {
            "" => format!("{}:{}", self.display_name, self.line),
            key => format!("{}:{}: {key}", self.display_name, self.line),
        }
    }
}

impl<'a> ParsedLists<'a> {
    pub(super) fn with_capacity(rows: usize, lists: usize) -> ParsedLists<'a> {
        ParsedLists {
            rows: Vec::with_capacity(rows),
            row_counts: vec![0; lists],
            ignored_counts: vec![0; lists],
            ..ParsedLists::default()
        }
    }

    /// Adds a row. A row that names an ICANN suffix is only counted as ignored, unless rows of the
    /// list's kind may cover suffixes.
    pub(super) fn push_unless_icann_suffix(
        &mut self,
        context: &LineContext,
        name: Cow<'a, str>,
        parsed: &DnsName,
        is_exact: bool,
        facts: RowFacts,
    ) {
        let suffix = parsed.public_suffix_kind();
        let covers_suffixes = matches!(
            context.kind,
            ListKind::SpecialUse | ListKind::Protected | ListKind::FreeSubdomain
        );
        let coverage = match suffix {
            _ if is_exact && (covers_suffixes || suffix != Some(SuffixKind::Icann)) => {
                Coverage::NameOnly
            }
            Some(_) if covers_suffixes => Coverage::AcrossSuffixes,
            Some(SuffixKind::Icann) => {
                self.ignored_counts[usize::from(context.list_number)] += 1;
                return;
            }
            Some(SuffixKind::Private) => Coverage::NameOnly,
            None => Coverage::Subdomains,
        };
        self.push_row(context, name, parsed, coverage, facts);
    }

    pub(super) fn push_row(
        &mut self,
        context: &LineContext,
        name: Cow<'a, str>,
        parsed: &DnsName,
        coverage: Coverage,
        facts: RowFacts,
    ) {
        let registrable_start =
            parsed.registrable_start().and_then(|start| u8::try_from(start).ok());
        self.rows.push(Row {
            name,
            fact_bits: facts.fact_bits,
            label: facts.label,
            votes: facts.votes,
            line: context.line,
            list: context.list_number,
            coverage,
            registrable_start: registrable_start.unwrap_or(NO_REGISTRABLE),
        });
    }
}

/// The facts of a line about its name.
#[derive(Default)]
pub(super) struct RowFacts {
    pub fact_bits: u32,
    pub label: u32,
    pub votes: u32,
}

/// Parses a name. Returns its canonical text and the parsed name. A text that is already canonical
/// is not copied.
pub(super) fn parse_name<'t>(
    context: &LineContext,
    key: &str,
    text: Cow<'t, str>,
) -> Result<(Cow<'t, str>, DnsName), TableFault> {
    let name = DnsName::parse(&text).map_err(|error| {
        let error = error.to_string();
        let expected = error.strip_prefix("expected ").unwrap_or(&error);
        TableFault::expected(context.location(key), expected, quote_excerpt(&text))
    })?;
    let canonical = match name.as_str() == text {
        true => text,
        false => Cow::Owned(name.as_str().to_owned()),
    };
    Ok((canonical, name))
}
