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
//! No response contains the local part of an address that riskgate judged. Names of accounts and
//! labels of keys are as the operator chose them. The text of a key is only in the
//! answer to the request that created the key, which may be a rotation, and in the answers to
//! repetitions of that request. The gateway's own API is not served here.

mod access;
pub(super) mod api;
pub(super) mod connection;
mod connection_limit;
mod health;
mod history;
mod page;
mod responses;
mod status;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderMap, Response, StatusCode};

use crate::observe::process_log::ProcessLog;

use access::{Access, has_loopback_host};
use api::AdminApi;
use api::request::{API_PREFIX, ApiRequest};
use history::TrafficHistory;
use responses::{
    YAML_TYPE, build_response, method_not_allowed_response, pretty_json_response,
    reload_outcome_to_json, text_response,
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
    api: AdminApi,
    /// `/metrics` reports how many lines of this log were dropped.
    process_log: Arc<ProcessLog>,
    listens_on_loopback: bool,
    metrics_need_no_token: bool,
}

impl AdminApp {
    pub(in crate::process) fn new(api: AdminApi, process_log: Arc<ProcessLog>) -> AdminApp {
        let startup = &api.inputs.startup;
        AdminApp {
            process_log,
            listens_on_loopback: startup.admin.ip().is_loopback(),
            metrics_need_no_token: startup.metrics_need_no_token,
            api,
        }
    }

    /// Returns the history of the traffic, which the caller has to run as a service.
    pub fn history(&self) -> Arc<TrafficHistory> {
        Arc::clone(&self.api.history)
    }

    /// Answers a request to any path of the admin listener.
    async fn route_request(self: &Arc<Self>, request: AdminRequest<'_>) -> Response<Vec<u8>> {
        let AdminRequest { method, uri, headers, .. } = request;
        let (path, is_read) = (uri.path(), matches!(method, "GET" | "HEAD"));
        if path.starts_with(API_PREFIX) {
            return self.answer_api(request).await;
        }
        let needs_token = match path {
            "/reload" => return self.reload_and_respond(method, headers).await,
            "/status" | "/screening" | "/openapi.yaml" | "/api/openapi.yaml" => true,
            "/metrics" => !self.metrics_need_no_token,
            "/healthz" | "/readyz" => false,
            path if page::is_page_file(path) => false,
            _ => return text_response(StatusCode::NOT_FOUND, "no such page\n"),
        };
        if !is_read {
            return method_not_allowed_response("GET, HEAD", "GET only\n");
        }
        if needs_token && !self.may_read_all_accounts(headers) {
            return self.refuse_access(headers, false);
        }
        let ok = StatusCode::OK;
        match path {
            "/healthz" => text_response(StatusCode::OK, "ok\n"),
            "/readyz" => self.api.check_readiness_and_respond(self.may_read_all_accounts(headers)),
            "/metrics" => self.update_and_render_metrics(),
            "/status" => pretty_json_response(ok, &self.api.status_json()),
            "/screening" => pretty_json_response(ok, &self.api.form_counts_json()),
            "/openapi.yaml" => build_response(ok, YAML_TYPE, OPENAPI_YAML.into()),
            "/api/openapi.yaml" => build_response(ok, YAML_TYPE, API_OPENAPI_YAML.into()),
            // The files contain no data: the page requests its data from the admin API.
            _ if self.may_show_page(headers) => page::serve_file(path),
            _ if self.needs_no_token(headers) => self.refuse_access(headers, false),
            _ => text_response(StatusCode::UNAUTHORIZED, "expected a Host that names loopback\n"),
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
        let answer = move || app.api.answer(&request, &access);
        tokio::task::spawn_blocking(answer).await.unwrap_or_else(|_| {
            text_response(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong on our side\n")
        })
    }

    /// Judges the credentials of the request.
    fn judge_access(&self, headers: &HeaderMap) -> Access {
        let config = self.api.inputs.config.peek();
        let ledger = &self.api.state.ledger;
        let now = (!ledger.waits_for_clock()).then(|| ledger.believed_now());
        Access::from_request(&config.admin_tokens, self.listens_on_loopback, headers, now)
    }

    /// Whether a request may read without a token, if it has none.
    fn needs_no_token(&self, headers: &HeaderMap) -> bool {
        self.api.inputs.config.peek().admin_tokens.is_empty()
            && self.listens_on_loopback
            && has_loopback_host(headers)
    }

    /// Answers a request that lacks a token, or whose token may not do this.
    fn refuse_access(&self, headers: &HeaderMap, is_change: bool) -> Response<Vec<u8>> {
        if self.needs_no_token(headers) {
            return text_response(
                StatusCode::UNAUTHORIZED,
                "expected no Authorization, because no admin token is configured\n",
            );
        }
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
        !self.api.inputs.config.peek().admin_tokens.is_empty()
            || self.may_read_all_accounts(headers)
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

    /// Answers a request to `/reload`.
    async fn reload_and_respond(&self, method: &str, headers: &HeaderMap) -> Response<Vec<u8>> {
        if !self.may_reload(headers) {
            return self.refuse_access(headers, true);
        }
        if method != "POST" {
            return method_not_allowed_response("POST", "POST only\n");
        }
        let from_browser = headers.contains_key(ORIGIN)
            || headers.keys().any(|name| name.as_str().starts_with("sec-fetch-"));
        if from_browser {
            return text_response(
                StatusCode::FORBIDDEN,
                "requests from browsers are not accepted\n",
            );
        }
        let Some(outcome) = self.api.reload_trigger.reload_and_wait().await else {
            return text_response(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
        };
        let (status, parts) = reload_outcome_to_json(outcome);
        pretty_json_response(status, &parts)
    }

    fn update_and_render_metrics(&self) -> Response<Vec<u8>> {
        self.api.state.metrics.connections.set_open_gauges(
            self.api.connection_tracker.count_open_connections(),
            self.api.connection_tracker.count_requests_in_flight(),
        );
        self.api.upstreams.update_metrics(&self.api.state.metrics.upstream);
        let text = self.api.state.render_metrics(self.process_log.dropped_lines());
        build_response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
    }
}
