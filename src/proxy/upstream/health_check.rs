//! The active health check of an upstream server.

use pingora::Result;
use pingora::connectors::http::Connector as HttpConnector;
use pingora::lb::health_check::{HealthCheck, HttpHealthCheck, TcpHealthCheck};

use super::options::UpstreamOptions;

/// Creates the check that the options ask for: a request to `health_path`, or only a connection.
///
/// # Errors
/// If `health_path` is no path.
pub fn create_health_check(
    options: &UpstreamOptions,
) -> std::io::Result<Box<dyn HealthCheck + Send + Sync>> {
    match &options.health_path {
        None => Ok(tcp_health_check(options)),
        Some(path) => match http_health_check(options, path) {
            Ok(check) => Ok(check),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        },
    }
}

fn tcp_health_check(options: &UpstreamOptions) -> Box<TcpHealthCheck> {
    // The check only opens a connection, without a TLS handshake even if TLS is configured.
    let mut check = TcpHealthCheck::new();
    check.peer_template.options.connection_timeout = Some(options.connect_timeout);
    check
}

fn http_health_check(options: &UpstreamOptions, path: &str) -> Result<Box<HttpHealthCheck>> {
    let name = options.tls.as_ref().map(|tls| tls.server_name.as_str());
    let host = options.host_header.as_deref().or(name).unwrap_or("upstream");
    let mut check: HttpHealthCheck = HttpHealthCheck::new(host, options.tls.is_some());
    if let Some(tls) = &options.tls {
        check.set_connector(HttpConnector::new(Some(tls.connector_options())));
        check.peer_template.sni.clone_from(&tls.server_name);
        check.peer_template.options.verify_cert = tls.verify_certificate;
        check.peer_template.options.verify_hostname = tls.verify_certificate;
    }
    check.req.set_raw_path(path.as_bytes())?;
    check.peer_template.options.connection_timeout = Some(options.connect_timeout);
    check.peer_template.options.read_timeout = Some(options.exchange_time_limit);
    Ok(Box::new(check))
}
