//! Reads lists into rows: one fact about one name, with the line that says it.
//!
//! Every name is checked here and every fault is kept with its line. What the facts of a name
//! add up to is decided in `rules`; how names cover one another in `cover`.

use super::csv;
use super::fault::{Fault, TableError, quoted};
use super::manifest::{Kind, List, Origin};
use super::records::{self, Header};
use super::rows::{Context, Lists, Said, read_name};
use super::rules;
use crate::model::verdict::Rule;

impl<'a> Lists<'a> {
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
}
