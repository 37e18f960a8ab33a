//! The order in which a request is judged.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HeaderName, HeaderValue, ORIGIN};
use pingora_core::Result;
use pingora_proxy::Session;

use crate::keys::KeyRing;
use crate::message::forwarding::drop_nominated;
use crate::message::request_id::RequestId;
use crate::message::response::{Cors, Reply, X_REQUEST_ID};
use crate::model::network::Networks;
use crate::model::refusal::Refusal;

use super::admission::{self, OriginHeader};
use super::answers::{self, Decision};
use super::gate_request::Asked;
use super::request_context::{Visit, request_id};
use super::route::{self, Route};
use super::session::send_continue;
use super::state::{Policy, State};

/// How long the store and the log may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(4);

/// The middleware: mount it with a [`Visit`] in your context, and with one call in each of your
/// `request_filter`, `upstream_request_filter`, `response_filter`, `fail_to_proxy` and `logging`.
#[derive(Clone)]
pub struct Gate {
    pub(super) state: Arc<State>,
    /// Proxies in front of us that are believed about who a client is.
    pub(super) trusted_proxies: Arc<Networks>,
}

/// What a request wants, once nothing but its quota stands in the way.
struct Wanted<'r> {
    route: Route<'r>,
    counts: bool,
}

impl Gate {
    /// A gate in front of this state, which believes these proxies about who a client is.
    pub fn new(state: Arc<State>, trusted_proxies: Networks) -> Gate {
        Gate { state, trusted_proxies: Arc::new(trusted_proxies) }
    }

    /// What requests are judged by.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// States every number to the store and writes what is queued: once nothing is in flight.
    /// Without it a process that ends loses what a crash would: at most one lease an account.
    /// A disk or a reader that hangs is not waited for longer than a few seconds.
    pub fn close(&self) {
        let state = Arc::clone(&self.state);
        let (done, closed) = channel();
        std::thread::spawn(move || {
            state.top.close();
            // After it, since the ledger leaves everything in the store's one file.
            state.ledger.close();
            state.log.close();
            // Nobody listens if it took too long.
            let _ = done.send(());
        });
        if closed.recv_timeout(LAST_WORDS).is_err() {
            log::error!("the store or the log did not take the last words in time");
        }
    }

    /// Judges a request. `true`: it was answered. `false`: it may pass, with a permit, to
    /// [`Visit::forward`]; a client that waits for 100 Continue gets it.
    pub async fn request_filter(&self, session: &mut Session, visit: &mut Visit) -> Result<bool> {
        let is_answered = self.filter(session, visit).await?;
        if !is_answered {
            send_continue(session).await?;
        }
        Ok(is_answered)
    }

