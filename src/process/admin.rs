//! The admin listener: health, readiness, metrics, status, reload, the admin API and the operator's
//! page.
//!
//! This module owns what the process reveals, and to whom:
//! - Anybody may request health and readiness, what the token of the request may do
//!   (`/api/v1/session`), and metrics if `admin.metrics_public` is on.
//! - If an admin token is configured, anybody may request the files of the page, which contain no
//!   data. Everything else needs a token.
//! - If no token is configured, everything else needs a listener on loopback, and a `Host` that
//!   names loopback. Changes by the admin API are refused.
//!
//! No response contains the local part of an e-mail address. The text of a key is only in the
//! answer to the request that created the key, which may be a rotation, and in the answers to
//! repetitions of that request. The gateway's own API is not served here.

mod access;
mod api;
pub(super) mod connection;
mod connection_limit;
mod health;
mod history;
mod page;
mod responses;
mod status;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use http::header::ORIGIN;
use http::{HeaderMap, Response, StatusCode};

use crate::downstream::ConnectionTracker;
use crate::gate::GateState;
use crate::observe::process_log::ProcessLog;
use crate::process::reload::{CurrentInputs, ReloadStatus, ReloadTrigger};
use crate::proxy::upstream::Upstreams;
use crate::support::certificates::CurrentCertificates;

use access::Access;
use api::AdminApi;
use api::request::{API_PREFIX, ApiRequest};
use history::TrafficHistory;
use responses::{
    JSON_TYPE, YAML_TYPE, build_response, method_not_allowed_response, reload_outcome_to_json,
    text_response, to_pretty_json,
};

/// The components whose problems `/readyz` and `/status` report, besides the parts that the
/// reloader reports. The text of a problem begins with the name of its component.
#[doc(hidden)]
pub const PROBLEM_COMPONENTS: [&str; 3] = ["store", "clock", "upstream"];
/// The OpenAPI document of both listeners.
const OPENAPI_YAML: &str = include_str!("../../docs/openapi.yaml");

/// The OpenAPI document of the admin API.
const API_OPENAPI_YAML: &str = include_str!("../../docs/admin-api.yaml");

/// A request to the admin listener.
struct AdminRequest<'r> {
    method: &'r str,
    uri: &'r http::Uri,
    headers: &'r HeaderMap,
    body: Vec<u8>,
    client: IpAddr,
}

