//! The state of one request at the gate, from its header to its log line.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use arrayvec::ArrayVec;
use pingora::protocols::Digest;
use smol_str::SmolStr;

use crate::exchange::forwarding::AllowedResponseFields;
use crate::exchange::{InformationalResponseCounter, MAX_EXCHANGE_ATTEMPTS};
use crate::gate::admission::Permit;
use crate::gate::authz_rules::AuthzRules;
use crate::gate::body_to_forward::BodyToForward;
use crate::gate::screen_rules::{ScreenRules, ScreeningResult};
use crate::gate::state::ReloadableRules;
use crate::keys::Key;
use crate::message::request_head::AcceptedTypes;
use crate::message::response::CommonHeaders;
use crate::model::domain::Domain;
use crate::model::route_label::RouteLabel;
use crate::observe::metrics::AttemptRecord;
use crate::observe::traces::{RequestTrace, TRACEPARENT_LENGTH};
use crate::support::machine_clock::machine_time_since_epoch;
use crate::support::snapshot::{Snapshot, snapshot_of};
use crate::support::time_limit::TimeLimit;

/// The records of an exchange's attempts that have ended.
pub(crate) type AttemptRecords = ArrayVec<AttemptRecord, MAX_EXCHANGE_ATTEMPTS>;

/// The rules of a request that has not begun.
static NO_RULES: LazyLock<Arc<ReloadableRules>> = LazyLock::new(Arc::default);

