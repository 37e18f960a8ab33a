//! What clients see at the public URL, and which client address the proxy in front of riskgate
//! passes on.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{IpAddr, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

use super::ages::judge_certificate;
use super::listeners::{check_redirect, connect, describe_failed_handshake};
use crate::cli::http_client::{create_http_client, describe_http_error};
use crate::config::Config;
use crate::gate::ClientAddressSource;
use crate::store::{Finding, FindingLevel};
use crate::support::certificate_probe::probe_certificate;
use crate::support::machine_clock::machine_unix_now;
use crate::support::trusted_authorities::{client_tls_config, read_trusted_authorities};

const SUBJECT: &str = "url";
/// A larger difference between the clocks gets a warning. `Date` has whole seconds, and the answer
/// takes time.
const MAX_DATE_DIFFERENCE_SECONDS: u64 = 5;
/// How many bytes at the end of the access log one read takes at most.
const MAX_READ_LOG_BYTES: u64 = 1 << 20;
/// How often the access log is read at most until it has the line of a request.
const MAX_LOG_READS: u32 = 10;
/// The pause between two reads of the access log.
const LOG_READ_PAUSE: Duration = Duration::from_millis(100);

/// The URL at which clients reach the deployment.
#[derive(Clone, Debug)]
pub(super) struct PublicUrl {
    text: String,
    host: String,
    port: u16,
    is_https: bool,
}

impl PublicUrl {
    pub fn parse(text: &str) -> Result<PublicUrl, String> {
        let expected = || "expected a URL such as https://signup.example.com".to_owned();
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(expected()),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(format!("{}, without a user and a password", expected()));
        }
        let host = uri.host().map(|host| host.trim_matches(['[', ']']).to_owned());
        let host = host.filter(|host| !host.is_empty()).ok_or_else(expected)?;
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        Ok(PublicUrl { text: text.to_owned(), host, port, is_https })
    }

    /// The URL without its query and fragment, which may contain a secret.
    fn without_query(&self) -> &str {
        self.text.split(['?', '#']).next().unwrap_or_default()
    }

    /// The URL for clients without TLS, at the usual port.
    fn plain_url(&self) -> String {
        match self.host.contains(':') {
            true => format!("http://[{}]/", self.host),
            false => format!("http://{}/", self.host),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::other("no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match connect(address) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
            }
        }
        Err(last)
    }
}

/// Checks the connection, TLS and the answer of the URL, and at port 443 the redirect from HTTP, in
/// this order. Without a connection, or without a certificate that clients trust, the later checks
/// are left out.
pub(super) fn check_public_url(url: &PublicUrl, config: &Config) -> Vec<Finding> {
    let stream = match url.connect() {
        Ok(stream) => stream,
        Err(error) => {
            let advice = "see that the name is in the DNS, and that the port is open";
            return vec![Finding::fault(
                SUBJECT,
                format!("{}: {error}", url.without_query()),
                advice,
            )];
        }
    };
    let own_address = stream.local_addr().map(|address| address.ip()).ok();
    let peer = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
    let mut findings =
        vec![Finding::good(SUBJECT, format!("{} leads to {peer}", url.without_query()))];
    if url.is_https {
        let (tls, is_trusted) = check_tls(url, stream);
        findings.extend(tls);
        if !is_trusted {
            return findings;
        }
    }
    findings.extend(check_answer(url, config, own_address));
    // A URL with another port does not tell which port clients without TLS use.
    if url.is_https && url.port == 443 {
        findings.push(check_redirect(&create_http_client(None), "redirect", &url.plain_url()));
    }
    findings
}

/// Checks the certificate. Also returns whether clients trust the certificate.
fn check_tls(url: &PublicUrl, stream: TcpStream) -> (Vec<Finding>, bool) {
    const SUBJECT: &str = "tls";
    let trusted = read_trusted_authorities(None).unwrap_or_default();
    let shown = match probe_certificate(stream, &url.host, &trusted) {
        Ok(shown) => shown,
        Err(error) => {
            let advice = "see that this port speaks TLS, and has a certificate";
            return (
                vec![Finding::fault(SUBJECT, describe_failed_handshake(&error), advice)],
                false,
            );
        }
    };
    // That a certificate lasts for long is no good news if clients refuse it.
    let is_told = |it: &Finding| shown.distrust.is_none() || it.level == FindingLevel::Fault;
    let validity = shown.validity.map(|period| judge_certificate("tls".to_owned(), period));
    let validity = validity.filter(is_told);
    let distrust = shown.distrust.as_ref().map(|why| {
        let found = format!("clients refuse the certificate of {}: {why}", url.host);
        Finding::fault(SUBJECT, found, "put a certificate for this name there, with its chain")
    });
    (validity.into_iter().chain(distrust).collect(), shown.distrust.is_none())
}

/// Sends one request, and judges the answer.
fn check_answer(url: &PublicUrl, config: &Config, own_address: Option<IpAddr>) -> Vec<Finding> {
    let client = create_http_client(client_tls_config(None).ok());
    let answer = match client.get(&url.text).call() {
        Ok(answer) => answer,
        Err(error) => {
            let advice = "see that the proxy in front of riskgate runs";
            return vec![Finding::fault("answer", describe_http_error(error), advice)];
        }
    };
    let (status, fields) = (answer.status(), answer.headers());
    let id = fields.get("X-Request-Id").and_then(|id| id.to_str().ok());
    let mut findings = vec![judge_answer(status, id.is_some(), config)];
    if url.is_https {
        findings.push(match fields.contains_key("Strict-Transport-Security") {
            true => Finding::good("hsts", "clients stay with https"),
            false => {
                let advice = "set listen.hsts, or let the proxy that ends TLS send it";
                Finding::warning("hsts", "no Strict-Transport-Security", advice)
            }
        });
    }
    findings.extend(check_date(fields));
    findings.extend(id.and_then(|id| check_logged_client(id, config, own_address)));
    findings
}

