//! Connects to the server that an address names, or that the Sentinels of the address name, or to
//! the primaries of a Cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Client, ClientTlsConfig, Connection, ErrorKind, IntoConnectionInfo, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::cluster::ClusterLink;
use super::exchange::{describe_error, open_client};
use super::link::Link;
use super::options::{ClientCertificatePaths, RedisOptions};
use super::protocol_probe::{MIN_TIMEOUT_FOR_PROBE, find_other_protocol};
use super::reply::info_field;
use super::sentinels::{NamedServer, Sentinels};
use crate::store::error::StoreError;
use crate::store::finding::Finding;
use crate::store::server_list_url::{ClusterUrl, SentinelUrl};
use crate::store::url::{RedisUrl, RedisUrlParts};
use crate::support::regular_file::read_credential_file;

/// What is needed to connect.
pub(super) enum Connector {
    Server(Client),
    Sentinels {
        url: SentinelUrl,
        tls: Option<TlsCertificates>,
        sentinels: Arc<Sentinels>,
    },
    Cluster {
        url: ClusterUrl,
        tls: Option<TlsCertificates>,
        /// The primaries of the last link, each as `HOST:PORT`.
        last_primaries: Vec<String>,
    },
}

/// The files of certificates and keys with which a [`Connector`] was made.
pub(super) struct CertificateWatch {
    url: RedisUrl,
    options: RedisOptions,
    /// What the files had when the connector was made.
    contents: Option<Vec<Vec<u8>>>,
}

/// The open connections, and the server that Sentinels named for them.
pub(super) struct OpenLink {
    pub link: Link,
    /// `None` if the address names no Sentinels.
    pub named: Option<NamedServer>,
}

impl Connector {
    /// Reads the files that the options name, as far as the address needs them. No server need be
    /// reachable yet.
    pub fn new(url: &RedisUrl, options: &RedisOptions) -> Result<Connector, StoreError> {
        let location = url.without_credentials();
        let tls = match url.has_tls() {
            true => read_certificates(&location, options)?,
            false => None,
        };
        if url.has_tls() {
            // An error means that a provider is installed already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let unusable = |found: redis::RedisError| StoreError::Unusable {
            location: location.clone(),
            expected: "an address, certificates and a key that belong together",
            found: found.to_string(),
        };
        let sentinel_url = match url.parts() {
            RedisUrlParts::Server => {
                let client = open_client(url.with_credentials(), &tls).map_err(unusable)?;
                return Ok(Connector::Server(client));
            }
            RedisUrlParts::Cluster(cluster) => {
                // The redis crate reads the certificates when it makes a client.
                for host in cluster.hosts() {
                    open_client(cluster.server_url(host).as_str(), &tls).map_err(unusable)?;
                }
                return Ok(Connector::Cluster {
                    url: cluster.clone(),
                    tls,
                    last_primaries: Vec::new(),
                });
            }
            RedisUrlParts::Sentinels(sentinel_url) => sentinel_url,
        };
        let password_file = options.sentinel_password_file.as_ref();
        let password = password_file.map(|path| read_password(&location, path)).transpose()?;
        let clients = sentinel_url.hosts().iter().map(|host| {
            let mut info = sentinel_url.sentinel_url(host).into_connection_info()?;
            let mut settings = info.redis_settings().clone();
            if let Some(user) = &options.sentinel_user {
                settings = settings.set_username(user);
            }
            if let Some(password) = &password {
                settings = settings.set_password(password);
            }
            info = info.set_redis_settings(settings);
            open_client(info, &tls)
        });
        let clients: Vec<Client> = clients.collect::<Result<_, _>>().map_err(unusable)?;
        let sentinels = Sentinels::find_or_watch(url, sentinel_url, options, clients);
        Ok(Connector::Sentinels { url: sentinel_url.clone(), tls, sentinels })
    }

