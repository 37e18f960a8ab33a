//! The admin listener: health, readiness, metrics, status, reload, and the OpenAPI document.
//!
//! Owns what the process reveals and to whom. Anybody may request health and readiness, and metrics
//! if `admin.metrics_public` is on. All other paths need the admin token; if none is configured,
//! the listener must be on loopback and `Host` must name loopback. No response contains a key or an
//! e-mail address. The API is not served here.

mod access;
pub(super) mod connection;
mod connection_limit;
mod responses;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::ORIGIN;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::downstream::ConnectionTracker;
use crate::feed::FeedStatus;
use crate::gate::GateState;
use crate::keys::KeyRing;
use crate::model::month::format_rfc3339;
use crate::model::network::loopback_if_unspecified;
use crate::observe::process_log::ProcessLog;
use crate::process::reload::{CurrentInputs, ReloadStatus, ReloadTrigger};
use crate::proxy::upstream::Upstreams;
use crate::quota::unix_now;
use crate::webhook::WebhookStatus;

use access::Access;
use responses::{
    HTML_TYPE, JSON_TYPE, YAML_TYPE, build_response, method_not_allowed_response, text_response,
    to_pretty_json,
};

/// How long readiness waits for the HTTP listener to accept a connection.
const HTTP_LISTENER_PROBE_TIMEOUT: Duration = Duration::from_millis(200);
/// The components whose problems `/readyz` and `/status` report besides those of the reload. The
/// text of a problem begins with the name of its component.
#[doc(hidden)]
pub const PROBLEM_COMPONENTS: [&str; 3] = ["store", "clock", "upstream"];
/// The OpenAPI document of both listeners.
const OPENAPI_YAML: &str = include_str!("../../docs/openapi.yaml");

/// Answers the requests that arrive at `listen.admin`.
pub struct AdminApp {
    state: Arc<GateState>,
    connection_tracker: Arc<ConnectionTracker>,
    upstreams: Arc<Upstreams>,
    reload_status: Arc<Mutex<ReloadStatus>>,
    reload_trigger: ReloadTrigger,
    process_log: Option<Arc<ProcessLog>>,
    inputs: Arc<CurrentInputs>,
    listens_on_loopback: bool,
    is_metrics_public: bool,
    started_at: i64,
    http_probe_address: SocketAddr,
    was_http_listening: AtomicBool,
}

impl AdminApp {
    /// Creates the app, which reports on these parts of the process.
    pub fn new(
        state: Arc<GateState>,
        connection_tracker: Arc<ConnectionTracker>,
        upstreams: Arc<Upstreams>,
        reload_status: Arc<Mutex<ReloadStatus>>,
        reload_trigger: ReloadTrigger,
        inputs: Arc<CurrentInputs>,
    ) -> AdminApp {
        let config = inputs.config.snapshot();
        AdminApp {
            state,
            connection_tracker,
            upstreams,
            reload_status,
            reload_trigger,
            process_log: None,
            inputs,
            listens_on_loopback: config.admin.ip().is_loopback(),
            is_metrics_public: config.is_metrics_public,
            started_at: unix_now(),
            http_probe_address: loopback_if_unspecified(config.http),
            was_http_listening: AtomicBool::new(false),
        }
    }

    /// Makes `/metrics` also report how many lines of this log were dropped.
    pub fn with_process_log(mut self, log: &Arc<ProcessLog>) -> AdminApp {
        self.process_log = Some(Arc::clone(log));
        self
    }

