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
        counts: CountFacts { inbox_accounts_30d: Some(inbox_accounts), ..CountFacts::default() },
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
