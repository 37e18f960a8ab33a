//! The refusals that riskgate answers with: status, code and message of each.
//!
//! A refusal is a response to the client, not a Rust error. The `match` expressions of status,
//! code, message and detail have no `_` arm. So a new refusal does not compile until it has all of
//! these.

use serde_json::json;
use smol_str::SmolStr;

use crate::model::domain::DomainError;
use crate::model::email::EmailError;

/// The reason of a form that has addresses of more inboxes than a sign-up has.
pub const MANY_INBOXES: &str = "many_inboxes";

/// Why riskgate refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request violates HTTP's grammar or one of riskgate's rules.
    BadRequest,
    /// The request has no valid key; for example, the key is missing, unknown, revoked or expired.
    /// The client can't tell these causes apart.
    Unauthorized,
    /// The key does not allow this origin.
    Forbidden {
        /// The request's `Origin` header, as far as it may be shown.
        origin: String,
    },
    /// No endpoint has this path.
    NotFound,
    /// The endpoint does not take this method.
    MethodNotAllowed {
        /// The value of `Allow`.
        allow: SmolStr,
    },
    /// The body did not arrive in time.
    RequestTimeout,
    /// The body is over the limit.
    ContentTooLarge,
    /// The request target is over the limit.
    UriTooLong,
    /// The request has an `Expect` that riskgate does not support.
    ExpectationFailed,
    /// A form contains an e-mail address that the operator does not accept.
    EmailRefused {
        /// The message that the operator chose.
        message: String,
        /// The reason of the verdict on the address; `rule` if an operator's rule decided.
        reason: &'static str,
        /// The provider that the user probably meant.
        suggestion: Option<SmolStr>,
    },
    /// A form could not be read, or has too many addresses to tell whose account it makes, and the
    /// operator accepts no such form.
    FormUnreadable {
        /// Why it could not be read, or [`MANY_INBOXES`].
        why: &'static str,
        /// The provider that the user probably meant.
        suggestion: Option<SmolStr>,
    },
    /// The domain is not valid.
    InvalidDomain(DomainError),
    /// The text is neither an e-mail address nor a domain.
    InvalidEmail(EmailError),
    /// The target of a check can't be decoded; the text says what was expected.
    InvalidTarget(&'static str),
    /// The body is no list of domains; the text says what was expected.
    InvalidBatch(String),
    /// The body is no question about a sign-up; the text says what was expected.
    InvalidAssessment(String),
    /// The client has sent more requests than `max_per_client` allows.
    TooManyRequests {
        /// Whole seconds until it may send one, at least 1.
        retry_after_seconds: u64,
    },
    /// The account has too few calls left in the month, as far as this node knows.
    QuotaExceeded {
        /// When the quota is reset, in RFC 3339.
        reset_at: String,
        /// Whole seconds until then, at least 1.
        retry_after_seconds: u64,
    },
    /// The request's headers are over the limit.
    HeadersTooLarge,
    /// An error of riskgate's own.
    Internal,
    /// riskgate got no whole valid response, for example because it reached no upstream server.
    UpstreamUnavailable,
    /// The upstream server did not answer in time.
    UpstreamTimeout,
}

impl Refusal {
    /// The HTTP status. If riskgate fails, or no upstream server gives a whole valid response in
    /// time, the status is 500. For a failed server, a route may ask for 502 or 504 instead.
    pub const fn status(&self) -> u16 {
        match self {
            Refusal::BadRequest => 400,
            Refusal::Unauthorized => 401,
            Refusal::Forbidden { .. } => 403,
            Refusal::NotFound => 404,
            Refusal::MethodNotAllowed { .. } => 405,
            Refusal::RequestTimeout => 408,
            Refusal::ContentTooLarge => 413,
            Refusal::UriTooLong => 414,
            Refusal::ExpectationFailed => 417,
            Refusal::EmailRefused { .. }
            | Refusal::FormUnreadable { .. }
            | Refusal::InvalidDomain(_)
            | Refusal::InvalidEmail(_)
            | Refusal::InvalidTarget(_)
            | Refusal::InvalidBatch(_)
            | Refusal::InvalidAssessment(_) => 422,
            Refusal::TooManyRequests { .. } | Refusal::QuotaExceeded { .. } => 429,
            Refusal::HeadersTooLarge => 431,
            Refusal::Internal | Refusal::UpstreamUnavailable | Refusal::UpstreamTimeout => 500,
        }
    }

