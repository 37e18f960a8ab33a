//! A gateway, as far as decisions need it.

use std::time::{Duration, Instant};

use riskgate::config::{Config, ConfigFile, ConfigSources};
use riskgate::decide::{
    Action, DecisionRule, InboxSecret, ScorePolicy, SignUpCounter, SignUpScope, decide,
};
use riskgate::gate::address_facts::facts_of_address;
use riskgate::model::email::EmailAddress;
use riskgate::table::{Table, TableLocation};

use super::traffic::Form;

const DOCUMENT: &str = include_str!("../../docs/decisions.md");
const ROUTE: &str = "/signup";

/// Decides forms and counts them.
pub struct Model {
    table: Table,
    sign_ups: SignUpCounter,
    rules: Vec<DecisionRule>,
    /// How long each decision took.
    pub times: Vec<Duration>,
}

impl Model {
    /// A model that has counted nothing yet.
    pub fn new(rules: Vec<DecisionRule>) -> Model {
        let secret = InboxSecret::new(&[7; 32]).expect("a secret");
        let sign_ups = SignUpCounter::with_secret(Some(&secret)).expect("the list of inbox rules");
        sign_ups.set_loaded();
        Model {
            table: Table::load(&TableLocation::Bundled).expect("the bundled table"),
            sign_ups,
            rules,
            times: Vec::new(),
        }
    }

    /// Decides a form, and counts it if it succeeds. Returns the action and what decided.
    pub fn decide(&mut self, form: &Form) -> (Action, String) {
        let address = EmailAddress::parse(&form.email).expect("an address");
        let lookup = self.table.lookup(address.domain(), form.at);
        let started = Instant::now();
        let (client, scope) = (Some(form.client), SignUpScope::Deployment);
        let sign_up = self.sign_ups.make_sign_up(
            &address,
            client,
            !lookup.is_protected_or_free_provider(),
            scope,
            form.at,
        );
        let sign_up = sign_up.expect("a secret");
        let counts = self.sign_ups.count_others(&sign_up);
        let mut facts = facts_of_address(&address, &lookup, self.table.role_score());
        facts.iter_mut().for_each(|facts| facts.counts = counts);
        let policy = ScorePolicy::default();
        let decision = decide(&facts[0].for_rules(), ROUTE, &self.rules, &policy);
        if form.succeeds && decision.action != Action::Block {
            self.sign_ups.record_form(&[sign_up]);
        }
        self.times.push(started.elapsed());
        // The thread that takes the queued sign-ups to the store is missing here.
        self.sign_ups.remove_unsaved(usize::MAX);
        (decision.action, decision.rule.map_or("the score".to_owned(), |it| it.name.to_string()))
    }
}

/// Reads the recipes of docs/decisions.md, in their order, as `riskgate run` reads a config.
pub fn read_recipes() -> Vec<DecisionRule> {
    let section = DOCUMENT.split_once("\n## Recipes\n").expect("a section Recipes").1;
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let blocks = section.split("\n```toml\n").skip(1);
    let toml: String = blocks.map(|it| it.split("```").next().unwrap_or_default()).collect();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &toml).expect("a written file");
    let sources =
        ConfigSources { file: ConfigFile::Path(file.path().to_owned()), flags: Vec::new() };
    let rules = Config::read(&sources).expect("recipes that riskgate takes").reloadable.decisions;
    assert_eq!(rules.rules().len(), toml.matches("[[rule]]").count(), "{toml}");
    rules.rules().to_vec()
}
