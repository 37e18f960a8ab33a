//! The upstream servers and the DNS resolvers, as this machine reaches them.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use super::listeners::{connect, describe_failed_handshake};
use crate::config::Config;
use crate::dns::{DnsClient, Pacer};
use crate::process::server::create_upstreams;
use crate::proxy::upstream::UpstreamTls;
use crate::store::Finding;
use crate::support::certificate_probe::{PresentedCertificate, probe_certificate};
use crate::support::certificates::read_pem_certificates;
use crate::support::trusted_authorities::read_trusted_authorities;
use crate::table::Table;

const SUBJECT: &str = "upstream";

/// Opens a connection to each upstream server, if riskgate may need upstream servers at all.
pub(super) fn check_servers(config: &Config) -> Vec<Finding> {
    if !config.reloadable.rules().may_need_upstream() {
        return vec![Finding::good(SUBJECT, "riskgate answers everything itself")];
    }
    let Ok(upstreams) = create_upstreams(config) else {
        let advice = "see that this user may start threads and read /etc/resolv.conf";
        return vec![Finding::fault(SUBJECT, "the names can't be resolved", advice)];
    };
    let unresolved = upstreams
        .list_name_problems()
        .into_iter()
        .map(|problem| Finding::fault(SUBJECT, problem, "correct upstream.servers or the DNS"));
    let tls = config.startup.upstream.tls.as_ref();
    let reached = upstreams.list_servers().into_iter().map(|server| match connect(server) {
        Ok(stream) => match tls {
            Some(tls) => check_tls(tls, server, stream),
            None => Finding::good(SUBJECT, format!("{server} accepts connections")),
        },
        Err(error) => {
            let advice = "start this server, or take it out of upstream.servers";
            Finding::fault(SUBJECT, format!("{server}: {error}"), advice)
        }
    });
    unresolved.chain(reached).collect()
}

/// Performs the TLS handshake with a server, and judges its certificate as the gateway does.
fn check_tls(tls: &UpstreamTls, server: SocketAddr, stream: TcpStream) -> Finding {
    let trusted = match &tls.ca_file {
        Some(file) => read_pem_certificates(Path::new(file), "certificates of authorities")
            .map_err(|fault| fault.to_string()),
        None => read_trusted_authorities(None).map_err(|error| error.to_string()),
    };
    let shown = trusted.map_err(io::Error::other);
    let name = &tls.server_name;
    match shown.and_then(|trusted| probe_certificate(stream, name, &trusted)) {
        Err(error) => {
            let advice = "see that this port speaks TLS, or set upstream.tls = false";
            let found = format!("{server}: {}", describe_failed_handshake(&error));
            Finding::fault(SUBJECT, found, advice)
        }
        Ok(PresentedCertificate { distrust: Some(why), is_trusted_authority, .. })
            if tls.verify_certificate =>
        {
            let found = format!("{server}: riskgate refuses its certificate for {name}: {why}");
            let advice = match is_trusted_authority {
                true => {
                    "make one with openssl req -x509 -addext basicConstraints=CA:FALSE …, or let \
                     this authority sign one"
                }
                false => "name its authority by upstream.tls_ca, and its name by upstream.tls_name",
            };
            Finding::fault(SUBJECT, found, advice)
        }
        Ok(_) => Finding::good(SUBJECT, format!("{server} speaks TLS")),
    }
}

/// Asks the resolvers for the mail hosts of large providers. `None` if riskgate does not learn from
/// the DNS.
pub(super) fn check_resolvers(config: &Config, table: &Table) -> Option<Finding> {
    const SUBJECT: &str = "dns.resolvers";
    let options = &config.reloadable.dns;
    if !options.is_learning_enabled {
        return None;
    }
    let ask = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let client =
                DnsClient::new(options, Arc::new(Pacer::new(options.max_queries_per_second)))?;
            client.probe_resolvers(table.resolver_probe_providers()).await
        })
    };
    Some(match ask() {
        Ok(()) => Finding::good(SUBJECT, "they know the mail hosts of a large provider"),
        Err(found) => {
            let advice = "name resolvers that answer, or set dns.learn = false";
            Finding::fault(SUBJECT, found, advice)
        }
    })
}
