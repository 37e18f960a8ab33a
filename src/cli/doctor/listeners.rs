//! Checks, from this machine, the listeners at which clients arrive. The command asks a listener on
//! all addresses over loopback.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ureq::Agent;

use super::ages::judge_certificate;
use crate::cli::http_client::describe_http_error;
use crate::config::Config;
use crate::model::network::loopback_if_unspecified;
use crate::store::{Finding, FindingLevel};
use crate::support::certificate_probe::probe_certificate;
use crate::support::certificates::{CertificateDescription, CertificateSet};
use crate::support::trusted_authorities::read_trusted_authorities;

/// How long connecting may take, and each read and each write.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// A path that riskgate answers itself, and does not charge.
const OWN_PATH: &str = "/v1/usage";
/// What to do if a listener does not answer.
const START_ADVICE: &str = "start the gateway, and see that no firewall drops the connection";

/// Checks `listen.http`, and `listen.https` and `listen.redirect` if the config has them.
pub(super) fn check_listeners(client: &Agent, config: &Config) -> Vec<Finding> {
    let startup = &config.startup;
    let http = loopback_if_unspecified(startup.http);
    // With listen.proxy_protocol, riskgate reads no request without a PROXY header, and this
    // command sends none. Then only the port is checked.
    let mut findings = vec![match startup.downstream.proxy_protocol_peers {
        Some(_) => check_port("listen.http", http),
        None => check_http(client, http),
    }];
    if let Some(https) = startup.https.map(loopback_if_unspecified) {
        findings.push(match startup.downstream.proxy_protocol_peers {
            Some(_) => check_port("listen.https", https),
            None => check_https(https),
        });
    }
    if let Some(redirect) = startup.redirect.map(loopback_if_unspecified) {
        findings.push(match startup.downstream.proxy_protocol_peers {
            Some(_) => check_port("listen.redirect", redirect),
            None => check_redirect(client, "listen.redirect", &format!("http://{redirect}/")),
        });
    }
    findings
}

/// Opens a connection. Connecting, each read and each write take [`CONNECTION_TIMEOUT`] at most.
pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECTION_TIMEOUT)?;
    stream.set_read_timeout(Some(CONNECTION_TIMEOUT))?;
    stream.set_write_timeout(Some(CONNECTION_TIMEOUT))?;
    Ok(stream)
}

fn check_port(subject: &'static str, address: SocketAddr) -> Finding {
    match connect(address) {
        Ok(_) => Finding::good(subject, format!("{address} accepts connections")),
        Err(error) => Finding::fault(subject, format!("{address}: {error}"), START_ADVICE),
    }
}

fn check_http(client: &Agent, address: SocketAddr) -> Finding {
    const SUBJECT: &str = "listen.http";
    match client.get(format!("http://{address}{OWN_PATH}")).call() {
        Ok(answer) if answer.headers().contains_key("X-Request-Id") => {
            Finding::good(SUBJECT, format!("{address} answers"))
        }
        Ok(answer) => {
            let found = format!("{address} answers {} without X-Request-Id", answer.status());
            Finding::fault(SUBJECT, found, "see which program listens there instead of riskgate")
        }
        Err(error) => {
            let found = format!("{address}: {}", describe_http_error(error));
            Finding::fault(SUBJECT, found, START_ADVICE)
        }
    }
}

fn check_https(address: SocketAddr) -> Finding {
    const SUBJECT: &str = "listen.https";
    let shown = read_trusted_authorities(None).map_err(io::Error::other).and_then(|trusted| {
        probe_certificate(connect(address)?, &address.ip().to_string(), &trusted)
    });
    match shown {
        Ok(_) => Finding::good(SUBJECT, format!("{address} speaks TLS")),
        Err(error) => {
            let found = format!("{address}: {}", describe_failed_handshake(&error));
            Finding::fault(SUBJECT, found, START_ADVICE)
        }
    }
}

/// Says why a server completed no TLS handshake.
pub(super) fn describe_failed_handshake(error: &io::Error) -> String {
    use io::ErrorKind::{ConnectionReset, InvalidData, TimedOut, UnexpectedEof, WouldBlock};
    let found = match error.kind() {
        WouldBlock | TimedOut => "it accepts the connection and never answers",
        ConnectionReset | UnexpectedEof => "it closes the connection",
        InvalidData => "its answer is not one of TLS",
        _ => return error.to_string(),
    };
    format!("expected a TLS handshake, but {found}")
}

/// Checks that a URL redirects its clients to HTTPS.
pub(super) fn check_redirect(client: &Agent, subject: &'static str, url: &str) -> Finding {
    match client.get(url).call() {
        Ok(answer) => {
            let status = answer.status();
            let location = answer.headers().get("Location").and_then(|it| it.to_str().ok());
            let location = location.unwrap_or_default();
            match status.is_redirection() && location.starts_with("https://") {
                true => Finding::good(subject, format!("{url} sends clients to {location}")),
                false => Finding::warning(
                    subject,
                    format!("expected {url} to send clients to https, but found {status}"),
                    "set listen.redirect, or let the proxy in front send them there",
                ),
            }
        }
        Err(error) => Finding::warning(
            subject,
            format!("{url}: {}", describe_http_error(error)),
            "set listen.redirect, or let the proxy in front send clients to https",
        ),
    }
}

/// What the subjects of [`check_certificate_files`] begin with, before the file.
const CERTIFICATE_SUBJECT: &str = "certificate ";

/// Says how long each certificate of the config lasts.
pub(super) fn check_certificate_files(certificates: &CertificateSet) -> Vec<Finding> {
    let check = |it: &CertificateDescription| {
        judge_certificate(format!("{CERTIFICATE_SUBJECT}{}", it.chain), it.validity)
    };
    certificates.descriptions().iter().map(check).collect()
}

/// Returns true if a finding of the gateway is about certificates whose files
/// [`check_certificate_files`] has found at fault as well.
pub(super) fn is_told_by_files(finding: &Finding, of_files: &[Finding]) -> bool {
    let is_told = |problem: &str| {
        of_files.iter().filter(|it| it.level == FindingLevel::Fault).any(|it| {
            let file = it.subject.strip_prefix(CERTIFICATE_SUBJECT);
            let rest = file.and_then(|file| problem.strip_prefix(file));
            rest.is_some_and(|rest| rest.starts_with(": "))
        })
    };
    finding.subject == "certificates" && finding.found.lines().all(is_told)
}

#[cfg(test)]
mod tests;