    /// Connects, and limits each wait to this time. The error says what failed; to find that out
    /// may take longer.
    pub fn connect(&mut self, timeout: Duration) -> Result<OpenLink, String> {
        match self {
            Connector::Server(client) => match client.get_connection_with_timeout(timeout) {
                Ok(connection) => Ok(OpenLink { link: Link::Server(connection), named: None }),
                Err(error) => Err(describe_error_and_protocol(&error, client, timeout)),
            },
            Connector::Cluster { url, tls, last_primaries } => {
                let cluster = ClusterLink::connect(url, tls, last_primaries, timeout);
                let urls = url.hosts().iter().map(|host| url.server_url(host));
                let cluster = cluster
                    .map_err(|found| add_other_protocol(found, urls, "+cluster", timeout))?;
                Ok(OpenLink { link: Link::Cluster(cluster), named: None })
            }
            Connector::Sentinels { url, tls, sentinels } => {
                let deadline = Instant::now() + timeout;
                let urls = url.hosts().iter().map(|host| url.sentinel_url(host));
                let named = sentinels
                    .ask(timeout / 2)
                    .map_err(|found| add_other_protocol(found, urls, "+sentinel", timeout))?;
                let time_left = deadline.saturating_duration_since(Instant::now());
                let connection = connect_to_primary(&url.server_url(&named.host), tls, time_left);
                let connection = connection.map_err(|error| {
                    let found = describe_error(&error, timeout);
                    format!("{}, which the Sentinels name: {found}", named.host)
                })?;
                Ok(OpenLink { link: Link::Server(connection), named: Some(named) })
            }
        }
    }

    /// Checks what the Sentinels answer. No finding if the address names no Sentinels.
    pub fn check_sentinels(&self, timeout: Duration) -> Vec<Finding> {
        match self {
            Connector::Sentinels { sentinels, .. } => sentinels.collect_findings(timeout),
            Connector::Server(_) | Connector::Cluster { .. } => Vec::new(),
        }
    }

    /// Returns true if the Sentinels have named another server since they named `connected_to`.
    pub fn is_outdated(&self, connected_to: Option<&NamedServer>) -> bool {
        match (self, connected_to) {
            (Connector::Sentinels { sentinels, .. }, Some(server)) => sentinels.is_outdated(server),
            _ => false,
        }
    }
}

impl CertificateWatch {
    /// Makes a connector, and remembers the files that it has read.
    pub fn begin(
        url: &RedisUrl,
        options: &RedisOptions,
    ) -> Result<(CertificateWatch, Connector), StoreError> {
        let contents = read_certificate_files(options);
        let connector = Connector::new(url, options)?;
        Ok((CertificateWatch { url: url.clone(), options: options.clone(), contents }, connector))
    }

    /// If the files have changed and are good, replaces the connector by one with these files, and
    /// returns true. The new one knows the same primaries of a Cluster. Sentinels that are asked
    /// already keep the former certificates.
    pub fn renew(&mut self, connector: &mut Connector) -> bool {
        let contents = read_certificate_files(&self.options);
        if !self.url.has_tls() || contents.is_none() || contents == self.contents {
            return false;
        }
        let Ok(mut renewed) = Connector::new(&self.url, &self.options) else { return false };
        if let Connector::Cluster { last_primaries: known, .. } = connector
            && let Connector::Cluster { last_primaries, .. } = &mut renewed
        {
            *last_primaries = std::mem::take(known);
        }
        *connector = renewed;
        self.contents = contents;
        true
    }
}

/// `None` if one of the files can't be read.
fn read_certificate_files(options: &RedisOptions) -> Option<Vec<Vec<u8>>> {
    options.certificate_files().map(|(_, path)| read_credential_file(path).ok()).collect()
}

/// Says why the connection to a server failed. If there is time to ask, also says whether the
/// server speaks another protocol.
fn describe_error_and_protocol(
    error: &redis::RedisError,
    client: &Client,
    timeout: Duration,
) -> String {
    let found = describe_error(error, timeout);
    let address = client.get_connection_info().addr();
    let is_patient = timeout >= MIN_TIMEOUT_FOR_PROBE && !error.is_connection_refusal();
    match is_patient.then(|| find_other_protocol(address, "")).flatten() {
        Some(other) => format!("{found}: {other}"),
        None => found,
    }
}

