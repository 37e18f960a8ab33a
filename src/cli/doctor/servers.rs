//! The upstream servers and the DNS resolvers, as this machine reaches them.

use std::sync::Arc;

use super::listeners::connect;
use crate::config::Config;
use crate::dns::{DnsClient, Pacer};
use crate::process::server::create_upstreams;
use crate::store::Finding;
use crate::table::Table;

/// Opens a connection to each upstream server, if riskgate may need one.
pub(super) fn check_servers(config: &Config) -> Vec<Finding> {
    const SUBJECT: &str = "upstream";
    if !config.reloadable.rules().may_need_upstream() {
        return vec![Finding::good(SUBJECT, "riskgate answers everything itself")];
    }
    let Ok(upstreams) = create_upstreams(config) else {
        let advice = "see that this user may start threads and read /etc/resolv.conf";
        return vec![Finding::fault(SUBJECT, "the names can't be resolved", advice)];
    };
    let unresolved = upstreams
        .problems()
        .into_iter()
        .map(|problem| Finding::fault(SUBJECT, problem, "correct upstream.servers or the DNS"));
    let reached = upstreams.list_servers().into_iter().map(|server| match connect(server) {
        Ok(_) => Finding::good(SUBJECT, format!("{server} accepts connections")),
        Err(error) => {
            let advice = "start this server, or take it out of upstream.servers";
            Finding::fault(SUBJECT, format!("{server}: {error}"), advice)
        }
    });
    unresolved.chain(reached).collect()
}

/// Asks the resolvers for mail hosts that everybody knows, if riskgate learns from the DNS.
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
