//! The operator's door: health, readiness, metrics, status, reload, and the OpenAPI document.
//!
//! Owns what is told about the process and to whom. From elsewhere than the host everything but
//! health and readiness needs a token. It shows no key and no address, and serves no caller.

mod connection_limit;
mod responses;
pub(super) mod serve;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::time::timeout;

use crate::config::{Config, Secret};
use crate::downstream::Traffic;
use crate::feed::FeedStatus;
use crate::gate::State;
use crate::keys::KeyRing;
use crate::model::month::rfc3339;
use crate::observe::process_log::ErrorLog;
use crate::process::reload::{ReloadStatus, Trigger};
use crate::proxy::upstream::Upstreams;
use crate::quota::unix_now;

use responses::{HTML, JSON, YAML, only, plain, pretty, respond};

/// How long a door that does not answer is waited for.
const KNOCK: Duration = Duration::from_millis(200);
/// What both listeners answer.
const DOCUMENT: &str = include_str!("../../docs/openapi.yaml");

/// The app behind `listen.admin`.
pub struct Admin {
    state: Arc<State>,
    traffic: Arc<Traffic>,
    upstreams: Arc<Upstreams>,
    status: Arc<Mutex<ReloadStatus>>,
    trigger: Trigger,
    error_log: Option<Arc<ErrorLog>>,
    token: Option<Secret>,
    is_local: bool,
    metrics_public: bool,
    started: i64,
    http: SocketAddr,
    listening: AtomicBool,
}

impl Admin {
    /// An app that tells about these.
    pub fn new(
        state: Arc<State>,
        traffic: Arc<Traffic>,
        upstreams: Arc<Upstreams>,
        status: Arc<Mutex<ReloadStatus>>,
        trigger: Trigger,
        config: &Config,
    ) -> Admin {
        Admin {
            state,
            traffic,
            upstreams,
            status,
            trigger,
            error_log: None,
            token: config.admin_token.clone(),
            is_local: config.admin.ip().is_loopback(),
            metrics_public: config.metrics_public,
            started: unix_now(),
            http: reachable(config.http),
            listening: AtomicBool::new(false),
        }
    }

    /// Also tells what was dropped from this log.
    pub fn with_error_log(mut self, log: &Arc<ErrorLog>) -> Admin {
        self.error_log = Some(Arc::clone(log));
        self
    }

    async fn answer(&self, method: &str, path: &str, headers: &HeaderMap) -> Response<Vec<u8>> {
        let reads = matches!(method, "GET" | "HEAD");
        match (path, reads) {
            ("/healthz", true) => plain(StatusCode::OK, "ok\n"),
            ("/readyz", true) => self.readiness(self.may_look(headers)).await,
            ("/healthz" | "/readyz", false) => only("GET, HEAD", "GET only\n"),
            ("/metrics", true) if self.metrics_public => self.metrics(),
            ("/metrics" | "/status" | "/" | "/openapi.yaml" | "/reload", _)
                if !self.may_look(headers) =>
            {
                plain(StatusCode::UNAUTHORIZED, "a token is needed here\n")
            }
            ("/metrics", true) => self.metrics(),
            ("/status", true) => respond(StatusCode::OK, JSON, pretty(&self.describe())),
            ("/", true) => respond(StatusCode::OK, HTML, self.page()),
            ("/openapi.yaml", true) => respond(StatusCode::OK, YAML, DOCUMENT.into()),
            ("/reload", false) if method == "POST" => self.reload(headers).await,
            ("/reload", _) => only("POST", "POST only\n"),
            ("/metrics" | "/status" | "/" | "/openapi.yaml", false) => {
                only("GET, HEAD", "GET only\n")
            }
            _ => plain(StatusCode::NOT_FOUND, "no such page\n"),
        }
    }

    /// With a token set, only who has it; without, only who asks for the host itself, so that no
    /// web page can reach in by a name of its own (DNS rebinding).
    fn may_look(&self, headers: &HeaderMap) -> bool {
        match &self.token {
            Some(token) => {
                let sent = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
                let sent = sent.and_then(|value| value.strip_prefix(b"Bearer "));
                sent.is_some_and(|sent| sent.ct_eq(token.reveal().as_bytes()).into())
            }
            None => self.is_local && names_this_host(headers),
        }
    }

    async fn reload(&self, headers: &HeaderMap) -> Response<Vec<u8>> {
        let from_browser = headers.contains_key(ORIGIN)
            || headers.keys().any(|name| name.as_str().starts_with("sec-fetch-"));
        if from_browser {
            return plain(StatusCode::FORBIDDEN, "not from a browser\n");
        }
        let Some(outcome) = self.trigger.and_wait().await else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
        };
        let good = outcome.values().all(Option::is_none);
        let status = if good { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
        let parts: serde_json::Map<String, Value> = outcome
            .into_iter()
            .map(|(part, problem)| (part.to_owned(), problem.map_or(json!("ok"), Value::from)))
            .collect();
        respond(status, JSON, pretty(&Value::Object(parts)))
    }

