//! How old the knowledge behind the answers of lists is, by the dates of their sources.
//!
//! Of most lists only the date of their source is known; `seen_days` has the days of single names.

use std::collections::HashSet;

use super::layout::parts::{ListInfo, TableMeta};
use super::manifest::ListKind;
use super::rules::StoredAnswer;
use super::seen_days::{Day, SeenDays};
use super::source_packages::{SourcePackage, vote_bit};
use crate::model::verdict::{Rule, VerdictSource};

/// The dates of the sources behind an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceDays {
    /// The date of the newest source.
    pub newest: Day,
    /// The date of the newest source of which the days of single names are not known.
    newest_without_seen_list: Day,
}

impl SourceDays {
    /// The day of the newest evidence about a name with these days.
    pub(super) fn newest_evidence(self, seen_days: SeenDays) -> Day {
        match seen_days.last {
            Day::UNKNOWN => self.newest,
            last => last.max(self.newest_without_seen_list),
        }
    }
}

/// Finds the dates of the sources behind each answer, in the order of the answers. An answer that
/// no list decided has no dates.
pub(super) fn find_source_days_by_answer(
    meta: &TableMeta,
    answers: &[StoredAnswer],
) -> Vec<SourceDays> {
    let is_seen_list = |list: &&ListInfo| list.kind == ListKind::Seen.as_str();
    let with_seen_list: HashSet<&str> =
        meta.list.iter().filter(is_seen_list).filter_map(|list| list.source.as_deref()).collect();
    let verified_mx = meta.inferred.verified_mx_vote.map_or(0, vote_bit);
    let days_of_answer = |answer: &StoredAnswer| {
        let mut days = SourceDays::default();
        if answer.verdict.rule.verdict_source() != VerdictSource::List {
            return days;
        }
        let lists = (0..).zip(&meta.list).filter(|(number, list)| {
            answer.list_bits >> number & 1 == 1 && supports_rule(list, answer.verdict.rule)
        });
        let sources_of_lists: HashSet<&str> =
            lists.filter_map(|(_, list)| list.source.as_deref()).collect();
        let has_vote = |source: &SourcePackage| {
            let bit = source.vote.map_or(0, vote_bit);
            answer.vote_bits & bit & !verified_mx != 0
        };
        for source in &meta.source {
            if has_vote(source) || sources_of_lists.contains(source.name.as_str()) {
                let day = Day::parse(&source.date).unwrap_or_default();
                days.newest = days.newest.max(day);
                if !with_seen_list.contains(source.name.as_str()) {
                    days.newest_without_seen_list = days.newest_without_seen_list.max(day);
                }
            }
        }
        days
    };
    answers.iter().map(days_of_answer).collect()
}

/// Whether a row of this list is evidence for a verdict by this rule. A list of labels, for
/// example, may have given the answer for a disposable name its label, but not its verdict.
fn supports_rule(list: &ListInfo, rule: Rule) -> bool {
    let is_corporate = rule == Rule::Protected && list.kind == ListKind::Corporate.as_str();
    list.kind == rule.as_str() || is_corporate
}
