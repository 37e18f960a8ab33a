//! The servers behind us: which one is asked, for how long, and with which headers.
//!
//! Owns the pool with its active and passive health, the rules for what crosses to the upstream
//! and back, and the deadline of a whole exchange. It judges no request; who comes here has a
//! permit.

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, COOKIE, EXPECT, FORWARDED, HOST, HeaderName,
    HeaderValue, UPGRADE,
};
use pingora_core::Result;
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::Connector as HttpConnector;
use pingora_core::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_load_balancing::health_check::{HttpHealthCheck, TcpHealthCheck};
use pingora_load_balancing::selection::RoundRobin;
use pingora_load_balancing::{Backend, LoadBalancer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::keys::Key;
use crate::reply::{X_FAIL_OPEN, X_RISKGATE_SOURCE};

/// Connections, deadlines and health.
#[derive(Clone, Debug)]
pub struct UpstreamOptions {
    /// `host:port` of each server.
    pub servers: Vec<String>,
    /// What `Host` says; the server's own name when empty.
    pub host: Option<String>,
    /// Whether TLS is spoken to them, and how.
    pub tls: Option<UpstreamTls>,
    /// Exchanges at the same time; what comes beyond is refused at once.
    pub max_in_flight: usize,
    /// For one connection to be made.
    pub connect_timeout: Duration,
    /// For the whole exchange, from the request's header to the last byte of the answer.
    pub deadline: Duration,
    /// How long an idle connection is kept for reuse.
    pub idle_timeout: Duration,
    /// How often servers are checked; zero switches it off.
    pub health_interval: Duration,
    /// A path to ask for; a mere connection when empty.
    pub health_path: Option<String>,
    /// How long a server that refused a connection is passed over.
    pub eject_for: Duration,
}

/// TLS to the servers.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// A file with the authorities to trust, instead of the system's; the connector reads it.
    pub authorities: Option<String>,
    /// The name that their certificate must be for.
    pub name: String,
    /// Whether it is looked at.
    pub verify: bool,
}

/// The servers and how they are.
pub struct Upstreams {
    balancer: Arc<LoadBalancer<RoundRobin>>,
    options: UpstreamOptions,
    ejected: DashMap<String, Instant>,
    in_flight: Arc<Semaphore>,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const OURS: &str = "x-riskgate-";
/// What an upstream may not say to the client: names of ours, and those of one hop only
/// (RFC 9110 section 7.6.1); `Connection` itself is Pingora's.
const NOT_THEIRS: [&str; 12] = [
    "server",
    "set-cookie",
    "x-fail-open",
    "x-request-id",
    "x-table-version",
    "x-matched-domain",
    "ratelimit",
    "ratelimit-policy",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "upgrade",
];

/// What is told to the upstream about the caller.
pub struct Caller<'c> {
    /// The key that opened the gates.
    pub key: Option<&'c Arc<Key>>,
    /// The request's id.
    pub request_id: &'c str,
    /// The peer's address.
    pub address: Option<IpAddr>,
    /// Whether the peer is one of `listen.trusted_proxies`.
    pub trusted: bool,
    /// Whether it speaks TLS to us.
    pub secure: bool,
}

impl Upstreams {
    /// A pool of these servers; names are resolved here.
    pub fn new(options: UpstreamOptions) -> std::io::Result<Upstreams> {
        let mut balancer = LoadBalancer::<RoundRobin>::try_from_iter(&options.servers)?;
        if !options.health_interval.is_zero() {
            balancer.health_check_frequency = Some(options.health_interval);
            match &options.health_path {
                None => balancer.set_health_check(tcp_check(&options)),
                Some(path) => {
                    let check = http_check(&options, path)
                        .map_err(|error| std::io::Error::other(error.to_string()))?;
                    balancer.set_health_check(check);
                }
            }
        }
        Ok(Upstreams {
            balancer: Arc::new(balancer),
            in_flight: Arc::new(Semaphore::new(options.max_in_flight)),
            options,
            ejected: DashMap::new(),
        })
    }

    /// The pool, to be run as a background service: it does the active checks.
    pub fn balancer(&self) -> Arc<LoadBalancer<RoundRobin>> {
        Arc::clone(&self.balancer)
    }

    /// Servers that may be asked now, of all.
    pub fn healthy(&self) -> (usize, usize) {
        let backends = self.balancer.backends().get_backend();
        let good = |backend: &&Backend| {
            self.balancer.backends().ready(backend) && !self.is_ejected(backend)
        };
        (backends.iter().filter(good).count(), backends.len())
    }

