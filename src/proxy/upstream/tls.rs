//! TLS to the upstream servers.

use super::health_check::describe_error;
use pingora::connectors::ConnectorOptions;
use pingora::tls::{
    RootCertStore, load_ca_file_into_store, load_platform_certs_incl_env_into_store,
};

/// TLS to the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The file with the certificate authorities that riskgate trusts; if `None`, riskgate
    /// trusts those of the system. Pingora's connector reads the file.
    pub ca_file: Option<String>,
    /// The name for which the servers' certificate must be valid.
    pub server_name: String,
    /// Whether riskgate verifies the servers' certificate and its name.
    pub verify_certificate: bool,
}

/// Returns the file with the authorities that a connector of Pingora trusts; `None` for those of
/// the system. A connector loads them when it is created, and panics if it can't. Without TLS to
/// the servers, it gets an empty file, so that no certificate of the system matters.
pub fn connector_ca_file(tls: Option<&UpstreamTls>) -> Option<String> {
    match tls {
        Some(tls) => tls.ca_file.clone(),
        None => Some("/dev/null".to_owned()),
    }
}

/// Returns the name for which Pingora verifies a certificate in place of this name, if it is
/// another name: Pingora's connector replaces underscores in the first of at least three labels by
/// hyphens.
pub fn find_other_verified_name(name: &str) -> Option<String> {
    let (first, rest) = name.split_once('.')?;
    let is_replaced = first.contains('_') && rest.contains('.');
    is_replaced.then(|| format!("{}.{rest}", first.replace('_', "-")))
}

/// Loads the authorities as a connector of Pingora does.
///
/// # Errors
/// Says why a connector would panic.
pub fn check_connector_authorities(tls: &UpstreamTls) -> Result<(), String> {
    let mut store = RootCertStore::empty();
    let loaded = match &tls.ca_file {
        Some(path) => load_ca_file_into_store(path, &mut store),
        None => load_platform_certs_incl_env_into_store(&mut store),
    };
    loaded.map_err(|error| describe_error(&error))
}

/// Returns the options of a connector that trusts the authorities of [`connector_ca_file`].
/// riskgate does not use the connector's own pool of connections.
pub fn connector_options(tls: Option<&UpstreamTls>) -> ConnectorOptions {
    let mut options = ConnectorOptions::new(1);
    options.ca_file = connector_ca_file(tls);
    options
}
