//! `[listen]`: the addresses of listeners, the limits of connections and requests, and who the
//! client of a request is.

use std::net::SocketAddr;
use std::time::Duration;

use super::raw_value::RawValue;
use super::settings::Settings;
use crate::downstream::{ConnectionLimits, DownstreamOptions};
use crate::gate::{BodyOptions, ClientAddressRule, ClientAddressSource, StartupRules};
use crate::message::request_head::RequestLimits;
use crate::message::response::StrictTransportSecurity;
use crate::model::network::Networks;
use crate::model::path_prefix::PathPrefix;

/// The addresses of the listeners.
pub struct ListenAddresses {
    pub admin: SocketAddr,
    pub http: SocketAddr,
    pub https: Option<SocketAddr>,
    pub redirect: Option<SocketAddr>,
}

/// Fields in which other proxies name the client, and which riskgate does not read.
const OTHER_ADDRESS_FIELDS: [&str; 4] =
    ["x-real-ip", "x-client-ip", "cf-connecting-ip", "true-client-ip"];

impl ListenAddresses {
    /// The addresses of all listeners but the admin listener, each with its setting.
    pub(super) fn without_admin(&self) -> Vec<(&'static str, SocketAddr)> {
        let others = [
            ("listen.http", Some(self.http)),
            ("listen.https", self.https),
            ("listen.redirect", self.redirect),
        ];
        others.into_iter().filter_map(|(key, address)| Some((key, address?))).collect()
    }
}

impl Settings {
    /// Reads `listen.client_address`.
    pub fn read_client_address_rule(&mut self, trusted_proxies: Networks) -> ClientAddressRule {
        let key = "listen.client_address";
        let source = match self.read_choice(key, &["peer", "x-forwarded-for", "forwarded"]) {
            "x-forwarded-for" => ClientAddressSource::XForwardedFor,
            "forwarded" => ClientAddressSource::Forwarded,
            _ => ClientAddressSource::Peer,
        };
        let text = self.values.get(key).and_then(|setting| setting.raw.as_text());
        let field =
            text.filter(|it| OTHER_ADDRESS_FIELDS.contains(&it.to_ascii_lowercase().as_str()));
        if let Some(field) = field {
            let hint = format!(
                "write \"x-forwarded-for\", and let the proxy send X-Forwarded-For: riskgate does \
                 not read {field}"
            );
            self.replace_last_hint(hint);
        }
        if source != ClientAddressSource::Peer {
            let reason = "listen.client_address is not \"peer\"";
            self.require_trusted_proxies("the proxies that may name the client", reason);
        }
        if trusted_proxies.contains_all_addresses() {
            let problem = "expected the addresses of your proxies, because any client may name \
                           its own address in place of them, and has no limits per address";
            self.warn_at_value("listen.trusted_proxies", problem, None);
        }
        ClientAddressRule { trusted_proxies, source }
    }

    /// Reports that `listen.trusted_proxies` has to name proxies, if it is empty. A faulty list has
    /// its own fault.
    fn require_trusted_proxies(&mut self, expected: &str, reason: &str) {
        let key = "listen.trusted_proxies";
        if self.texts_of(key).next().is_none() {
            let expected = format!("{expected}, because {reason}");
            let hint = "write trusted_proxies = [\"10.0.0.0/8\"], or the address of your proxy";
            self.report_required_with_hint(key, &expected, Some(hint.to_owned()));
        }
    }

    /// Reads `listen.proxy_protocol`. Without a proxy, riskgate would close each connection.
    fn read_proxy_protocol(&mut self, trusted_proxies: &Networks) -> Option<Networks> {
        let is_on = self.read_boolean("listen.proxy_protocol", false);
        if is_on {
            let reason = "listen.proxy_protocol is true, and riskgate would close each connection";
            self.require_trusted_proxies("the proxies that send PROXY headers", reason);
        }
        is_on.then(|| trusted_proxies.clone())
    }

