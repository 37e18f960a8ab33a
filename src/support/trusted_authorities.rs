//! The authorities that outgoing HTTPS requests trust: the bundled ones, those of the system, and
//! those in a file of the operator. A proxy that inspects TLS signs with an authority of its own.
//!
//! Feeds, traces and webhooks share this rule. The files are read for each configuration, so a new
//! file takes effect with the next request.

use std::path::Path;

use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::certificates::{CertificateFault, read_authorities};

/// Reads the authorities, and returns the TLS settings of a client that trusts them. Bundled
/// authorities make HTTPS work on a machine without any. What the system has and can't be read is
/// left out, as if the system did not have it.
///
/// # Errors
/// If the operator's file can't be read or has no certificate.
pub fn client_tls_config(authorities_file: Option<&Path>) -> Result<TlsConfig, CertificateFault> {
    let bundled = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
    let of_system = rustls_native_certs::load_native_certs().certs;
    let of_operator = authorities_file.map(read_authorities).transpose()?.unwrap_or_default();
    let read = of_system.iter().chain(&of_operator);
    let read = read.map(|certificate| Certificate::from_der(certificate).to_owned());
    let bundled = bundled.iter().map(|certificate| Certificate::from_der(certificate));
    let all: Vec<Certificate<'static>> = bundled.chain(read).collect();
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&all)).build())
}