/// Returns `found`, which says why no server could be asked. If there is time to look for a server
/// that speaks another protocol, and there is one, adds this to the text. `urls` are the addresses
/// of the servers.
fn add_other_protocol(
    found: String,
    urls: impl Iterator<Item = String>,
    kind: &str,
    timeout: Duration,
) -> String {
    if timeout < MIN_TIMEOUT_FOR_PROBE {
        return found;
    }
    let mut addresses = urls.filter_map(|url| url.into_connection_info().ok());
    match addresses.find_map(|address| find_other_protocol(address.addr(), kind)) {
        Some(other) => format!("{found}: {other}"),
        None => found,
    }
}

/// Connects to a server. Fails if the server is not a primary: a Sentinel may name a server that is
/// a primary no longer.
fn connect_to_primary(
    url: &str,
    tls: &Option<TlsCertificates>,
    timeout: Duration,
) -> redis::RedisResult<Connection> {
    let deadline = Instant::now() + timeout;
    let mut connection = open_client(url, tls)?.get_connection_with_timeout(timeout)?;
    let time_left = deadline.saturating_duration_since(Instant::now());
    connection.set_read_timeout(Some(time_left.max(Duration::from_millis(1))))?;
    let info: String = redis::cmd("INFO").arg("replication").query(&mut connection)?;
    match info_field(&info, "role") {
        Some("master") => Ok(connection),
        found => Err((
            ErrorKind::Io,
            "expected a primary",
            format!("but found role {}", found.unwrap_or("unknown")),
        )
            .into()),
    }
}

/// Reads `store.tls_ca`, `store.tls_certificate` and `store.tls_key`; `None` if none is set.
fn read_certificates(
    location: &str,
    options: &RedisOptions,
) -> Result<Option<TlsCertificates>, StoreError> {
    // The redis crate accepts a file without certificates, and would then trust no server.
    let read_root = |path: &PathBuf| {
        read_pem(location, path, "store.tls_ca to be a file of certificates in PEM form")
    };
    let read_client = |paths: &ClientCertificatePaths| {
        let expected = "store.tls_certificate to be a file of certificates in PEM form";
        let client_cert = read_pem(location, &paths.certificate, expected)?;
        let client_key = read_file(location, &paths.key, "store.tls_key to be a key in PEM form")?;
        Ok::<_, StoreError>(ClientTlsConfig { client_cert, client_key })
    };
    let root_cert = options.tls_ca.as_ref().map(read_root).transpose()?;
    let client_tls = options.client_certificate.as_ref().map(read_client).transpose()?;
    let is_any = root_cert.is_some() || client_tls.is_some();
    Ok(is_any.then_some(TlsCertificates { client_tls, root_cert }))
}

fn read_pem(location: &str, path: &Path, expected: &'static str) -> Result<Vec<u8>, StoreError> {
    let contents = read_file(location, path, expected)?;
    let found = CertificateDer::pem_slice_iter(&contents).collect::<Result<Vec<_>, _>>();
    let fault = match found {
        Ok(found) if found.is_empty() => "none".to_owned(),
        Ok(_) => return Ok(contents),
        Err(error) => error.to_string(),
    };
    let found = format!("{fault}: {}", path.display());
    Err(StoreError::Unusable { location: location.to_owned(), expected, found })
}

fn read_file(location: &str, path: &Path, expected: &'static str) -> Result<Vec<u8>, StoreError> {
    read_credential_file(path).map_err(|error| StoreError::Unusable {
        location: location.to_owned(),
        expected,
        found: format!("{error}: {}", path.display()),
    })
}

/// Reads the first line of `store.sentinel_password_file`.
fn read_password(location: &str, path: &Path) -> Result<String, StoreError> {
    let expected = "store.sentinel_password_file to be a file with a password in its first line";
    let contents = read_credential_file(path).map_err(|error| {
        // Somebody may have written the password in place of the path.
        let shown = if path.exists() { format!(": {}", path.display()) } else { String::new() };
        let (location, found) = (location.to_owned(), format!("{error}{shown}"));
        StoreError::Unusable { location, expected, found }
    })?;
    let text = String::from_utf8_lossy(&contents);
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(password) => Ok(password.to_owned()),
        None => Err(StoreError::Unusable {
            location: location.to_owned(),
            expected,
            found: format!("none: {}", path.display()),
        }),
    }
}

#[cfg(test)]
mod tests;
