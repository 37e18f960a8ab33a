//! The HTTP client with which commands ask the running gateway, or its public URL.

use std::time::Duration;

use ureq::tls::TlsConfig;
use ureq::{Agent, Error};

/// The longest time for a request and its answer: less than a health check usually has.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Creates a client that follows no redirect, uses no proxy, and takes each status for an answer
/// and not for an error. `tls` has the authorities that the client trusts.
pub fn create_http_client(tls: Option<TlsConfig>) -> Agent {
    // The environment may name a proxy, which is meant for other programs.
    let config = Agent::config_builder().timeout_global(Some(REQUEST_TIMEOUT)).proxy(None);
    let config =
        config.http_status_as_error(false).max_redirects(0).tls_config(tls.unwrap_or_default());
    Agent::new_with_config(config.build())
}

/// Says why a request got no answer.
pub fn describe_http_error(error: Error) -> String {
    match error {
        Error::Io(error) => error.to_string(),
        Error::Timeout(_) => format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()),
        other => other.to_string(),
    }
}
