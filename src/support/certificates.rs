//! Server certificates for TLS listeners, and trusted authorities for outgoing connections.
//!
//! Owns the listeners' TLS configuration: TLS 1.2 and 1.3, and by ALPN HTTP/2 before HTTP/1.1. A
//! new set of certificates replaces the old set completely or not at all. Open connections keep
//! the certificate of their handshake.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, SignatureAlgorithm, SignatureScheme};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Version};

use crate::support::certificate_validity::{CertificateValidity, ValidityPeriod};
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
    /// By name in lower case. `*.example.com` stands for names one label below that are not here.
    by_server_name: HashMap<String, CertificatesByKeyType>,
    /// Used if the client sends no server name, or a name without a certificate.
    defaults: CertificatesByKeyType,
    descriptions: Vec<CertificateDescription>,
}

/// A certificate of a listener, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateDescription {
    /// The file of its chain.
    pub chain: String,
    /// The DNS names in it, in lower case.
    pub names: Vec<String>,
    /// When it is valid.
    pub validity: ValidityPeriod,
    /// Why no client gets this certificate; `None` if a client can get it.
    pub unreachable: Option<&'static str>,
}

impl CertificateDescription {
    /// Judges the certificate at a time in Unix seconds.
    pub fn judge(&self, now: i64) -> CertificateValidity {
        CertificateValidity::judge(self.validity, now)
    }

    /// Says, behind the file, that the certificate is not valid at a time in Unix seconds; `None`
    /// if it is valid.
    pub fn describe_problem(&self, now: i64) -> Option<String> {
        Some(format!("{}: {}", self.chain, self.judge(now).problem()?))
    }
}

impl CertificateSet {
    /// Reads certificates and their keys. Returns `None` if `files` is empty. If certificates are
    /// faulty, returns one fault of each of them.
    pub fn load(
        files: &[CertificateFiles],
    ) -> Result<Option<CertificateSet>, Vec<CertificateFault>> {
        let (mut certificates, mut faults) = (Vec::new(), Vec::new());
        for files in files {
            match read_certified_key(files) {
                Ok(certificate) => certificates.push(certificate),
                Err(fault) => faults.push(fault),
            }
        }
        match faults.is_empty() {
            true => Ok(CertificateSet::build(certificates)),
            false => Err(faults),
        }
    }

    /// Assigns certificates to their names. The default is the first certificate, together with
    /// certificates for the same names whose keys are of other types.
    fn build(certificates: Vec<ReadCertificate>) -> Option<CertificateSet> {
        let default_subject = certificates.first()?.subject.clone();
        let mut set = CertificateSet {
            by_server_name: HashMap::new(),
            defaults: CertificatesByKeyType::default(),
            descriptions: Vec::new(),
        };
        for ReadCertificate { chain, subject, certificate } in certificates {
            let mut is_reachable =
                subject.covers(&default_subject) && set.defaults.add(Arc::clone(&certificate));
            for name in &subject.names {
                let candidates = set.by_server_name.entry(name.clone()).or_default();
                is_reachable |= candidates.add(Arc::clone(&certificate));
            }
            let unreachable = match subject.names.is_empty() {
                _ if is_reachable => None,
                true => Some("expected a DNS name in subjectAltName, but found none"),
                false => Some(
                    "expected a name or a type of key that no earlier certificate has, but found \
                     none",
                ),
            };
            let Subject { names, validity, .. } = subject;
            set.descriptions.push(CertificateDescription { chain, names, validity, unreachable });
        }
        Some(set)
    }

    /// Describes each certificate for an operator.
    pub fn descriptions(&self) -> &[CertificateDescription] {
        &self.descriptions
    }

    /// Chooses the certificate for a name. `offered` are the signatures that the client can verify.
    fn choose_certificate(
        &self,
        server_name: Option<&str>,
        offered: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let name = server_name.unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let found = self.by_server_name.get(&name);
        let found = found.or_else(|| self.by_server_name.get(wildcard.as_deref()?));
        found.unwrap_or(&self.defaults).choose(offered)
    }
}

/// Certificates for one name, each with another type of key. RSA comes last, because its signatures
/// cost the most.
#[derive(Debug, Default)]
struct CertificatesByKeyType(Vec<Arc<CertificateWithKey>>);

