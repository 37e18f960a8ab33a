//! Certificates by name, for connections that come in, and authorities to trust, for those that
//! go out.
//!
//! Owns what a TLS listener shows and speaks: TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1. A new set
//! of certificates is taken whole or not at all; connections that are open keep theirs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::support::regular_file::read_regular;
use crate::support::snapshot::Live;

/// The largest file of certificates or of a key, in bytes.
const LARGEST: u64 = 1 << 20;

/// A certificate's files, both in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and behind it those that lead to its authority.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What is wrong with a file, as `file: expected …, but found …`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{path}: expected {expected}, but found {found}")]
pub struct TlsFault {
    path: String,
    expected: &'static str,
    found: String,
}

impl TlsFault {
    fn new(path: &Path, expected: &'static str, found: impl ToString) -> TlsFault {
        TlsFault { path: path.display().to_string(), expected, found: found.to_string() }
    }
}

/// Certificates that serve together.
#[derive(Debug)]
pub struct CertificateSet {
    /// By name in lower case; `*.example.com` for all names one label below.
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// For a client that names none of them, or nobody.
    first: Arc<CertifiedKey>,
    expires_at: i64,
}

impl CertificateSet {
    /// Reads certificates; the first also serves who asks for a name that none is for.
    pub fn load(files: &[CertificateFiles]) -> Result<Option<CertificateSet>, Vec<TlsFault>> {
        let (mut by_name, mut first, mut expires_at) = (HashMap::new(), None, i64::MAX);
        let mut faults = Vec::new();
        for certificate in files {
            match read_certificate(certificate) {
                Ok((names, expires, certified)) => {
                    expires_at = expires_at.min(expires);
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
        Ok(first.map(|first| CertificateSet { by_name, first, expires_at }))
    }

    /// When the first of them expires, in seconds since 1970.
    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }

    fn find(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let name = name.unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        let below = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let found = self.by_name.get(&name);
        let found = found.or_else(|| self.by_name.get(below.as_deref()?));
        Arc::clone(found.unwrap_or(&self.first))
    }
}

fn read_certificate(
    files: &CertificateFiles,
) -> Result<(Vec<String>, i64, Arc<CertifiedKey>), TlsFault> {
    const CHAIN: &str = "certificates in PEM form";
    const KEY: &str = "a private key in PEM form";
    let chain = read_certificates(&files.chain, CHAIN)?;
    let text = read(&files.key, KEY)?;
    // What was found is a secret, or nearly one.
    let key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| TlsFault::new(&files.key, KEY, "something else"))?;
    let key = any_supported_type(&key)
        .map_err(|error| TlsFault::new(&files.key, "a key of RSA, ECDSA or Ed25519", error))?;
    let (names, expires) = names_and_expiry(&chain[0])
        .ok_or_else(|| TlsFault::new(&files.chain, CHAIN, "one that can't be read"))?;
    let certified = CertifiedKey::new(chain, key);
    certified
        .keys_match()
        .map_err(|_| TlsFault::new(&files.key, "the key of the certificate", "another key"))?;
    Ok((names, expires, Arc::new(certified)))
}

/// The names that a certificate is for, in lower case, and when it expires.
fn names_and_expiry(certificate: &CertificateDer<'_>) -> Option<(Vec<String>, i64)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()?;
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Some((names.collect(), parsed.validity().not_after.timestamp()))
}

/// Certificates of authorities to trust; at least one.
pub fn read_certificates(
    path: &Path,
    expected: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let text = read(path, expected)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(TlsFault::new(path, expected, "none")),
        Err(error) => Err(TlsFault::new(path, expected, error)),
    }
}

fn read(path: &Path, expected: &'static str) -> Result<Vec<u8>, TlsFault> {
    read_regular(path, LARGEST).map_err(|found| TlsFault::new(path, expected, found))
}

/// The certificates that serve now.
#[derive(Debug)]
pub struct Certificates(Live<CertificateSet>);

impl Certificates {
    /// Serves these.
    pub fn new(set: CertificateSet) -> Certificates {
        Certificates(Live::new(set))
    }

    /// Serves others from now on.
    pub fn publish(&self, set: CertificateSet) {
        self.0.publish(set);
    }

    /// When the first of them expires, in seconds since 1970.
    pub fn expires_at(&self) -> i64 {
        self.0.peek().expires_at()
    }
}

/// Lets rustls ask for the certificate of each handshake.
#[derive(Debug)]
struct ByName(Arc<Certificates>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.0.peek().find(hello.server_name()))
    }
}

/// What a listener speaks: TLS 1.2 and 1.3 with these certificates, and by ALPN HTTP/2 or HTTP/1.1.
pub fn server_config(certificates: Arc<Certificates>) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ByName(certificates)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
