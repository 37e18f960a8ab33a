//! What riskgate answers itself, and where it passes a request on, once the gates were passed.
//!
//! It checks no key and spends no call.

use bytes::Bytes;
use smol_str::SmolStr;

use crate::message::response::{Cors, Reply, VerdictFacts};
use crate::model::domain::Domain;
use crate::model::refusal::Refusal;
use crate::model::verdict::Rule;
use crate::store::LimitRow;

use super::admission::OriginHeader;
use super::gate_request::Asked;
use super::request_context::Visit;
use super::route::{self, Route};
use super::state::{Policy, State};

/// What a verdict's body begins with, before the name.
const BODY_BEGINS: &str = r#"{"domain":""#;
/// What `monthly_limit` says of an unlimited account, since clients read an integer: 2^53 - 1.
const UNLIMITED: u64 = 9_007_199_254_740_991;

/// What was decided about a request.
pub(crate) enum Decision {
    Answer(Reply),
    /// It may go on, to [`Visit::forward`].
    Pass,
}

/// The answer, or where to pass on to, of a request with a permit.
pub(super) fn serve(
    state: &State,
    route: Route<'_>,
    asked: &Asked<'_>,
    policy: &Policy,
    visit: &mut Visit,
) -> Result<Decision, Refusal> {
    let reply = match route {
        Route::Check(segment) => {
            let mut target = route::canonical_check(segment)?.into_bytes();
            target.extend_from_slice(route::split_query(asked.target).1);
            visit.forward = Some(target);
            return Ok(Decision::Pass);
        }
        Route::Prefix(_) => {
            visit.forward = Some(asked.target.to_vec());
            return Ok(Decision::Pass);
        }
        Route::Domain(segment) => answer_domain(state, segment, policy, visit),
        Route::TopDomains => Ok(Reply::json(state.top.body())),
        Route::Options(allow) => answer_options(state, asked, allow, visit),
        // The ledger is asked for it.
        Route::Usage => Err(Refusal::Internal),
    };
    reply.map(Decision::Answer)
}

/// The answer to OPTIONS, which carries no key: a preflight, or a question for the methods.
fn answer_options(
    state: &State,
    asked: &Asked<'_>,
    allow: SmolStr,
    visit: &Visit,
) -> Result<Reply, Refusal> {
    match (&asked.origin, asked.is_preflight) {
        (OriginHeader::Absent, _) | (_, false) => Ok(Reply::options(allow)),
        _ if state.keys.peek().is_none() => Err(Refusal::Internal),
        _ => Ok(Reply::preflight(matches!(visit.common.cors, Cors::Open(_)), allow)),
    }
}

fn answer_domain(
    state: &State,
    segment: &[u8],
    policy: &Policy,
    visit: &mut Visit,
) -> Result<Reply, Refusal> {
    let domain = Domain::from_segment(segment).map_err(Refusal::InvalidDomain)?;
    let table = state.table.peek();
    let now = visit.unix_now();
    let found = state.dns.apply_learned(table.lookup(&domain, now), &domain, now);
    let found = found.with_unknown_score(policy.unknown_score);
    visit.reason = Some(found.verdict.reason.as_str());
    let name = domain.as_str();
    let body = [BODY_BEGINS, name, &found.tail()].concat();
    let row = found.matched.map(|start| &name[start..]);
    // A suffix with names for nothing is not flagged itself, so it leads no list.
    if found.verdict.reason.is_flagged()
        && found.verdict.rule != Rule::FreeSubdomain
        && let (Some(row), Some(key)) = (row, &visit.key)
    {
        state.top.credit(row, &key.account.name, visit.unix_now());
    }
    // The name stands first in the body, and its parent at its end.
    let end = BODY_BEGINS.len() + name.len();
    let parent = row.filter(|row| row.len() < name.len()).map(|row| end - row.len()..end);
    let suggestion = found.suggestion(&domain).map(SmolStr::new);
    let source = found.source();
    visit.domain = Some(domain);
    let facts = VerdictFacts::new(table.version(), source, parent, suggestion);
    Ok(Reply::verdict(Bytes::from(body), facts))
}

pub(super) async fn answer_usage(state: &State, visit: &Visit) -> Result<Reply, Refusal> {
    let key = visit.key.as_ref().ok_or(Refusal::Internal)?;
    let account = &key.account;
    let month = state.ledger.month(visit.unix_now());
    let spent = state.ledger.usage(&account.lease, month).await;
    let spent = spent.map_err(|_| Refusal::Internal)?;
    let limit = match account.limit {
        LimitRow::Calls(limit) => limit.min(UNLIMITED),
        LimitRow::Unlimited => UNLIMITED,
    };
    let (plan, reset_at) = (crate::model::refusal::json_string(&account.plan), month.reset_at());
    Ok(Reply::json(Bytes::from(format!(
        r#"{{"plan":{plan},"month_count":{spent},"monthly_limit":{limit},"reset_at":"{reset_at}"}}"#
    ))))
}
