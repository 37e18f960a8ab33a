//! Rows: one fact about one name, with the line that says it.
//!
//! Owns what all readers of lists share. The text of a list is read in `lists` and `records`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::fault::{Fault, quoted};
use super::manifest::Kind;
use super::rules::{self, Override};
use crate::model::domain::{Name, SuffixKind};
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
            MxClass::Professional => rules::bit(Rule::Professional),
            MxClass::Disposable => rules::bit(Rule::DisposableMx),
            // A forwarder's or a shared host's customers are not judged by it.
            MxClass::Consumer | MxClass::Shared => 0,
        }
    }
}

/// How far down a row reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// The name alone.
    Exact,
    /// All below it, down to where somebody else's names begin.
    Below,
    /// All below it, names under public suffixes too.
    Beyond,
}

/// One fact about one name.
pub(super) struct Row<'a> {
    pub name: Cow<'a, str>,
    /// Facts as `rules` numbers them.
    pub bits: u32,
    /// A label and 1, or 0.
    pub label: u32,
    /// Sources that list the name, bit 0 for `a`.
    pub votes: u32,
    pub line: u32,
    /// The number of the list in the manifest.
    pub list: u8,
    pub reach: Reach,
    /// Where the registrable part begins; `NO_OWNER` when the name is a public suffix.
    pub owner: u8,
}

/// No name is that long: the name is a public suffix.
pub(super) const NO_OWNER: u8 = u8::MAX;

/// All lists, read.
#[derive(Default)]
pub(super) struct Lists<'a> {
    pub rows: Vec<Row<'a>>,
    pub overrides: Vec<Override<'a>>,
    pub labels: Labels,
    pub tlds: Vec<Cow<'a, str>>,
    pub seed: Vec<Cow<'a, str>>,
    /// For each list: rows that were read.
    pub read: Vec<u32>,
    /// For each list: rows among them that name an ICANN suffix and so match nothing.
    pub ignored: Vec<u32>,
    pub mx_labels: HashMap<String, (u32, MxClass)>,
    /// The moment at which overrides have ended or not, in seconds since 1970.
    pub now: i64,
    /// How many overrides have ended.
    pub ended: u32,
    /// When the next override ends.
    pub next_end: Option<i64>,
    /// Names of the present list that may stand there once, with their line.
    pub once: HashMap<(Cow<'a, str>, bool), u32>,
}

/// Label texts, each once.
#[derive(Default)]
pub(super) struct Labels {
    pub texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Labels {
    /// The number of a label, counted from 1.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.texts.push(text.to_owned());
        let number = self.texts.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// Where a line stands, and what it may say.
pub(super) struct Context<'c> {
    pub number: u8,
    pub kind: Kind,
    pub place: &'c str,
    /// The letters that `sources.toml` knows, bit 0 for `a`.
    pub votes: u32,
    pub line: u32,
}

impl Context<'_> {
    pub(super) fn at(&self, key: &str) -> String {
        match key {
            "" => format!("{}:{}", self.place, self.line),
            key => format!("{}:{}: {key}", self.place, self.line),
        }
    }
}

impl<'a> Lists<'a> {
    pub(super) fn with_capacity(rows: usize, lists: usize) -> Lists<'a> {
        Lists {
            rows: Vec::with_capacity(rows),
            read: vec![0; lists],
            ignored: vec![0; lists],
            ..Lists::default()
        }
    }

    /// Keeps a row, unless it names an ICANN suffix without being entitled to.
    pub(super) fn push(
        &mut self,
        context: &Context,
        name: Cow<'a, str>,
        parsed: &Name,
        exact: bool,
        said: Said,
    ) {
        let suffix = parsed.public_suffix();
        let covers_suffixes =
            matches!(context.kind, Kind::SpecialUse | Kind::Protected | Kind::FreeSubdomain);
        let reach = match suffix {
            _ if exact && (covers_suffixes || suffix != Some(SuffixKind::Icann)) => Reach::Exact,
            Some(_) if covers_suffixes => Reach::Beyond,
            Some(SuffixKind::Icann) => {
                self.ignored[usize::from(context.number)] += 1;
                return;
            }
            Some(SuffixKind::Private) => Reach::Exact,
            None => Reach::Below,
        };
        self.push_row(context, name, parsed, reach, said);
    }

    pub(super) fn push_row(
        &mut self,
        context: &Context,
        name: Cow<'a, str>,
        parsed: &Name,
        reach: Reach,
        said: Said,
    ) {
        let owner = parsed.registrable_start().and_then(|start| u8::try_from(start).ok());
        self.rows.push(Row {
            name,
            bits: said.bits,
            label: said.label,
            votes: said.votes,
            line: context.line,
            list: context.number,
            reach,
            owner: owner.unwrap_or(NO_OWNER),
        });
    }
}

/// What a line says of its name.
#[derive(Default)]
pub(super) struct Said {
    pub bits: u32,
    pub label: u32,
    pub votes: u32,
}

/// The name in its canonical form: the text itself, if it is written so.
pub(super) fn read_name<'t>(
    context: &Context,
    key: &str,
    text: Cow<'t, str>,
) -> Result<(Cow<'t, str>, Name), Fault> {
    let name = Name::parse(&text).map_err(|error| {
        let error = error.to_string();
        let expected = error.strip_prefix("expected ").unwrap_or(&error);
        Fault::expected(context.at(key), expected, quoted(&text))
    })?;
    let canonical = match name.as_str() == text {
        true => text,
        false => Cow::Owned(name.as_str().to_owned()),
    };
    Ok((canonical, name))
}
