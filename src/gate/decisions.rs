//! What a request is decided by: the rules of the config, and the facts about one address.

use std::net::IpAddr;

use crate::decide::{CountFacts, DecisionRule, DomainFacts, Fact, Facts, Scope, ScorePolicy};
use crate::model::domain::Domain;
use crate::model::email::EmailAddress;
use crate::model::sign_up::SignUp;
use crate::model::verdict::{Reason, Rule, Score};
use crate::table::TableAnswer;

use super::request_context::RequestContext;
use super::state::Gate;

/// `[[rule]]`, `[inbox]` and `[decide]` in the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// The rules, in their order.
    pub rules: Vec<DecisionRule>,
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

/// What is known about one address, or about a text that should be one.
#[derive(Clone, Debug)]
pub struct AddressFacts {
    /// The domain; `None` for a text with none.
    pub domain: Option<Domain>,
    /// The risk score.
    pub score: Score,
    /// The reason of the score.
    pub reason: Reason,
    /// Whether the local part has this reason and score, and not the domain.
    pub is_about_local_part: bool,
    /// What is known about the domain; `None` for a text that is no address.
    pub of_domain: Option<DomainFacts>,
    /// Whether the address belongs to a function or a machine; `None` without a local part.
    pub is_role: Option<bool>,
    /// The sign-up; `None` if no id is made.
    pub sign_up: Option<SignUp>,
    /// The counts of other sign-ups.
    pub counts: CountFacts,
}

/// Returns the facts about an address, by what a look-up of its domain has found: those with the
/// verdict on the domain, and once more with that on the local part if it has one.
pub fn facts_of_address(
    address: &EmailAddress,
    lookup: &TableAnswer<'_>,
    role_score: Score,
) -> Vec<AddressFacts> {
    let is_role = address.is_role();
    let facts = AddressFacts {
        is_role: Some(is_role),
        ..AddressFacts::of_domain(address.domain(), lookup)
    };
    let as_role = is_role.then(|| AddressFacts {
        reason: Reason::RoleAccount,
        score: role_score,
        is_about_local_part: true,
        ..facts.clone()
    });
    std::iter::once(facts).chain(as_role).collect()
}

impl Decisions {
    /// Whether inbox ids are made, and sign-ups counted.
    pub fn is_on(&self) -> bool {
        self.has_inbox_section || !self.rules.is_empty()
    }

    fn asks_for_counts(&self) -> bool {
        let counts = || Fact::ALL.into_iter().filter(|fact| fact.is_count());
        self.rules.iter().any(|rule| counts().any(|fact| rule.asks_for(fact)))
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

impl AddressFacts {
    /// The facts about a domain, without those of a local part.
    pub fn of_domain(domain: &Domain, lookup: &TableAnswer<'_>) -> AddressFacts {
        let verdict = lookup.verdict;
        AddressFacts {
            domain: Some(domain.clone()),
            score: verdict.score,
            reason: verdict.reason,
            is_about_local_part: false,
            of_domain: Some(DomainFacts {
                verdict_source: lookup.verdict_source(),
                is_free_provider: verdict.is_free_provider,
                is_corporate_email: verdict.is_corporate_email,
                is_alias: verdict.rule == Rule::Alias,
            }),
            is_role: None,
            sign_up: None,
            counts: CountFacts::default(),
        }
    }

    /// The facts about a text that is no address. A part of it may be this domain.
    pub fn of_no_address(domain: Option<Domain>, score: Score) -> AddressFacts {
        AddressFacts {
            domain,
            score,
            reason: Reason::Undeliverable,
            is_about_local_part: false,
            of_domain: None,
            is_role: None,
            sign_up: None,
            counts: CountFacts::default(),
        }
    }

    /// Leaves out whatever depends on earlier sign-ups.
    pub fn forget_sign_up(&mut self) {
        self.sign_up = None;
        self.counts = CountFacts::default();
    }

    /// The facts, as rules ask for them.
    pub fn for_rules(&self) -> Facts<'_> {
        Facts {
            domain: self.domain.as_ref().map(Domain::as_str),
            risk_score: self.score,
            reason: self.reason,
            of_domain: self.of_domain,
            is_role: self.is_role,
            counts: self.counts,
        }
    }
}

impl Gate {
    /// Takes note that the server answers a request so. A sign-up that succeeded counts.
    pub(crate) fn take_server_answer(&self, status: u16, is_html: bool, ctx: &mut RequestContext) {
        ctx.set_upstream_outcome(status);
        if let (Some(screened), Some(rules)) = (&ctx.screened, &ctx.screen_rules)
            && rules.success.is_success(status, is_html)
        {
            screened.sign_ups.iter().for_each(|sign_up| self.state.sign_ups.record(sign_up));
        }
    }

    /// Returns the sign-up of an address by this client; `None` if no id is made.
    pub(super) fn identify_sign_up(
        &self,
        address: &EmailAddress,
        lookup: &TableAnswer<'_>,
        client: Option<IpAddr>,
        ctx: &RequestContext,
    ) -> Option<SignUp> {
        let decisions = &ctx.rules.decisions;
        if !decisions.is_on() {
            return None;
        }
        // A trusted proxy is no client: it stands for all of them.
        let proxies = &self.startup_rules.client_address.trusted_proxies;
        let client = client.filter(|address| !proxies.contains(*address));
        // The whole world has addresses there.
        let is_shared = lookup.verdict.rule == Rule::Protected || lookup.verdict.is_free_provider;
        let scope = match &ctx.key {
            Some(key) if decisions.is_by_account => Scope::Account(&key.account.name),
            _ => Scope::Deployment,
        };
        self.state.sign_ups.identify(address, client, !is_shared, scope, ctx.unix_now())
    }

    /// The counts of other sign-ups, if a rule asks for one.
    pub(super) fn count_other_sign_ups(
        &self,
        sign_up: Option<&SignUp>,
        ctx: &RequestContext,
    ) -> CountFacts {
        match sign_up.filter(|_| ctx.rules.decisions.asks_for_counts()) {
            Some(sign_up) => self.state.sign_ups.count_others(sign_up),
            None => CountFacts::default(),
        }
    }
}