    async fn route_request(
        &self,
        method: &str,
        path: &str,
        headers: &HeaderMap,
    ) -> Response<Vec<u8>> {
        let is_read = matches!(method, "GET" | "HEAD");
        match (path, is_read) {
            ("/healthz", true) => text_response(StatusCode::OK, "ok\n"),
            ("/readyz", true) => {
                self.check_readiness_and_respond(self.is_authorized(headers)).await
            }
            ("/healthz" | "/readyz", false) => {
                method_not_allowed_response("GET, HEAD", "GET only\n")
            }
            ("/metrics", true) if self.is_metrics_public => self.update_and_render_metrics(),
            ("/metrics" | "/status" | "/screening" | "/" | "/openapi.yaml" | "/reload", _)
                if !self.is_authorized(headers) =>
            {
                text_response(StatusCode::UNAUTHORIZED, "an admin token is required\n")
            }
            ("/metrics", true) => self.update_and_render_metrics(),
            ("/status", true) => {
                build_response(StatusCode::OK, JSON_TYPE, to_pretty_json(&self.status_json()))
            }
            ("/screening", true) => {
                build_response(StatusCode::OK, JSON_TYPE, to_pretty_json(&self.screening_json()))
            }
            ("/", true) => build_response(StatusCode::OK, HTML_TYPE, self.render_status_page()),
            ("/openapi.yaml", true) => {
                build_response(StatusCode::OK, YAML_TYPE, OPENAPI_YAML.into())
            }
            ("/reload", false) if method == "POST" => self.reload_and_respond(headers).await,
            ("/reload", _) => method_not_allowed_response("POST", "POST only\n"),
            ("/metrics" | "/status" | "/screening" | "/" | "/openapi.yaml", false) => {
                method_not_allowed_response("GET, HEAD", "GET only\n")
            }
            _ => text_response(StatusCode::NOT_FOUND, "no such page\n"),
        }
    }

    /// What the request is allowed to do.
    fn access_of(&self, headers: &HeaderMap) -> Access {
        let config = self.inputs.config.peek();
        Access::of_request(&config.admin_tokens, self.listens_on_loopback, headers, unix_now())
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        self.access_of(headers).may_read()
    }