    /// One more exchange, until the answer is dropped; `None` when there are too many.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.in_flight).try_acquire_owned().ok()
    }

    /// The next server to ask, with what is left of the deadline; `None` when there is none or
    /// no time.
    pub fn peer(&self, started: Instant) -> Option<HttpPeer> {
        let left = self.left(started)?;
        let healthy = |backend: &Backend, ready: bool| ready && !self.is_ejected(backend);
        let backend = self
            .balancer
            .select_with(b"", 64, healthy)
            // When none is known to be well, one that may have recovered is better than none.
            .or_else(|| self.balancer.select_with(b"", 64, |_, _| true))?;
        let name = self.options.tls.as_ref().map(|tls| tls.name.clone());
        let mut peer = HttpPeer::new(backend.addr, name.is_some(), name.unwrap_or_default());
        let verify = self.options.tls.as_ref().is_none_or(|tls| tls.verify);
        peer.options.verify_cert = verify;
        peer.options.verify_hostname = verify;
        let connect = self.options.connect_timeout.min(left);
        peer.options.connection_timeout = Some(connect);
        peer.options.total_connection_timeout = Some(connect);
        peer.options.read_timeout = Some(left);
        peer.options.write_timeout = Some(left);
        peer.options.idle_timeout = Some(self.options.idle_timeout);
        peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::deny_upgrades();
        Some(peer)
    }

    /// Passes a server over for a while: it did not take a connection.
    pub fn eject(&self, peer: &HttpPeer) {
        self.ejected.insert(peer._address.to_string(), Instant::now() + self.options.eject_for);
    }

    /// What the exchange has left of its time.
    pub fn left(&self, started: Instant) -> Option<Duration> {
        let left = self.options.deadline.checked_sub(started.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    /// Whether the exchange is out of time.
    pub fn is_late(&self, started: Instant) -> bool {
        self.left(started).is_none()
    }

    /// Ends the exchange at its deadline whatever trickles: see [`Deadline`].
    pub fn watch(&self, started: Instant, connection: RawFd) -> Option<Deadline> {
        Deadline::watch(started + self.options.deadline, connection)
    }

    /// Makes the request that crosses: the canonical target, our headers, nothing forged.
    pub fn prepare_request(
        &self,
        request: &mut RequestHeader,
        target: &[u8],
        server: &str,
        caller: &Caller<'_>,
    ) -> Result<()> {
        let said = |request: &RequestHeader, name| request.headers.get(name).cloned();
        // HTTP/2 says the host in the target.
        let authority = request.uri.authority();
        let authority = authority.and_then(|a| HeaderValue::from_str(a.as_str()).ok());
        let (asked_host, forwarded_for, proto, forwarded_host) = (
            authority.or_else(|| said(request, HOST)),
            said(request, X_FORWARDED_FOR),
            said(request, X_FORWARDED_PROTO),
            said(request, X_FORWARDED_HOST),
        );
        request.set_raw_path(target)?;
        join_cookies(request)?;
        for name in [AUTHORIZATION, EXPECT, UPGRADE, FORWARDED, X_REAL_IP] {
            request.remove_header(&name);
        }
        let forged = |name: &&HeaderName| is_forged(name.as_str(), caller.trusted);
        let forged: Vec<HeaderName> = request.headers.keys().filter(forged).cloned().collect();
        for name in forged {
            request.remove_header(&name);
        }
        let address = caller.address.map(|a| a.to_canonical().to_string()).unwrap_or_default();
        let chain = match forwarded_for.filter(|_| caller.trusted) {
            Some(chain) => [chain.as_bytes(), b", ", address.as_bytes()].concat(),
            None => address.into_bytes(),
        };
        insert(request, X_FORWARDED_FOR, &chain)?;
        let spoken: &[u8] = if caller.secure { b"https" } else { b"http" };
        let proto = proto.filter(|_| caller.trusted);
        insert(request, X_FORWARDED_PROTO, proto.as_ref().map_or(spoken, HeaderValue::as_bytes))?;
        let host = forwarded_host.filter(|_| caller.trusted).or(asked_host);
        insert(request, X_FORWARDED_HOST, host.as_ref().map_or(b"", HeaderValue::as_bytes))?;
        insert(request, HOST, self.options.host.as_deref().unwrap_or(server).as_bytes())?;
        request.insert_header("X-Request-Id", caller.request_id)?;
        if let Some(key) = caller.key {
            request.insert_header("X-Riskgate-Account", key.account.name.as_str())?;
            request.insert_header("X-Riskgate-Key-Id", key.id.as_str())?;
            request.insert_header("X-Riskgate-Plan", key.account.plan.as_str())?;
        }
        Ok(())
    }

    fn is_ejected(&self, backend: &Backend) -> bool {
        self.ejected.get(&backend.addr.to_string()).is_some_and(|until| Instant::now() < *until)
    }
}

/// Takes out of the upstream's answer what is not its to say, and marks where it came from.
pub fn clean_response(response: &mut ResponseHeader) -> Result<()> {
    let nominated: Vec<String> = response
        .headers
        .get_all(CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let drop = |name: &&HeaderName| {
        let name = name.as_str();
        NOT_THEIRS.contains(&name)
            || name.starts_with("access-control-")
            || name.starts_with(OURS)
            || nominated.iter().any(|nominated| nominated == name)
    };
    let dropped: Vec<HeaderName> = response.headers.keys().filter(drop).cloned().collect();
    for name in dropped {
        response.remove_header(&name);
    }
    response.insert_header(X_RISKGATE_SOURCE, "upstream")?;
    let status = response.status.as_u16();
    if status == 429 || status >= 500 {
        response.insert_header(X_FAIL_OPEN, "true")?;
    }
    if !response.headers.contains_key(CACHE_CONTROL) {
        response.insert_header(CACHE_CONTROL, "no-store")?;
    }
    Ok(())
}

/// HTTP/2 may send cookies in crumbs; HTTP/1.1 knows one header of them (RFC 9113 section 8.2.3).
fn join_cookies(request: &mut RequestHeader) -> Result<()> {
    let crumbs: Vec<&[u8]> =
        request.headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes).collect();
    match crumbs.len() {
        0 | 1 => Ok(()),
        _ => {
            let whole = crumbs.join(&b"; "[..]);
            insert(request, COOKIE, &whole)
        }
    }
}

/// Whether a caller's header would speak in our name, or route anew behind us. Names with `_` go
/// too: many servers fold them and ours into one.
fn is_forged(name: &str, trusted: bool) -> bool {
    const REROUTE: [&str; 3] = ["x-original-url", "x-rewrite-url", "x-http-method-override"];
    name.starts_with(OURS)
        || name.contains('_')
        || REROUTE.contains(&name)
        || (!trusted && name.starts_with("x-forwarded-"))
}

fn insert(request: &mut RequestHeader, name: HeaderName, value: &[u8]) -> Result<()> {
    match HeaderValue::from_bytes(value) {
        Ok(value) => request.insert_header(name, value),
        Err(_) => {
            request.remove_header(&name);
            Ok(())
        }
    }
}

fn tcp_check(options: &UpstreamOptions) -> Box<TcpHealthCheck> {
    // A connection is all that is looked for, also where TLS would be spoken on it.
    let mut check = TcpHealthCheck::new();
    check.peer_template.options.connection_timeout = Some(options.connect_timeout);
    check
}

fn http_check(options: &UpstreamOptions, path: &str) -> Result<Box<HttpHealthCheck>> {
    let name = options.tls.as_ref().map(|tls| tls.name.as_str());
    let host = options.host.as_deref().or(name).unwrap_or("upstream");
    let mut check: HttpHealthCheck = HttpHealthCheck::new(host, options.tls.is_some());
    if let Some(tls) = &options.tls {
        let mut connector = ConnectorOptions::new(1);
        connector.ca_file.clone_from(&tls.authorities);
        check.set_connector(HttpConnector::new(Some(connector)));
        check.peer_template.sni.clone_from(&tls.name);
        check.peer_template.options.verify_cert = tls.verify;
        check.peer_template.options.verify_hostname = tls.verify;
    }
    check.req.set_raw_path(path.as_bytes())?;
    check.peer_template.options.connection_timeout = Some(options.connect_timeout);
    check.peer_template.options.read_timeout = Some(options.deadline);
    Ok(Box::new(check))
}

/// Ends an exchange on its connection when the time is up.
///
/// Pingora's timers are for each read, so an upstream that trickles would never be late. This
/// holds a descriptor of its own for the connection and shuts the connection down at the
/// deadline; dropped before, it does nothing.
pub struct Deadline {
    timer: tokio::task::JoinHandle<()>,
}

impl Deadline {
    fn watch(at: Instant, connection: RawFd) -> Option<Deadline> {
        let connection = duplicate(connection)?;
        let timer = tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            let stream = std::net::TcpStream::from(connection);
            // Already closed by the other side is as good.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        Some(Deadline { timer })
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

/// A descriptor of our own, so that the number can't come to mean another connection.
#[allow(unsafe_code)]
fn duplicate(connection: RawFd) -> Option<OwnedFd> {
    // SAFETY: Pingora passes the descriptor of the connection that it holds open during the call
    // we are in; it is borrowed for the duplication only.
    let borrowed = unsafe { BorrowedFd::borrow_raw(connection) };
    borrowed.try_clone_to_owned().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_speaks_in_our_name_however_it_is_spelled() {
        for name in
            ["x-riskgate-account", "x_riskgate_account", "x-riskgate_plan", "x-original-url", "a_b"]
        {
            assert!(is_forged(name, false) && is_forged(name, true), "{name}");
        }
        // What a proxy of ours says of the way here is kept.
        assert!(is_forged("x-forwarded-port", false));
        assert!(!is_forged("x-forwarded-port", true));
        assert!(!is_forged("traceparent", false));
    }

    #[test]
    fn an_answer_loses_what_is_not_the_upstreams_to_say() {
        let mut response = ResponseHeader::build(200, None).unwrap();
        for (name, value) in [
            ("Server", "x"),
            ("X-Table-Version", "forged"),
            ("Access-Control-Allow-Origin", "*"),
            ("Connection", "X-Hop"),
            ("X-Hop", "1"),
            ("Content-Type", "text/plain"),
        ] {
            response.insert_header(name, value).unwrap();
        }
        clean_response(&mut response).unwrap();
        let has = |name: &str| response.headers.contains_key(name);
        assert!(!has("server") && !has("x-table-version") && !has("x-hop"));
        assert!(!has("access-control-allow-origin"));
        assert!(has("content-type") && has("x-riskgate-source") && has("cache-control"));
    }
}
