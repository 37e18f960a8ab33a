//! The order in which a request is judged.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HeaderName, HeaderValue, ORIGIN};
use pingora_core::Result;
use pingora_proxy::Session;

use crate::keys::KeyRing;
use crate::message::forwarding::remove_hop_by_hop_fields;
use crate::message::request_id::RequestId;
use crate::message::response::{Cors, Reply, X_REQUEST_ID};
use crate::model::network::Networks;
use crate::model::refusal::Refusal;

use super::admission::{self, OriginHeader};
use super::answers::{self, Decision};
use super::gate_request::GateRequest;
use super::request_context::{RequestContext, choose_request_id};
use super::route::{self, Route};
use super::session::send_continue;
use super::state::{GateState, Policy};

/// How long the store and the log may take at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(4);

/// The middleware: mount it with a [`RequestContext`] in your context, and with one call in each of your
/// `request_filter`, `upstream_request_filter`, `response_filter`, `fail_to_proxy` and `logging`.
#[derive(Clone)]
pub struct Gate {
    pub(super) state: Arc<GateState>,
    /// Proxies in front of us that are believed about who a client is.
    pub(super) trusted_proxies: Arc<Networks>,
}

/// What a request wants, once nothing but its quota stands in the way.
struct MatchedRoute<'r> {
    route: Route<'r>,
    is_counted: bool,
}

impl Gate {
    /// A gate in front of this state, which believes these proxies about who a client is.
    pub fn new(state: Arc<GateState>, trusted_proxies: Networks) -> Gate {
        Gate { state, trusted_proxies: Arc::new(trusted_proxies) }
    }

    /// What requests are judged by.
    pub fn state(&self) -> &Arc<GateState> {
        &self.state
    }

    /// States every number to the store and writes what is queued: once nothing is in flight.
    /// Without it a process that ends loses what a crash would: at most one lease an account.
    /// A disk or a reader that hangs is not waited for longer than a few seconds.
    pub fn close(&self) {
        let state = Arc::clone(&self.state);
        let (done, closed) = channel();
        std::thread::spawn(move || {
            state.top_domains.close();
            // After it, since the ledger leaves everything in the store's one file.
            state.ledger.close();
            state.access_log.close();
            // Nobody listens if it took too long.
            let _ = done.send(());
        });
        if closed.recv_timeout(FLUSH_TIMEOUT).is_err() {
            log::error!("the store or the log did not take the last words in time");
        }
    }

