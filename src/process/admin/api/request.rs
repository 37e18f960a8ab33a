//! Requests and answers of the admin API: paths, parameters, bodies and errors.

use std::net::IpAddr;

use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::management::ManagementFault;
use crate::model::domain::percent_decode;
use crate::observe::redaction::redact_sent_text;
use crate::process::admin::access::Access;
use crate::process::admin::responses::{JSON_TYPE, build_response};
use crate::store::StoreError;
use crate::table::TableFaults;

/// The prefix of all paths of the admin API.
pub(in crate::process) const API_PREFIX: &str = "/api/v1/";
/// The most items of a page.
const MAX_PAGE_ITEMS: usize = 500;
const DEFAULT_PAGE_ITEMS: usize = 100;

/// A request, completely received.
pub(in crate::process) struct ApiRequest {
    /// The method; `GET` if the client sent `HEAD`.
    pub(in crate::process) method: String,
    /// The decoded segments of the path after the prefix.
    pub(in crate::process) segments: Vec<String>,
    query: Vec<(String, String)>,
    pub(in crate::process) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) client: IpAddr,
    /// The target of the request, with the query.
    pub(super) target: String,
}

/// Which items of a list the client asks for.
pub(super) struct Page {
    /// The most items of the page.
    pub(super) limit: usize,
    /// Where the page begins; `None` for the first page.
    pub(super) cursor: Option<String>,
}

/// The items of a page with their places, and the cursor of the next page.
type SelectedItems<'i, P, T> = (&'i [(P, T)], Option<String>);

impl Page {
    /// Selects the items of the page from all items of a list, which are sorted by their places.
    /// A cursor is the place of the last item before the page: so if items come or go between two
    /// pages, no other item is left out or comes twice. The exception is an item whose place
    /// changes between two pages, such as an account in a list by use: it may be left out or come
    /// twice.
    pub(super) fn select_from<'i, T, P: Ord>(
        &self,
        items: &'i [(P, T)],
        parse_place: impl FnOnce(&str) -> Option<P>,
        format_place: impl FnOnce(&P) -> String,
    ) -> Result<SelectedItems<'i, P, T>, ApiError> {
        let parse = |cursor: &String| parse_place(cursor).ok_or_else(|| invalid_cursor(cursor));
        let start = match self.cursor.as_ref().map(parse).transpose()? {
            Some(last) => items.partition_point(|(place, _)| *place <= last),
            None => 0,
        };
        let end = start.saturating_add(self.limit).min(items.len());
        let shown = &items[start..end];
        let last = shown.last().filter(|_| end < items.len());
        Ok((shown, last.map(|(place, _)| format_place(place))))
    }
}

impl ApiRequest {
    /// Parses a request. Returns `None` if the path is not one of the admin API.
    pub(in crate::process) fn parse(
        method: &str,
        uri: &http::Uri,
        headers: &HeaderMap,
        body: Vec<u8>,
        client: IpAddr,
    ) -> Option<ApiRequest> {
        let path = uri.path().strip_prefix(API_PREFIX)?;
        let decode = |segment: &str| {
            let decoded = percent_decode(segment.as_bytes()).ok()?;
            String::from_utf8(decoded).ok().filter(|text| !text.is_empty())
        };
        let segments = path.split('/').map(decode).collect::<Option<Vec<String>>>();
        let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        Some(ApiRequest {
            method: if method == "HEAD" { "GET".to_owned() } else { method.to_owned() },
            // If a segment is empty or can't be decoded, the path has no handler.
            segments: segments.unwrap_or_default(),
            query: query.into_owned().collect(),
            headers: headers.clone(),
            body,
            client,
            target: uri.to_string(),
        })
    }