    async fn reload_and_respond(&self, headers: &HeaderMap) -> Response<Vec<u8>> {
        let from_browser = headers.contains_key(ORIGIN)
            || headers.keys().any(|name| name.as_str().starts_with("sec-fetch-"));
        if from_browser {
            return text_response(
                StatusCode::FORBIDDEN,
                "requests from browsers are not accepted\n",
            );
        }
        let Some(outcome) = self.reload_trigger.reload_and_wait().await else {
            return text_response(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
        };
        let is_ok = outcome.values().all(Option::is_none);
        let status = if is_ok { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
        let parts: serde_json::Map<String, Value> = outcome
            .into_iter()
            .map(|(part, problem)| (part.to_owned(), problem.map_or(json!("ok"), Value::from)))
            .collect();
        build_response(status, JSON_TYPE, to_pretty_json(&Value::Object(parts)))
    }

    /// Answers `/readyz`, which anybody may request. Problems name files, so other clients than
    /// authorized ones get only the names of the faulty parts.
    async fn check_readiness_and_respond(&self, is_authorized: bool) -> Response<Vec<u8>> {
        let draining = self.connection_tracker.is_draining();
        // Without a key ring every key would be refused, so a load balancer should use other nodes.
        let has_keys = self.state.keys.peek().is_some();
        let ready = !draining && has_keys && self.is_http_listening().await;
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = json!({
            "ready": ready,
            "draining": draining,
            "degraded": if is_authorized { self.list_problems() } else { self.list_faulty_parts() },
        });
        build_response(status, JSON_TYPE, to_pretty_json(&body))
    }

    /// Returns true if the HTTP listener accepts connections. After the first successful probe,
    /// does not probe the listener again.
    async fn is_http_listening(&self) -> bool {
        if self.was_http_listening.load(Ordering::Relaxed) {
            return true;
        }
        let connect = tokio::net::TcpStream::connect(self.http_probe_address);
        let is_open = matches!(timeout(HTTP_LISTENER_PROBE_TIMEOUT, connect).await, Ok(Ok(_)));
        self.was_http_listening.store(is_open, Ordering::Relaxed);
        is_open
    }

    /// Lists problems that the operator should fix, although the process serves.
    fn list_problems(&self) -> Vec<String> {
        let status = self.reload_status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut degraded: Vec<String> =
            status.fault_by_part.iter().map(|(part, why)| format!("{part}: {why}")).collect();
        let [store_name, clock_name, upstream_name] = PROBLEM_COMPONENTS;
        let store = self.state.ledger.status();
        let missing = store.missing_replicas;
        match store.store_down {
            true if missing == 0 => degraded.push(match self.state.ledger.store_problem() {
                Some(why) => format!("{store_name}: down: {why}"),
                None => format!("{store_name}: down"),
            }),
            true => degraded.push(format!(
                "{store_name}: {missing} of store.wait_replicas are missing: calls without a lease \
                 are refused"
            )),
            false if missing == 0 => {}
            false => degraded.push(format!(
                "{store_name}: {missing} of store.wait_replicas are missing: what is reported now is \
                 stored on one server alone"
            )),
        }
        if store.store_recovering {
            degraded.push(format!(
                "{store_name}: it may have lost data; all nodes report their totals again"
            ));
        }
        degraded
            .extend(self.state.ledger.clock_problem().map(|why| format!("{clock_name}: {why}")));
        let names = self.upstreams.problems();
        degraded.extend(names.iter().map(|problem| format!("{upstream_name}: {problem}")));
        degraded
    }

    /// Lists the parts that have problems, for clients that must not read the reasons.
    fn list_faulty_parts(&self) -> Vec<String> {
        let part = |why: String| why.split(':').next().unwrap_or_default().to_owned();
        self.list_problems().into_iter().map(part).collect()
    }

    fn update_and_render_metrics(&self) -> Response<Vec<u8>> {
        self.state.metrics.connections.set_open(
            self.connection_tracker.count_open_connections(),
            self.connection_tracker.count_requests_in_flight(),
        );
        self.upstreams.update_metrics(&self.state.metrics.upstream);
        let process_log_dropped = self.process_log.as_ref().map_or(0, |log| log.dropped_lines());
        let text = self.state.render_metrics(process_log_dropped);
        build_response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
    }

    fn status_json(&self) -> Value {
        let table = self.state.table.snapshot();
        let keys = self.state.keys.snapshot();
        let ring = Option::as_ref(&keys);
        let store = self.state.ledger.status();
        let (healthy, servers) = self.upstreams.count_healthy_and_all();
        let status = self.reload_status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "started_at": format_rfc3339(self.started_at),
            "draining": self.connection_tracker.is_draining(),
            "degraded": self.list_problems(),
            "needs_restart": status.needs_restart,
            "connections": self.connection_tracker.count_open_connections(),
            "requests_in_flight": self.connection_tracker.count_requests_in_flight(),
            "table": {
                "version": table.version(),
                "built_at": format_rfc3339(table.built_at()),
                "rows": table.row_count(),
                "warnings": table.warnings(self.state.ledger.believed_now()),
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
                "unsettled_calls": store.unsettled_calls,
            },
            "upstream": { "servers": servers, "healthy": healthy },
            "webhook": status.webhook.as_ref().map(WebhookStatus::to_json),
            "month": self.state.ledger.month_to_charge(self.state.ledger.believed_now()).to_string(),
        })
    }

    fn screening_json(&self) -> Value {
        let forms = self.state.screening_counts.to_json();
        json!({ "since": format_rfc3339(self.started_at), "forms": forms })
    }

    fn render_status_page(&self) -> Vec<u8> {
        let text = String::from_utf8_lossy(&to_pretty_json(&self.status_json())).into_owned();
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>riskgate</title>\
             <style>body{{font:14px/1.5 monospace;margin:2em}}</style>\
             <h1>riskgate</h1><pre>{text}</pre>\
             <p><a href=\"/readyz\">readiness</a> · <a href=\"/metrics\">metrics</a> · \
             <a href=\"/status\">status as JSON</a> · \
             <a href=\"/screening\">screened forms</a> · \
             <a href=\"/openapi.yaml\">OpenAPI</a></p></html>\n"
        )
        .into_bytes()
    }
}
