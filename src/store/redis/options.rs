//! The options for connections to servers and Sentinels.

use std::path::PathBuf;

use super::ring_store::RingStore;

/// Options for the connection to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisOptions {
    /// `store.wait_replicas`: how many replicas certain writes wait for.
    pub wait_replicas: usize,
    /// A file with the certificate authority to trust instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// The certificate that riskgate presents to servers and Sentinels.
    pub client_certificate: Option<ClientCertificatePaths>,
    /// The user with which riskgate asks Sentinels; the default user if `None`.
    pub sentinel_user: Option<String>,
    /// A file with the password of that user in its first line.
    pub sentinel_password_file: Option<PathBuf>,
    /// No setting: the store that the keys of this process are from. Connections write to no other
    /// store.
    pub ring_store: RingStore,
}

impl RedisOptions {
    /// The settings that name files of certificates and keys, each with its file.
    pub fn certificate_files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let of_ca = self.tls_ca.iter().map(|path| ("store.tls_ca", path));
        let of_client = self.client_certificate.iter().flat_map(|it| {
            [("store.tls_certificate", &it.certificate), ("store.tls_key", &it.key)]
        });
        of_ca.chain(of_client)
    }
}

/// The files of a client certificate, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificatePaths {
    /// The certificate and those of the authorities between it and a root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}
