//! The rules of screening, and its result for one form.

use smol_str::SmolStr;

use crate::decide::ScorePolicy;
use crate::message::riskgate_fields::ScreeningFacts;
use crate::model::domain::Domain;
use crate::model::refusal::Refusal;
use crate::model::sign_up::{Pseudonym, SignUp};
use crate::model::verdict::Score;
use crate::observe::access_log::ScreeningEntry;
use crate::screening::{FieldPath, UnreadCause};
use crate::support::client_rates::Rate;

use super::decisions::SignUpSuccess;

/// How the posts of a route are screened: `[upstream.route.screen]` in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenRules {
    /// What follows from a verdict.
    pub policy: ScreenPolicy,
    /// Only posts to these paths, and to paths below them, are screened; all of the route if there
    /// are none.
    pub paths: Vec<String>,
    /// The fields that contain e-mail addresses.
    pub fields: Vec<FieldPath>,
    /// How often one client may post a form.
    pub max_per_client: Option<Rate>,
    /// Where browsers are sent instead of getting a 422.
    pub redirect: Option<String>,
    /// When a sign-up has succeeded, and counts.
    pub success: SignUpSuccess,
}

impl ScreenRules {
    /// The rules that judge the fields of both, and refuse what either refuses. The other settings
    /// are those of the rules with the stricter mode.
    pub fn strictest_of(&self, others: &ScreenRules) -> ScreenRules {
        let (stricter, milder) = match self.policy.mode < others.policy.mode {
            true => (others, self),
            false => (self, others),
        };
        let mut rules = stricter.clone();
        let fields = milder.fields.iter().filter(|field| !stricter.fields.contains(field));
        rules.fields.extend(fields.cloned());
        let (scores, other_scores) = (&mut rules.policy.scores, &milder.policy.scores);
        let reasons = &stricter.policy.scores.block_reasons;
        let further = other_scores.block_reasons.iter().filter(|it| !reasons.contains(it));
        scores.block_reasons.extend(further);
        scores.block_score = scores.block_score.min(other_scores.block_score);
        rules.policy.blocks_unscreened |= milder.policy.blocks_unscreened;
        rules.max_per_client = stricter.max_per_client.or(milder.max_per_client);
        rules
    }
}

/// What follows from the verdict on the e-mail addresses of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenPolicy {
    /// The path of the route, for metrics and logs.
    pub route: String,
    /// Who learns of a verdict, and whether requests are refused.
    pub mode: ScreenMode,
    /// Which scores are to be blocked.
    pub scores: ScorePolicy,
    /// The message of the refusal.
    pub message: String,
    /// Whether a form that could not be read is refused, in the mode `block`.
    pub blocks_unscreened: bool,
}

/// What follows from the verdict on a form, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScreenMode {
    /// riskgate only counts and logs.
    Shadow,
    /// The upstream server is told the verdict.
    Annotate,
    /// A form that is to be blocked is refused, and the upstream server is told the verdict on all
    /// others.
    Block,
}

impl ScreenMode {
    /// The name in the config.
    pub const fn as_str(self) -> &'static str {
        match self {
            ScreenMode::Shadow => "shadow",
            ScreenMode::Annotate => "annotate",
            ScreenMode::Block => "block",
        }
    }
}

/// What riskgate did with a form; the `action` in metrics, logs and for the upstream server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenAction {
    /// Forwarded.
    Pass,
    /// Forwarded, and a rule says that somebody should look at it.
    Review,
    /// Forwarded, although the rules say that it is to be blocked: the mode is not `block`.
    WouldBlock,
    /// Refused.
    Block,
    /// Forwarded, because it could not be read.
    Unscreened,
}

impl ScreenAction {
    /// The name in metrics, logs and header fields.
    pub const fn as_str(self) -> &'static str {
        match self {
            ScreenAction::Pass => "pass",
            ScreenAction::Review => "review",
            ScreenAction::WouldBlock => "would_block",
            ScreenAction::Block => "block",
            ScreenAction::Unscreened => "unscreened",
        }
    }
}

