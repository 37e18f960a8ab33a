//! A certificate authority for tests, created with the `openssl` command, and clients that trust
//! it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::http::Stream;
use super::{Connection, FakeClock, TEST_TIMEOUT};

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn shutdown_write(&mut self) {
        self.conn.send_close_notify();
        while self.conn.wants_write() {
            if self.conn.write_tls(&mut self.sock).is_err() {
                // The peer has reset the connection. rustls would try to write again before each
                // read, and fail, although responses may have arrived.
                while self.conn.wants_write() {
                    self.conn.write_tls(&mut std::io::sink()).unwrap();
                }
            }
        }
    }
}

pub struct CertificateAuthority {
    folder: PathBuf,
}

impl CertificateAuthority {
    #[track_caller]
    pub fn new(folder: &Path) -> CertificateAuthority {
        create_certificate(folder, EC_KEY, "-subj /CN=authority -keyout ca.key -out ca.pem", None);
        CertificateAuthority { folder: folder.to_owned() }
    }

    pub fn certificate_path(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Writes NAME.pem and NAME.key: a certificate for these names, such as
    /// `DNS:a.test,IP:127.0.0.1`.
    #[track_caller]
    pub fn issue_certificate(&self, name: &str, names: &str) -> (PathBuf, PathBuf) {
        self.issue(name, names, EC_KEY, None)
    }

    /// Like [`Self::issue_certificate`], with an RSA key.
    #[track_caller]
    pub fn issue_rsa_certificate(&self, name: &str, names: &str) -> (PathBuf, PathBuf) {
        self.issue(name, names, "rsa:2048", None)
    }

    /// Like [`Self::issue_certificate`]. The certificate begins to be valid now, by this clock.
    #[track_caller]
    pub fn issue_certificate_by_clock(
        &self,
        clock: &FakeClock,
        name: &str,
        names: &str,
    ) -> (PathBuf, PathBuf) {
        self.issue(name, names, EC_KEY, Some(clock))
    }

    #[track_caller]
    fn issue(
        &self,
        name: &str,
        names: &str,
        key: &str,
        clock: Option<&FakeClock>,
    ) -> (PathBuf, PathBuf) {
        let words = format!(
            "-subj /CN={name} -CA ca.pem -CAkey ca.key -keyout new.key -out new.pem -addext \
             subjectAltName={names} -addext basicConstraints=critical,CA:FALSE"
        );
        create_certificate(&self.folder, key, &words, clock);
        // A gateway that reads the files must not find a half-written one.
        let move_file = |end: &str| {
            let path = self.folder.join(format!("{name}.{end}"));
            std::fs::rename(self.folder.join(format!("new.{end}")), &path).unwrap();
            path
        };
        (move_file("pem"), move_file("key"))
    }

    fn client_config(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.certificate_path()).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// Performs the TLS handshake with a server of this name; an error is an error of the
    /// handshake.
    pub fn try_tls_handshake(
        &self,
        address: SocketAddr,
        name: &str,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: &[&str],
        mut stream: TcpStream,
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut config = self.client_config(versions);
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        stream.set_write_timeout(Some(TEST_TIMEOUT))?;
        assert_eq!(stream.peer_addr()?, address);
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(session, stream))
    }

    /// Opens a TLS connection for HTTP/1.1. Panics if the server's certificate lacks this name.
    #[track_caller]
    pub fn connect_with_tls(&self, address: SocketAddr, name: &str) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        let all = rustls::ALL_VERSIONS;
        let stream = self.try_tls_handshake(address, name, all, &["http/1.1"], stream);
        Connection::from_stream(Box::new(stream.expect("a handshake")))
    }
}

impl CertificateAuthority {
    /// Starts a TLS server with a certificate for this name, in front of a server without TLS. It
    /// serves one request after the other on each connection. If the server behind it closes, it
    /// sends the alert `close_notify` and closes too.
    pub fn start_tls_server_for(&self, behind: SocketAddr, name: &str) -> SocketAddr {
        let (certificate, key) = self.issue_certificate(name, &format!("DNS:{name}"));
        let certificates = CertificateDer::pem_file_iter(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                certificates.map(Result::unwrap).collect(),
                PrivateKeyDer::from_pem_file(key).unwrap(),
            );
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let session = ServerConnection::new(Arc::clone(&config)).unwrap();
                let server = TcpStream::connect(behind).unwrap();
                std::thread::spawn(|| relay_requests(StreamOwned::new(session, client), server));
            }
        });
        address
    }
}

/// Passes a request to the server and its response to the client, again and again, until one of
/// them closes.
fn relay_requests(
    mut client: StreamOwned<ServerConnection, TcpStream>,
    mut server: TcpStream,
) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match client.read(&mut buffer)? {
            0 => return Ok(()),
            length => server.write_all(&buffer[..length])?,
        }
        match server.read(&mut buffer)? {
            0 => {
                client.conn.send_close_notify();
                return client.flush();
            }
            length => client.write_all(&buffer[..length])?,
        }
    }
}

/// A key of the curve P-256, in the words of `openssl req -newkey`.
const EC_KEY: &str = "ec -pkeyopt ec_paramgen_curve:prime256v1";

#[track_caller]
fn create_certificate(folder: &Path, key: &str, words: &str, clock: Option<&FakeClock>) {
    let key = format!("req -x509 -newkey {key} -nodes -days 2");
    let made = Command::new("openssl")
        .args(key.split(' '))
        .args(words.split_whitespace())
        .envs(clock.map(FakeClock::environment_variables).into_iter().flatten())
        .current_dir(folder)
        .output()
        .unwrap_or_else(|e| panic!("openssl: {e}: scripts/setup --tests installs it"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
