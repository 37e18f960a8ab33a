//! The order of the gates, and the decision that follows.

use pingora::Result;
use pingora::http::RequestHeader;
use pingora_proxy::Session;

use crate::exchange::forwarding::remove_connection_and_listed_fields;
use crate::keys::KeyRing;
use crate::message::request_head::{check_connection_and_framing, takes_body};
use crate::message::response::{Cors, Reply};
use crate::model::refusal::Refusal;
use crate::quota::Denial;
use crate::support::test_fault::{TestFault, is_injected, replace_key_if_injected};
use crate::support::time_limit::TimeLimit;

use super::admission::{self, OriginHeader, Permit, PresentedKey};
use super::answers::{self, GateDecision};
use super::beginning::{RequestParts, authorization_contains_key};
use super::body_reading::{BodyBounds, read_whole_body};
use super::client_limit::check_client_rates;
use super::held_bytes::{BodyOptions, HeldBytesGuard};
use super::request_context::{ConnectionFacts, RequestContext};
use super::route::{self, Route, UpstreamRoute};
use super::state::Gate;

/// What the Pingora path does after the gates.
pub(crate) enum AfterGates {
    /// Nothing: riskgate has answered the request.
    Answered,
    /// The Pingora path forwards the request.
    Charged,
    /// The Pingora path reads the body if it has to, and then calls [`Gate::charge_after_body`].
    Uncharged(UnchargedRoute),
    /// The Pingora path reads the body of a request with which a proxy asks, and then calls
    /// [`Gate::screen`].
    AskedByProxy,
}

/// A route of `[[upstream.route]]` whose request passed the gates before the quota.
pub struct UnchargedRoute {
    is_counted: bool,
}

/// The route of a request, and the gates that the route needs.
pub(crate) struct MatchedRoute<'r> {
    route: Route<'r>,
    needs_key: bool,
    /// Whether the request spends a call of the quota.
    is_counted: bool,
    origins: OriginsOwner,
}

/// The gates before the quota that apply to a request.
pub(super) struct GatesToPass<'r> {
    /// The key that the request presents; `None` if the gate for the key does not apply.
    pub key: Option<PresentedKey<'r>>,
    /// Whose origins apply.
    pub origins: OriginsOwner,
    /// The route whose `max_per_client` applies, by its index in `[[upstream.route]]`.
    pub upstream_route: Option<usize>,
}

/// Who decides which pages of other origins may read the response.
#[derive(Clone, Copy)]
pub(super) enum OriginsOwner {
    /// The client's key, or all keys if the client has none. Only here, the gate for the origin
    /// refuses requests.
    Keys,
    /// The route with this index in `[[upstream.route]]`, by its setting `origins`.
    Route(usize),
    /// The server.
    Server,
}

/// What [`Gate::judge_without_wait`] found.
pub(crate) enum Judgement<'r> {
    /// The decision about the request.
    Decided(GateDecision),
    /// The request has to wait for the store: call [`Gate::judge_after_wait`] with its route.
    MustWait(MatchedRoute<'r>),
}

impl Gate {
    /// The limits of request bodies.
    pub(crate) fn body_options(&self) -> &BodyOptions {
        &self.startup_rules.bodies
    }

    /// Returns the guard that counts the bytes of a request's body, or of the response to it, while
    /// riskgate holds them.
    pub(crate) fn begin_held_body(&self, ctx: &RequestContext) -> HeldBytesGuard {
        let client = ctx.client_address.filter(|_| !is_injected(TestFault::IgnoreClientLimit));
        self.state.held_bytes.make_guard(client)
    }

    /// Returns the guard that counts the bytes of a connection that no request counts: riskgate's
    /// own responses that wait for the client, and a header whose end has not arrived.
    pub(crate) fn begin_held_bytes_of(&self, connection: &ConnectionFacts) -> HeldBytesGuard {
        self.state.held_bytes.make_guard(connection.peer_address)
    }

    /// Charges a request on a route of `[[upstream.route]]`. The caller has read the whole body, or
    /// is about to forward the first part of the body. Returns the response if riskgate can't
    /// charge the call: the month is spent, or the store is not available.
    pub(crate) async fn charge_after_body(
        &self,
        target: &[u8],
        route: UnchargedRoute,
        ctx: &mut RequestContext,
    ) -> Option<Reply> {
        match self.charge(u64::from(route.is_counted), ctx).await {
            Ok(()) => {
                answers::keep_client_target(target, ctx);
                None
            }
            Err(refusal) => Some(self.finish_with_refusal(&refusal, ctx)),
        }
    }

