//! The entry of the access log for one request.

use std::net::{IpAddr, SocketAddr};

use crate::model::sign_up::Pseudonym;

/// The log entry of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogEntry<'e> {
    /// When the request started, in Unix milliseconds.
    pub at_ms: i64,
    /// The request's id.
    pub request_id: &'e str,
    /// The client's address, without its port.
    pub client: Option<IpAddr>,
    /// The method; empty if no request could be parsed.
    pub method: &'e str,
    /// The route's label.
    pub route: &'static str,
    /// The path in two parts, without the query and without the local part of an e-mail address.
    pub path_parts: [&'e str; 2],
    /// The response's status; 0 if none was sent.
    pub status: u16,
    /// `ok`, the refusal's code, or the outcome of the exchange.
    pub outcome: &'static str,
    /// The reason of the verdict, or why a form was not screened; `None` without either.
    pub reason: Option<&'static str>,
    /// The id of the inbox that signs up; `None` if no id was made.
    pub inbox: Option<Pseudonym>,
    /// What screening did with a form; `None` if the request was not screened.
    pub screening: Option<ScreeningEntry<'e>>,
    /// The key's id.
    pub key_id: Option<&'e str>,
    /// The account.
    pub account: Option<&'e str>,
    /// The microseconds from the request's header to the end of the response.
    pub duration_us: u64,
    /// The bytes of the response's body that were sent.
    pub response_bytes: u64,
    /// `User-Agent`, without anything that could be a key or an e-mail address.
    pub user_agent: Option<&'e str>,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`; `HTTP/1.1` if riskgate could read no version. `None` for
    /// a request that has not begun.
    pub protocol: Option<&'static str>,
    /// The version of TLS; `None` without TLS.
    pub tls: Option<&'e str>,
    /// The upstream server that was asked last; `None` if none was asked.
    pub upstream: Option<SocketAddr>,
    /// The microseconds from the start of the last attempt to the header of its response, or to its
    /// failure; `None` if no upstream server was asked.
    pub upstream_us: Option<u64>,
    /// The id of the trace (W3C Trace Context); `None` if the request belongs to none.
    pub trace_id: Option<&'e str>,
}

/// The part of a log entry about the screening of a form.
#[derive(Clone, Copy, Debug)]
pub struct ScreeningEntry<'e> {
    /// What riskgate did with the form.
    pub action: &'static str,
    /// The worst score; `None` for a form that could not be read.
    pub score: Option<u8>,
    /// The domain of the address with the worst score.
    pub domain: Option<&'e str>,
    /// The rule that decided; `None` if no rule did.
    pub rule: Option<&'e str>,
}
