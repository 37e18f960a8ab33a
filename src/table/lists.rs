//! Parses lists into rows. A row is one fact about one name, with its line number.
//!
//! This module checks every name. `rules` decides which answer the facts of a name give. `resolve`
//! decides which facts a name passes on to the names below it.

use super::added_lists::FeedList;
use super::csv;
use super::csv_lists::{self, HeaderState};
use super::fault::{TableFault, TableFaults};
use super::manifest::{ListKind, ListOrigin, ListSpec};
use super::rows::{ListLineContext, ParsedLists, RowFacts, SeenDaysRow, parse_name};
use super::rules;
use super::seen_days::{Day, SeenDays};
use crate::model::verdict::Rule;

impl<'a> ParsedLists<'a> {
    /// Parses the text of the list with this number, and adds its rows. Lists of kind `mx_label`
    /// must be parsed before lists of kind `mx`. `known_vote_bits` has a bit for each vote letter
    /// that a line may use. `source_vote_bit` is the bit of the list's source; 0 for none.
    pub(super) fn parse_and_add_list(
        &mut self,
        (number, list): (u8, &ListSpec),
        name_in_faults: &str,
        list_text: &'a str,
        (known_vote_bits, source_vote_bit): (u32, u32),
        faults: &mut TableFaults,
    ) {
        self.first_line_by_name.clear();
        let mut context = ListLineContext {
            list_number: number,
            list_kind: list.kind,
            name_in_faults,
            known_vote_bits,
            source_vote_bit,
            line_number: 0,
            seen_days: SeenDays::default(),
        };
        let is_feed = list.list_origin == ListOrigin::Feed;
        let mut header = HeaderState::Expected;
        for (line, content) in (1..).zip(list_text.trim_start_matches('\u{feff}').lines()) {
            context.line_number = line;
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                if is_feed && let Some(time) = FeedList::parse_time_line(content) {
                    context.seen_days = SeenDays::with_unknown_first(Day::containing(time));
                }
                continue;
            }
            let is_csv = csv_lists::required_columns_of(list.kind).is_some();
            if is_csv && csv::is_empty_row(content) {
                continue;
            }
            let parsed = match csv_lists::required_columns_of(list.kind) {
                None if list.kind == ListKind::Seen => {
                    self.parse_and_add_seen_line(&context, content)
                }
                None => self.parse_and_add_name_line(&context, content),
                Some(columns) => csv::parse_fields(content)
                    .map_err(|(expected, found)| {
                        TableFault::expected(context.format_location(""), expected, found)
                    })
                    .and_then(|fields| {
                        self.parse_and_add_csv_line(&context, columns, &mut header, fields)
                    }),
            };
            match parsed {
                Ok(()) => self.row_count_by_list[usize::from(number)] += 1,
                // A faulty line of a feed is only counted: the operator can't correct it, and the
                // other lines of the feed are valid.
                Err(_) if is_feed => self.ignored_row_count_by_list[usize::from(number)] += 1,
                Err(fault) => faults.push(fault),
            }
        }
        if let Some(columns) = csv_lists::required_columns_of(list.kind) {
            // The header is not a row.
            let row_count = &mut self.row_count_by_list[usize::from(number)];
            *row_count = row_count.saturating_sub(1);
            if header == HeaderState::Expected {
                let expected = format!("the header {}", columns.join(","));
                faults.push(TableFault::expected(name_in_faults, expected, "no row"));
            }
        }
    }

    /// Parses a line of a list of kind `seen`: the name, the first day and the last day, with tabs
    /// between. Ignores further columns.
    fn parse_and_add_seen_line(
        &mut self,
        context: &ListLineContext,
        trimmed_line: &'a str,
    ) -> Result<(), TableFault> {
        let mut columns = trimmed_line.split('\t');
        let name = columns.next().unwrap_or_default();
        let [first, last] = [(); 2].map(|()| columns.next().and_then(Day::parse));
        let (Some(first), Some(last)) = (first, last.filter(|last| Some(*last) >= first)) else {
            let expected = "a name, its first day and its last day, YYYY-MM-DD, with tabs between";
            return Err(context.fault("", expected, trimmed_line));
        };
        let (name, _) = parse_name(context, "", name.into())?;
        let (days, vote_bit) = (SeenDays { first, last }, context.source_vote_bit);
        self.seen_rows.push(SeenDaysRow { name, days, vote_bit });
        Ok(())
    }

    fn parse_and_add_name_line(
        &mut self,
        context: &ListLineContext,
        trimmed_line: &'a str,
    ) -> Result<(), TableFault> {
        let (name, letters) = trimmed_line.split_once(' ').unwrap_or((trimmed_line, ""));
        let (name, is_exact) = match name.strip_prefix('=') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let mut votes = 0;
        for letter in letters.bytes() {
            let bit = letter.is_ascii_lowercase().then(|| 1 << (letter - b'a'));
            votes |= bit.filter(|bit| context.known_vote_bits & bit != 0).ok_or_else(|| {
                let known: String = (b'a'..=b'z')
                    .filter(|l| context.known_vote_bits >> (l - b'a') & 1 == 1)
                    .map(char::from)
                    .collect();
                let expected = format!("one name and vote letters of sources.toml ({known})");
                context.fault("", &expected, trimmed_line)
            })?;
        }
        let (name, parsed) = parse_name(context, "", name.into())?;
        match context.list_kind {
            ListKind::Tlds if name.contains('.') => {
                return Err(context.fault("", "one label", &name));
            }
            ListKind::Tlds => self.tlds.push(name),
            ListKind::Seed => self.top_list_seed.push(name),
            kind => {
                let bits = match kind {
                    ListKind::SpecialUse => rules::rule_bit(Rule::SpecialUse),
                    ListKind::Protected => rules::rule_bit(Rule::Protected),
                    ListKind::Corporate => rules::rule_bit(Rule::Protected) | rules::CORPORATE_BIT,
                    ListKind::Alias => rules::rule_bit(Rule::Alias),
                    ListKind::AgentInbox => rules::rule_bit(Rule::AgentInbox),
                    ListKind::Disposable(rule) => rules::rule_bit(rule),
                    ListKind::Role => rules::rule_bit(Rule::Role),
                    ListKind::FreeSubdomain => rules::rule_bit(Rule::FreeSubdomain),
                    ListKind::Known => rules::KNOWN_OR_CLEARED_BIT,
                    ListKind::Cleared => rules::KNOWN_OR_CLEARED_BIT | rules::CLEARED_BIT,
                    _ => rules::rule_bit(Rule::Free),
                };
                let facts = RowFacts { fact_bits: bits, label_number: 0, vote_bits: votes };
                self.push_unless_icann_suffix(context, name, &parsed, is_exact, facts);
            }
        }
        Ok(())
    }
}