/// The result of screening one form.
#[derive(Clone, Debug)]
pub(crate) struct ScreeningResult {
    pub action: ScreenAction,
    /// The reason of the worst verdict, or why the form could not be read.
    pub reason: &'static str,
    /// The worst score; `None` for an unscreened form.
    pub score: Option<Score>,
    /// The domain of the address with the worst score, if it has a valid one.
    pub domain: Option<Domain>,
    /// The provider that the user probably meant.
    pub suggestion: Option<SmolStr>,
    /// The rule that decided.
    pub rule: Option<ScreeningRule>,
    /// The inbox of that address; `None` if no id is made.
    pub inbox: Option<Pseudonym>,
    /// The sign-ups that count if the server accepts the form: one for each address.
    pub sign_ups: Vec<SignUp>,
    /// Whether the upstream server is told the result.
    pub is_upstream_told: bool,
}

/// The rule that decided about a form.
#[derive(Clone, Debug)]
pub(crate) struct ScreeningRule {
    pub name: SmolStr,
    /// The message of a refusal; that of the route if `None`.
    pub message: Option<String>,
}

impl ScreeningResult {
    /// The result for a form that could not be read. A form without such a field was read.
    pub fn unread(cause: UnreadCause, policy: &ScreenPolicy) -> ScreeningResult {
        let is_blocked = policy.blocks_unscreened
            && policy.mode == ScreenMode::Block
            && cause != UnreadCause::NoField;
        let unscreened = ScreeningResult::unscreened(cause.as_str(), policy.mode);
        match is_blocked {
            true => ScreeningResult { action: ScreenAction::Block, ..unscreened },
            false => unscreened,
        }
    }

    /// The result for a form that was not judged for this reason.
    pub fn unscreened(reason: &'static str, mode: ScreenMode) -> ScreeningResult {
        ScreeningResult {
            action: ScreenAction::Unscreened,
            reason,
            score: None,
            domain: None,
            suggestion: None,
            rule: None,
            inbox: None,
            sign_ups: Vec::new(),
            is_upstream_told: mode != ScreenMode::Shadow,
        }
    }

    /// The refusal of the form; `None` if it is not refused.
    pub fn refusal(&self, policy: &ScreenPolicy) -> Option<Refusal> {
        if self.action != ScreenAction::Block {
            return None;
        }
        if self.score.is_none() {
            return Some(Refusal::FormUnreadable { why: self.reason });
        }
        let message_of_rule = self.rule.as_ref().and_then(|rule| rule.message.as_ref());
        Some(Refusal::EmailRefused {
            message: message_of_rule.unwrap_or(&policy.message).clone(),
            reason: if self.rule.is_some() { "rule" } else { self.reason },
            suggestion: self.suggestion.clone(),
        })
    }

    /// The name of the rule that decided.
    pub fn rule_name(&self) -> Option<&str> {
        self.rule.as_ref().map(|rule| rule.name.as_str())
    }

    /// The part of the access log's entry.
    pub fn log_entry(&self) -> ScreeningEntry<'_> {
        ScreeningEntry {
            action: self.action.as_str(),
            score: self.score.map(Score::value),
            domain: self.domain.as_ref().map(Domain::as_str),
            rule: self.rule_name(),
        }
    }

    /// What the upstream server is told; `None` if it is told nothing.
    pub fn facts_for_upstream(&self) -> Option<ScreeningFacts<'_>> {
        self.is_upstream_told.then(|| ScreeningFacts {
            action: self.action.as_str(),
            reason: self.reason,
            score: self.score.map(Score::value),
            domain: self.domain.as_ref().map(Domain::as_str),
            suggestion: self.suggestion.as_deref(),
            rule: self.rule_name(),
            inbox: self.inbox,
        })
    }
}
