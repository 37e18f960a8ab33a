//! Server certificates for TLS listeners, and trusted authorities for outgoing connections.
//!
//! Owns the listeners' TLS configuration: TLS 1.2 and 1.3, and by ALPN HTTP/2 before HTTP/1.1. A
//! new set of certificates replaces the old set completely or not at all. Open connections keep
//! the certificate of their handshake.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::support::regular_file::read_credential_file;
use crate::support::snapshot::SnapshotCell;

/// The files of a certificate, both in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by the intermediate certificates up to its authority.
    pub chain: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}

/// A fault of a certificate or key file, as `file: expected …, but found …`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{path}: expected {expected}, but found {found}")]
pub struct CertificateFault {
    path: String,
    expected: &'static str,
    found: String,
    is_transient: bool,
    is_of_key: bool,
}

impl CertificateFault {
    pub(super) fn new(
        path: &Path,
        expected: &'static str,
        found: impl ToString,
    ) -> CertificateFault {
        let (path, found) = (path.display().to_string(), found.to_string());
        CertificateFault { path, expected, found, is_transient: false, is_of_key: false }
    }

    fn with_key_mark(self) -> CertificateFault {
        CertificateFault { is_of_key: true, ..self }
    }

    /// Returns true if the file should have a private key.
    pub fn is_of_key(&self) -> bool {
        self.is_of_key
    }

    /// Returns true if the system could not read the file for now.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }
}

/// The certificates of a listener.
#[derive(Debug)]
pub struct CertificateSet {
    /// By name in lower case; `*.example.com` stands for all names one label below.
    by_server_name: HashMap<String, Arc<CertifiedKey>>,
    /// Used if the client sends no server name, or a name without a certificate.
    default_certificate: Arc<CertifiedKey>,
    descriptions: Vec<CertificateDescription>,
}

/// A certificate of a listener, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateDescription {
    /// The file of its chain.
    pub chain: String,
    /// The DNS names in it, in lower case.
    pub names: Vec<String>,
    /// When it expires, in seconds since 1970.
    pub expires_at: i64,
}

impl CertificateSet {
    /// Reads certificates and their keys. The first certificate is also the default. Returns `None`
    /// if `files` is empty. If certificates are faulty, returns a fault of each of them.
    pub fn load(
        files: &[CertificateFiles],
    ) -> Result<Option<CertificateSet>, Vec<CertificateFault>> {
        let (mut by_name, mut first, mut descriptions) = (HashMap::new(), None, Vec::new());
        let mut faults = Vec::new();
        for certificate in files {
            match read_certified_key(certificate) {
                Ok((names, expires_at, certified)) => {
                    let chain = certificate.chain.display().to_string();
                    let description =
                        CertificateDescription { chain, names: names.clone(), expires_at };
                    descriptions.push(description);
                    first.get_or_insert_with(|| Arc::clone(&certified));
                    for name in names {
                        by_name.entry(name).or_insert_with(|| Arc::clone(&certified));
                    }
                }
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(first.map(|first| CertificateSet {
            by_server_name: by_name,
            default_certificate: first,
            descriptions,
        }))
    }

    /// When each certificate expires, in seconds since 1970, by the file of its chain.
    pub fn expiries(&self) -> Vec<(String, i64)> {
        self.descriptions.iter().map(|it| (it.chain.clone(), it.expires_at)).collect()
    }

    fn choose_certificate(&self, server_name: Option<&str>) -> Arc<CertifiedKey> {
        let name = server_name.unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let found = self.by_server_name.get(&name);
        let found = found.or_else(|| self.by_server_name.get(wildcard.as_deref()?));
        Arc::clone(found.unwrap_or(&self.default_certificate))
    }
}

fn read_certified_key(
    files: &CertificateFiles,
) -> Result<(Vec<String>, i64, Arc<CertifiedKey>), CertificateFault> {
    const EXPECTED_CHAIN: &str = "certificates in PEM form";
    const EXPECTED_KEY: &str = "a private key in PEM form";
    let chain = read_pem_certificates(&files.chain, EXPECTED_CHAIN);
    let text = read_pem_file(&files.key, EXPECTED_KEY).map_err(CertificateFault::with_key_mark)?;
    if let Err(fault) = &chain
        && fault.found == FOUND_PRIVATE_KEY
        && contains_pem(&text, "CERTIFICATE")
    {
        let found = format!("{FOUND_PRIVATE_KEY}: it and {} are swapped", files.key.display());
        return Err(CertificateFault::new(&files.chain, EXPECTED_CHAIN, found));
    }
    let chain = chain?;
    // The error must not quote the file: its text may be a secret.
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let is_encrypted = contains_pem(&text, "ENCRYPTED");
        let found = match contains_pem(&text, "CERTIFICATE") {
            true => "a certificate",
            false if is_encrypted => {
                "a key with a passphrase; write it without: openssl pkey -in OLD -out NEW"
            }
            false => "something else",
        };
        CertificateFault::new(&files.key, EXPECTED_KEY, found).with_key_mark()
    })?;
    let key = any_supported_type(&key).map_err(|error| {
        CertificateFault::new(&files.key, "a key of RSA, ECDSA or Ed25519", error).with_key_mark()
    })?;
    let (names, expires) = read_names_and_expiry(&chain[0]).ok_or_else(|| {
        CertificateFault::new(&files.chain, EXPECTED_CHAIN, "one that can't be read")
    })?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().map_err(|_| {
        let found = format!("another key than that of {}", files.chain.display());
        CertificateFault::new(&files.key, "the key of the certificate", found).with_key_mark()
    })?;
    Ok((names, expires, Arc::new(certified)))
}