    pub(super) fn require_method(&self, methods: &'static [&'static str]) -> Result<(), ApiError> {
        match methods.contains(&self.method.as_str()) {
            true => Ok(()),
            false => Err(ApiError::method_not_allowed(methods)),
        }
    }

    /// Refuses a request with an unknown parameter, or with a parameter that is given twice.
    pub(super) fn check_parameters(&self, known: &[&str]) -> Result<(), ApiError> {
        for (at, (name, _)) in self.query.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let expected = match known.is_empty() {
                    true => "no parameter".to_owned(),
                    false => format!("one of {}", known.join(", ")),
                };
                let found = redact_sent_text(&format!("{name:?}"));
                return Err(ApiError::invalid(format!("expected {expected}, but found {found}")));
            }
            if self.query[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(ApiError::invalid(format!(
                    "{name}: expected one value, but found two"
                )));
            }
        }
        Ok(())
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn nonempty_parameter(&self, name: &str) -> Option<&str> {
        self.parameter(name).filter(|value| !value.is_empty())
    }

    /// Parses the parameters `limit` and `cursor`.
    pub(super) fn parse_page(&self) -> Result<Page, ApiError> {
        let limit = match self.parameter("limit").map(|text| (text, text.parse())) {
            None => DEFAULT_PAGE_ITEMS,
            Some((_, Ok(limit @ 1..=MAX_PAGE_ITEMS))) => limit,
            Some((found, _)) => {
                let expected = format!("a number from 1 to {MAX_PAGE_ITEMS}");
                return Err(ApiError::unexpected("limit", &expected, found));
            }
        };
        Ok(Page { limit, cursor: self.parameter("cursor").map(str::to_owned) })
    }

    /// Refuses a request whose body is neither empty nor an empty object.
    pub(super) fn require_empty_body(&self) -> Result<(), ApiError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct NoMembers {}
        self.parse_body().map(|NoMembers {}| ())
    }

    /// Parses the body. An empty body counts as an empty object.
    pub(super) fn parse_body<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let is_json = |value: &HeaderValue| {
            let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
            essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
        };
        let mut types = self.headers.get_all(CONTENT_TYPE).iter();
        let is_json = types.next().is_some_and(is_json) && types.next().is_none();
        if !is_json && !self.body.is_empty() {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "Expected a body of the type application/json.",
            ));
        }
        let body = if self.body.is_empty() { &b"{}"[..] } else { &self.body[..] };
        // A `Value` is parsed first, so that broken JSON and faulty members give different errors.
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            let refused = ApiError::new(StatusCode::BAD_REQUEST, "bad_request", "Expected JSON.");
            refused.with_detail(error.to_string())
        })?;
        // serde would read an array as the values of the members in their order.
        if !value.is_object() {
            return Err(ApiError::invalid("expected a JSON object"));
        }
        // The texts of these errors have words of the request.
        let refuse = |text: String| ApiError::invalid(redact_sent_text(&text));
        serde_json::from_value::<T>(value.clone())
            .map_err(|error| refuse(describe_faulty_member::<T>(&error, value)))?;
        // If two members have the same name, a `Value` has the last. Reading the text refuses both.
        serde_json::from_slice(body).map_err(|error| refuse(error.to_string()))
    }
}

/// The text of an error about a member, with the name of the member: that without which the rest
/// has no error, or another one.
fn describe_faulty_member<T: DeserializeOwned>(error: &serde_json::Error, value: Value) -> String {
    let text = error.to_string();
    let Value::Object(members) = value else { return text };
    let is_faulty = |name: &&String| {
        let mut rest = members.clone();
        rest.remove(*name);
        serde_json::from_value::<T>(Value::Object(rest))
            .map_or_else(|other| other.to_string() != text, |_| true)
    };
    match members.keys().find(is_faulty) {
        Some(name) if !text.contains(name.as_str()) => format!("{name}: {text}"),
        _ => text,
    }
}

/// An error answer.
#[derive(Debug)]
pub(in crate::process) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    detail: Option<String>,
    /// The methods that a 405 names; empty for any other status.
    allowed_methods: &'static [&'static str],
    /// What the error means for the change that the client asked for, if the store failed or was
    /// not asked; otherwise `None`.
    change_after_store_failure: Option<ChangeAfterStoreFailure>,
}