    /// As [`Gate::request_filter`], for a proxy that sends 100 Continue itself.
    pub(crate) async fn filter(&self, session: &mut Session, visit: &mut Visit) -> Result<bool> {
        if session.req_header().version < http::Version::HTTP_11 {
            // Who speaks it behind a proxy may not know whose connection it asks to keep.
            session.set_keepalive(None);
        }
        let header = session.req_header();
        let values =
            |name: HeaderName| header.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        // Of several ids none is the request's: a proxy may have added its own behind a forged one.
        let id = Asked::single(values(X_REQUEST_ID));
        visit.common.request_id =
            request_id(id, values(AUTHORIZATION), &self.state.ids, &self.state.keys);
        let asked = Asked {
            method: header.method.as_str(),
            target: header.raw_path(),
            authorization: Asked::single(values(AUTHORIZATION)),
            origin: OriginHeader::read(values(ORIGIN)),
            is_preflight: header.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD),
        };
        let judged = self.judge(&asked, visit).await;
        let Decision::Answer(reply) = self.conclude(judged, visit) else {
            // Pingora refuses a counted request whose Connection it can't parse.
            drop_nominated(session.req_header_mut());
            return Ok(false);
        };
        reply.write(session, &visit.common).await?;
        Ok(true)
    }

    /// The id of a request that says this one, and these values of `Authorization`.
    pub(crate) fn request_id<'h>(
        &self,
        id: Option<&[u8]>,
        sent: impl Iterator<Item = &'h [u8]>,
    ) -> RequestId {
        request_id(id, sent, &self.state.ids, &self.state.keys)
    }

    /// The answer to a refusal, once; a call that we failed to serve is given back.
    pub fn refused(&self, refusal: &Refusal, visit: &mut Visit) -> Reply {
        if matches!(refusal, Refusal::Internal | Refusal::UpstreamUnavailable) {
            self.give_back(visit);
        }
        visit.conclude(refusal.status(), refusal.code());
        Reply::refusal(refusal)
    }

    /// Gives the call back, since we failed to serve it.
    pub fn give_back(&self, visit: &mut Visit) {
        let given = visit.permit.as_mut().is_some_and(|p| p.give_back(&self.state.ledger));
        if given {
            // The answer is not a counted one any more.
            visit.common.allowance = None;
            self.state.metrics.requests.given_back.inc();
        }
    }

    /// The order of the gates: route, key, origin, quota, format, answer. Read it aloud.
    async fn judge(&self, asked: &Asked<'_>, visit: &mut Visit) -> Result<Decision, Refusal> {
        let policy = self.state.policy.snapshot();
        let wanted = self.identify(asked, &policy, visit)?;
        let now = visit.unix_now();
        let permit = match (&visit.key, wanted.counts) {
            (Some(key), true) => {
                let month = self.state.ledger.month(now);
                admission::charge(&self.state.ledger, key, month, now).await?
            }
            (key, _) => admission::uncounted(key.as_ref()),
        };
        visit.admit(permit);
        match wanted.route {
            Route::Usage => answers::answer_usage(&self.state, visit).await.map(Decision::Answer),
            route => answers::serve(&self.state, route, asked, &policy, visit),
        }
    }

    /// The same in one go, for a request that needs no more than memory to be judged: with a call
    /// in hand, if it counts, not for the ledger, and for a server only where one can be asked.
    /// `None`: it takes more, and nothing was done.
    pub(crate) fn judge_at_once(
        &self,
        asked: &Asked<'_>,
        visit: &mut Visit,
        crosses: bool,
    ) -> Option<Decision> {
        let policy = self.state.policy.peek();
        let judged = match self.identify(asked, &policy, visit) {
            Ok(Wanted { route: Route::Usage, .. }) => return None,
            Ok(Wanted { route: Route::Check(_) | Route::Prefix(_), .. }) if !crosses => {
                return None;
            }
            Ok(Wanted { route, counts }) => {
                let permit = match (&visit.key, counts) {
                    (Some(key), true) => {
                        let month = self.state.ledger.month(visit.unix_now());
                        admission::charge_at_once(&self.state.ledger, key, month)?
                    }
                    (key, _) => admission::uncounted(key.as_ref()),
                };
                visit.admit(permit);
                answers::serve(&self.state, route, asked, &policy, visit)
            }
            Err(refusal) => Err(refusal),
        };
        Some(self.conclude(judged, visit))
    }

    /// What to answer, and how the request ended, unless it passes.
    fn conclude(&self, judged: Result<Decision, Refusal>, visit: &mut Visit) -> Decision {
        match judged {
            Ok(Decision::Pass) => Decision::Pass,
            Ok(Decision::Answer(reply)) => {
                visit.conclude(reply.status(), "ok");
                Decision::Answer(reply)
            }
            Err(refusal) => Decision::Answer(self.refused(&refusal, visit)),
        }
    }

    /// The gates that cost nothing: route, key and origin.
    fn identify<'r>(
        &self,
        asked: &Asked<'r>,
        policy: &Policy,
        visit: &mut Visit,
    ) -> Result<Wanted<'r>, Refusal> {
        visit.now = self.state.ledger.now();
        let keys = self.state.keys.peek();
        let ring = Option::as_ref(&keys);
        let wanted = find_key(ring, asked, policy, visit);
        // Of a key that can't be served as it should, nobody knows which origins it allows.
        let Some(key) = visit.key.as_ref().filter(|key| !key.is_faulty()) else {
            visit.common.cors = open_to_some_key(ring, &asked.origin, visit.unix_now());
            return wanted;
        };
        visit.common.cors = Cors::Closed;
        admission::check_origin(key, &asked.origin)?;
        if let OriginHeader::Valid(_, text) = &asked.origin {
            visit.common.cors = Cors::Open(text.clone());
        }
        wanted
    }
}

/// The route, and the key that it needs; without a key set every key would look unknown.
fn find_key<'r>(
    ring: Option<&KeyRing>,
    asked: &Asked<'r>,
    policy: &Policy,
    visit: &mut Visit,
) -> Result<Wanted<'r>, Refusal> {
    let route = route::find(asked.method, asked.target, &policy.prefixes)?;
    visit.route = route.label();
    let (needs_key, counts) = match route {
        Route::Options(_) => (false, false),
        Route::Usage => (true, false),
        Route::Prefix(index) => (policy.prefixes[index].needs_key, policy.prefixes[index].counts),
        Route::TopDomains | Route::Domain(_) | Route::Check(_) => (true, true),
    };
    if needs_key {
        let (ring, now) = (ring.ok_or(Refusal::Internal)?, visit.unix_now());
        let key = admission::identify(ring, asked.authorization.into_iter(), now)?;
        let is_faulty = key.is_faulty();
        visit.key = Some(key);
        if is_faulty {
            return Err(Refusal::Internal);
        }
    }
    Ok(Wanted { route, counts })
}

/// Where no key is known, a browser may read what some key's origin could; without a key set, all
/// there is to read: that it should let its user through.
fn open_to_some_key(ring: Option<&KeyRing>, origin: &OriginHeader, now: i64) -> Cors {
    let allows = |origin| ring.is_none_or(|ring| ring.some_key_allows(origin, now));
    match origin {
        OriginHeader::Valid(origin, text) if allows(origin) => Cors::Open(text.clone()),
        _ => Cors::Closed,
    }
}