/// Judges the status of an answer. riskgate gives each answer an `X-Request-Id`; `has_id` tells
/// whether this answer has one.
fn judge_answer(status: StatusCode, has_id: bool, config: &Config) -> Finding {
    const SUBJECT: &str = "answer";
    let http = config.startup.http;
    match (has_id, status.as_u16()) {
        (false, 502..=504) => Finding::fault(
            SUBJECT,
            format!("{status} of the proxy in front, which got no answer of riskgate"),
            format!("start the gateway, and let the proxy forward to listen.http, {http}"),
        ),
        // Nobody can tell the site whose proxy asks riskgate from another site.
        (false, _)
            if config.reloadable.authz.is_some()
                && config.reloadable.upstream_routes.is_empty() =>
        {
            Finding::warning(
                SUBJECT,
                format!("{status} of another server, which may ask riskgate on authz.path"),
                "see that the proxy of this site asks riskgate, or leave --url out",
            )
        }
        (false, _) => Finding::fault(
            SUBJECT,
            format!("{status} without X-Request-Id, so it is none of riskgate"),
            "let the proxy in front forward this path to listen.http, and keep the field",
        ),
        (true, 502) => Finding::fault(
            SUBJECT,
            format!("{status}: no server behind riskgate answers as a server does"),
            "start the servers of upstream.servers, and see what they log; /api/v1/servers on the admin \
             listener has the last failure of each",
        ),
        (true, 503) => Finding::fault(
            SUBJECT,
            format!("{status}: the server behind riskgate takes no requests now"),
            "see the log of the server: riskgate itself never answers 503 on this listener",
        ),
        (true, 504) => Finding::fault(
            SUBJECT,
            format!("{status}: no server behind riskgate answers in time"),
            "see why the server is slow, or raise the deadline of the route",
        ),
        (true, 500..) => {
            let advice = "find this request in the access log by its X-Request-Id";
            Finding::fault(SUBJECT, status.to_string(), advice)
        }
        (true, _) => Finding::good(SUBJECT, format!("{status} with X-Request-Id")),
    }
}

/// Compares the `Date` of an answer with the clock of this machine.
fn check_date(fields: &HeaderMap) -> Option<Finding> {
    let date = httpdate::parse_http_date(fields.get("Date")?.to_str().ok()?).ok()?;
    let seconds = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let difference = seconds.abs_diff(machine_unix_now().cast_unsigned());
    let found = format!("Date differs from the clock of this machine by {difference} s");
    Some(match difference > MAX_DATE_DIFFERENCE_SECONDS {
        false => Finding::good("date", found),
        true => Finding::warning("date", found, "synchronize both clocks with NTP"),
    })
}

/// Checks which client address the gateway has logged for the request with this id. `None` if the
/// access log is off or not written to a file, or if the line of the request names no client.
fn check_logged_client(id: &str, config: &Config, own_address: Option<IpAddr>) -> Option<Finding> {
    const SUBJECT: &str = "client address";
    let path = config.startup.log_target.path.as_ref();
    let path = path.filter(|_| config.reloadable.access_log.is_enabled)?;
    let line = match find_log_line(path, id) {
        Ok(Some(line)) => line,
        Ok(None) => {
            let found = format!("{} has no line of this request", path.display());
            let advice = "see whether another node, or another program, has answered";
            return Some(Finding::warning(SUBJECT, found, advice));
        }
        Err(error) => {
            let found = format!("{}: {error}", path.display());
            let advice = "call doctor as a user who may read the access log";
            return Some(Finding::warning(SUBJECT, found, advice));
        }
    };
    let client: IpAddr = line["client"].as_str()?.parse().ok()?;
    let rule = &config.startup.startup_rules.client_address;
    let is_peer = rule.source == ClientAddressSource::Peer
        && config.startup.downstream.proxy_protocol_peers.is_none();
    let found = format!("the gateway takes {client} for the client");
    if client.is_loopback() && rule.trusted_proxies.contains(client) {
        // The client and the proxy are both on loopback here, so nobody can tell whether the proxy
        // has named the client.
        let advice = "use a URL that leads to another address of this machine";
        return Some(Finding::warning(SUBJECT, format!("{found}, over loopback"), advice));
    }
    if own_address == Some(client) && !rule.trusted_proxies.contains(client) {
        return Some(Finding::good(SUBJECT, found));
    }
    let advice = match is_peer {
        true => {
            "if this is the proxy in front, set listen.client_address = \"x-forwarded-for\" and \
             listen.trusted_proxies"
        }
        false if rule.trusted_proxies.contains(client) => {
            "let the proxy in front name the client in the field of listen.client_address"
        }
        false => return Some(Finding::good(SUBJECT, found)),
    };
    Some(Finding::warning(SUBJECT, found, advice))
}

/// Reads the last [`MAX_READ_LOG_BYTES`] of a file, or all of a shorter file.
fn read_log_end(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(MAX_READ_LOG_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ_LOG_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds the line of a request in the access log. The gateway writes the line some time after the
/// answer, so this function reads the log up to [`MAX_LOG_READS`] times. `None` without the line,
/// or if it is no JSON.
///
/// # Errors
/// If this user can't read the log.
fn find_log_line(path: &Path, id: &str) -> io::Result<Option<Value>> {
    for _ in 0..MAX_LOG_READS {
        let text = read_log_end(path)?;
        let line = text.lines().rev().find(|line| line.contains(id));
        if let Some(line) = line {
            return Ok(serde_json::from_str(line).ok());
        }
        sleep(LOG_READ_PAUSE);
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
