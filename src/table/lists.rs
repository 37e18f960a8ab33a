//! Parses lists into rows: one fact about one name, with its line.
//!
//! Every name is checked here, and every fault is kept with its line. `rules` decides what the
//! facts of a name mean together; `resolve` decides how names cover one another.

use super::csv;
use super::csv_lists::{self, HeaderState};
use super::fault::{TableError, TableFault, quote_excerpt};
use super::manifest::{ListKind, ListOrigin, ListSpec};
use super::rows::{LineContext, ParsedLists, RowFacts, parse_name};
use super::rules;
use crate::model::verdict::Rule;

impl<'a> ParsedLists<'a> {
    /// Parses one list. Lists of kind `mx_label` must be parsed before lists of kind `mx`.
    pub(super) fn parse_list(
        &mut self,
        (number, list): (u8, &ListSpec),
        display_name: &str,
        text: &'a str,
        known_votes: u32,
        faults: &mut TableError,
    ) {
        self.first_lines.clear();
        let mut context = LineContext {
            list_number: number,
            kind: list.kind,
            display_name,
            known_votes,
            line: 0,
        };
        let is_feed = list.list_origin == ListOrigin::Feed;
        let mut header = HeaderState::Expected;
        for (line, content) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            context.line = line;
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let parsed = match csv_lists::columns_of(list.kind) {
                None => self.parse_name_line(&context, content),
                Some(columns) => csv::parse_fields(content)
                    .map_err(|(expected, found)| {
                        TableFault::expected(context.location(""), expected, found)
                    })
                    .and_then(|fields| self.parse_csv_line(&context, columns, &mut header, fields)),
            };
            match parsed {
                Ok(()) => self.row_counts[usize::from(number)] += 1,
                // The operator did not write the feed, and its other names are valid.
                Err(_) if is_feed => self.ignored_counts[usize::from(number)] += 1,
                Err(fault) => faults.push(fault),
            }
        }
        if let Some(columns) = csv_lists::columns_of(list.kind) {
            // The header is not a row.
            let row_count = &mut self.row_counts[usize::from(number)];
            *row_count = row_count.saturating_sub(1);
            if header == HeaderState::Expected {
                let expected = format!("the header {}", columns.join(","));
                faults.push(TableFault::expected(display_name, expected, "no row"));
            }
        }
    }

    fn parse_name_line(
        &mut self,
        context: &LineContext,
        content: &'a str,
    ) -> Result<(), TableFault> {
        let (name, letters) = content.split_once(' ').unwrap_or((content, ""));
        let (name, is_exact) = match name.strip_prefix('=') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let mut votes = 0;
        for letter in letters.bytes() {
            let bit = letter.is_ascii_lowercase().then(|| 1 << (letter - b'a'));
            votes |= bit.filter(|bit| context.known_votes & bit != 0).ok_or_else(|| {
                let known: String = (b'a'..=b'z')
                    .filter(|l| context.known_votes >> (l - b'a') & 1 == 1)
                    .map(char::from)
                    .collect();
                let expected = format!("one name and vote letters of sources.toml ({known})");
                TableFault::expected(context.location(""), expected, quote_excerpt(content))
            })?;
        }
        let (name, parsed) = parse_name(context, "", name.into())?;
        match context.kind {
            ListKind::Tlds if name.contains('.') => {
                Err(TableFault::expected(context.location(""), "one label", quote_excerpt(&name)))
            }
            ListKind::Tlds => {
                self.tlds.push(name);
                Ok(())
            }
            ListKind::Seed => {
                self.seed.push(name);
                Ok(())
            }
            kind => {
                let bits = match kind {
                    ListKind::SpecialUse => rules::rule_bit(Rule::SpecialUse),
                    ListKind::Protected => rules::rule_bit(Rule::Protected),
                    ListKind::Corporate => rules::rule_bit(Rule::Protected) | rules::CORPORATE_BIT,
                    ListKind::Alias => rules::rule_bit(Rule::Alias),
                    ListKind::Disposable(rule) => rules::rule_bit(rule),
                    ListKind::Role => rules::rule_bit(Rule::Role),
                    ListKind::FreeSubdomain => rules::rule_bit(Rule::FreeSubdomain),
                    ListKind::Known => rules::REAL_NAME_BIT,
                    ListKind::Cleared => rules::REAL_NAME_BIT | rules::CLEARED_BIT,
                    _ => rules::rule_bit(Rule::Free),
                };
                self.push_unless_icann_suffix(
                    context,
                    name,
                    &parsed,
                    is_exact,
                    RowFacts { fact_bits: bits, label: 0, votes },
                );
                Ok(())
            }
        }
    }
}