    /// Runs the gates before the quota for a request whose method takes a body. Returns the
    /// response if a gate refuses the request. Returns `None`, and runs no gate, if no route of
    /// `[[upstream.route]]` has this path and this method.
    pub(crate) fn pass_gates_before_body(
        &self,
        request: &RequestParts<'_>,
        ctx: &mut RequestContext,
    ) -> Option<Result<UnchargedRoute, Reply>> {
        let routes = &ctx.rules.upstream_routes;
        let authz_path = self.startup_rules.authz_path.as_ref();
        let route = match route::match_route(request.method, request.target, routes, authz_path) {
            Ok(route @ Route::Upstream(_)) => record_route(route, request, ctx),
            _ => return None,
        };
        let gates = Ok(route.gates_to_pass(request));
        let passed = self.pass_gates_before_quota(gates, request, ctx);
        Some(match passed {
            Ok(()) => Ok(UnchargedRoute { is_counted: route.is_counted }),
            Err(refusal) => Err(self.finish_with_refusal(&refusal, ctx)),
        })
    }

    /// Answers a request with a refusal.
    pub(crate) async fn refuse(
        &self,
        refusal: &Refusal,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        let reply = self.finish_with_refusal(refusal, ctx);
        ctx.send_reply(&reply, session).await
    }