/// riskgate's state of one request, from its header to its log line. Create one for each request
/// with `RequestContext::default()`, in your `new_ctx`: its creation is the start of the request in
/// metrics and log.
///
/// `key_id`, `account`, `plan` and `upstream_target` return values only after
/// [`Gate::request_filter`] has returned.
///
/// [`Gate::request_filter`]: crate::Gate::request_filter
pub struct RequestContext {
    /// The start of the request.
    pub(super) start: StartTime,
    /// The believed time by which riskgate judges the request, in seconds since 1970; 0 until the
    /// request has begun. riskgate reads the believed time once for each request.
    pub(super) unix_now: i64,
    /// The rules by which riskgate judges and serves the request. A reload does not change them.
    pub(super) rules: Snapshot<ReloadableRules>,
    /// The client's connection.
    pub(crate) connection: ConnectionFacts,
    pub(crate) common_headers: CommonHeaders,
    /// See [`RequestContext::client_address()`].
    pub(crate) client_address: Option<IpAddr>,
    /// Proof that the request passed the gates; `None` until it has passed them.
    pub(crate) permit: Option<Permit>,
    /// See [`RequestContext::upstream_target()`].
    pub(super) upstream_target: Option<Vec<u8>>,
    pub(super) route: RouteLabel,
    /// The key with which the client has authenticated; `None` if it has not.
    pub(super) key: Option<Arc<Key>>,
    /// The outcome in the metrics and the log; `None` until it is known.
    pub(super) outcome: Option<&'static str>,
    /// The status of the response, for the log; 0 if riskgate has begun no response.
    pub(super) response_status: u16,
    /// The reason of the verdict that the client asked for, for the log; `None` for a request that
    /// asks for no verdict, or for many.
    pub(super) verdict_reason: Option<&'static str>,
    /// The domain that the client asked about, on the domain route.
    pub(super) requested_domain: Option<Domain>,
    /// How riskgate screens posts to the request's path; `None` if riskgate does not screen them.
    pub(super) screen_rules: Option<Arc<ScreenRules>>,
    /// Whether the method is HEAD, so that no response has a body.
    pub(super) is_head_method: bool,
    /// What `Accept` says.
    pub(super) accepted: AcceptedTypes,
    /// See [`UpstreamRoute::has_gateway_statuses`](super::route::UpstreamRoute).
    pub(super) has_gateway_statuses: bool,
    /// The index in `[[upstream.route]]` of the request's route; `None` on another route.
    pub(super) upstream_route: Option<usize>,
    /// Whether the server gets the client's `Authorization`: the route needs no key, the request
    /// has the field once, and riskgate finds no key in its value.
    pub(super) passes_authorization: bool,
    /// The time limit of the exchange, by its route; `None` on a check, which has
    /// `upstream.deadline`.
    pub(crate) time_limit: Option<TimeLimit>,
    /// What riskgate checks, if a proxy asks with this request; `None` for any other request.
    pub(super) authz: Option<Arc<AuthzRules>>,
    /// The result of the screening; `None` if riskgate screened nothing.
    pub(super) screened: Option<Box<ScreeningResult>>,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`; `None` until the request has begun.
    pub(crate) protocol: Option<&'static str>,
    /// The body that the server gets from the client, on the Pingora path.
    pub(crate) body: BodyToForward,
    /// The bytes of the response's body that the client gets, for the log.
    pub(crate) response_bytes: u64,
    /// The attempts to get a response from an upstream server that have ended.
    pub(crate) attempts: AttemptRecords,
    /// Counts the informational responses of the server, on the Pingora path.
    pub(super) informational: InformationalResponseCounter,
    /// Whether riskgate records attempts in [`RequestContext::attempts`]. A mounted gate does not.
    pub(crate) has_attempt_records: bool,
    /// The request's place in its trace; `None` if traces are off.
    pub(crate) trace: Option<RequestTrace>,
}

/// What riskgate knows of a connection without its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionFacts {
    /// The address from which the connection comes. If the connection has a PROXY header, this is
    /// the client that the header names. `None` if the header names no client, or if the peer has
    /// no IP address.
    pub peer_address: Option<IpAddr>,
    /// The version of TLS, such as `TLSv1.3`; `None` without TLS.
    pub tls_version: Option<SmolStr>,
}

impl ConnectionFacts {
    /// Creates the facts. `tls_version` is the name that rustls gives the version, such as
    /// `TLSv1_3`.
    pub fn new(peer_address: Option<IpAddr>, tls_version: Option<&str>) -> ConnectionFacts {
        let tls_version = tls_version.map(|version| version.replace('_', ".").into());
        ConnectionFacts { peer_address, tls_version }
    }
}

impl From<&Digest> for ConnectionFacts {
    fn from(digest: &Digest) -> ConnectionFacts {
        let socket = digest.socket_digest.as_ref();
        let peer = socket.and_then(|socket| socket.peer_addr()?.as_inet().map(SocketAddr::ip));
        let tls = digest.ssl_digest.as_ref();
        ConnectionFacts::new(peer, tls.map(|tls| tls.version.as_ref()))
    }
}

/// The start of a request, by the monotonic clock and by the machine's clock.
#[derive(Clone, Copy)]
pub(crate) struct StartTime {
    instant: Instant,
    /// In milliseconds since 1970.
    pub(super) unix_ms: i64,
}

impl StartTime {
    pub fn now() -> StartTime {
        StartTime { instant: Instant::now(), unix_ms: unix_ms_now() }
    }
}

impl Default for RequestContext {
    fn default() -> RequestContext {
        RequestContext::new(StartTime::now(), snapshot_of(Arc::clone(&NO_RULES)))
    }
}

impl RequestContext {
    /// Creates the state of a request that is judged by these rules.
    pub(super) fn new(start: StartTime, rules: Snapshot<ReloadableRules>) -> RequestContext {
        RequestContext {
            start,
            unix_now: 0,
            rules,
            connection: ConnectionFacts::default(),
            common_headers: CommonHeaders::default(),
            client_address: None,
            permit: None,
            is_head_method: false,
            accepted: AcceptedTypes::default(),
            has_gateway_statuses: false,
            upstream_target: None,
            route: RouteLabel::None,
            key: None,
            outcome: None,
            response_status: 0,
            verdict_reason: None,
            requested_domain: None,
            screen_rules: None,
            upstream_route: None,
            passes_authorization: false,
            time_limit: None,
            authz: None,
            screened: None,
            protocol: None,
            body: BodyToForward::Nothing,
            response_bytes: 0,
            attempts: AttemptRecords::new(),
            informational: InformationalResponseCounter::default(),
            has_attempt_records: false,
            trace: None,
        }
    }

    /// Returns the `traceparent` that the upstream server gets in the attempt after this number of
    /// ended attempts; `None` if traces are off.
    pub(crate) fn traceparent_after(
        &self,
        ended_attempts: usize,
    ) -> Option<[u8; TRACEPARENT_LENGTH]> {
        // A mounted gate does not know the attempts. The server's spans then belong to the span of
        // the request.
        let attempt = if self.has_attempt_records { ended_attempts + 1 } else { 0 };
        self.trace.map(|trace| trace.traceparent(attempt))
    }

    /// Stores the permit, and sets the RateLimit fields of the response from it.
    pub(super) fn set_permit(&mut self, permit: Permit) {
        self.common_headers.allowance = permit.allowance(self.unix_now);
        self.permit = Some(permit);
    }

    /// The address of the client, found as `listen.client_address` says. `None` before
    /// [`Gate::request_filter`](crate::Gate::request_filter), and if riskgate knows no address.
    pub fn client_address(&self) -> Option<IpAddr> {
        self.client_address
    }

    /// Whether the request has begun: it has its rules, its time and its id.
    pub(crate) fn has_begun(&self) -> bool {
        self.protocol.is_some()
    }

    /// The id of the request, which the response, the server and the logs have. riskgate replaces a
    /// client's id that is not valid, or in which it finds a key or what may be an e-mail address.
    /// Empty before [`Gate::request_filter`](crate::Gate::request_filter).
    pub fn request_id(&self) -> &str {
        &self.common_headers.request_id
    }

    /// The path and query that the upstream server gets, percent-encoded: in canonical form for a
    /// check, and as the client sent them on a route of `[[upstream.route]]`. `None` unless
    /// riskgate lets the request pass to a server.
    pub fn upstream_target(&self) -> Option<&[u8]> {
        self.upstream_target.as_deref()
    }

    /// The public id of the key with which the client has authenticated. `None` if riskgate found
    /// no valid key, or looked for none. The id is no secret and may be logged.
    pub fn key_id(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.id.as_str())
    }

    /// The name of the client's account; `None` as for [`RequestContext::key_id`].
    pub fn account(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.account.name.as_str())
    }

    /// The plan of the client's account; `None` as for [`RequestContext::key_id`].
    pub fn plan(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.account.plan.as_str())
    }

    /// When the request began, by the machine's clock, in seconds since 1970.
    pub(crate) fn started_unix_seconds(&self) -> i64 {
        self.start.unix_ms.div_euclid(1000)
    }

    /// Whether the route screens posts, or a proxy asks: riskgate may then need the start of a
    /// longer body.
    pub(crate) fn is_body_screened(&self) -> bool {
        self.authz.is_some() || self.screen_rules.is_some()
    }

    /// Whether the request has sign-ups that count if the server answers that they have succeeded.
    pub(crate) fn has_sign_ups(&self) -> bool {
        self.screened.as_ref().is_some_and(|screened| !screened.sign_ups.is_empty())
            && self.screen_rules.as_ref().is_some_and(|rules| rules.counts_forms())
    }

    /// The name in metrics of the rules by which riskgate screens the request: the prefix of a
    /// route, `authz.path`, or `assess`. `None` without such rules.
    pub(super) fn screening_route(&self) -> Option<&str> {
        if self.route == RouteLabel::Assess {
            return Some(RouteLabel::Assess.as_str());
        }
        let of_authz = self.authz.as_ref().and_then(|rules| rules.screening.as_ref());
        let policy = of_authz.map(|screening| &screening.policy);
        let policy = policy.or_else(|| self.screen_rules.as_ref().map(|rules| &rules.policy))?;
        Some(&policy.route)
    }

    /// What the upstream server may set in its response.
    pub(crate) fn allowed_response_fields(&self) -> AllowedResponseFields {
        match self.upstream_route.map(|index| &self.rules.upstream_routes[index]) {
            None => AllowedResponseFields::OfCheck,
            Some(route) if route.has_server_cors() => AllowedResponseFields::OfRouteWithServerCors,
            Some(_) => AllowedResponseFields::OfRoute,
        }
    }

    /// When the request began.
    pub(crate) fn started_at(&self) -> Instant {
        self.start.instant
    }

    /// The instant from which the deadline counts in an exchange that begins now. The time in which
    /// the client sent its body does not count.
    pub(crate) fn exchange_start(&self, has_body: bool) -> Instant {
        if has_body { Instant::now() } else { self.started_at() }
    }

    /// Sets the outcome and the status of the request, unless the outcome is set already.
    pub(crate) fn set_outcome_if_unset(&mut self, status: u16, outcome: &'static str) {
        if self.outcome.is_none() {
            self.response_status = status;
            self.outcome = Some(outcome);
        }
    }

    /// Sets the outcome of a request whose upstream response, with this status, is forwarded.
    pub(super) fn set_upstream_outcome(&mut self, status: u16) {
        let outcome = match status {
            400..=499 => "upstream_4xx",
            500..=599 => "upstream_5xx",
            _ => "ok",
        };
        self.set_outcome_if_unset(status, outcome);
    }

    /// Sets the outcome to `aborted`, because the client did not get a whole response. Replaces
    /// the outcome that was set with the header of the response.
    pub(crate) fn set_aborted_outcome(&mut self) {
        self.outcome = Some("aborted");
    }

    /// Records that a response of riskgate could not be sent.
    pub(crate) fn record_unsent_reply(&mut self) {
        self.set_aborted_outcome();
        self.response_bytes = 0;
    }
}

/// The machine's clock, in seconds since 1970.
pub(crate) fn unix_seconds_now() -> i64 {
    unix_ms_now().div_euclid(1000)
}

fn unix_ms_now() -> i64 {
    i64::try_from(machine_time_since_epoch().as_millis()).unwrap_or(i64::MAX)
}
