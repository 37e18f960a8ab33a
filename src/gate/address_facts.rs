//! The facts about one address, by the answer of the table for its domain.

use crate::decide::{CountFacts, DomainFacts, Facts, InboxRules, ScorePolicy};
use crate::model::domain::Domain;
use crate::model::email::EmailAddress;
use crate::model::sign_up::SignUp;
use crate::model::typed_address::{OtherReadings, TypedAddress};
use crate::model::verdict::{Reason, Score};
use crate::table::{Table, TableAnswer};

/// What is known about one address, or about a text that should be one.
#[derive(Clone, Debug)]
pub struct AddressFacts {
    /// The domain; `None` for a text without a domain.
    pub domain: Option<Domain>,
    /// The risk score.
    pub score: Score,
    /// The reason of the score.
    pub reason: Reason,
    /// Whether `reason` and `score` are about the local part, and not about the domain.
    pub is_about_local_part: bool,
    /// What is known about the domain; `None` if the facts are about a text that is no address.
    pub of_domain: Option<DomainFacts>,
    /// Whether the address belongs to a function or a machine; `None` if the facts are about no
    /// whole address.
    pub is_role: Option<bool>,
    /// The sign-up; `None` if riskgate makes no inbox id for it.
    pub sign_up: Option<SignUp>,
    /// The counts of other sign-ups.
    pub counts: CountFacts,
}

/// Returns the facts about an address: first with the verdict on its domain. If the local part is a
/// role, the same facts follow with the verdict on the role.
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

/// The facts about the domains that only some software reads in a typed address.
pub struct OtherFacts {
    /// As software with the IDNA of 2003 reads it. The caller puts these facts before those of the
    /// address itself: of values that are judged alike, the last one counts, and these facts have
    /// no counts of sign-ups.
    pub by_idna_2003: Option<AddressFacts>,
    /// As software reads it that removes characters beyond ASCII, or that takes some of them for
    /// ASCII letters.
    as_ascii: Vec<AddressFacts>,
}

impl OtherFacts {
    /// Asks the table about these domains.
    pub fn look_up(
        readings: &OtherReadings,
        table: &Table,
        unknown_score: Option<Score>,
        unix_now: i64,
    ) -> OtherFacts {
        let look_up = |domain: &Domain| {
            AddressFacts::of_uncounted_domain(domain, table, unknown_score, unix_now)
        };
        OtherFacts {
            by_idna_2003: readings.by_idna_2003.as_ref().map(look_up),
            as_ascii: readings.as_ascii.iter().map(look_up).collect(),
        }
    }

    /// The facts about the domain without the characters beyond ASCII, or with ASCII letters in
    /// their place, if `scores` refuse it and it gets mail. An honest domain may leave any other
    /// one, and one that gets no mail hides no inbox. So every other one says nothing.
    pub fn refused_as_ascii(self, scores: &ScorePolicy) -> Option<AddressFacts> {
        self.as_ascii.into_iter().find(|facts| {
            facts.reason != Reason::Undeliverable && scores.is_blocking(facts.score, facts.reason)
        })
    }
}

/// Looks up the address that is left where software removes characters from an address. `None` if
/// nothing is removed, or if the address is on another domain that has no rule for inboxes: an
/// honest domain may leave any rest.
pub fn look_up_sanitized<'a, 't>(
    typed: &'a TypedAddress,
    inbox_rules: &InboxRules,
    table: &'t Table,
    unknown_score: Option<Score>,
    unix_now: i64,
) -> Option<(&'a EmailAddress, TableAnswer<'t>)> {
    let sanitized = typed.other_readings.sanitized.as_ref()?;
    let domain = sanitized.domain();
    if domain != typed.address.domain() && !inbox_rules.has_rule(domain) {
        return None;
    }
    let lookup = table.lookup(domain, unix_now).with_score_of_unknown_names(unknown_score);
    Some((sanitized, lookup))
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
                table_rule: verdict.rule,
                is_free_provider: verdict.is_free_provider,
                is_corporate_email: verdict.is_corporate_email,
                is_alias: lookup.is_alias(),
            }),
            is_role: None,
            sign_up: None,
            counts: CountFacts::default(),
        }
    }

    /// The facts about a domain that only some software reads in a value. riskgate asks the table
    /// alone: this look-up is not counted, and starts no DNS query.
    pub fn of_uncounted_domain(
        domain: &Domain,
        table: &Table,
        unknown_score: Option<Score>,
        unix_now: i64,
    ) -> AddressFacts {
        let lookup = table.lookup(domain, unix_now).with_score_of_unknown_names(unknown_score);
        AddressFacts::of_domain(domain, &lookup)
    }

    /// The facts about a text that is no address. `domain` is a part of the text.
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

    /// The facts as the rules of `[[rule]]` read them.
    pub fn for_rules(&self) -> Facts<'_> {
        Facts {
            // If the text is no address, its domain says nothing about where mail would go.
            domain: self.domain.as_ref().filter(|_| self.of_domain.is_some()).map(Domain::as_str),
            risk_score: self.score,
            reason: self.reason,
            of_domain: self.of_domain,
            is_role: self.is_role,
            counts: self.counts,
        }
    }
}