impl CertificatesByKeyType {
    /// Adds a certificate, unless an earlier one has the same type of key. Returns whether the
    /// certificate was added.
    fn add(&mut self, certificate: Arc<CertificateWithKey>) -> bool {
        let is_new = self.0.iter().all(|earlier| earlier.schemes != certificate.schemes);
        if is_new {
            self.0.push(certificate);
            self.0.sort_by_key(|it| it.certified.key.algorithm() == SignatureAlgorithm::RSA);
        }
        is_new
    }

    /// Returns the first certificate whose signature the client can verify. If there is none,
    /// returns the first one, with which the handshake fails.
    fn choose(&self, offered: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let is_verifiable = |it: &&Arc<CertificateWithKey>| {
            it.schemes.iter().any(|scheme| offered.contains(scheme))
        };
        let found = self.0.iter().find(is_verifiable).or(self.0.first())?;
        Some(Arc::clone(&found.certified))
    }
}

/// A certificate with its key.
#[derive(Debug)]
struct CertificateWithKey {
    certified: Arc<CertifiedKey>,
    /// The signatures that the key makes.
    schemes: Vec<SignatureScheme>,
}

/// A certificate that was read from its files.
struct ReadCertificate {
    /// The file of its chain.
    chain: String,
    subject: Subject,
    certificate: Arc<CertificateWithKey>,
}

/// Whom a certificate is for, and when.
#[derive(Clone)]
struct Subject {
    /// The DNS names, in lower case.
    names: Vec<String>,
    /// The IP addresses, as the certificate has them.
    addresses: Vec<Vec<u8>>,
    validity: ValidityPeriod,
}

impl Subject {
    /// Reads a certificate; `None` if it can't be read.
    fn read(certificate: &CertificateDer<'_>) -> Option<Subject> {
        let parsed = parse_certificate(certificate)?;
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        let alternatives = parsed.subject_alternative_name().ok()?;
        for name in alternatives.iter().flat_map(|it| &it.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(address) => addresses.push(address.to_vec()),
                _ => {}
            }
        }
        let validity = parsed.validity();
        let validity = ValidityPeriod {
            begins_at: validity.not_before.timestamp(),
            expires_at: validity.not_after.timestamp(),
        };
        Some(Subject { names, addresses, validity })
    }

    /// Returns true if this certificate has all names and addresses of the other. A certificate
    /// without any covers only another one without.
    fn covers(&self, other: &Subject) -> bool {
        let is_empty = |it: &Subject| it.names.is_empty() && it.addresses.is_empty();
        is_empty(self) == is_empty(other)
            && other.names.iter().all(|name| self.names.contains(name))
            && other.addresses.iter().all(|address| self.addresses.contains(address))
    }
}

const EXPECTED_CHAIN: &str = "certificates in PEM form";
const ENCRYPTED_FIELD: &[u8] = b"Proc-Type: 4,ENCRYPTED";

fn read_certified_key(files: &CertificateFiles) -> Result<ReadCertificate, CertificateFault> {
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
    // An older form of PEM has the field inside of the block, before the bytes.
    let has_field = text.windows(ENCRYPTED_FIELD.len()).any(|part| part == ENCRYPTED_FIELD);
    let key = PrivateKeyDer::from_pem_slice(&text).ok().filter(|_| !has_field);
    let key = key.ok_or_else(|| {
        let is_encrypted = has_field || contains_pem(&text, "ENCRYPTED");
        let found = match contains_pem(&text, "CERTIFICATE") {
            true => "a certificate",
            false if is_encrypted => {
                "a key with a passphrase; write it without: openssl pkey -in OLD -out NEW"
            }
            false if contains_pem(&text, "PRIVATE KEY") => {
                "a key that can't be read; is the file complete?"
            }
            false => "something else",
        };
        CertificateFault::new(&files.key, EXPECTED_KEY, found).with_key_mark()
    })?;
    let key = any_supported_type(&key).map_err(|error| {
        CertificateFault::new(&files.key, "a key of RSA, ECDSA or Ed25519", error).with_key_mark()
    })?;
    let subject = read_chain(&files.chain, &chain)?;
    check_key(files, &chain, &key)?;
    let all_schemes = default_provider().signature_verification_algorithms.supported_schemes();
    let makes = |scheme: &SignatureScheme| key.choose_scheme(&[*scheme]).is_some();
    let schemes = all_schemes.into_iter().filter(makes).collect();
    let certificate =
        CertificateWithKey { certified: Arc::new(CertifiedKey::new(chain, key)), schemes };
    let chain = files.chain.display().to_string();
    Ok(ReadCertificate { chain, subject, certificate: Arc::new(certificate) })
}