    /// Runs the gates, but not the quota on a route of `[[upstream.route]]`. Answers the request if
    /// it is not to be forwarded. If the caller reads the body next, the caller sends 100 Continue.
    pub(crate) async fn answer_unless_forwarded(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<AfterGates> {
        if session.req_header().version < http::Version::HTTP_11 {
            // riskgate closes every HTTP/1.0 connection after the response, because a proxy may
            // pass on its client's `keep-alive` without supporting it (RFC 9112 appendix C.2.2).
            session.set_keepalive(None);
        }
        self.begin_if_new(session, ctx);
        let header = session.req_header();
        // The parsers of riskgate's own listeners have refused such a request already.
        if let Err(refusal) = check_connection_and_framing(header) {
            self.refuse(&refusal, session, ctx).await?;
            return Ok(AfterGates::Answered);
        }
        if self.is_asked_by_proxy(header.raw_path())
            && let Some(rules) = ctx.rules.authz.clone()
        {
            let is_answered = self.answer_proxy_unless_body_needed(session, rules, ctx).await?;
            return Ok(if is_answered { AfterGates::Answered } else { AfterGates::AskedByProxy });
        }
        let method_takes_body = takes_body(header.method.as_str().as_bytes());
        let client = session.as_downstream_mut();
        let is_unended = !method_takes_body && !client.is_body_done();
        if is_unended && !client.is_http2() {
            // Servers read such a body in different ways. The header announces even an empty one.
            self.refuse(&Refusal::BadRequest, session, ctx).await?;
            return Ok(AfterGates::Answered);
        }
        if let Some(post) = self.find_answered_post(session) {
            self.answer_post(post, session, ctx).await?;
            return Ok(AfterGates::Answered);
        }
        let (reply, next) = match is_unended {
            true => {
                let header = session.req_header().clone();
                self.judge_header(&header, Some(session), ctx).await?
            }
            false => self.judge_header(session.req_header(), None, ctx).await?,
        };
        let Some(reply) = reply else {
            // Pingora refuses a request whose `Connection` it can't parse. riskgate may have
            // charged the call already, so it removes `Connection` before Pingora reads the field.
            if !is_injected(TestFault::ParseConnectionInPingora) {
                remove_connection_and_listed_fields(session.req_header_mut());
            }
            return Ok(next);
        };
        if is_injected(TestFault::ReadBodyBeforeRefusal) {
            while let Ok(Some(_)) = session.as_downstream_mut().read_request_body().await {}
        }
        ctx.send_reply(&reply, session).await?;
        Ok(next)
    }

    /// Judges a request by its header. Returns the reply if the request is not forwarded, and what
    /// the caller does next. `unended` is the session if the method takes no body, but the client
    /// has not ended the stream yet.
    async fn judge_header(
        &self,
        header: &RequestHeader,
        unended: Option<&mut Session>,
        ctx: &mut RequestContext,
    ) -> Result<(Option<Reply>, AfterGates)> {
        let request = self.read_parts(header);
        let mut matched = self.match_route_and_pass_gates(&request, ctx);
        // riskgate waits, and holds memory meanwhile, only for a client that passes these gates.
        if matched.is_ok()
            && let Some(session) = unended
            && let Some(refusal) = self.refuse_body_behind_header(session, ctx).await?
        {
            matched = Err(refusal);
        }
        Ok(match matched {
            Ok(MatchedRoute { route: Route::Upstream(_), is_counted, .. }) => {
                (None, AfterGates::Uncharged(UnchargedRoute { is_counted }))
            }
            Ok(matched) => {
                let judgement = self.judge_after_gates_without_wait(matched, &request, ctx);
                match self.wait_if_needed(judgement, &request, ctx).await {
                    GateDecision::Reply(reply) => (Some(reply), AfterGates::Answered),
                    GateDecision::Forward => (None, AfterGates::Charged),
                }
            }
            Err(refusal) => (Some(self.finish_with_refusal(&refusal, ctx)), AfterGates::Answered),
        })
    }

    /// Waits until the client of a request whose method takes no body ends its HTTP/2 stream, at
    /// most `listen.body_timeout`: it may end the stream behind the header (RFC 9113 section 8.1).
    /// Returns a refusal if a body or trailers follow, if the stream does not end in time, or if
    /// riskgate has no memory left for bodies.
    async fn refuse_body_behind_header(
        &self,
        session: &mut Session,
        ctx: &RequestContext,
    ) -> Result<Option<Refusal>> {
        let timeout = self.body_options().timeout;
        let bounds = BodyBounds { max_bytes: 0, timeout, too_long: Refusal::BadRequest };
        let read = read_whole_body(session, bounds, &mut self.begin_held_body(ctx)).await?;
        // Behind trailers, the stream is not read to its end.
        let has_ended = session.as_downstream_mut().is_body_done();
        Ok(read.err().or_else(|| (!has_ended).then_some(Refusal::BadRequest)))
    }

    /// Judges a request in the order of the gates. Waits for the store if the request has to wait.
    pub(crate) async fn judge_request(
        &self,
        request: &RequestParts<'_>,
        ctx: &mut RequestContext,
    ) -> GateDecision {
        let judgement = self.judge_without_wait(request, ctx);
        self.wait_if_needed(judgement, request, ctx).await
    }

    /// Returns true if the target is at or below `authz.path`, on which proxies ask. Only the
    /// Pingora path answers these requests.
    pub(crate) fn is_asked_by_proxy(&self, target: &[u8]) -> bool {
        let path = self.startup_rules.authz_path.as_ref();
        path.is_some_and(|path| path.strip_from(target).is_some())
    }

    /// Returns the response to a refused request and records the outcome. Refunds the call if
    /// [`Refusal::refunds_call`] says so. If no upstream server answered a check,
    /// [`CheckAnswer::Fallback`](super::CheckAnswer) lets riskgate answer the check here.
    pub(crate) fn finish_with_refusal(&self, refusal: &Refusal, ctx: &mut RequestContext) -> Reply {
        if matches!(refusal, Refusal::UpstreamUnavailable | Refusal::UpstreamTimeout)
            && let Some(reply) = answers::answer_check_without_server(&self.state, ctx)
        {
            ctx.set_outcome_if_unset(reply.status(), "fallback");
            return reply;
        }
        if refusal.refunds_call() {
            self.refund(ctx);
        }
        let is_on_route = ctx.upstream_route.is_some();
        let reply = match ctx.authz {
            Some(_) => self.answer_proxy_with_refusal(refusal, ctx),
            None if ctx.has_gateway_statuses => Reply::of_refusal_with_gateway_status(refusal),
            None => Reply::of_refusal(refusal),
        };
        let reply = match ctx.accepted {
            _ if ctx.authz.is_some() => reply,
            accepted if accepted.is_problems_only() => {
                reply.with_problem_details(refusal, is_on_route)
            }
            accepted if is_on_route && accepted.is_html_first() => reply.with_page(refusal),
            _ if is_on_route => reply.with_message_on_route(refusal),
            _ => reply,
        };
        // No cache stores a refusal on riskgate's own paths, so it needs no `Vary: Accept`.
        let reply = match is_on_route && ctx.authz.is_none() {
            true => reply.with_vary_by_accept(),
            false => reply,
        };
        ctx.set_outcome_if_unset(reply.status(), refusal.code());
        reply
    }

    /// Judges a request in the order of [`Gate::request_filter`], and answers it or decides to
    /// forward it. If the request has to wait for the store, no call is spent yet.
    pub(crate) fn judge_without_wait<'r>(
        &self,
        request: &RequestParts<'r>,
        ctx: &mut RequestContext,
    ) -> Judgement<'r> {
        match self.match_route_and_pass_gates(request, ctx) {
            Ok(matched) => self.judge_after_gates_without_wait(matched, request, ctx),
            Err(refusal) => Judgement::Decided(self.finish_decision(Err(refusal), ctx)),
        }
    }

    /// Judges the rest of a request that passed the gates before the quota, if it need not wait for
    /// the store.
    fn judge_after_gates_without_wait<'r>(
        &self,
        matched: MatchedRoute<'r>,
        request: &RequestParts<'r>,
        ctx: &mut RequestContext,
    ) -> Judgement<'r> {
        if !self.try_charge(&matched, ctx) {
            return Judgement::MustWait(matched);
        }
        let judged = answers::serve_route(&self.state, matched.route, request, ctx);
        Judgement::Decided(self.finish_decision(judged, ctx))
    }

    async fn wait_if_needed(
        &self,
        judgement: Judgement<'_>,
        request: &RequestParts<'_>,
        ctx: &mut RequestContext,
    ) -> GateDecision {
        match judgement {
            Judgement::Decided(decision) => decision,
            Judgement::MustWait(matched) => self.judge_after_wait(matched, request, ctx).await,
        }
    }

    /// Waits for the store, at most `store.deadline`, and judges the rest of the request.
    pub(crate) async fn judge_after_wait(
        &self,
        matched: MatchedRoute<'_>,
        request: &RequestParts<'_>,
        ctx: &mut RequestContext,
    ) -> GateDecision {
        let is_counted = matched.is_counted || is_injected(TestFault::CountUsage);
        let judged = match self.charge(u64::from(is_counted), ctx).await {
            Ok(()) if matched.route == Route::Usage => {
                answers::answer_usage(&self.state, ctx).await.map(GateDecision::Reply)
            }
            Ok(()) => answers::serve_route(&self.state, matched.route, request, ctx),
            Err(refusal) => Err(refusal),
        };
        self.finish_decision(judged, ctx)
    }

    /// Turns a refusal into its response, and records the outcome of a request that riskgate
    /// answers. A request that is to be forwarded has no outcome yet.
    fn finish_decision(
        &self,
        judged: Result<GateDecision, Refusal>,
        ctx: &mut RequestContext,
    ) -> GateDecision {
        match judged {
            Ok(GateDecision::Forward) => GateDecision::Forward,
            Ok(GateDecision::Reply(reply)) => {
                ctx.set_outcome_if_unset(reply.status(), "ok");
                GateDecision::Reply(reply)
            }
            Err(refusal) => GateDecision::Reply(self.finish_with_refusal(&refusal, ctx)),
        }
    }

    /// Matches the route of a request, and runs the gates before the quota.
    pub(super) fn match_route_and_pass_gates<'r>(
        &self,
        request: &RequestParts<'r>,
        ctx: &mut RequestContext,
    ) -> Result<MatchedRoute<'r>, Refusal> {
        let (routes, authz_path) =
            (&ctx.rules.upstream_routes, self.startup_rules.authz_path.as_ref());
        let matched = route::match_route(request.method, request.target, routes, authz_path)
            .map(|route| record_route(route, request, ctx));
        let gates = matched.as_ref().map(|matched| matched.gates_to_pass(request));
        let gates = gates.map_err(Refusal::clone);
        self.pass_gates_before_quota(gates, request, ctx)?;
        matched
    }

    /// Runs the gates before the quota in their order: key, origin, `max_per_client`. Sets the CORS
    /// headers of the response, unless the server decides about them. If `gates` is a refusal, no
    /// gate runs, and this function returns the refusal.
    pub(super) fn pass_gates_before_quota(
        &self,
        gates: Result<GatesToPass<'_>, Refusal>,
        request: &RequestParts<'_>,
        ctx: &mut RequestContext,
    ) -> Result<(), Refusal> {
        let keys = self.state.keys.peek();
        let ring = Option::as_ref(&keys);
        let origins = match &gates {
            Ok(gates) => gates.origins,
            Err(refusal) => {
                ctx.upstream_route = self.find_route_of_refused_request(refusal, request, ctx);
                match ctx.upstream_route {
                    Some(index) => OriginsOwner::of_route(index, &ctx.rules.upstream_routes),
                    None => OriginsOwner::Keys,
                }
            }
        };
        let rated_route = gates.and_then(|gates| {
            // While riskgate has no key ring, only the keys that it has generated are held back:
            // a server that does not get `Authorization` would log its users out.
            ctx.passes_authorization = gates.key.is_none()
                && request.authorization.is_some_and(|it| !authorization_contains_key(it, ring));
            if let Some(presented) = gates.key {
                authenticate(ring, presented, ctx)?;
            }
            Ok(gates.upstream_route)
        });
        match origins {
            OriginsOwner::Keys => set_cors_and_check_origin(ring, &request.origin, ctx)?,
            OriginsOwner::Route(index) => {
                let cors = ctx.rules.upstream_routes[index].cors.as_ref();
                ctx.common_headers.cors =
                    cors.map(|it| it.headers_for(&request.origin)).unwrap_or_default();
            }
            OriginsOwner::Server => {}
        }
        check_client_rates(self, rated_route?, request, ctx)
    }

    /// Returns the index of the route of `[[upstream.route]]` to which a refused request leads.
    /// `None` unless [`Refusal::is_after_whole_head`] is true.
    fn find_route_of_refused_request(
        &self,
        refusal: &Refusal,
        request: &RequestParts<'_>,
        ctx: &RequestContext,
    ) -> Option<usize> {
        let (routes, authz_path) =
            (&ctx.rules.upstream_routes, self.startup_rules.authz_path.as_ref());
        let index = || route::find_upstream_route(request.target, routes, authz_path);
        refusal.is_after_whole_head().then(index).flatten()
    }

    /// The last gate, the quota: charges all these calls or none, and stores the permit in `ctx`.
    /// A request without a key is charged no call. Waits for the store if the node holds too few
    /// leased calls of the account, or if other calls of the account wait.
    pub(super) async fn charge(&self, calls: u64, ctx: &mut RequestContext) -> Result<(), Refusal> {
        let (ledger, now) = (&self.state.ledger, ctx.unix_now);
        let Some(key) = ctx.key.as_ref().filter(|_| calls > 0) else {
            ctx.set_permit(Permit::without_charge(ctx.key.as_ref()));
            return Ok(());
        };
        let month = ledger.month_to_charge(now);
        match ledger.charge(&key.lease, month, calls).await {
            Ok(spent) => {
                ctx.set_permit(Permit::of_charged_calls(ledger, key, ctx.route, now, spent));
                Ok(())
            }
            Err(Denial::StoreUnavailable) => Err(Refusal::Internal),
            Err(Denial::Exhausted) => {
                // After a refused batch, some calls may be left.
                let left = match calls {
                    1 => 0,
                    _ => key.lease.remaining_calls(month).unwrap_or(0),
                };
                ctx.common_headers.allowance = admission::compute_allowance(key, month, left, now);
                Err(Refusal::QuotaExceeded {
                    reset_at: month.reset_at(),
                    retry_after_seconds: month.seconds_until_end(now),
                })
            }
        }
    }

    /// Charges the call of a request that passed the other gates, without a wait, and stores the
    /// permit in `ctx`. Returns false, and charges nothing, if the request may have to wait for the
    /// store:
    /// - it asks for the usage,
    /// - the node holds no leased call of the account, or
    /// - other calls of the account wait for a leased call.
    fn try_charge(&self, matched: &MatchedRoute<'_>, ctx: &mut RequestContext) -> bool {
        let (ledger, now) = (&self.state.ledger, ctx.unix_now);
        let permit = match (&ctx.key, matched.is_counted) {
            _ if matched.route == Route::Usage => return false,
            (Some(key), true) => match ledger.try_charge(&key.lease, ledger.month_to_charge(now)) {
                Some(spent) => Permit::of_charged_calls(ledger, key, ctx.route, now, spent),
                None => return false,
            },
            (key, _) => Permit::without_charge(key.as_ref()),
        };
        ctx.set_permit(permit);
        true
    }

    /// Refunds the calls that the request was charged. If the ledger can't refund them any more,
    /// they stay spent.
    pub(crate) fn refund(&self, ctx: &mut RequestContext) {
        // After a refund, the RateLimit fields would describe a call that doesn't count. If the
        // refund is too late, they would describe an old month or limit.
        ctx.common_headers.allowance = None;
        let is_refunded = ctx.permit.as_mut().is_some_and(|p| p.refund(&self.state.ledger));
        if is_refunded {
            self.state.metrics.requests.quota_refunds.inc();
        }
    }
}

