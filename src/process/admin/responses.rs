//! Builds the responses of the admin listener.

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::process::reload::ReloadOutcome;

pub(super) const JSON_TYPE: &str = "application/json";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";
pub(super) const HTML_TYPE: &str = "text/html; charset=utf-8";
pub(super) const YAML_TYPE: &str = "application/yaml";

fn to_pretty_json(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

/// An answer in JSON, on several lines.
pub(super) fn pretty_json_response(status: StatusCode, value: &Value) -> Response<Vec<u8>> {
    build_response(status, JSON_TYPE, to_pretty_json(value))
}

pub(super) fn text_response(status: StatusCode, text: &str) -> Response<Vec<u8>> {
    build_response(status, TEXT_TYPE, text.as_bytes().to_vec())
}

/// A 405 with the allowed methods (RFC 9110 section 15.5.6).
pub(super) fn method_not_allowed_response(methods: &'static str, text: &str) -> Response<Vec<u8>> {
    let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, text);
    response.headers_mut().insert(ALLOW, http::HeaderValue::from_static(methods));
    response
}

pub(super) fn build_response(
    status: StatusCode,
    content_type: &'static str,
    body: Vec<u8>,
) -> Response<Vec<u8>> {
    let length = http::HeaderValue::from(body.len());
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    headers.insert(CONTENT_LENGTH, length);
    headers.insert("cache-control", http::HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", http::HeaderValue::from_static("nosniff"));
    response
}

/// Renders the outcome of a reload: for each part `ok` or its fault. The status is 200 if all parts
/// were reloaded, and otherwise 422.
pub(super) fn reload_outcome_to_json(outcome: ReloadOutcome) -> (StatusCode, Value) {
    let is_ok = outcome.values().all(Option::is_none);
    let status = if is_ok { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    let parts: Map<String, Value> = outcome
        .into_iter()
        .map(|(part, problem)| (part.to_owned(), problem.map_or(json!("ok"), Value::from)))
        .collect();
    (status, Value::Object(parts))
}