/// Reads every certificate of a chain, because a client refuses a chain with a broken one. Returns
/// the subject of the first.
fn read_chain(path: &Path, chain: &[CertificateDer<'static>]) -> Result<Subject, CertificateFault> {
    let unreadable = |index: usize| {
        let found = format!("one that can't be read: number {} of the file", index + 1);
        CertificateFault::new(path, EXPECTED_CHAIN, found)
    };
    if let Some(index) = chain.iter().position(|it| parse_certificate(it).is_none()) {
        return Err(unreadable(index));
    }
    chain.first().and_then(Subject::read).ok_or_else(|| unreadable(0))
}

/// Fails if this is not the key of the first certificate.
fn check_key(
    files: &CertificateFiles,
    chain: &[CertificateDer<'static>],
    key: &Arc<dyn SigningKey>,
) -> Result<(), CertificateFault> {
    let is_of_key = |certificate: &CertificateDer<'static>| {
        let certified = CertifiedKey::new(vec![certificate.clone()], Arc::clone(key));
        certified.keys_match().is_ok()
    };
    match chain.iter().position(is_of_key) {
        Some(0) => Ok(()),
        Some(index) => {
            let expected = "the server's certificate first, and those of its issuers behind it";
            let found = format!("the server's certificate as number {} of the file", index + 1);
            Err(CertificateFault::new(&files.chain, expected, found))
        }
        // rustls reads no key in such a certificate.
        None if chain
            .first()
            .and_then(parse_certificate)
            .is_some_and(|it| it.version() != X509Version::V3) =>
        {
            let expected = "certificates of version 3, which have a subjectAltName";
            let found = "one of an older version; issue it again with an extension subjectAltName";
            Err(CertificateFault::new(&files.chain, expected, found.to_owned()))
        }
        None => {
            let found = format!("another key than that of {}", files.chain.display());
            let fault = CertificateFault::new(&files.key, "the key of the certificate", found);
            Err(fault.with_key_mark())
        }
    }
}

/// What was found if a file has a key in place of certificates.
const FOUND_PRIVATE_KEY: &str = "a private key";

/// Whether a PEM file has a block of this kind.
fn contains_pem(text: &[u8], kind: &str) -> bool {
    let text = String::from_utf8_lossy(text);
    text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(kind))
}

fn parse_certificate<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (surplus, parsed) = X509Certificate::from_der(certificate).ok()?;
    surplus.is_empty().then_some(parsed)
}

/// When a certificate is valid; `None` if the certificate can't be read.
pub(super) fn read_validity(certificate: &CertificateDer<'_>) -> Option<ValidityPeriod> {
    Subject::read(certificate).map(|subject| subject.validity)
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
        Err(error) => Err(CertificateFault::new(path, expected, describe_pem_error(&error))),
    }
}

/// Says what was found in place of whole PEM blocks. A file that is being written, or was cut off,
/// is the usual cause.
fn describe_pem_error(error: &PemError) -> &'static str {
    match error {
        PemError::MissingSectionEnd { .. } => {
            "a certificate without its END line; is the file complete?"
        }
        PemError::IllegalSectionStart { .. } => {
            "a BEGIN line that does not end with -----; is the file complete?"
        }
        PemError::Base64Decode(_) => {
            "a certificate with lines that are no base64; is the file complete?"
        }
        _ => "one that can't be read",
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

    /// Describes each certificate for an operator.
    pub fn describe(&self) -> Vec<CertificateDescription> {
        self.0.peek().descriptions.clone()
    }
}

/// Chooses the certificate of each handshake by the client's server name (SNI), and by the
/// signatures that the client can verify.
#[derive(Debug)]
struct SniResolver(Arc<CurrentCertificates>);

impl ResolvesServerCert for SniResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.0.peek().choose_certificate(hello.server_name(), hello.signature_schemes())
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