    /// The `error` member of the body: a stable code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Refusal::BadRequest => "bad_request",
            Refusal::Unauthorized => "unauthorized",
            Refusal::Forbidden { .. } => "forbidden",
            Refusal::NotFound => "not_found",
            Refusal::MethodNotAllowed { .. } => "method_not_allowed",
            Refusal::RequestTimeout => "request_timeout",
            Refusal::ContentTooLarge => "content_too_large",
            Refusal::UriTooLong => "uri_too_long",
            Refusal::ExpectationFailed => "expectation_failed",
            Refusal::EmailRefused { .. } => "email_refused",
            Refusal::FormUnreadable { .. } => "form_unreadable",
            Refusal::InvalidDomain(_)
            | Refusal::InvalidEmail(_)
            | Refusal::InvalidTarget(_)
            | Refusal::InvalidBatch(_)
            | Refusal::InvalidAssessment(_) => "validation_error",
            Refusal::TooManyRequests { .. } => "too_many_requests",
            Refusal::QuotaExceeded { .. } => "quota_exceeded",
            Refusal::HeadersTooLarge => "headers_too_large",
            Refusal::Internal => "internal_error",
            Refusal::UpstreamUnavailable => "upstream_unavailable",
            Refusal::UpstreamTimeout => "upstream_timeout",
        }
    }

    /// The `message` member of the body: a sentence for people.
    pub fn message(&self) -> &str {
        match self {
            Refusal::BadRequest => "Malformed request.",
            Refusal::Unauthorized => "Missing or invalid API key.",
            Refusal::Forbidden { .. } => "This origin is not authorised for this API key.",
            Refusal::NotFound => "No such endpoint.",
            Refusal::MethodNotAllowed { .. } => "This method is not allowed here.",
            Refusal::RequestTimeout => "The request body did not arrive in time.",
            Refusal::ContentTooLarge => "The request body is too large.",
            Refusal::UriTooLong => "The request target is too long.",
            Refusal::ExpectationFailed => "What the request expects can't be done.",
            Refusal::EmailRefused { message, .. } => message,
            Refusal::FormUnreadable { why: MANY_INBOXES, .. } => {
                "This form has too many e-mail addresses."
            }
            Refusal::FormUnreadable { .. } => "This form could not be read.",
            Refusal::InvalidDomain(_) | Refusal::InvalidEmail(_) | Refusal::InvalidTarget(_) => {
                "Invalid email or domain format."
            }
            Refusal::InvalidBatch(_) => "The body must be a list of domains.",
            Refusal::InvalidAssessment(_) => "The body must be a question about a sign-up.",
            Refusal::TooManyRequests { .. } => "Too many requests. Try again later.",
            Refusal::QuotaExceeded { .. } => {
                "Monthly quota reached. Upgrade your plan or wait for the reset."
            }
            Refusal::HeadersTooLarge => "The request headers are too large.",
            Refusal::Internal => "Something went wrong on our side. Let your user through.",
            Refusal::UpstreamUnavailable => {
                "The checking service cannot be reached. Let your user through."
            }
            Refusal::UpstreamTimeout => {
                "The checking service did not answer in time. Let your user through."
            }
        }
    }

    /// The `message` member on a route of the operator's own, whose clients know nothing of checks.
    pub fn message_on_route(&self) -> &str {
        match self {
            Refusal::UpstreamUnavailable => "The service cannot be reached.",
            Refusal::UpstreamTimeout => "The service did not answer in time.",
            other => other.message(),
        }
    }

    /// The `detail` member of the body, if the refusal has one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Refusal::Forbidden { origin } => Some(format!("Origin: {origin}")),
            Refusal::EmailRefused { reason, .. } => Some((*reason).to_owned()),
            Refusal::FormUnreadable { why, .. } => Some((*why).to_owned()),
            Refusal::InvalidDomain(error) => Some(error.to_string()),
            Refusal::InvalidEmail(error) => Some(error.to_string()),
            Refusal::InvalidTarget(expected) => Some((*expected).to_owned()),
            Refusal::InvalidBatch(expected) | Refusal::InvalidAssessment(expected) => {
                Some(expected.clone())
            }
            Refusal::BadRequest
            | Refusal::Unauthorized
            | Refusal::NotFound
            | Refusal::MethodNotAllowed { .. }
            | Refusal::RequestTimeout
            | Refusal::ContentTooLarge
            | Refusal::UriTooLong
            | Refusal::ExpectationFailed
            | Refusal::TooManyRequests { .. }
            | Refusal::QuotaExceeded { .. }
            | Refusal::HeadersTooLarge
            | Refusal::Internal
            | Refusal::UpstreamUnavailable
            | Refusal::UpstreamTimeout => None,
        }
    }

    /// The provider that the user probably meant.
    pub fn suggestion(&self) -> Option<&SmolStr> {
        match self {
            Refusal::EmailRefused { suggestion, .. }
            | Refusal::FormUnreadable { suggestion, .. } => suggestion.as_ref(),
            _ => None,
        }
    }

    /// Whether the client must let its own user through: with 500, and with 429 for a spent month.
    pub const fn is_fail_open(&self) -> bool {
        matches!(self, Refusal::QuotaExceeded { .. }) || self.status() == 500
    }

    /// Whether riskgate refunds a call that it has charged before this refusal: riskgate failed, no
    /// server gave a valid response, or the rest of the body can't be forwarded.
    pub const fn refunds_call(&self) -> bool {
        matches!(
            self,
            Refusal::Internal
                | Refusal::UpstreamUnavailable
                | Refusal::BadRequest
                | Refusal::RequestTimeout
                | Refusal::ContentTooLarge
        )
    }

    /// Whether `downstream`, if it makes this refusal, has read the whole head before. Then the
    /// route is known.
    pub const fn is_after_whole_head(&self) -> bool {
        matches!(
            self,
            Refusal::ContentTooLarge
                | Refusal::ExpectationFailed
                | Refusal::MethodNotAllowed { .. }
        )
    }

    /// Whether this refusal alone makes riskgate close a connection of HTTP/1.1: the bytes that
    /// follow the request can't be trusted.
    pub const fn closes_connection(&self) -> bool {
        matches!(
            self,
            Refusal::BadRequest
                | Refusal::RequestTimeout
                | Refusal::ContentTooLarge
                | Refusal::UriTooLong
                | Refusal::ExpectationFailed
                | Refusal::HeadersTooLarge
        )
    }

    /// The body for clients that accept only problem details (RFC 9457). `title` is the phrase of
    /// the status, `detail` is `message` with the detail. `error`, and `reset_at` if the quota is
    /// spent, are the same as in [`Refusal::body`].
    pub fn problem_details(&self, status: u16, title: &str, message: &str) -> String {
        let detail: Vec<String> =
            [Some(message.to_owned()), self.detail()].into_iter().flatten().collect();
        let mut problem = json!({
            "type": "about:blank", "title": title, "status": status,
            "detail": detail.join(" "), "error": self.code(),
        });
        if let Refusal::QuotaExceeded { reset_at, .. } = self {
            problem["reset_at"] = json!(reset_at);
        }
        problem.to_string()
    }

    /// The JSON body with `error`, `message` and `detail`, and with `reset_at` if the quota is
    /// spent.
    pub fn body(&self) -> String {
        self.body_with_message(self.message())
    }

    /// The JSON body with another `message`.
    pub fn body_with_message(&self, message: &str) -> String {
        let detail = json!(self.detail());
        let reset_at = match self {
            Refusal::QuotaExceeded { reset_at, .. } => format!(r#","reset_at":"{reset_at}""#),
            _ => String::new(),
        };
        let (code, message) = (self.code(), json!(message));
        format!(r#"{{"error":"{code}","message":{message},"detail":{detail}{reset_at}}}"#)
    }
}

#[cfg(test)]
mod tests;
