//! Explains the answer for a domain.

use serde_json::{Value, json};

use crate::dns::{apply_fact_if_usable, find_shared_addresses_in_store};
use crate::model::domain::Domain;
use crate::model::month::format_day;
use crate::model::verdict::{Rule, Score};
use crate::store::{DnsFactRow, Store, StoreError};
use crate::table::{Table, TableAnswer};

/// The answer for a domain, and where it comes from.
pub struct ExplainedDomain<'t> {
    /// The answer.
    pub answer: TableAnswer<'t>,
    /// The fact from the DNS that was applied to the answer, even if it changed nothing.
    pub learned: Option<DnsFactRow>,
}

/// Looks a domain up as the gateway does: in the table and, if DNS facts may change the answer and
/// there is a `store`, among the store's facts from the DNS. `unknown_score` is the score of a name
/// about which nothing is known; `None` for the score of the table.
///
/// # Errors
/// If the store fails.
pub fn explain_domain<'t>(
    table: &'t Table,
    domain: &Domain,
    unknown_score: Option<Score>,
    store: Option<&mut Store>,
    unix_now: i64,
) -> Result<ExplainedDomain<'t>, StoreError> {
    let found = table.lookup(domain, unix_now);
    let (answer, learned) = match store {
        Some(store) if found.is_undecided_by_lists() => {
            apply_stored_fact(found, table, domain, store, unix_now)?
        }
        _ => (found, None),
    };
    Ok(ExplainedDomain { answer: answer.with_score_of_unknown_names(unknown_score), learned })
}

/// Applies the store's fact about a domain to the answer of the table. Returns the answer unchanged
/// if the store has no fact, or if the fact does not count any more.
fn apply_stored_fact<'t>(
    found: TableAnswer<'t>,
    table: &'t Table,
    domain: &Domain,
    store: &mut Store,
    unix_now: i64,
) -> Result<(TableAnswer<'t>, Option<DnsFactRow>), StoreError> {
    let Some(row) = store.find_dns_fact(domain.as_str())? else { return Ok((found, None)) };
    let fact = (row.mx.as_str(), row.addresses.as_slice());
    let mut applied = apply_fact_if_usable(found, fact, row.expires_at, unix_now, |_| false);
    if applied.is_some_and(|answer| answer.verdict.rule == Rule::DisposableMxAddress) {
        let shared = find_shared_addresses_in_store(store, table, unix_now)?;
        let may_be_used_by_real_names = |address| shared.contains(&address);
        applied =
            apply_fact_if_usable(found, fact, row.expires_at, unix_now, may_be_used_by_real_names);
    }
    Ok(applied.map_or((found, None), |answer| (answer, Some(row))))
}

impl ExplainedDomain<'_> {
    /// Renders the explanation for `riskgate table lookup --json` and the admin API.
    pub fn to_json(&self, domain: &Domain) -> Value {
        let (found, why) = (&self.answer, self.answer.explain());
        let day = |unix_seconds: Option<i64>| unix_seconds.map(|it| format_day(it).to_string());
        json!({
            "domain": domain.as_str(),
            "answer": verdict_to_json(found),
            "is_flagged": found.verdict.score.is_flagged(),
            "is_risky": found.verdict.score.is_risky(),
            "row": found.matched_name_offset.map(|at| &domain.as_str()[at..]),
            "rule": why.rule.as_str(),
            "source": found.verdict_source().as_str(),
            "learned": self.learned.as_ref().map(|row| &row.mx),
            "did_you_mean": found.suggest_provider(domain),
            "lists": why.lists.iter().map(|list| &list.file).collect::<Vec<_>>(),
            "sources": why.sources.iter().map(|source| &source.name).collect::<Vec<_>>(),
            "evidence_date": day(found.evidence_unix_seconds()),
            "first_seen": day(why.first_seen),
            "last_seen": day(why.last_seen),
        })
    }
}

/// Renders the verdict of an answer, its rule and the name of the mail service.
pub fn verdict_to_json(found: &TableAnswer<'_>) -> Value {
    json!({
        "risk_score": found.verdict.score.value(),
        "reason": found.verdict.reason.as_str(),
        "is_free_provider": found.verdict.is_free_provider,
        "is_corporate_email": found.verdict.is_corporate_email,
        "mx_provider_label": found.mail_service_label,
        "rule": found.verdict.rule.as_str(),
    })
}
