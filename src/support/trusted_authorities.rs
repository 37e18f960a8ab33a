//! The authorities that outgoing HTTPS requests trust: the bundled ones, those of the system, and
//! those in a file of the operator. A proxy that inspects TLS signs with an authority of its own.
//!
//! Feeds, traces, webhooks and `riskgate doctor` share this rule. The files are read whenever a
//! client is created.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::certificates::{CertificateFault, read_authorities};

/// Reads the authorities, and returns the TLS settings of a client that trusts them.
///
/// # Errors
/// If the operator's file can't be read, has no certificate, or has a faulty one.
pub fn client_tls_config(authorities_file: Option<&Path>) -> Result<TlsConfig, CertificateFault> {
    let trusted = read_trusted_authorities(authorities_file)?;
    let trusted: Vec<Certificate<'static>> =
        trusted.iter().map(|it| Certificate::from_der(it).to_owned()).collect();
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&trusted)).build())
}

/// Returns true if a request failed because no trusted authority has signed the certificate of the
/// server.
pub fn is_authority_unknown(error: &ureq::Error) -> bool {
    let of_tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
        _ => None,
    };
    let unknown = rustls::CertificateError::UnknownIssuer;
    of_tls.is_some_and(|error| *error == rustls::Error::InvalidCertificate(unknown))
}

/// Reads the authorities. The bundled ones make HTTPS work on a machine without any. An authority
/// of the system that can't be read is left out, as if the system did not have it.
///
/// # Errors
/// If the operator's file can't be read, has no certificate, or has a faulty one.
pub fn read_trusted_authorities(
    authorities_file: Option<&Path>,
) -> Result<Vec<CertificateDer<'static>>, CertificateFault> {
    let mut all = webpki_root_certs::TLS_SERVER_ROOT_CERTS.to_vec();
    all.extend(rustls_native_certs::load_native_certs().certs);
    all.extend(authorities_file.map(read_authorities).transpose()?.unwrap_or_default());
    Ok(all)
}
