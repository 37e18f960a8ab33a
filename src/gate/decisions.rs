//! What sign-ups are decided by, and when they count: `[[rule]]`, `[inbox]`, `[decide]` and
//! `screen.success` in the config.

use crate::decide::{DecisionRule, Fact, ScorePolicy};

/// `[[rule]]`, `[inbox]` and `[decide]` in the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    rules: Vec<DecisionRule>,
    /// Each request asks, so the rules are searched once.
    asks_for_counts: bool,
    /// Whether the config has a section `[inbox]`.
    pub has_inbox_section: bool,
    /// Whether ids and counts of accounts are apart.
    pub is_by_account: bool,
    /// Which scores block on `/v1/assess`.
    pub assess_policy: ScorePolicy,
}

/// When a sign-up on a route has succeeded; `screen.success` in the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SignUpSuccess {
    /// The server answers 3xx, or 2xx that is not `text/html`: a page may show the form again.
    #[default]
    Usual,
    /// The server answers one of these.
    Statuses(Vec<u16>),
    /// Sign-ups of this route don't count.
    Never,
}

impl Decisions {
    /// Decisions by these rules, in their order.
    pub fn by_rules(rules: Vec<DecisionRule>) -> Decisions {
        let counts = || Fact::ALL.into_iter().filter(|fact| fact.is_count());
        let asks_for_counts = rules.iter().any(|rule| counts().any(|fact| rule.asks_for(fact)));
        Decisions { rules, asks_for_counts, ..Decisions::default() }
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[DecisionRule] {
        &self.rules
    }

    /// Whether inbox ids are made, and sign-ups counted.
    pub fn is_on(&self) -> bool {
        self.has_inbox_section || !self.rules.is_empty()
    }

    /// Whether a rule asks for a count of sign-ups.
    pub fn asks_for_counts(&self) -> bool {
        self.asks_for_counts
    }
}

impl SignUpSuccess {
    /// Whether a sign-up has succeeded if the server answers so.
    pub fn is_success(&self, status: u16, is_html: bool) -> bool {
        match self {
            SignUpSuccess::Usual => match status {
                200..=299 => !is_html,
                300..=399 => true,
                _ => false,
            },
            SignUpSuccess::Statuses(statuses) => statuses.contains(&status),
            SignUpSuccess::Never => false,
        }
    }
}