/// Answers the requests that arrive at `listen.admin`.
pub struct AdminApp {
    state: Arc<GateState>,
    connection_tracker: Arc<ConnectionTracker>,
    upstreams: Arc<Upstreams>,
    reload_status: Arc<Mutex<ReloadStatus>>,
    reload_trigger: ReloadTrigger,
    process_log: Option<Arc<ProcessLog>>,
    inputs: Arc<CurrentInputs>,
    api: AdminApi,
    history: Arc<TrafficHistory>,
    listens_on_loopback: bool,
    metrics_need_no_token: bool,
    started_at: i64,
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
        let history = Arc::new(TrafficHistory::new(Arc::clone(&state)));
        let api = AdminApi::new(
            Arc::clone(&state),
            Arc::clone(&inputs),
            Arc::clone(&reload_status),
            reload_trigger.clone(),
            Arc::clone(&history),
            Arc::clone(&upstreams),
        );
        AdminApp {
            started_at: api.started_at,
            api,
            history,
            state,
            connection_tracker,
            upstreams,
            reload_status,
            reload_trigger,
            process_log: None,
            listens_on_loopback: inputs.startup.admin.ip().is_loopback(),
            metrics_need_no_token: inputs.startup.metrics_need_no_token,
            inputs,
        }
    }

    /// Returns the history of the traffic, which the caller has to run as a service.
    pub fn history(&self) -> Arc<TrafficHistory> {
        Arc::clone(&self.history)
    }

    /// Makes `/metrics` report how many lines of this log were dropped.
    pub fn with_process_log(mut self, log: &Arc<ProcessLog>) -> AdminApp {
        self.process_log = Some(Arc::clone(log));
        self
    }

    /// Lets the admin API list these certificates of the HTTPS listener.
    pub fn with_certificates(mut self, certificates: Option<Arc<CurrentCertificates>>) -> AdminApp {
        self.api.certificates = certificates;
        self
    }

    /// Answers a request to any path of the admin listener.
    async fn route_request(self: &Arc<Self>, request: AdminRequest<'_>) -> Response<Vec<u8>> {
        let AdminRequest { method, uri, headers, .. } = request;
        let (path, is_read) = (uri.path(), matches!(method, "GET" | "HEAD"));
        if path.starts_with(API_PREFIX) {
            return self.answer_api(request).await;
        }
        match (path, is_read) {
            ("/healthz", true) => text_response(StatusCode::OK, "ok\n"),
            ("/readyz", true) => {
                self.check_readiness_and_respond(self.may_read_all_accounts(headers))
            }
            ("/metrics", true) if self.metrics_need_no_token => self.update_and_render_metrics(),
            // The files contain no data: the page requests its data from the admin API.
            (path, true) if page::is_page_file(path) && self.may_show_page(headers) => {
                page::serve_file(path)
            }
            (path, true) if page::is_page_file(path) => {
                text_response(StatusCode::UNAUTHORIZED, "expected a Host that names loopback\n")
            }
            ("/reload", _) if !self.may_reload(headers) => self.refuse_access(headers, true),
            (
                "/metrics" | "/status" | "/screening" | "/openapi.yaml" | "/api/openapi.yaml",
                true,
            ) if !self.may_read_all_accounts(headers) => self.refuse_access(headers, false),
            ("/metrics", true) => self.update_and_render_metrics(),
            ("/status", true) => {
                build_response(StatusCode::OK, JSON_TYPE, to_pretty_json(&self.status_json()))
            }
            ("/screening", true) => {
                let counts = self.api.form_counts_json();
                build_response(StatusCode::OK, JSON_TYPE, to_pretty_json(&counts))
            }
            ("/openapi.yaml", true) => {
                build_response(StatusCode::OK, YAML_TYPE, OPENAPI_YAML.into())
            }
            ("/api/openapi.yaml", true) => {
                build_response(StatusCode::OK, YAML_TYPE, API_OPENAPI_YAML.into())
            }
            ("/reload", false) if method == "POST" => self.reload_and_respond(headers).await,
            ("/reload", _) => method_not_allowed_response("POST", "POST only\n"),
            (
                "/healthz" | "/readyz" | "/metrics" | "/status" | "/screening" | "/openapi.yaml"
                | "/api/openapi.yaml",
                false,
            ) => method_not_allowed_response("GET, HEAD", "GET only\n"),
            (path, false) if page::is_page_file(path) => {
                method_not_allowed_response("GET, HEAD", "GET only\n")
            }
            _ => text_response(StatusCode::NOT_FOUND, "no such page\n"),
        }
    }

    /// Answers a request to the admin API, on a thread that may block, because operations of the
    /// store block.
    async fn answer_api(self: &Arc<Self>, request: AdminRequest<'_>) -> Response<Vec<u8>> {
        let AdminRequest { method, uri, headers, body, client } = request;
        let access = self.judge_access(headers);
        let Some(request) = ApiRequest::parse(method, uri, headers, body, client) else {
            return text_response(StatusCode::NOT_FOUND, "no such page\n");
        };
        let app = Arc::clone(self);
        let answer = move || app.api.answer(&request, &access, &|| app.status_json());
        tokio::task::spawn_blocking(answer).await.unwrap_or_else(|_| {
            text_response(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong on our side\n")
        })
    }

    /// Judges the credentials of the request.
    fn judge_access(&self, headers: &HeaderMap) -> Access {
        let config = self.inputs.config.peek();
        let ledger = &self.state.ledger;
        let now = (!ledger.waits_for_clock()).then(|| ledger.believed_now());
        Access::from_request(&config.admin_tokens, self.listens_on_loopback, headers, now)
    }

    /// Answers a request that lacks a token, or whose token may not do this.
    fn refuse_access(&self, headers: &HeaderMap, is_change: bool) -> Response<Vec<u8>> {
        if self.judge_access(headers).is_unauthenticated() {
            return text_response(StatusCode::UNAUTHORIZED, "an admin token is required\n");
        }
        match is_change {
            true => text_response(StatusCode::FORBIDDEN, "expected a token with the scope write\n"),
            false => text_response(StatusCode::FORBIDDEN, "expected a token with the scope read\n"),
        }
    }

    /// Returns true if the request may have the files of the page. If no token is configured, the
    /// listener must be on loopback and `Host` must name loopback, so that a web page that uses DNS
    /// rebinding gets nothing at all.
    fn may_show_page(&self, headers: &HeaderMap) -> bool {
        !self.inputs.config.peek().admin_tokens.is_empty() || self.may_read_all_accounts(headers)
    }

    /// Returns true if the request may `POST /reload`: it has a token that may make changes, or it
    /// needs no token ([`Access::Open`]). The second is allowed because the client does not choose
    /// what a reload reads.
    fn may_reload(&self, headers: &HeaderMap) -> bool {
        let access = self.judge_access(headers);
        matches!(access, Access::Open) || access.write_token().is_some()
    }

    /// Returns true if the request may read what concerns all accounts.
    fn may_read_all_accounts(&self, headers: &HeaderMap) -> bool {
        self.judge_access(headers).may_read_all_accounts()
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
        let (status, parts) = reload_outcome_to_json(outcome);
        build_response(status, JSON_TYPE, to_pretty_json(&parts))
    }

    fn update_and_render_metrics(&self) -> Response<Vec<u8>> {
        self.state.metrics.connections.set_open_gauges(
            self.connection_tracker.count_open_connections(),
            self.connection_tracker.count_requests_in_flight(),
        );
        self.upstreams.update_metrics(&self.state.metrics.upstream);
        let process_log_dropped = self.process_log.as_ref().map_or(0, |log| log.dropped_lines());
        let text = self.state.render_metrics(process_log_dropped);
        build_response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
    }
}