impl OriginsOwner {
    fn of_route(index: usize, routes: &[UpstreamRoute]) -> OriginsOwner {
        match &routes[index] {
            route if route.has_server_cors() => OriginsOwner::Server,
            route if route.cors.is_some() => OriginsOwner::Route(index),
            _ => OriginsOwner::Keys,
        }
    }
}

impl<'r> MatchedRoute<'r> {
    fn gates_to_pass(&self, request: &RequestParts<'r>) -> GatesToPass<'r> {
        let upstream_route = match self.route {
            Route::Upstream(index) => Some(index),
            _ => None,
        };
        let key = self.needs_key.then_some(request.key);
        GatesToPass { key, origins: self.origins, upstream_route }
    }
}

/// Records in `ctx` what the route of a request decides. Returns the route and the gates it needs.
fn record_route<'r>(
    route: Route<'r>,
    request: &RequestParts<'r>,
    ctx: &mut RequestContext,
) -> MatchedRoute<'r> {
    ctx.route = route.label();
    let origins = match route {
        Route::Upstream(index) | Route::Options { upstream_route: Some(index), .. } => {
            OriginsOwner::of_route(index, &ctx.rules.upstream_routes)
        }
        _ => OriginsOwner::Keys,
    };
    let (needs_key, is_counted) = match route {
        Route::Options { .. } => (false, false),
        Route::Usage => (true, false),
        Route::Upstream(index) => {
            let route = &ctx.rules.upstream_routes[index];
            let routes = &ctx.rules.upstream_routes;
            ctx.screen_rules = route::find_screen_rules(routes, index, request.target);
            ctx.upstream_route = Some(index);
            ctx.has_gateway_statuses = route.has_gateway_statuses;
            ctx.time_limit = Some(TimeLimit::EachPart(route.deadline));
            (route.needs_key, route.is_counted)
        }
        Route::TopDomains
        | Route::Domain(_)
        | Route::DomainBatch
        | Route::Assess
        | Route::Check(_) => (true, true),
    };
    MatchedRoute { route, needs_key, is_counted, origins }
}

