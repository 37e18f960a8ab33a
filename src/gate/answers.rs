//! What happens to a request that passed the gates: riskgate answers it, or forwards it upstream.
//!
//! Its callers have checked the key if the route needs a key, and charged the call if it counts.

use bytes::Bytes;
use http::HeaderName;
use smol_str::SmolStr;

use crate::message::request_head::members_of_list;
use crate::message::response::{Cors, Reply, VerdictFacts};
use crate::model::domain::Domain;
use crate::model::month::format_day;
use crate::model::monthly_limit::MAX_MONTHLY_LIMIT;
use crate::model::refusal::Refusal;
use crate::model::route_label::RouteLabel;
use crate::model::typed_address::AddressOrDomain;
use crate::model::verdict::Rule;
use crate::store::MonthlyLimit;
use crate::support::byte_sets::is_token_byte;
use crate::support::test_fault::{TestFault, is_injected};
use crate::table::{Table, TableAnswer};

use super::address_facts::OtherFacts;
use super::admission::OriginHeader;
use super::beginning::RequestParts;
use super::email_verdict::EmailVerdict;
use super::request_context::RequestContext;
use super::route::{self, CheckAnswer, Route};
use super::state::GateState;

/// The start of a verdict's body, before the domain.
const VERDICT_BODY_START: &str = r#"{"domain":""#;

/// The most names of a preflight's `Access-Control-Request-Headers` that riskgate reads.
const MAX_REQUESTED_HEADERS: usize = 64;

/// The gates' decision about a request.
pub(crate) enum GateDecision {
    /// riskgate answers the request itself.
    Reply(Reply),
    /// The request may be forwarded, with the target [`RequestContext::upstream_target()`].
    Forward,
}

/// Answers a request that has a permit, or decides to forward it.
pub(super) fn serve_route(
    state: &GateState,
    route: Route<'_>,
    request: &RequestParts<'_>,
    ctx: &mut RequestContext,
) -> Result<GateDecision, Refusal> {
    let reply = match route {
        Route::Check(segment) if ctx.rules.check_answer == CheckAnswer::Table => {
            answer_check(state, segment, ctx)
        }
        Route::Check(segment) => {
            let mut target = route::canonical_check_path(segment)?.into_bytes();
            if is_injected(TestFault::ForwardRawTarget) {
                target = route::split_path_and_query(request.target).0.to_vec();
            }
            target.extend_from_slice(route::split_path_and_query(request.target).1);
            ctx.upstream_target = Some(target);
            return Ok(GateDecision::Forward);
        }
        Route::Upstream(_) => {
            keep_client_target(request.target, ctx);
            return Ok(GateDecision::Forward);
        }
        Route::Domain(segment) => answer_domain(state, segment, ctx),
        Route::TopDomains => Ok(Reply::of_json(state.top_domains.response_body())),
        Route::Options { allow, upstream_route } => {
            answer_options(state, request, allow, upstream_route, ctx)
        }
        // The callers answer these routes: `Usage` needs the store, the others need the body.
        Route::Usage | Route::DomainBatch | Route::Assess => Err(Refusal::Internal),
    };
    reply.map(GateDecision::Reply)
}

/// Sets the target that the upstream server gets for a request of `[[upstream.route]]`: the target
/// that the client sent.
pub(super) fn keep_client_target(target: &[u8], ctx: &mut RequestContext) {
    let mut target = target.to_vec();
    if is_injected(TestFault::ForwardRawTarget) {
        target.make_ascii_uppercase();
    }
    ctx.upstream_target = Some(target);
}

/// Answers an OPTIONS request, which needs no key:
/// - An OPTIONS that is no CORS preflight gets the allowed methods.
/// - A preflight from an allowed origin gets the CORS fields.
/// - A preflight from another origin gets 403. On a route with `origins`, it gets the allowed
///   methods.
///
/// On a route without `origins`, a preflight gets 500 while riskgate has no key ring.
fn answer_options(
    state: &GateState,
    request: &RequestParts<'_>,
    allowed_methods: SmolStr,
    upstream_route: Option<usize>,
    ctx: &mut RequestContext,
) -> Result<Reply, Refusal> {
    if matches!(request.origin, OriginHeader::Absent) || !request.has_cors_request_method {
        return Ok(Reply::of_options(allowed_methods));
    }
    let cors = &ctx.common_headers.cors;
    let is_allowed = matches!(cors, Cors::Allowed { .. });
    match upstream_route.is_some_and(|index| ctx.rules.upstream_routes[index].cors.is_some()) {
        // The origins of a route allow pages to read responses. They refuse no request.
        true if !is_allowed => return Ok(Reply::of_options(allowed_methods)),
        false if state.keys.peek().is_none() => return Err(Refusal::Internal),
        false if !is_allowed => {
            let reply = Reply::of_refused_preflight();
            ctx.set_outcome_if_unset(reply.status(), "forbidden");
            return Ok(reply);
        }
        _ => {}
    }
    let value = request.cors_request_headers.unwrap_or_default();
    let is_name = |name: &&[u8]| name.iter().all(|byte| is_token_byte(*byte));
    let names = members_of_list(value).take(MAX_REQUESTED_HEADERS).filter(is_name);
    let names = names.filter_map(|name| std::str::from_utf8(name).ok());
    let key_header = request.key_header.as_ref().map(HeaderName::as_str);
    let headers = cors.allowed_request_headers(names, key_header);
    Ok(Reply::of_preflight(allowed_methods, headers))
}

