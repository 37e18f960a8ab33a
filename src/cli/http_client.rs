//! The client with which commands ask the running gateway.

use std::time::Duration;

use ureq::tls::TlsConfig;
use ureq::{Agent, Error};

/// Less than the time that a health check usually has.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Creates a client that follows no redirect, and for which each status is an answer. `tls` says
/// whom it trusts.
pub fn create_http_client(tls: Option<TlsConfig>) -> Agent {
    // The environment may name a proxy for other programs.
    let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None);
    let config =
        config.http_status_as_error(false).max_redirects(0).tls_config(tls.unwrap_or_default());
    Agent::new_with_config(config.build())
}

/// Says why there is no answer.
pub fn describe_http_error(error: Error) -> String {
    match error {
        Error::Io(error) => error.to_string(),
        Error::Timeout(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        other => other.to_string(),
    }
}
