//! TLS to the upstream servers.

use pingora::connectors::ConnectorOptions;

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

impl UpstreamTls {
    /// Returns the options of a connector that trusts the configured authorities. riskgate does not
    /// use the connector's own pool of connections.
    pub fn connector_options(&self) -> ConnectorOptions {
        let mut options = ConnectorOptions::new(1);
        options.ca_file.clone_from(&self.ca_file);
        options
    }
}