/// What is known of a change if the store failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChangeAfterStoreFailure {
    /// The client asked for no change.
    NotWanted,
    /// The store failed before the change, or was not asked for it.
    NotMade,
    /// The store may have made the change.
    Unknown,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> ApiError {
        ApiError {
            status,
            code,
            message: message.into(),
            detail: None,
            allowed_methods: &[],
            change_after_store_failure: None,
        }
    }

    pub(super) fn with_detail(mut self, detail: impl Into<String>) -> ApiError {
        self.detail = Some(detail.into());
        self
    }

    /// A 503: the store can't be used at this moment, so the client may send the request again.
    pub(in crate::process) fn store_unavailable(message: &str) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", message)
    }

    /// A 503: the ledger counts the store as down, so riskgate did not ask the store.
    pub(super) fn store_down() -> ApiError {
        let error = ApiError::store_unavailable("The store does not answer.");
        ApiError { change_after_store_failure: Some(ChangeAfterStoreFailure::NotMade), ..error }
    }

    /// A 503: too many requests wait for the store, so riskgate did not ask the store.
    pub(super) fn store_busy() -> ApiError {
        let message = "Too many requests wait for the store. Send the request again.";
        let error = ApiError::store_unavailable(message);
        ApiError { change_after_store_failure: Some(ChangeAfterStoreFailure::NotMade), ..error }
    }

    pub(super) fn conflict(detail: impl Into<String>) -> ApiError {
        let message = "The present state does not allow this.";
        ApiError::new(StatusCode::CONFLICT, "conflict", message).with_detail(detail)
    }

    pub(super) fn force_required(detail: impl Into<String>) -> ApiError {
        let message = "The present state allows this only by force.";
        ApiError::new(StatusCode::CONFLICT, "force_required", message).with_detail(detail)
    }

    /// A 422, with what was expected and found. The detail must not have a text of the client that
    /// may be, or contain, an e-mail address or a key.
    pub(super) fn invalid(detail: impl Into<String>) -> ApiError {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        ApiError::new(status, "validation_error", "A value of the request is faulty.")
            .with_detail(detail)
    }

    /// A 422 of the parameter `name`, in which the client sent `found`.
    pub(super) fn unexpected(name: &'static str, expected: &str, found: &str) -> ApiError {
        ManagementFault::invalid(name, expected, format!("{found:?}")).into()
    }

    pub(super) fn unauthorized(access: &Access) -> ApiError {
        let detail = match access {
            Access::Expired(_) => "The admin token has expired.",
            Access::NoTime(_) => {
                "The admin token expires, and riskgate does not know the time: set the clock."
            }
            Access::Unknown => "The admin token is unknown.",
            _ => "riskgate admin-token create makes a token.",
        };
        let message = "An admin token is required.";
        ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message).with_detail(detail)
    }

    pub(super) fn forbidden(message: &str) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn not_found(message: &str, detail: Option<String>) -> ApiError {
        let error = ApiError::new(StatusCode::NOT_FOUND, "not_found", message);
        ApiError { detail, ..error }
    }

    pub(super) fn method_not_allowed(methods: &'static [&'static str]) -> ApiError {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let error = ApiError::new(status, "method_not_allowed", "This method is not allowed here.");
        ApiError { allowed_methods: methods, ..error }
    }

    pub(super) fn internal(detail: impl Into<String>) -> ApiError {
        let message = "Something went wrong on our side.";
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
            .with_detail(detail)
    }

    /// Returns true if the store failed, or was not asked.
    pub(super) fn is_store_failure(&self) -> bool {
        self.change_after_store_failure.is_some()
    }

    /// If the store failed, sets what is known of the change.
    pub(super) fn with_change(mut self, change: ChangeAfterStoreFailure) -> ApiError {
        self.change_after_store_failure = self.change_after_store_failure.map(|_| change);
        self
    }

    pub(in crate::process) fn into_response(self) -> Response<Vec<u8>> {
        let message = match self.change_after_store_failure {
            None | Some(ChangeAfterStoreFailure::NotWanted) => self.message,
            Some(ChangeAfterStoreFailure::NotMade) => self.message + " Nothing was changed.",
            Some(ChangeAfterStoreFailure::Unknown) => {
                self.message + " It may have made the change."
            }
        };
        let body = json!({ "error": self.code, "message": message, "detail": self.detail });
        let mut response = json_response(self.status.as_u16(), &body);
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"riskgate-admin\"");
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if !self.allowed_methods.is_empty() {
            // Each path that allows GET allows HEAD.
            let methods = self.allowed_methods.join(", ").replace("GET", "GET, HEAD");
            headers.extend(HeaderValue::from_str(&methods).ok().map(|value| (ALLOW, value)));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        let detail = error.to_string();
        match error {
            StoreError::Conflict(_) | StoreError::OtherPlan { .. } => ApiError::conflict(detail),
            _ => {
                let (message, change) = match error {
                    StoreError::Unusable { .. } => {
                        ("The store can't be used as it is.", ChangeAfterStoreFailure::NotMade)
                    }
                    _ => ("The store does not answer.", ChangeAfterStoreFailure::Unknown),
                };
                let change_after_store_failure = Some(change);
                let error = ApiError::store_unavailable(message).with_detail(detail);
                ApiError { change_after_store_failure, ..error }
            }
        }
    }
}

impl From<TableFaults> for ApiError {
    fn from(faults: TableFaults) -> ApiError {
        ApiError::internal(faults.to_string())
    }
}

impl From<ManagementFault> for ApiError {
    fn from(fault: ManagementFault) -> ApiError {
        let fault = fault.for_client();
        let detail = fault.to_string();
        match fault {
            ManagementFault::Invalid { .. } => ApiError::invalid(detail),
            ManagementFault::NotFound(_) => ApiError::not_found("There is none.", Some(detail)),
            ManagementFault::Conflict(_) => ApiError::conflict(detail),
            ManagementFault::ForceRequired(_) => {
                let advice = "to deny it all the same, send \"force\": true";
                ApiError::force_required(format!("{detail}; {advice}"))
            }
            ManagementFault::File(_) | ManagementFault::NoRandomBits(_) => {
                ApiError::internal(detail)
            }
            ManagementFault::Store(error) => error.into(),
            ManagementFault::Table(faults) => faults.into(),
        }
    }
}

pub(super) fn invalid_cursor(cursor: &str) -> ApiError {
    ApiError::unexpected("cursor", "a next_cursor of this list", cursor)
}

/// Renders a page of a list: its items, the cursor of the next page, and, if it is known, the
/// number of all items that match the request.
pub(super) fn list_to_json(
    items: Vec<Value>,
    next_cursor: Option<String>,
    total: Option<usize>,
) -> Value {
    let mut list = json!({ "items": items, "next_cursor": next_cursor });
    if let Some(total) = total {
        list["total"] = json!(total);
    }
    list
}

/// Makes an answer in JSON, on one line.
pub(in crate::process) fn json_response(status: u16, body: &Value) -> Response<Vec<u8>> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    build_response(status, JSON_TYPE, format!("{body}\n").into_bytes())
}

#[cfg(test)]
mod tests;