/// What was found if a file has a key in place of certificates.
const FOUND_PRIVATE_KEY: &str = "a private key";

/// Whether a PEM file has a block of this kind.
fn contains_pem(text: &[u8], kind: &str) -> bool {
    let text = String::from_utf8_lossy(text);
    text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(kind))
}

/// The DNS names of a certificate in lower case, and its expiry in seconds since 1970.
fn read_names_and_expiry(certificate: &CertificateDer<'_>) -> Option<(Vec<String>, i64)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()?;
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Some((names.collect(), parsed.validity().not_after.timestamp()))
}

/// When a certificate expires, in seconds since 1970; `None` if the certificate can't be read.
pub(super) fn read_expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    read_names_and_expiry(certificate).map(|(_, expires)| expires)
}

/// Returns true if a certificate names itself as its authority.
pub(super) fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, parsed)| parsed.subject() == parsed.issuer())
}

/// Reads certificates in PEM format, at least one. `expected` describes the certificates in the
/// fault.
pub fn read_pem_certificates(
    path: &Path,
    expected: &'static str,
) -> Result<Vec<CertificateDer<'static>>, CertificateFault> {
    let text = read_pem_file(path, expected)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) if contains_pem(&text, "PRIVATE KEY") => {
            Err(CertificateFault::new(path, expected, FOUND_PRIVATE_KEY))
        }
        // How a file of DER or PKCS#12 begins.
        Ok(_) if text.starts_with(&[0x30, 0x82]) => Err(CertificateFault::new(
            path,
            expected,
            "DER or PKCS#12; write it as PEM: openssl x509 -inform der -in OLD -out NEW, or \
             openssl pkcs12 -nodes -in OLD -out NEW",
        )),
        Ok(_) if contains_pem(&text, "CERTIFICATE REQUEST") => Err(CertificateFault::new(
            path,
            expected,
            "a request for a certificate; write the certificate that the authority made of it",
        )),
        Ok(_) => Err(CertificateFault::new(path, expected, "none")),
        Err(error) => Err(CertificateFault::new(path, expected, error)),
    }
}

const AUTHORITIES: &str = "certificates of authorities in PEM form";

/// Reads the certificates of authorities, at least one, in PEM format.
pub fn read_authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateFault> {
    let authorities = read_pem_certificates(path, AUTHORITIES)?;
    let mut store = RootCertStore::empty();
    for authority in &authorities {
        let added = store.add(authority.clone());
        added.map_err(|_| CertificateFault::new(path, AUTHORITIES, "one that can't be read"))?;
    }
    Ok(authorities)
}

fn read_pem_file(path: &Path, expected: &'static str) -> Result<Vec<u8>, CertificateFault> {
    read_credential_file(path).map_err(|found| {
        let is_transient = found.is_transient();
        CertificateFault { is_transient, ..CertificateFault::new(path, expected, found) }
    })
}

/// The certificates that listeners use now.
#[derive(Debug)]
pub struct CurrentCertificates(SnapshotCell<CertificateSet>);

impl CurrentCertificates {
    /// Starts with this set.
    pub fn new(set: CertificateSet) -> CurrentCertificates {
        CurrentCertificates(SnapshotCell::new(set))
    }

    /// Uses this set for all handshakes from now on.
    pub fn publish(&self, set: CertificateSet) {
        self.0.publish(set);
    }

    /// When each certificate expires, in seconds since 1970, by the file of its chain.
    pub fn expiries(&self) -> Vec<(String, i64)> {
        self.0.peek().expiries()
    }

    /// Describes each certificate for an operator.
    pub fn describe(&self) -> Vec<CertificateDescription> {
        self.0.peek().descriptions.clone()
    }
}

/// Chooses the certificate of each handshake by the client's server name (SNI).
#[derive(Debug)]
struct SniResolver(Arc<CurrentCertificates>);

impl ResolvesServerCert for SniResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.0.peek().choose_certificate(hello.server_name()))
    }
}

/// The TLS configuration of a listener: TLS 1.2 and 1.3 with these certificates, and by ALPN HTTP/2
/// or HTTP/1.1.
pub fn tls_server_config(
    certificates: Arc<CurrentCertificates>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SniResolver(certificates)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