/// Runs the gate for the key, and stores the key in `ctx`. Returns `Refusal::Internal` if riskgate
/// could load no key ring, or if the key or its account is faulty.
fn authenticate(
    ring: Option<&KeyRing>,
    presented: PresentedKey<'_>,
    ctx: &mut RequestContext,
) -> Result<(), Refusal> {
    let ring = ring.ok_or(Refusal::Internal)?;
    let key =
        replace_key_if_injected(admission::authenticate_client(ring, presented, ctx.unix_now))?;
    let is_faulty = key.is_faulty();
    ctx.key = Some(key);
    if is_faulty { Err(Refusal::Internal) } else { Ok(()) }
}

/// Runs the gate for the origin if the client has authenticated with a key. Sets the CORS headers
/// of the response in any case.
fn set_cors_and_check_origin(
    ring: Option<&KeyRing>,
    origin: &OriginHeader,
    ctx: &mut RequestContext,
) -> Result<(), Refusal> {
    // A faulty key's list of origins can't be trusted, so a faulty key counts as no key here.
    let Some(key) = ctx.key.as_ref().filter(|key| !key.is_faulty()) else {
        ctx.common_headers.cors = cors_without_key(ring, origin, ctx.unix_now);
        return Ok(());
    };
    ctx.common_headers.cors = Cors::Denied;
    admission::check_origin(key, origin)?;
    if let OriginHeader::Valid(_, text) = origin {
        ctx.common_headers.cors = Cors::Allowed { origin: text.clone(), grant: None };
    }
    Ok(())
}

/// Returns the CORS headers of a response to a request without a valid key. A page may read the
/// response if some valid key allows the page's origin. If riskgate could load no key ring, every
/// page may read the response, because `X-Fail-Open` tells the page to let its user through.
fn cors_without_key(ring: Option<&KeyRing>, origin: &OriginHeader, unix_now: i64) -> Cors {
    let is_allowed =
        |origin| ring.is_none_or(|ring| ring.does_any_key_allow_origin(origin, unix_now));
    match origin {
        OriginHeader::Valid(origin, text) if is_allowed(origin) => {
            Cors::Allowed { origin: text.clone(), grant: None }
        }
        _ => Cors::Denied,
    }
}