    /// Reads the addresses of the listeners. Reports two listeners with the same address.
    pub fn read_listen_addresses(&mut self) -> ListenAddresses {
        let addresses = ListenAddresses {
            admin: self.read_address("listen.admin", "127.0.0.1:9090"),
            http: self.read_address("listen.http", "127.0.0.1:8080"),
            https: self.read_optional_address("listen.https"),
            redirect: self.read_optional_address("listen.redirect"),
        };
        if addresses.redirect.is_some() && !self.values.contains_key("listen.https") {
            let hint = "write https = \"0.0.0.0:443\" and a [[listen.certificate]], or remove this \
                        line";
            let problem = "expected listen.https too, to which riskgate leads these requests";
            let fault = self.begin_fault_at_value("listen.redirect").with_problem(problem);
            self.faults.push(fault.with_hint(Some(hint.to_owned())));
        }
        let mut all = addresses.without_admin();
        all.push(("listen.admin", addresses.admin));
        self.report_address_conflicts(&all);
        addresses
    }

    /// Reads `listen.hsts`.
    pub fn read_hsts(&mut self) -> Option<StrictTransportSecurity> {
        let max_age = self.read_duration("listen.hsts", Duration::ZERO);
        let raw = self.values.get("listen.hsts").map(|setting| &setting.raw);
        if matches!(raw, Some(RawValue::Boolean(true))) {
            let hint = "write \"365d\": for how long browsers use https alone";
            self.replace_last_hint(hint.to_owned());
        }
        StrictTransportSecurity::new(max_age)
    }

    /// Reads the rules of requests that take effect when the process starts.
    pub fn read_startup_rules(
        &mut self,
        trusted_proxies: Networks,
        authz_path: &Option<PathPrefix>,
        bodies: BodyOptions,
    ) -> StartupRules {
        StartupRules {
            client_address: self.read_client_address_rule(trusted_proxies),
            authz_path: authz_path.clone(),
            key_header: self.read_key_header(),
            hsts: self.read_hsts(),
            bodies,
        }
    }

    /// Reads the limits on open connections. Clients in `trusted_proxies` are exempt from the limit
    /// per address.
    pub fn read_connection_limits(&mut self, trusted_proxies: &Networks) -> ConnectionLimits {
        let mut limit =
            |key: &str, default: u64| self.read_integer(key, 1..=10_000_000, default) as usize;
        ConnectionLimits {
            max_connections: limit("listen.max_connections", 10_000),
            max_per_address: limit("listen.max_connections_per_address", 1_000),
            exempt_networks: trusted_proxies.clone(),
        }
    }

    /// Reads the limits of request bodies, which have at most `max_bytes`.
    pub fn read_body_options(&mut self, max_bytes: usize) -> BodyOptions {
        BodyOptions {
            max_bytes,
            timeout: self.read_nonzero_duration("listen.body_timeout", Duration::from_secs(10)),
            max_held_bytes: self.read_integer("listen.max_held_bytes", 1 << 20..=1 << 40, 64 << 20)
                as usize,
        }
    }

    /// Reads timeouts, sizes and protocols of client connections. Proxies ask on `authz_path`.
    pub fn read_downstream_options(
        &mut self,
        trusted_proxies: &Networks,
        authz_path: Option<&PathPrefix>,
    ) -> DownstreamOptions {
        let seconds = Duration::from_secs;
        DownstreamOptions {
            header_timeout: self.read_nonzero_duration("listen.header_timeout", seconds(10)),
            keepalive_timeout: self.read_nonzero_duration("listen.keepalive_timeout", seconds(60)),
            write_timeout: self.read_nonzero_duration("listen.write_timeout", seconds(30)),
            max_streams: self.read_integer("listen.max_streams", 1..=10_000, 100) as u32,
            request_limits: RequestLimits {
                header_bytes: self.read_integer("listen.max_header_bytes", 512..=1_000_000, 16_384)
                    as usize,
                header_fields: self.read_integer("listen.max_header_fields", 8..=250, 64) as usize,
                target_bytes: self.read_integer("listen.max_target_bytes", 64..=65_536, 2_048)
                    as usize,
                body_bytes: self.read_integer("listen.max_body_bytes", 0..=1 << 40, 32 << 20)
                    as usize,
                authz_path: authz_path.cloned(),
            },
            accepts_h2c: self.read_boolean("listen.h2c", false),
            is_fast_path_on: self.read_boolean("listen.fast_path", true),
            proxy_protocol_peers: self.read_proxy_protocol(trusted_proxies),
        }
    }
}
