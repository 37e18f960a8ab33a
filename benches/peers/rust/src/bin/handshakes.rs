//! Opens TLS 1.3 connections one after another, sends one request on each, and counts them.
//!
//! Each thread waits for the whole response, and until the server has closed the connection, before
//! it opens the next connection. With `resumed`, each connection but the first of a thread offers
//! the newest ticket of the thread's connection before. With `new`, no connection offers a ticket.
//! All servers get the same choice: one key exchange (X25519), one cipher suite. The body of each
//! response is compared with the right one.
//!
//!     handshakes PORT MIX SECONDS new|resumed THREADS

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riskgate_bench::{ExpectedExchange, read_workload};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, SignatureScheme, StreamOwned};

/// How long a thread waits for the bytes of one response.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts every certificate, because those of the bench are self-signed. It also accepts every
/// signature, which leaves more of the core to further handshakes.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        unreachable!("the client offers TLS 1.3 only")
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

fn client_config(resumes: bool) -> ClientConfig {
    let provider = CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a suite of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption =
        if resumes { Resumption::in_memory_sessions(8) } else { Resumption::disabled() };
    config
}

#[derive(Default)]
struct Outcome {
    answers: u64,
    resumed: u64,
    bytes: u64,
    wrong_responses: u64,
    wrong_example: String,
}

/// Opens a connection, sends one request, and reads until the server has closed the connection.
fn exchange(port: u16, config: &Arc<ClientConfig>, exchange: &ExpectedExchange, to: &mut Outcome) {
    let link = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    link.set_nodelay(true).expect("no delay");
    link.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
    let name = ServerName::try_from("gate.test").expect("a name");
    let client = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let mut stream = StreamOwned::new(client, link);
    stream.write_all(&exchange.to_last_request_bytes()).expect("room for a request");
    let mut response = Vec::with_capacity(2048);
    match stream.read_to_end(&mut response) {
        Ok(_) => {}
        // The response has a length, which is compared below: a missing close_notify is harmless.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        Err(error) => panic!("a connection broke: {error}"),
    }
    to.answers += 1;
    to.bytes += response.len() as u64;
    to.resumed += u64::from(stream.conn.handshake_kind() == Some(HandshakeKind::Resumed));
    let is_right = response.starts_with(b"HTTP/1.1 200 ")
        && response.ends_with(format!("\r\n\r\n{}", exchange.expected_body).as_bytes());
    if !is_right {
        to.wrong_responses += 1;
        to.wrong_example = String::from_utf8_lossy(&response).into_owned();
    }
}

/// One thread of the load; each begins at another request of the workload.
fn run_thread(
    port: u16,
    workload: &[ExpectedExchange],
    resumes: bool,
    first: usize,
    end: Instant,
) -> Outcome {
    let config = Arc::new(client_config(resumes));
    let mut outcome = Outcome::default();
    for each in workload.iter().cycle().skip(first) {
        if Instant::now() >= end {
            break;
        }
        exchange(port, &config, each, &mut outcome);
    }
    outcome
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, workload, seconds, kind, threads] = &arguments[..] else {
        panic!("usage: handshakes PORT MIX SECONDS new|resumed THREADS")
    };
    let port = port.parse().expect("a port");
    let workload = read_workload(Path::new(workload));
    let resumes = match kind.as_str() {
        "new" => false,
        "resumed" => true,
        other => panic!("expected new or resumed, but found {other}"),
    };
    let threads: usize = threads.parse().expect("a number of threads");
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(seconds.parse().expect("seconds"));
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let workload = &workload;
        let running: Vec<_> = (0..threads)
            .map(|at| {
                let first = at * workload.len() / threads;
                scope.spawn(move || run_thread(port, workload, resumes, first, end))
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no failure")).collect()
    });
    let sum = |part: fn(&Outcome) -> u64| outcomes.iter().map(part).sum::<u64>();
    println!(
        "{{\"answers\":{},\"seconds\":{:.6},\"resumed\":{},\"bytes\":{},\"wrong\":{}}}",
        sum(|outcome| outcome.answers),
        begun.elapsed().as_secs_f64(),
        sum(|outcome| outcome.resumed),
        sum(|outcome| outcome.bytes),
        sum(|outcome| outcome.wrong_responses),
    );
    if let Some(outcome) = outcomes.iter().find(|outcome| outcome.wrong_responses > 0) {
        eprintln!("a wrong answer: {}", outcome.wrong_example);
    }
}
