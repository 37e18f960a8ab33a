//! The rules of screening, and its result for one form.

use smol_str::SmolStr;

use crate::decide::ScorePolicy;
use crate::message::riskgate_fields::ScreeningFacts;
use crate::model::domain::Domain;
use crate::model::refusal::{MANY_INBOXES, Refusal};
use crate::model::sign_up::{Pseudonym, SignUp};
use crate::model::verdict::Score;
use crate::observe::access_log::ScreeningEntry;
use crate::screening::{FieldPath, UnreadCause};
use crate::support::client_rates::Rate;

use super::decisions::SignUpSuccessRule;

/// How the posts of a route are screened: `[upstream.route.screen]` in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenRules {
    /// What follows from a verdict.
    pub policy: ScreenPolicy,
    /// riskgate screens posts to these paths and to paths below them. If the list is empty,
    /// riskgate screens all posts on the route.
    pub paths: Vec<String>,
    /// The fields that contain e-mail addresses.
    pub fields: Vec<FieldPath>,
    /// How often one client may post a form: the rate of the route, if it has one. Merged rules
    /// have the rates of all their routes.
    pub max_per_client: Vec<PostRate>,
    /// The location to which riskgate sends a browser whose address it refuses, instead of a 422.
    pub redirect: Option<String>,
    /// Which answers of the server say that a sign-up has succeeded, and counts.
    pub success: SignUpSuccessRule,
}

/// How often one client may post a form that riskgate screens by the rules of a route. Each route
/// with such a rate has its own buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostRate {
    /// The prefix of the route.
    pub route: String,
    /// The rate.
    pub rate: Rate,
}

impl ScreenRules {
    /// Whether sign-ups on the route count.
    pub fn counts_forms(&self) -> bool {
        self.success != SignUpSuccessRule::Never
    }

    /// Returns the rules that judge the fields of both, and refuse what either refuses. All other
    /// settings are those of the rules with the stricter mode. Rules in the mode `shadow` refuse
    /// nothing, so their rates apply to no form that other rules screen too.
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
        if (stricter.policy.mode == ScreenMode::Shadow)
            == (milder.policy.mode == ScreenMode::Shadow)
        {
            let rates = milder.max_per_client.iter();
            let further = rates.filter(|rate| !stricter.max_per_client.contains(rate));
            rules.max_per_client.extend(further.cloned());
        }
        rules
    }
}

/// What follows from the verdict on the e-mail addresses of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenPolicy {
    /// The name of these rules in metrics: the prefix of the route, or `authz.path`.
    pub route: String,
    /// Who learns of a verdict, and whether riskgate refuses forms.
    pub mode: ScreenMode,
    /// The scores and reasons that are to be blocked.
    pub scores: ScorePolicy,
    /// The message of the refusal.
    pub message: String,
    /// Whether riskgate, in the mode `block`, refuses a form that it could not read whole, or that
    /// has addresses of too many inboxes.
    pub blocks_unscreened: bool,
}

/// What follows from the verdict on a form, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScreenMode {
    /// riskgate only counts and logs.
    Shadow,
    /// riskgate counts, logs, and tells the upstream server the verdict.
    Annotate,
    /// riskgate refuses a form that is to be blocked, and tells the upstream server the verdict on
    /// all other forms.
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

/// What riskgate did with a form; the `action` in metrics, logs and for the upstream server. On
/// `/v1/assess`, this is riskgate's advice. If a proxy asks, "forwarded" means admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenAction {
    /// Forwarded.
    Pass,
    /// Forwarded. A rule says that somebody should look at the sign-up.
    Review,
    /// Forwarded, although the rules say that it is to be blocked: the mode is not `block`.
    WouldBlock,
    /// Refused.
    Block,
    /// Forwarded without a verdict: riskgate found no address, could not read the whole form, found
    /// addresses of too many inboxes, or answered a proxy with `X-Fail-Open`.
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
    /// The reason of the verdict that decided, or why riskgate did not judge the form.
    pub reason: &'static str,
    /// The score of the verdict that decided; `None` if no verdict decided.
    pub score: Option<Score>,
    /// The domain of the verdict that decided; `None` without a verdict or a valid domain.
    pub domain: Option<Domain>,
    /// The provider that the user probably meant.
    pub suggestion: Option<SmolStr>,
    /// The rule that decided; `None` if no rule decided.
    pub rule: Option<ScreeningRule>,
    /// The one inbox to which all addresses of the form belong; `None` if there is no such inbox,
    /// or if no verdict decided.
    pub inbox: Option<Pseudonym>,
    /// The sign-ups that count if the server accepts the form. No two of them are equal.
    pub sign_ups: Vec<SignUp>,
    /// Whether the upstream server is told the result.
    pub is_upstream_told: bool,
}

/// The rule that decided about a form.
#[derive(Clone, Debug)]
pub(crate) struct ScreeningRule {
    pub name: SmolStr,
    /// The message of a refusal; if `None`, the refusal has the message of the route.
    pub message: Option<String>,
}

impl ScreeningResult {
    /// Makes the result for a form that riskgate could not read whole, for this cause. The policy
    /// may block the form, but not if the cause is that the form has no field with an address.
    pub fn of_unread_form(cause: UnreadCause, policy: &ScreenPolicy) -> ScreeningResult {
        match cause {
            UnreadCause::NoField => {
                ScreeningResult::of_unscreened_form(cause.as_str(), policy.mode)
            }
            _ => ScreeningResult::of_unclear_form(cause.as_str(), policy),
        }
    }

    /// Makes the result for a form with addresses of too many inboxes for a sign-up. In the mode
    /// `block`, the form is blocked if it would avoid a rule on counts, or if the policy says so.
    pub fn of_form_with_many_inboxes(policy: &ScreenPolicy, avoids_rule: bool) -> Self {
        let result = ScreeningResult::of_unclear_form(MANY_INBOXES, policy);
        match avoids_rule && policy.mode == ScreenMode::Block {
            true => ScreeningResult { action: ScreenAction::Block, ..result },
            false => result,
        }
    }

    /// Makes the result for a form if riskgate can't tell whose account the form makes, for this
    /// reason. The policy may block the form.
    fn of_unclear_form(reason: &'static str, policy: &ScreenPolicy) -> ScreeningResult {
        let unscreened = ScreeningResult::of_unscreened_form(reason, policy.mode);
        match policy.blocks_unscreened && policy.mode == ScreenMode::Block {
            true => ScreeningResult { action: ScreenAction::Block, ..unscreened },
            false => unscreened,
        }
    }

    /// Makes the result for a form that riskgate forwards without a verdict, for this reason.
    pub fn of_unscreened_form(reason: &'static str, mode: ScreenMode) -> ScreeningResult {
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
            let suggestion = self.suggestion.clone();
            return Some(Refusal::FormUnreadable { why: self.reason, suggestion });
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

    /// The part of the access log's entry that is about the screening.
    pub fn log_entry(&self) -> ScreeningEntry<'_> {
        ScreeningEntry {
            action: self.action.as_str(),
            score: self.score.map(Score::value),
            domain: self.domain.as_ref().map(Domain::as_str),
            rule: self.rule_name(),
        }
    }

    /// What riskgate tells the upstream server about the form; `None` if it tells nothing.
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
