//! Rows: one fact about one name, with the line that says it.
//!
//! Owns what all readers of lists share. The text of a list is read in `lists` and `records`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::fault::{TableFault, quote_excerpt};
use super::manifest::ListKind;
use super::rules::{self, OverrideRow};
use crate::model::domain::{DnsName, SuffixKind};
use crate::model::verdict::Rule;

/// How the mail service behind an MX suffix is judged.
#[derive(Clone, Copy)]
pub(super) enum MxClass {
    Consumer,
    Professional,
    Shared,
    Disposable,
}

impl MxClass {
    /// The fact that follows for a name with such a host.
    pub(super) fn bits(self) -> u32 {
        match self {
            MxClass::Professional => rules::rule_bit(Rule::Professional),
            MxClass::Disposable => rules::rule_bit(Rule::DisposableMx),
            // A forwarder's or a shared host's customers are not judged by it.
            MxClass::Consumer | MxClass::Shared => 0,
        }
    }
}

/// How far down a row reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coverage {
    /// The name alone.
    NameOnly,
    /// All below it, down to where somebody else's names begin.
    Subdomains,
    /// All below it, names under public suffixes too.
    AcrossSuffixes,
}

/// One fact about one name.
pub(super) struct Row<'a> {
    pub name: Cow<'a, str>,
    /// Facts as `rules` numbers them.
    pub fact_bits: u32,
    /// A label and 1, or 0.
    pub label: u32,
    /// Sources that list the name, bit 0 for `a`.
    pub votes: u32,
    pub line: u32,
    /// The number of the list in the manifest.
    pub list: u8,
    pub coverage: Coverage,
    /// Where the registrable part begins; `NO_REGISTRABLE` when the name is a public suffix.
    pub registrable_start: u8,
}

/// No name is that long: the name is a public suffix.
pub(super) const NO_REGISTRABLE: u8 = u8::MAX;

/// All lists, read.
#[derive(Default)]
pub(super) struct ParsedLists<'a> {
    pub rows: Vec<Row<'a>>,
    pub overrides: Vec<OverrideRow<'a>>,
    pub labels: Labels,
    pub tlds: Vec<Cow<'a, str>>,
    pub seed: Vec<Cow<'a, str>>,
    /// For each list: rows that were read.
    pub row_counts: Vec<u32>,
    /// For each list: rows among them that name an ICANN suffix and so match nothing.
    pub ignored_counts: Vec<u32>,
    pub mx_labels: HashMap<String, (u32, MxClass)>,
    /// The moment at which overrides have ended or not, in seconds since 1970.
    pub now: i64,
    /// How many overrides have ended.
    pub expired_overrides: u32,
    /// When the next override ends.
    pub next_override_expiry: Option<i64>,
    /// Names of the present list that may stand there once, with their line.
    pub first_lines: HashMap<(Cow<'a, str>, bool), u32>,
}

/// Label texts, each once.
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

/// Where a line stands, and what it may say.
pub(super) struct LineContext<'c> {
    pub list_number: u8,
    pub kind: ListKind,
    pub display_name: &'c str,
    /// The letters that `sources.toml` knows, bit 0 for `a`.
    pub votes: u32,
    pub line: u32,
}

impl LineContext<'_> {
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

    /// Keeps a row, unless it names an ICANN suffix without being entitled to.
    pub(super) fn push_unless_icann_suffix(
        &mut self,
        context: &LineContext,
        name: Cow<'a, str>,
        parsed: &DnsName,
        exact: bool,
        said: RowFacts,
    ) {
        let suffix = parsed.public_suffix_kind();
        let covers_suffixes = matches!(
            context.kind,
            ListKind::SpecialUse | ListKind::Protected | ListKind::FreeSubdomain
        );
        let reach = match suffix {
            _ if exact && (covers_suffixes || suffix != Some(SuffixKind::Icann)) => {
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
        self.push_row(context, name, parsed, reach, said);
    }

    pub(super) fn push_row(
        &mut self,
        context: &LineContext,
        name: Cow<'a, str>,
        parsed: &DnsName,
        reach: Coverage,
        said: RowFacts,
    ) {
        let registrable_start =
            parsed.registrable_start().and_then(|start| u8::try_from(start).ok());
        self.rows.push(Row {
            name,
            fact_bits: said.fact_bits,
            label: said.label,
            votes: said.votes,
            line: context.line,
            list: context.list_number,
            coverage: reach,
            registrable_start: registrable_start.unwrap_or(NO_REGISTRABLE),
        });
    }
}

/// What a line says of its name.
#[derive(Default)]
pub(super) struct RowFacts {
    pub fact_bits: u32,
    pub label: u32,
    pub votes: u32,
}

/// The name in its canonical form: the text itself, if it is written so.
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
