//! Overrides whose reason contradicts the score of a name, because they set no score.

use std::collections::BTreeMap;

use crate::model::verdict::{Reason, Rule, Score};
use crate::support::counted::CountedNoun;
use crate::table::manifest::Scores;
use crate::table::rules::OverrideRow;

/// The most overrides that have a warning of their own.
const MAX_WARNED_OVERRIDES: usize = 20;

/// The noted overrides, by the number of their list and their line.
#[derive(Default)]
pub(super) struct DoubtfulOverrides<'r>(BTreeMap<(u8, u32), DoubtfulOverride<'r>>);

/// What contradicts an override.
#[derive(Clone, Copy)]
struct DoubtfulOverride<'r> {
    reason: Reason,
    /// The name of the override, or a name below it.
    name: &'r str,
    /// The score that this name keeps.
    score: Score,
}

impl<'r> DoubtfulOverrides<'r> {
    /// Notes the row that decides a name, if the row sets a reason and leaves the name a score that
    /// contradicts the reason. Of the names of a row, the row's own name counts, else the first.
    pub(super) fn note(&mut self, name: &'r str, row: Option<&OverrideRow<'_>>, score: Score) {
        let Some(row) = row.filter(|row| row.score.is_none()) else { return };
        let Some(reason) = row.reason.filter(|reason| reason.contradicts(score)) else { return };
        let doubtful = DoubtfulOverride { reason, name, score };
        let noted = self.0.entry((row.list_number, row.line_number)).or_insert(doubtful);
        if row.name == name && noted.name != name {
            *noted = doubtful;
        }
    }

    /// Makes the warnings about the noted rows. `list_names` has the names of the lists in faults.
    pub(super) fn to_warnings(&self, list_names: &[String], scores: &Scores) -> Vec<String> {
        let describe = |((list, line), doubtful): (&(u8, u32), &DoubtfulOverride<'_>)| {
            let DoubtfulOverride { reason, name, score } = doubtful;
            let meant = match reason {
                Reason::Safe => Score::ZERO,
                Reason::RoleAccount => scores.score_of(Rule::Role),
                Reason::Disposable => scores.score_of(Rule::DisposableA),
                Reason::Undeliverable => scores.score_of(Rule::NoMail),
            };
            format!(
                "{}:{line}: risk_score: expected a score beside the reason {reason}, because \
                 {name} keeps the score {} without one; write {}",
                list_names[usize::from(*list)],
                score.value(),
                meant.value()
            )
        };
        let mut warnings: Vec<String> =
            self.0.iter().take(MAX_WARNED_OVERRIDES).map(describe).collect();
        if let more @ 1.. = self.0.len() - warnings.len() {
            warnings.push(format!(
                "{} without a score beside the reason: expected a score, because a name keeps one \
                 that contradicts the reason",
                CountedNoun(more, "more override")
            ));
        }
        warnings
    }
}
