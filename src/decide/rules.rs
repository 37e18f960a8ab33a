//! The operator's rules, and the decision on one sign-up.

use smol_str::SmolStr;

use crate::model::verdict::{Reason, Score};

use super::condition::Condition;
use super::facts::{Fact, Facts};

/// What follows for a sign-up, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The sign-up may go on.
    Pass,
    /// The sign-up may go on, and a person or a further check should look at it.
    Review,
    /// The sign-up is to be refused.
    Block,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 3] = [Action::Pass, Action::Review, Action::Block];

    /// The name in rules, answers, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::Pass => "pass",
            Action::Review => "review",
            Action::Block => "block",
        }
    }
}

/// A rule: `[[rule]]` in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRule {
    /// The name, which no other rule has.
    pub name: SmolStr,
    /// The rule decides only if all these conditions hold.
    pub conditions: Vec<Condition>,
    /// What follows.
    pub then: Action,
    /// The message of the refusal; that of the route if `None`.
    pub message: Option<String>,
    /// Where the rule applies: prefixes of routes, `authz` and `assess`. `None`: everywhere.
    pub routes: Option<Vec<String>>,
}

/// Which scores block: `block_score` and `block_reasons` in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScorePolicy {
    /// A score blocks from this value on.
    pub block_score: Score,
    /// A score blocks only with one of these reasons.
    pub block_reasons: Vec<Reason>,
}

/// The decision on one sign-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'r> {
    /// What follows.
    pub action: Action,
    /// The rule that decided; `None` if the score did, or if nothing speaks against the sign-up.
    pub rule: Option<&'r DecisionRule>,
}

impl Default for ScorePolicy {
    fn default() -> ScorePolicy {
        ScorePolicy { block_score: Score::DEFAULT_BLOCK_SCORE, block_reasons: Reason::ALL.to_vec() }
    }
}

impl ScorePolicy {
    /// Whether a verdict blocks.
    pub fn is_blocking(&self, score: Score, reason: Reason) -> bool {
        score >= self.block_score && self.block_reasons.contains(&reason)
    }
}

impl DecisionRule {
    /// Whether the rule applies to the sign-ups of this route.
    pub fn applies_to(&self, route: &str) -> bool {
        self.routes.as_ref().is_none_or(|routes| routes.iter().any(|it| it == route))
    }

    /// Whether the rule asks for this fact.
    pub fn asks_for(&self, fact: Fact) -> bool {
        self.conditions.iter().any(|condition| condition.fact() == fact)
    }

    /// Whether the rule asks for a count of sign-ups.
    pub fn asks_for_counts(&self) -> bool {
        self.conditions.iter().any(|condition| condition.fact().is_count())
    }

    /// Whether this rule has no conditions and applies wherever the later rule applies. The later
    /// rule then never decides.
    pub fn hides(&self, later: &DecisionRule) -> bool {
        let applies_everywhere = || match (&self.routes, &later.routes) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(routes)) => routes.iter().all(|route| own.contains(route)),
        };
        self.conditions.is_empty() && applies_everywhere()
    }

    fn holds(&self, facts: &Facts<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(facts))
    }
}

/// Decides a sign-up on a route. The first rule that applies to the route and holds decides, with
/// one exception: if the rule says `review` and the score blocks, the score decides. If no rule
/// holds, the score decides.
pub fn decide<'r>(
    facts: &Facts<'_>,
    route: &str,
    rules: &'r [DecisionRule],
    policy: &ScorePolicy,
) -> Decision<'r> {
    let rule = rules.iter().find(|rule| rule.applies_to(route) && rule.holds(facts));
    let is_blocked = policy.is_blocking(facts.risk_score, facts.reason);
    match rule {
        Some(rule) if rule.then != Action::Review || !is_blocked => {
            Decision { action: rule.then, rule: Some(rule) }
        }
        _ if is_blocked => Decision { action: Action::Block, rule: None },
        _ => Decision { action: Action::Pass, rule: None },
    }
}

/// Decides about values of which a server may use any. Returns the strictest decision with its
/// value; `None` if there is no value. Of equally strict decisions, the one on the highest score
/// counts. `facts_of` returns the facts about a value.
pub fn decide_strictest<'r, V>(
    values: impl IntoIterator<Item = V>,
    facts_of: impl Fn(&V) -> Facts<'_>,
    route: &str,
    rules: &'r [DecisionRule],
    policy: &ScorePolicy,
) -> Option<(V, Decision<'r>)> {
    let decided = values.into_iter().map(|value| {
        let facts = facts_of(&value);
        let (decision, score) = (decide(&facts, route, rules, policy), facts.risk_score);
        (value, decision, score)
    });
    let strictest = decided.max_by_key(|(_, decision, score)| (decision.action, *score));
    strictest.map(|(value, decision, _)| (value, decision))
}

#[cfg(test)]
mod tests;