/// Looks a domain up in the table and in the learned DNS facts, and counts the verdict. Counts the
/// matched row for the top list if the client has a key, the verdict is not `safe`, and the rule is
/// not `FreeSubdomain`.
pub(super) fn look_up_and_count<'t>(
    state: &GateState,
    table: &'t Table,
    domain: &Domain,
    ctx: &RequestContext,
) -> TableAnswer<'t> {
    let now = ctx.unix_now;
    let lookup = state.dns.apply_fact_and_queue_if_due(table.lookup(domain, now), domain, now);
    let lookup = lookup.with_score_of_unknown_names(ctx.rules.unknown_score);
    state.metrics.requests.count_verdict(lookup.verdict.reason, lookup.verdict_source());
    // With `FreeSubdomain`, the matched row is a suffix below which anyone gets a name for free.
    // The verdict flags the name and not the suffix, so the top list does not count the suffix.
    if !lookup.verdict.reason.is_safe()
        && lookup.verdict.rule != Rule::FreeSubdomain
        && let (Some(start), Some(key)) = (lookup.matched_name_offset, &ctx.key)
    {
        state.top_domains.count_lookup(&domain.as_str()[start..], &key.account.name, now);
    }
    lookup
}

/// Answers a check from the table and the learned DNS facts.
fn answer_check(
    state: &GateState,
    segment: &[u8],
    ctx: &mut RequestContext,
) -> Result<Reply, Refusal> {
    let text = route::decode_check_segment(segment)?;
    let checked = AddressOrDomain::parse(&text).map_err(Refusal::InvalidEmail)?;
    let table = state.table.peek();
    let lookup = look_up_and_count(state, &table, checked.domain(), ctx);
    let unknown_score = ctx.rules.unknown_score;
    let others =
        OtherFacts::look_up(&checked.other_readings(), &table, unknown_score, ctx.unix_now);
    let verdict = EmailVerdict::new(&checked, &lookup, others, table.role_score());
    ctx.verdict_reason = Some(verdict.reason.as_str());
    Ok(Reply::of_check_answer(Bytes::from(verdict.render_check_body(&checked))))
}

/// Answers a check that no upstream server answered. Returns `None` in each of these cases:
/// - The request is no check.
/// - `check.answer` is not `fallback`.
/// - The text is neither an address nor a domain. Only the upstream server could know what it is.
pub(super) fn answer_check_without_server(
    state: &GateState,
    ctx: &mut RequestContext,
) -> Option<Reply> {
    if ctx.rules.check_answer != CheckAnswer::Fallback || ctx.route != RouteLabel::Check {
        return None;
    }
    let target = ctx.upstream_target.take()?;
    let segment = route::split_path_and_query(&target).0.strip_prefix(route::CHECK_PATH_PREFIX)?;
    answer_check(state, segment, ctx).ok()
}

/// Answers with the verdict on the domain in a path segment.
fn answer_domain(
    state: &GateState,
    domain_segment: &[u8],
    ctx: &mut RequestContext,
) -> Result<Reply, Refusal> {
    let domain = Domain::from_path_segment(domain_segment).map_err(Refusal::InvalidDomain)?;
    let table = state.table.peek();
    let lookup = look_up_and_count(state, &table, &domain, ctx);
    ctx.verdict_reason = Some(lookup.verdict.reason.as_str());
    let name = domain.as_str();
    let body = [VERDICT_BODY_START, name, &lookup.json_tail()].concat();
    let matched_domain = lookup.matched_name_offset.map(|start| &name[start..]);
    // In the body, the domain follows VERDICT_BODY_START. A matched parent domain is a suffix of
    // the domain, so both end at the same byte.
    let end = VERDICT_BODY_START.len() + name.len();
    let parent =
        matched_domain.filter(|row| row.len() < name.len()).map(|row| end - row.len()..end);
    let suggestion = lookup.suggest_provider(&domain).map(SmolStr::new);
    let source = lookup.verdict_source();
    ctx.requested_domain = Some(domain);
    let day = lookup.evidence_unix_seconds().map(format_day);
    let facts = VerdictFacts::new(table.version(), source, parent, suggestion, day);
    Ok(Reply::of_verdict(Bytes::from(body), facts))
}

/// Answers with the calls that the account has spent this month, its limit, its plan, and the time
/// of the reset. Waits for the store, which knows the calls that other nodes have spent.
pub(super) async fn answer_usage(
    state: &GateState,
    ctx: &RequestContext,
) -> Result<Reply, Refusal> {
    let key = ctx.key.as_ref().ok_or(Refusal::Internal)?;
    let account = &key.account;
    let month = state.ledger.month_to_charge(ctx.unix_now);
    let spent = state.ledger.read_spent_by_all(&account.lease, month).await;
    let spent = spent.map_err(|_| Refusal::Internal)?;
    let limit = match account.limit {
        MonthlyLimit::Calls(limit) => limit.min(MAX_MONTHLY_LIMIT),
        MonthlyLimit::Unlimited => MAX_MONTHLY_LIMIT,
    };
    let (plan, reset_at) = (serde_json::json!(account.plan), month.reset_at());
    Ok(Reply::of_json(Bytes::from(format!(
        r#"{{"plan":{plan},"month_count":{spent},"monthly_limit":{limit},"reset_at":"{reset_at}"}}"#
    ))))
}
