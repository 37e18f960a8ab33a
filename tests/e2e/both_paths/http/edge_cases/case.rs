//! One case of the table, as data: the bytes to send, and the five results to expect.
//!
//! The runner replaces `{key}`, `{account}`, `{address}` and other names in the sent and expected
//! texts. Each case has its own client address, accounts and keys, so that the runner can attribute
//! every forwarded request, every counted call and every log line to one case.

use std::sync::Arc;

use crate::harness::{ReceivedRequest, Request, Step, response_bytes};

type Script = dyn Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync;

#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub request_bytes: Vec<u8>,
    /// The upstream server's reaction to the requests of this case.
    pub script: Arc<Script>,
    pub responses: Vec<ExpectedResponse>,
    pub connection_outcome: ConnectionOutcome,
    pub forwarded: Vec<ForwardedRequest>,
    /// By how much `month_count` grew for the case's first and second account.
    pub counts: [u64; 2],
    /// Status, outcome and reason of each line of the access log.
    pub logs: Vec<(u16, &'static str, Option<&'static str>)>,
    /// True if the runner sends a request of another client after the case. This client must get
    /// its own response, over a new upstream connection.
    pub checks_next_client: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOutcome {
    Kept,
    Closed,
}

/// One response to the client.
#[derive(Clone, Default)]
pub struct ExpectedResponse {
    pub status: u16,
    /// None: if the status is that of a refusal, riskgate's own body for this status.
    pub body: Option<String>,
    pub headers: Vec<(&'static str, String)>,
    pub absent_headers: Vec<&'static str>,
    /// The request is a HEAD, so that the response has no body.
    pub is_head: bool,
    /// The response was truncated, and the client must notice it.
    pub is_truncated: bool,
}

/// One request at the upstream server: its bytes, except the order of fields.
#[derive(Clone)]
pub struct ForwardedRequest {
    pub line: String,
    /// Fields besides those that riskgate always sets. A field with the same name replaces
    /// riskgate's.
    pub fields: Vec<String>,
    pub body: String,
    pub is_keyless: bool,
    pub has_forwarded_host: bool,
}

impl ForwardedRequest {
    pub fn with_request_line(line: &str) -> ForwardedRequest {
        ForwardedRequest {
            line: line.to_owned(),
            fields: Vec::new(),
            body: String::new(),
            is_keyless: false,
            has_forwarded_host: true,
        }
    }

    pub fn with_field(mut self, field: &str) -> ForwardedRequest {
        self.fields.push(field.to_owned());
        self
    }

    pub fn body(self, body: &str) -> ForwardedRequest {
        ForwardedRequest { body: body.to_owned(), ..self }
            .with_field(&format!("Content-Length: {}", body.len()))
    }

    pub fn without_key(self) -> ForwardedRequest {
        ForwardedRequest { is_keyless: true, ..self }
    }

    pub fn without_forwarded_host(self) -> ForwardedRequest {
        ForwardedRequest { has_forwarded_host: false, ..self }
    }
}

/// The body of the upstream server's default response. After this response the server closes the
/// connection, so that every case starts with an empty pool of upstream connections.
pub const UPSTREAM_BODY: &str = r#"{"checked":true}"#;

impl Case {
    fn new(name: &str, sends: impl IntoRequestBytes) -> Case {
        let script = |_: &ReceivedRequest| {
            vec![
                Step::Send(response_bytes(200, "Connection: close\r\n", UPSTREAM_BODY)),
                Step::Close,
            ]
        };
        Case {
            name: name.to_owned(),
            request_bytes: sends.into_request_bytes(),
            script: Arc::new(script),
            responses: Vec::new(),
            connection_outcome: ConnectionOutcome::Kept,
            forwarded: Vec::new(),
            counts: [0, 0],
            logs: Vec::new(),
            checks_next_client: false,
        }
    }

    /// The connection handler refuses the bytes before they form a request, and closes.
    pub fn refused_and_closed(name: &str, status: u16, sends: impl IntoRequestBytes) -> Case {
        Case {
            connection_outcome: ConnectionOutcome::Closed,
            ..Case::answered_by_gateway(name, status, sends)
        }
    }

    /// riskgate answers the request itself, counts it if the answer is a 422, and keeps the
    /// connection.
    pub fn answered_by_gateway(name: &str, status: u16, sends: impl IntoRequestBytes) -> Case {
        Case::new(name, sends).then_status(status)
    }

