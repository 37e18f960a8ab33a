//! `[upstream]` and `[check]`: the upstream servers, and who answers checks.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::StartupConfig;
use super::description::{toml_list, toml_text};
use super::raw_value::RawValue;
use super::routes::{HOST_FORMAT, find_meant_path, is_host_field};
use super::settings::Settings;
use crate::gate::CheckAnswer;
use crate::model::network::Networks;
use crate::proxy::upstream::{ServerName, UpstreamOptions};

const HEALTH_PATH: &str = "upstream.health_path";

impl Settings {
    /// Reads `[upstream]`. Clients in `trusted_proxies` are exempt from the limit per address.
    pub fn read_upstream_options(&mut self, trusted_proxies: &Networks) -> UpstreamOptions {
        let servers = self.read_upstream_servers();
        let host = self
            .parse_setting("upstream.host", HOST_FORMAT, |raw| {
                raw.as_text()
                    .filter(|text| text.is_empty() || is_host_field(text))
                    .map(str::to_owned)
            })
            .filter(|host| !host.is_empty());
        let health_path = |raw: &RawValue| {
            let path = raw.as_text()?;
            let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
            (is_path || path.is_empty()).then(|| path.to_owned())
        };
        let checked_path = self.parse_setting(HEALTH_PATH, "a path such as /healthz", health_path);
        if checked_path.is_none() {
            let path = self.texts_of(HEALTH_PATH).find_map(|text| find_meant_path(&text));
            self.hint_fault_of(HEALTH_PATH, path.map(|it| format!("write {}", toml_text(&it))));
        }
        let max_in_flight = self.read_integer("upstream.max_in_flight", 1..=1_000_000, 1_000);
        UpstreamOptions {
            tls: self.read_upstream_tls(&servers, host.as_deref()),
            max_in_flight: max_in_flight as usize,
            max_in_flight_per_address: self.read_integer(
                "upstream.max_in_flight_per_address",
                1..=1_000_000,
                UpstreamOptions::default_max_in_flight_per_address(max_in_flight as usize) as u64,
            ) as usize,
            exempt_networks: trusted_proxies.clone(),
            servers,
            host_header: host,
            connect_timeout: self
                .read_nonzero_duration("upstream.connect_timeout", Duration::from_millis(500)),
            exchange_time_limit: self
                .read_nonzero_duration("upstream.deadline", Duration::from_millis(2_500)),
            idle_timeout: self
                .read_nonzero_duration("upstream.idle_timeout", Duration::from_secs(60)),
            resolve_interval: self
                .read_nonzero_duration("upstream.resolve_interval", Duration::from_secs(10)),
            resolvers: self.read_resolver_addresses("upstream.resolvers"),
            health_interval: self.read_duration("upstream.health_interval", Duration::from_secs(5)),
            health_path: checked_path.filter(|path| !path.is_empty()),
            eject_for: self.read_duration("upstream.eject_for", Duration::from_secs(2)),
        }
    }

    /// Reads `upstream.servers`. The default is one server on this machine.
    pub fn read_upstream_servers(&mut self) -> Vec<ServerName> {
        let parse = |texts: &[String]| {
            let names: Option<Vec<ServerName>> =
                texts.iter().map(|text| ServerName::parse(text)).collect();
            names.filter(|names| !names.is_empty())
        };
        let expected = "a list of servers such as [\"127.0.0.1:9000\", \"check.internal:9000\", \
                        \"_check._tcp.internal\"]";
        let default = ServerName::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 9000)));
        let servers = self.parse_list("upstream.servers", expected, parse);
        if servers.is_none() {
            self.amend_hints_of_list("upstream.servers", advise_on_servers);
        }
        self.note_default(toml_list(&[&default.to_string()]));
        let servers = servers.unwrap_or_else(|| vec![default]);
        let repeated = (1..servers.len()).find(|at| servers[..*at].contains(&servers[*at]));
        if let Some(at) = repeated {
            let problem = format!("expected each server once, but found {} twice", servers[at]);
            self.warn_at_value("upstream.servers", &problem, Some("remove one of both".to_owned()));
        }
        servers
    }

    /// Warns of upstream servers that are riskgate itself.
    pub(super) fn warn_of_own_servers(&mut self, startup: &StartupConfig) {
        let own = [Some(startup.http), startup.https];
        let is_own = |server: &&ServerName| {
            own.iter().flatten().any(|listener| server.is_listener_at(*listener))
        };
        for server in startup.upstream.servers.iter().filter(is_own) {
            let problem = format!(
                "expected another server than riskgate itself, but found {server}, where riskgate \
                 listens: each request would come back to it"
            );
            let hint = "write the address of your server; if it listens at this port too, give the \
                        server or listen.http another one";
            self.warn_at_value("upstream.servers", &problem, Some(hint.to_owned()));
        }
    }

    /// Reads `check.answer`.
    pub fn read_check_answer(&mut self) -> CheckAnswer {
        match self.read_choice("check.answer", &["upstream", "fallback", "table"]) {
            "fallback" => CheckAnswer::Fallback,
            "table" => CheckAnswer::Table,
            _ => CheckAnswer::Upstream,
        }
    }
}

/// Returns the hint for these wrong servers. `hint` has the servers in their right form.
fn advise_on_servers(texts: &[String], hint: Option<String>) -> Option<String> {
    if texts.iter().any(|it| it.starts_with("unix:") || it.starts_with('/')) {
        let hint = "write [\"127.0.0.1:9000\"]: riskgate connects to no Unix socket";
        return Some(hint.to_owned());
    }
    let mut hint = hint?;
    let path = |it: &String| Some(it.split_once("://")?.1.split_once('/')?.1.to_owned());
    for (is_given, words) in [
        (
            texts.iter().any(|it| it.split(' ').skip(1).any(|word| !word.contains([':', '.']))),
            "without words behind it: riskgate has no weights and no backup servers, uses the \
             servers in turn, and leaves one that fails out for eject_for",
        ),
        (texts.iter().any(|it| it.starts_with("https:")), "and tls = true"),
        (
            texts.iter().filter_map(path).any(|path| !path.is_empty()),
            "without the path: servers get the path of each request",
        ),
    ] {
        if is_given {
            hint = format!("{hint}, {words}");
        }
    }
    Some(hint)
}
