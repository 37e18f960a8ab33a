//! The gate for `max_per_client`: how often one client may use a route, post a form that riskgate
//! screens, or use a key that browsers use.

use std::fmt;
use std::sync::Arc;

use crate::keys::Key;
use crate::message::request_head::takes_body;
use crate::model::network::ClientPrefix;
use crate::model::refusal::Refusal;
use crate::support::client_rates::Rate;

use super::admission::OriginHeader;
use super::beginning::RequestParts;
use super::request_context::RequestContext;
use super::screen_rules::{ScreenMode, ScreenRules};
use super::state::Gate;

/// The requests to which a rate applies. Each client has one token bucket for each scope.
#[derive(Hash)]
enum RateScope<'s> {
    /// All requests on the route with this prefix.
    Route(&'s str),
    /// The posts that riskgate screens on the route with this prefix.
    Posts(&'s str),
    /// The requests with the key that has this id.
    Key(&'s str),
}

/// The name of the scope in the buckets that nodes share.
impl fmt::Display for RateScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            RateScope::Route(prefix) => ("route", prefix),
            RateScope::Posts(prefix) => ("posts", prefix),
            RateScope::Key(id) => ("key", id),
        };
        write!(f, "{kind} {name}")
    }
}

/// Refuses a client that has sent too many requests. riskgate limits neither a trusted proxy, which
/// is not a client, nor a client without an address. The rate of screened posts does not apply in
/// the mode `shadow`, which refuses nothing.
pub(super) fn check_client_rates(
    gate: &Gate,
    upstream_route: Option<usize>,
    request: &RequestParts<'_>,
    ctx: &RequestContext,
) -> Result<(), Refusal> {
    let is_client =
        |address: &_| !gate.startup_rules.client_address.trusted_proxies.contains(*address);
    let upstream_route = upstream_route.map(|index| &ctx.rules.upstream_routes[index]);
    let takes_body = takes_body(request.method.as_bytes());
    let refuses_nothing = |rules: &ScreenRules| rules.policy.mode == ScreenMode::Shadow;
    let screen_rules = ctx.screen_rules.as_deref().filter(|it| takes_body && !refuses_nothing(it));
    let is_used_by_browsers =
        |key: &Arc<Key>| key.is_for_browsers() || request.origin != OriginHeader::Absent;
    let browser_key = ctx.key.as_ref().filter(|key| is_used_by_browsers(key));
    let of_route =
        upstream_route.and_then(|r| Some((RateScope::Route(&r.path_prefix), r.max_per_client?)));
    let of_posts = screen_rules.into_iter().flat_map(|rules| &rules.max_per_client);
    let of_posts = of_posts.map(|it| (RateScope::Posts(&it.route), it.rate));
    let of_key =
        browser_key.and_then(|k| Some((RateScope::Key(&k.id), ctx.rules.max_per_client_of_key?)));
    let rates: Vec<(RateScope<'_>, Rate)> =
        of_route.into_iter().chain(of_posts).chain(of_key).collect();
    if rates.is_empty() {
        return Ok(());
    }
    let Some(client) = ctx.client_address.filter(is_client) else { return Ok(()) };
    let client = ClientPrefix::from(client);
    gate.state.client_rates.charge_request(&rates, client, ctx.started_at()).map_err(|wait| {
        Refusal::TooManyRequests {
            retry_after_seconds: wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
        }
    })
}
