//! The operator's rules, and the decision on one sign-up.

use smol_str::SmolStr;

use crate::model::verdict::{Reason, Score};

use super::condition::Condition;
use super::facts::{Fact, Facts};

/// What follows for a sign-up, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It may go on.
    Pass,
    /// It may go on, and a person or a further check should look at it.
    Review,
    /// It is to be refused.
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
        ScorePolicy { block_score: Score::DEFAULT_BLOCK, block_reasons: Reason::ALL.to_vec() }
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
mod tests {
    use crate::decide::{CountFacts, DomainFacts};
    use crate::model::verdict::{Rule, VerdictSource};

    use super::*;

    fn facts(score: u8, inbox_accounts: u32) -> Facts<'static> {
        Facts {
            domain: Some("example.com"),
            risk_score: Score::new(score).unwrap(),
            reason: Reason::Disposable,
            of_domain: Some(DomainFacts {
                verdict_source: VerdictSource::List,
                table_rule: Rule::DisposableA,
                is_free_provider: false,
                is_corporate_email: false,
                is_alias: false,
            }),
            is_role: Some(false),
            counts: CountFacts {
                inbox_accounts_30d: Some(inbox_accounts),
                ..CountFacts::default()
            },
        }
    }

    fn rule(name: &str, condition: &str, then: Action, routes: Option<&[&str]>) -> DecisionRule {
        DecisionRule {
            name: name.into(),
            conditions: match condition {
                "" => vec![],
                text => vec![Condition::parse(text).unwrap()],
            },
            then,
            message: None,
            routes: routes.map(|routes| routes.iter().map(|it| (*it).to_owned()).collect()),
        }
    }

    #[test]
    fn the_first_rule_that_holds_decides_and_only_pass_overrules_the_score() {
        let rules = [
            rule("trusted", "domain == partner.com", Action::Pass, None),
            rule("many", "inbox_accounts_30d >= 3", Action::Block, None),
            rule("some", "inbox_accounts_30d >= 1", Action::Review, None),
        ];
        let partner = |score| Facts { domain: Some("partner.com"), ..facts(score, 9) };
        for (facts, action, rule) in [
            (facts(0, 0), Action::Pass, None),
            (facts(90, 0), Action::Block, None),
            (facts(0, 1), Action::Review, Some("some")),
            (facts(90, 1), Action::Block, None),
            (facts(0, 3), Action::Block, Some("many")),
            (facts(90, 3), Action::Block, Some("many")),
            (partner(90), Action::Pass, Some("trusted")),
        ] {
            let found = decide(&facts, "/signup", &rules, &ScorePolicy::default());
            let name = found.rule.map(|rule| rule.name.as_str());
            assert_eq!((found.action, name), (action, rule), "{facts:?}");
        }
    }

    #[test]
    fn a_rule_applies_to_its_routes_only() {
        let rules = [rule("signup", "", Action::Block, Some(&["/signup"]))];
        let on = |route| decide(&facts(0, 0), route, &rules, &ScorePolicy::default()).action;
        assert_eq!(
            (on("/signup"), on("/join"), on("assess")),
            (Action::Block, Action::Pass, Action::Pass)
        );
    }

    #[test]
    fn a_rule_without_conditions_hides_what_follows_on_its_routes() {
        let all = rule("all", "", Action::Review, None);
        let signup = rule("signup", "", Action::Review, Some(&["/signup", "/join"]));
        let conditional = rule("if", "risk_score > 1", Action::Review, None);
        assert!(all.hides(&conditional) && all.hides(&signup));
        assert!(signup.hides(&rule("x", "", Action::Pass, Some(&["/join"]))));
        assert!(!signup.hides(&all) && !signup.hides(&rule("x", "", Action::Pass, Some(&["/a"]))));
        assert!(!conditional.hides(&all));
    }
}
