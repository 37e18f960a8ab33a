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
    /// The files that the options name.
    pub fn files(&self) -> Vec<PathBuf> {
        self.certificate_files().into_iter().chain(self.sentinel_password_file.clone()).collect()
    }

    /// The files of certificates and keys that the options name.
    pub(super) fn certificate_files(&self) -> Vec<PathBuf> {
        let of_client = self.client_certificate.iter();
        let of_client = of_client.flat_map(|it| [it.certificate.clone(), it.key.clone()]);
        self.tls_ca.clone().into_iter().chain(of_client).collect()
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