    /// Everybody may ask; the reasons, which name files, are for who may look.
    async fn readiness(&self, may_look: bool) -> Response<Vec<u8>> {
        let draining = self.traffic.is_draining();
        // Without a first key ring nobody can be served: another process should go on instead.
        let has_keys = self.state.keys.peek().is_some();
        let ready = !draining && has_keys && self.is_listening().await;
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = json!({
            "ready": ready,
            "draining": draining,
            "degraded": if may_look { self.degraded() } else { self.degraded_parts() },
        });
        respond(status, JSON, pretty(&body))
    }

    /// Whether the door is open: asked until it was once.
    async fn is_listening(&self) -> bool {
        if self.listening.load(Ordering::Relaxed) {
            return true;
        }
        let connect = tokio::net::TcpStream::connect(self.http);
        let open = matches!(timeout(KNOCK, connect).await, Ok(Ok(_)));
        self.listening.store(open, Ordering::Relaxed);
        open
    }

    /// What does not stop us from serving, but should be seen to.
    fn degraded(&self) -> Vec<String> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut degraded: Vec<String> =
            status.failing.iter().map(|(part, why)| format!("{part}: {why}")).collect();
        let store = self.state.ledger.status();
        let missing = store.missing_replicas;
        match store.store_down {
            true if missing == 0 => degraded.push(match self.state.ledger.store_problem() {
                Some(why) => format!("store: down: {why}"),
                None => "store: down".to_owned(),
            }),
            true => degraded.push(format!(
                "store: {missing} of store.wait_replicas are missing: calls without a lease are \
                 refused"
            )),
            false if missing == 0 => {}
            false => degraded.push(format!(
                "store: {missing} of store.wait_replicas are missing: what is stated now lies on \
                 one server alone"
            )),
        }
        if store.store_settling {
            degraded.push("store: it may have lost something; numbers are restated".to_owned());
        }
        degraded.extend(self.state.ledger.clock_problem().map(|why| format!("clock: {why}")));
        degraded
    }

    fn degraded_parts(&self) -> Vec<String> {
        let part = |why: String| why.split(':').next().unwrap_or_default().to_owned();
        self.degraded().into_iter().map(part).collect()
    }

    fn metrics(&self) -> Response<Vec<u8>> {
        let metrics = &self.state.metrics;
        let store = self.state.ledger.status();
        metrics.connections.connections.set(self.traffic.connections() as i64);
        metrics.connections.in_flight.set(self.traffic.in_flight() as i64);
        metrics.requests.log_dropped.set(self.state.log.dropped().cast_signed());
        let error_log_dropped = self.error_log.as_ref().map_or(0, |log| log.dropped());
        metrics.requests.error_log_dropped.set(error_log_dropped.cast_signed());
        metrics.requests.top_dropped.set(self.state.top.dropped().cast_signed());
        metrics.store.clock_doubted.set(i64::from(self.state.ledger.clock_problem().is_some()));
        metrics.store.store_down.set(i64::from(store.store_down));
        metrics.store.replicas_missing.set(store.missing_replicas.cast_signed());
        metrics.store.store_settling.set(i64::from(store.store_settling));
        metrics.store.store_commits.set(store.store_commits.cast_signed());
        metrics.store.store_failures.set(store.store_failures.cast_signed());
        metrics.store.store_unsettled.set(store.unsettled.cast_signed());
        respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics.render())
    }

    fn describe(&self) -> Value {
        let table = self.state.table.snapshot();
        let keys = self.state.keys.snapshot();
        let ring = Option::as_ref(&keys);
        let store = self.state.ledger.status();
        let (healthy, servers) = self.upstreams.healthy();
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "started_at": rfc3339(self.started),
            "draining": self.traffic.is_draining(),
            "degraded": self.degraded(),
            "needs_restart": status.needs_restart,
            "connections": self.traffic.connections(),
            "requests_in_flight": self.traffic.in_flight(),
            "table": {
                "version": table.version(),
                "built_at": rfc3339(table.built_at()),
                "rows": table.rows(),
                "warnings": table.warnings(self.state.ledger.now()),
            },
            "feeds": status.feeds.iter().map(FeedStatus::to_json).collect::<Vec<_>>(),
            "dns": status.dns.to_json(),
            "keys": {
                "loaded": ring.is_some(),
                "count": ring.map(KeyRing::len),
                "version": ring.map(KeyRing::version),
            },
            "store": {
                "down": store.store_down,
                "commits": store.store_commits,
                "failures": store.store_failures,
                "unsettled_calls": store.unsettled,
            },
            "upstream": { "servers": servers, "healthy": healthy },
            "month": self.state.ledger.month(self.state.ledger.now()).to_string(),
        })
    }

    fn page(&self) -> Vec<u8> {
        let text = String::from_utf8_lossy(&pretty(&self.describe())).into_owned();
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>riskgate</title>\
             <style>body{{font:14px/1.5 monospace;margin:2em}}</style>\
             <h1>riskgate</h1><pre>{text}</pre>\
             <p><a href=\"/readyz\">readiness</a> · <a href=\"/metrics\">metrics</a> · \
             <a href=\"/status\">status as JSON</a> · \
             <a href=\"/openapi.yaml\">OpenAPI</a></p></html>\n"
        )
        .into_bytes()
    }
}

/// An address of the host for one that means all of them.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn names_this_host(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
