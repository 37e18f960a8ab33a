//! The certificate that a TLS server presents, and whether its clients trust it.
//!
//! Completes the handshake even if no client trusts the certificate, because a person wants to know
//! when such a certificate expires. Sends nothing after the handshake.

use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use super::certificate_validity::ValidityPeriod;
use super::certificates::{is_self_signed, read_validity};
use super::lock::lock;

/// The certificate of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentedCertificate {
    /// When the certificate is valid; `None` if the certificate can't be read.
    pub validity: Option<ValidityPeriod>,
    /// Why a client of these authorities does not trust the certificate; `None` if it does.
    pub distrust: Option<String>,
    /// Whether the certificate is itself one of these authorities.
    pub is_trusted_authority: bool,
}

/// Returns true if a certificate can be valid for this name: a name of the DNS in ASCII, or an IP
/// address without brackets.
pub fn is_certificate_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// Performs the TLS handshake with a server, and returns its certificate.
///
/// # Errors
/// If the handshake fails, if `server_name` is not a valid name, or if no authority can be read.
pub fn probe_certificate(
    mut stream: TcpStream,
    server_name: &str,
    authorities: &[CertificateDer<'static>],
) -> io::Result<PresentedCertificate> {
    let authorities: Arc<[CertificateDer<'static>]> = authorities.into();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = Arc::new(default_provider());
    let builder =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let inner = builder.build().map_err(io::Error::other)?;
    let verifier =
        Arc::new(CertificateRecorder { inner, authorities, presented: Mutex::new(None) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let name = ServerName::try_from(server_name.to_owned()).map_err(io::Error::other)?;
    let mut session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    let presented = lock(&verifier.presented).take();
    presented.ok_or_else(|| io::Error::other("no certificate"))
}

/// Notes the certificate and why a client would not trust it, and lets the handshake go on.
#[derive(Debug)]
struct CertificateRecorder {
    inner: Arc<WebPkiServerVerifier>,
    authorities: Arc<[CertificateDer<'static>]>,
    presented: Mutex<Option<PresentedCertificate>>,
}

impl ServerCertVerifier for CertificateRecorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let validity = read_validity(end_entity);
        let is_trusted_authority = self.authorities.contains(end_entity);
        let distrust =
            verified.err().map(|error| describe_distrust(&error, end_entity, is_trusted_authority));
        let mut presented = lock(&self.presented);
        *presented = Some(PresentedCertificate { validity, distrust, is_trusted_authority });
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn describe_distrust(
    error: &Error,
    certificate: &CertificateDer<'_>,
    is_trusted_authority: bool,
) -> String {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    let Error::InvalidCertificate(fault) = error else { return error.to_string() };
    let text = match fault {
        Expired | ExpiredContext { .. } => "it has expired",
        NotValidYet | NotValidYetContext { .. } => "it is not valid yet",
        NotValidForName | NotValidForNameContext { .. } => "it is for another name",
        _ if is_trusted_authority => "it is the certificate of an authority, and not of a server",
        _ if is_self_signed(certificate) => "it has signed itself, so no authority vouches for it",
        UnknownIssuer => {
            "no authority that this machine trusts has signed it, or an intermediate certificate \
             is missing behind it"
        }
        _ => return error.to_string(),
    };
    text.to_owned()
}