    /// Judges a request. `true`: it was answered. `false`: it may pass, with a permit, to
    /// [`RequestContext::forward`]; a client that waits for 100 Continue gets it.
    pub async fn request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        let is_answered = self.run_gates(session, ctx).await?;
        if !is_answered {
            send_continue(session).await?;
        }
        Ok(is_answered)
    }

    /// As [`Gate::request_filter`], for a proxy that sends 100 Continue itself.
    pub(crate) async fn run_gates(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        if session.req_header().version < http::Version::HTTP_11 {
            // Who speaks it behind a proxy may not know whose connection it asks to keep.
            session.set_keepalive(None);
        }
        let header = session.req_header();
        let values =
            |name: HeaderName| header.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        // Of several ids none is the request's: a proxy may have added its own behind a forged one.
        let id = GateRequest::single_value(values(X_REQUEST_ID));
        ctx.common_headers.request_id =
            choose_request_id(id, values(AUTHORIZATION), &self.state.request_ids, &self.state.keys);
        let request = GateRequest {
            method: header.method.as_str(),
            target: header.raw_path(),
            authorization: GateRequest::single_value(values(AUTHORIZATION)),
            origin: OriginHeader::read(values(ORIGIN)),
            is_preflight: header.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD),
        };
        let judged = self.judge_request(&request, ctx).await;
        let Decision::Reply(reply) = self.finish_decision(judged, ctx) else {
            // Pingora refuses a counted request whose Connection it can't parse.
            remove_hop_by_hop_fields(session.req_header_mut());
            return Ok(false);
        };
        reply.write(session, &ctx.common_headers).await?;
        Ok(true)
    }

    /// The id of a request that says this one, and these values of `Authorization`.
    pub(crate) fn request_id<'h>(
        &self,
        id: Option<&[u8]>,
        authorization_values: impl Iterator<Item = &'h [u8]>,
    ) -> RequestId {
        choose_request_id(id, authorization_values, &self.state.request_ids, &self.state.keys)
    }

    /// The answer to a refusal, once; a call that we failed to serve is given back.
    pub fn reply_to_refusal(&self, refusal: &Refusal, ctx: &mut RequestContext) -> Reply {
        if matches!(refusal, Refusal::Internal | Refusal::UpstreamUnavailable) {
            self.refund(ctx);
        }
        ctx.set_outcome(refusal.status(), refusal.code());
        Reply::refusal(refusal)
    }

    /// Gives the call back, since we failed to serve it.
    pub fn refund(&self, ctx: &mut RequestContext) {
        let given = ctx.permit.as_mut().is_some_and(|p| p.refund(&self.state.ledger));
        if given {
            // The answer is not a counted one any more.
            ctx.common_headers.allowance = None;
            self.state.metrics.requests.quota_refunds.inc();
        }
    }

    /// The order of the gates: route, key, origin, quota, format, answer. Read it aloud.
    async fn judge_request(
        &self,
        request: &GateRequest<'_>,
        ctx: &mut RequestContext,
    ) -> Result<Decision, Refusal> {
        let policy = self.state.policy.snapshot();
        let wanted = self.check_route_key_and_origin(request, &policy, ctx)?;
        let now = ctx.unix_now();
        let permit = match (&ctx.key, wanted.is_counted) {
            (Some(key), true) => {
                let month = self.state.ledger.month(now);
                admission::charge_call(&self.state.ledger, key, month, now).await?
            }
            (key, _) => admission::uncounted_permit(key.as_ref()),
        };
        ctx.set_permit(permit);
        match wanted.route {
            Route::Usage => answers::answer_usage(&self.state, ctx).await.map(Decision::Reply),
            route => answers::serve_route(&self.state, route, request, &policy, ctx),
        }
    }

    /// The same in one go, for a request that needs no more than memory to be judged: with a call
    /// in hand, if it counts, not for the ledger, and for a server only where one can be asked.
    /// `None`: it takes more, and nothing was done.
    pub(crate) fn try_judge_request(
        &self,
        request: &GateRequest<'_>,
        ctx: &mut RequestContext,
        can_proxy: bool,
    ) -> Option<Decision> {
        let policy = self.state.policy.peek();
        let judged = match self.check_route_key_and_origin(request, &policy, ctx) {
            Ok(MatchedRoute { route: Route::Usage, .. }) => return None,
            Ok(MatchedRoute { route: Route::Check(_) | Route::Upstream(_), .. }) if !can_proxy => {
                return None;
            }
            Ok(MatchedRoute { route, is_counted: counts }) => {
                let permit = match (&ctx.key, counts) {
                    (Some(key), true) => {
                        let month = self.state.ledger.month(ctx.unix_now());
                        admission::try_charge_call(&self.state.ledger, key, month)?
                    }
                    (key, _) => admission::uncounted_permit(key.as_ref()),
                };
                ctx.set_permit(permit);
                answers::serve_route(&self.state, route, request, &policy, ctx)
            }
            Err(refusal) => Err(refusal),
        };
        Some(self.finish_decision(judged, ctx))
    }

    /// What to answer, and how the request ended, unless it passes.
    fn finish_decision(
        &self,
        judged: Result<Decision, Refusal>,
        ctx: &mut RequestContext,
    ) -> Decision {
        match judged {
            Ok(Decision::Forward) => Decision::Forward,
            Ok(Decision::Reply(reply)) => {
                ctx.set_outcome(reply.status(), "ok");
                Decision::Reply(reply)
            }
            Err(refusal) => Decision::Reply(self.reply_to_refusal(&refusal, ctx)),
        }
    }

    /// The gates that cost nothing: route, key and origin.
    fn check_route_key_and_origin<'r>(
        &self,
        request: &GateRequest<'r>,
        policy: &Policy,
        ctx: &mut RequestContext,
    ) -> Result<MatchedRoute<'r>, Refusal> {
        ctx.unix_now = self.state.ledger.now();
        let keys = self.state.keys.peek();
        let ring = Option::as_ref(&keys);
        let wanted = match_route_and_key(ring, request, policy, ctx);
        // Of a key that can't be served as it should, nobody knows which origins it allows.
        let Some(key) = ctx.key.as_ref().filter(|key| !key.is_faulty()) else {
            ctx.common_headers.cors = cors_without_key(ring, &request.origin, ctx.unix_now());
            return wanted;
        };
        ctx.common_headers.cors = Cors::Denied;
        admission::check_origin(key, &request.origin)?;
        if let OriginHeader::Valid(_, text) = &request.origin {
            ctx.common_headers.cors = Cors::Allowed(text.clone());
        }
        wanted
    }
}

/// The route, and the key that it needs; without a key set every key would look unknown.
fn match_route_and_key<'r>(
    ring: Option<&KeyRing>,
    request: &GateRequest<'r>,
    policy: &Policy,
    ctx: &mut RequestContext,
) -> Result<MatchedRoute<'r>, Refusal> {
    let route = route::match_route(request.method, request.target, &policy.upstream_routes)?;
    ctx.route = route.label();
    let (needs_key, counts) = match route {
        Route::Options(_) => (false, false),
        Route::Usage => (true, false),
        Route::Upstream(index) => {
            (policy.upstream_routes[index].needs_key, policy.upstream_routes[index].counts)
        }
        Route::TopDomains | Route::Domain(_) | Route::Check(_) => (true, true),
    };
    if needs_key {
        let (ring, now) = (ring.ok_or(Refusal::Internal)?, ctx.unix_now());
        let key = admission::authenticate_client(ring, request.authorization.into_iter(), now)?;
        let is_faulty = key.is_faulty();
        ctx.key = Some(key);
        if is_faulty {
            return Err(Refusal::Internal);
        }
    }
    Ok(MatchedRoute { route, is_counted: counts })
}

/// Where no key is known, a browser may read what some key's origin could; without a key set, all
/// there is to read: that it should let its user through.
fn cors_without_key(ring: Option<&KeyRing>, origin: &OriginHeader, now: i64) -> Cors {
    let allows = |origin| ring.is_none_or(|ring| ring.is_origin_allowed(origin, now));
    match origin {
        OriginHeader::Valid(origin, text) if allows(origin) => Cors::Allowed(text.clone()),
        _ => Cors::Denied,
    }
}