    /// riskgate forwards the request in this form, the upstream server answers, and the call is
    /// counted.
    pub fn forwarded(name: &str, sends: impl IntoRequestBytes, expected: ForwardedRequest) -> Case {
        Case::new(name, sends).then_forwarded(expected)
    }

    /// riskgate forwards the request, and the upstream server runs this script.
    pub fn with_upstream_script(
        name: &str,
        sends: impl IntoRequestBytes,
        script: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static,
    ) -> Case {
        Case { script: Arc::new(script), ..Case::new(name, sends) }
    }

    /// Expects riskgate's own response with this status next, and its log line; a 422 is counted.
    pub fn then_status(mut self, status: u16) -> Case {
        self.responses.push(ExpectedResponse { status, ..ExpectedResponse::default() });
        self.counts[0] += u64::from(status == 422);
        self.logs.push((status, outcome_of_status(status), None));
        self
    }

    /// Expects the verdict on a listed domain next, and a counted call.
    pub fn then_verdict(mut self) -> Case {
        self.responses.push(ExpectedResponse { status: 200, ..ExpectedResponse::default() });
        self.counts[0] += 1;
        self.logs.push((200, "ok", Some("disposable")));
        self
    }

    /// Expects the upstream server's response next, and a counted call.
    pub fn then_forwarded(mut self, expected: ForwardedRequest) -> Case {
        let answer = ExpectedResponse {
            status: 200,
            body: Some(UPSTREAM_BODY.to_owned()),
            ..ExpectedResponse::default()
        };
        self.responses.push(answer);
        self.forwarded.push(expected);
        self.counts[0] += 1;
        self.logs.push((200, "ok", None));
        self
    }

    pub fn then_closed(self) -> Case {
        Case { connection_outcome: ConnectionOutcome::Closed, ..self }
    }

    pub fn expect_counts(self, own: u64, other: u64) -> Case {
        Case { counts: [own, other], ..self }
    }

    pub fn expect_logs(self, logs: &[(u16, &'static str, Option<&'static str>)]) -> Case {
        Case { logs: logs.to_vec(), ..self }
    }

    pub fn then_upstream_gets(mut self, expected: ForwardedRequest) -> Case {
        self.forwarded.push(expected);
        self
    }

    pub fn also_check_next_client(self) -> Case {
        Case { checks_next_client: true, ..self }
    }

    /// Expects this header in the last response. The methods below apply to that response too.
    pub fn expect_header(mut self, name: &'static str, value: &str) -> Case {
        self.last_response().headers.push((name, value.to_owned()));
        self
    }

    pub fn expect_no_headers(mut self, names: &[&'static str]) -> Case {
        self.last_response().absent_headers.extend(names);
        self
    }

    pub fn body(mut self, body: &str) -> Case {
        self.last_response().body = Some(body.to_owned());
        self
    }

    pub fn expect_head_response(mut self) -> Case {
        self.last_response().is_head = true;
        self.last_response().body = None;
        self
    }

    pub fn expect_truncated(mut self) -> Case {
        self.last_response().is_truncated = true;
        self
    }

    fn last_response(&mut self) -> &mut ExpectedResponse {
        self.responses.last_mut().expect("an expected response before")
    }
}

/// The outcome in the log, and the code in the body, of riskgate's own responses.
pub fn outcome_of_status(status: u16) -> &'static str {
    match status {
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        408 => "request_timeout",
        413 => "content_too_large",
        414 => "uri_too_long",
        417 => "expectation_failed",
        422 => "validation_error",
        429 => "quota_exceeded",
        431 => "headers_too_large",
        _ => "ok",
    }
}

/// A type whose values a case can send.
pub trait IntoRequestBytes {
    fn into_request_bytes(self) -> Vec<u8>;
}

impl IntoRequestBytes for Request {
    fn into_request_bytes(self) -> Vec<u8> {
        Request::to_bytes(&self)
    }
}

impl IntoRequestBytes for &str {
    fn into_request_bytes(self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl IntoRequestBytes for String {
    fn into_request_bytes(self) -> Vec<u8> {
        self.into_bytes()
    }
}

impl IntoRequestBytes for Vec<u8> {
    fn into_request_bytes(self) -> Vec<u8> {
        self
    }
}
