//! `[upstream]` and `[check]`: the upstream servers, and who answers checks.

use std::time::Duration;

use super::settings::Settings;
use crate::gate::CheckAnswer;
use crate::model::network::Networks;
use crate::proxy::upstream::UpstreamOptions;

impl Settings {
    /// Reads `[upstream]`. Clients in `trusted_proxies` are exempt from the limit per address.
    pub fn read_upstream_options(&mut self, trusted_proxies: &Networks) -> UpstreamOptions {
        let servers = self.servers("upstream.servers", "127.0.0.1:9000");
        let host = self.text("upstream.host");
        let max_in_flight = self.integer("upstream.max_in_flight", 1..=1_000_000, 1_000);
        let half = max_in_flight.div_ceil(2);
        UpstreamOptions {
            tls: self.read_upstream_tls(&servers, host.as_deref()),
            max_in_flight: max_in_flight as usize,
            max_in_flight_per_address: self.integer(
                "upstream.max_in_flight_per_address",
                1..=1_000_000,
                half,
            ) as usize,
            exempt_networks: trusted_proxies.clone(),
            servers,
            host_header: host,
            connect_timeout: self
                .nonzero_duration("upstream.connect_timeout", Duration::from_millis(500)),
            exchange_time_limit: self
                .nonzero_duration("upstream.deadline", Duration::from_millis(2_500)),
            idle_timeout: self.nonzero_duration("upstream.idle_timeout", Duration::from_secs(60)),
            health_interval: self.duration("upstream.health_interval", Duration::from_secs(5)),
            health_path: self.text("upstream.health_path"),
            eject_for: self.duration("upstream.eject_for", Duration::from_secs(2)),
        }
    }

    /// Reads `check.answer`.
    pub fn read_check_answer(&mut self) -> CheckAnswer {
        match self.choice("check.answer", &["upstream", "fallback", "table"]) {
            "fallback" => CheckAnswer::Fallback,
            "table" => CheckAnswer::Table,
            _ => CheckAnswer::Upstream,
        }
    }
}
