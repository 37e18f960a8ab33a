//! The settings by which riskgate decides about sign-ups and counts them: `[[rule]]`, `[inbox]`,
//! `[decide]` and `screen.success` in the config.

use crate::decide::{DecisionRule, ScorePolicy};

/// The sections `[[rule]]`, `[inbox]` and `[decide]` of the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionSettings {
    rules: Vec<DecisionRule>,
    /// Whether a rule asks for a count. Kept here, so that no request searches the rules.
    asks_for_counts: bool,
    /// Whether the config has a section `[inbox]`.
    pub has_inbox_section: bool,
    /// Whether each account has inbox ids and counts of its own.
    pub is_by_account: bool,
    /// The scores and reasons that lead to the action `block` on `/v1/assess`.
    pub assess_policy: ScorePolicy,
}

/// When a sign-up on a route has succeeded; `screen.success` in the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SignUpSuccessRule {
    /// The server answers 3xx, or 2xx that is not `text/html`. A 2xx with `text/html` may be the
    /// form again.
    #[default]
    Usual,
    /// The server answers with one of these statuses.
    Statuses(Vec<u16>),
    /// Sign-ups of this route don't count.
    Never,
}

impl DecisionSettings {
    /// Creates settings with these rules, in their order. All other settings have their defaults.
    pub fn with_rules(rules: Vec<DecisionRule>) -> DecisionSettings {
        let asks_for_counts = rules.iter().any(DecisionRule::asks_for_counts);
        DecisionSettings { rules, asks_for_counts, ..DecisionSettings::default() }
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[DecisionRule] {
        &self.rules
    }

    /// Whether riskgate makes inbox ids and counts sign-ups.
    pub fn counts_sign_ups(&self) -> bool {
        self.has_inbox_section || !self.rules.is_empty()
    }

    /// Whether a rule asks for a count of sign-ups.
    pub fn asks_for_counts(&self) -> bool {
        self.asks_for_counts
    }

    /// Whether a rule that applies to this route asks for a count of sign-ups.
    pub fn asks_for_counts_on(&self, route: &str) -> bool {
        self.rules.iter().any(|rule| rule.applies_to(route) && rule.asks_for_counts())
    }
}

impl SignUpSuccessRule {
    /// Whether a sign-up has succeeded if the server answers with this status. `is_html` says
    /// whether the answer is `text/html`.
    pub fn is_success(&self, status: u16, is_html: bool) -> bool {
        match self {
            SignUpSuccessRule::Usual => match status {
                200..=299 => !is_html,
                300..=399 => true,
                _ => false,
            },
            SignUpSuccessRule::Statuses(statuses) => statuses.contains(&status),
            SignUpSuccessRule::Never => false,
        }
    }
}
