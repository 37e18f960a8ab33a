//! Reads lists into rows: one fact about one name, with the line that says it.
//!
//! Every name is checked here and every fault is kept with its line. What the facts of a name
//! add up to is decided in `rules`; how names cover one another in `cover`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::csv;
use super::fault::{Fault, TableError, quoted};
use super::manifest::{Kind, List, Origin};
use super::records::{self, Header, MxClass};
use super::rules::{self, Override};
use crate::model::domain::{Name, SuffixKind};
use crate::model::verdict::Rule;

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

    /// Adds one list. Those of kind `mx_label` must be added before those of kind `mx`.
    pub(super) fn add(
        &mut self,
        (number, list): (u8, &List),
        place: &str,
        text: &'a str,
        votes: u32,
        faults: &mut TableError,
    ) {
        self.once.clear();
        let mut context = Context { number, kind: list.kind, place, votes, line: 0 };
        let is_feed = list.origin == Origin::Feed;
        let mut header = Header::Expected;
        for (line, content) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            context.line = line;
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let read = match records::columns(list.kind) {
                None => self.name_line(&context, content),
                Some(columns) => csv::fields(content)
                    .map_err(|(expected, found)| Fault::expected(context.at(""), expected, found))
                    .and_then(|fields| self.csv_line(&context, columns, &mut header, fields)),
            };
            match read {
                Ok(()) => self.read[usize::from(number)] += 1,
                // Nobody here wrote the line, and the other names are good.
                Err(_) if is_feed => self.ignored[usize::from(number)] += 1,
                Err(fault) => faults.push(fault),
            }
        }
        if let Some(columns) = records::columns(list.kind) {
            // The header is no row.
            let read = &mut self.read[usize::from(number)];
            *read = read.saturating_sub(1);
            if header == Header::Expected {
                let expected = format!("the header {}", columns.join(","));
                faults.push(Fault::expected(place, expected, "no row"));
            }
        }
    }

    fn name_line(&mut self, context: &Context, content: &'a str) -> Result<(), Fault> {
        let (name, letters) = content.split_once(' ').unwrap_or((content, ""));
        let (name, exact) = match name.strip_prefix('=') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let mut votes = 0;
        for letter in letters.bytes() {
            let bit = letter.is_ascii_lowercase().then(|| 1 << (letter - b'a'));
            votes |= bit.filter(|bit| context.votes & bit != 0).ok_or_else(|| {
                let known: String = (b'a'..=b'z')
                    .filter(|l| context.votes >> (l - b'a') & 1 == 1)
                    .map(char::from)
                    .collect();
                let expected = format!("one name and vote letters of sources.toml ({known})");
                Fault::expected(context.at(""), expected, quoted(content))
            })?;
        }
        let (name, parsed) = read_name(context, "", name.into())?;
        match context.kind {
            Kind::Tlds if name.contains('.') => {
                Err(Fault::expected(context.at(""), "one label", quoted(&name)))
            }
            Kind::Tlds => {
                self.tlds.push(name);
                Ok(())
            }
            Kind::Seed => {
                self.seed.push(name);
                Ok(())
            }
            kind => {
                let bits = match kind {
                    Kind::SpecialUse => rules::bit(Rule::SpecialUse),
                    Kind::Protected => rules::bit(Rule::Protected),
                    Kind::Corporate => rules::bit(Rule::Protected) | rules::CORPORATE,
                    Kind::Alias => rules::bit(Rule::Alias),
                    Kind::Disposable(rule) => rules::bit(rule),
                    Kind::Role => rules::bit(Rule::Role),
                    Kind::FreeSubdomain => rules::bit(Rule::FreeSubdomain),
                    Kind::Known => rules::REAL,
                    Kind::Cleared => rules::REAL | rules::CLEARED,
                    _ => rules::bit(Rule::Free),
                };
                self.push(context, name, &parsed, exact, Said { bits, label: 0, votes });
                Ok(())
            }
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
