//! Settings that are valid but probably not meant.

use super::{Config, ConfigFault, FormerDefault};
use crate::decide::Fact;
use crate::gate::ClientAddressSource;
use crate::gate::route::UpstreamRoute;

impl Config {
    /// Describes rules about clients that riskgate can't tell apart, each with whether the config
    /// has such a rule.
    fn warnings_of_rules(
        &self,
        has_proxies: bool,
        is_proxy_the_client: bool,
    ) -> [(bool, &'static str); 2] {
        let rules = self.reloadable.decisions.rules();
        let asks_for_clients = rules.iter().any(|rule| rule.asks_for(Fact::ClientAccounts1h));
        [
            (
                asks_for_clients && has_proxies && is_proxy_the_client,
                "listen.client_address: expected \"x-forwarded-for\" or \"forwarded\", because \
                 client_accounts_1h has no value for requests of listen.trusted_proxies, and each \
                 such proxy is the client",
            ),
            (
                asks_for_clients && self.reloadable.authz.is_some() && !has_proxies,
                "rule: client_accounts_1h counts all clients of a proxy that asks on authz.path as \
                 one, because listen.trusted_proxies does not name the proxy",
            ),
        ]
    }

    /// Describes settings that are valid but probably not meant. `has_origins_of_keys` says whether
    /// a key is restricted to origins.
    pub fn warnings(&self, has_origins_of_keys: bool) -> Vec<String> {
        let (startup, reloadable) = (&self.startup, &self.reloadable);
        let routes = &reloadable.upstream_routes;
        let client = &startup.startup_rules.client_address;
        let has_proxies = !client.trusted_proxies.is_empty();
        let has_rate_of_keys = reloadable.max_per_client_of_key.is_some();
        let has_rate_of_route = |route: &UpstreamRoute| {
            route.max_per_client.is_some()
                || route.screen.as_ref().is_some_and(|screen| !screen.max_per_client.is_empty())
        };
        let has_rate = has_rate_of_keys || routes.iter().any(has_rate_of_route);
        let is_proxy_the_client = client.source == ClientAddressSource::Peer
            && startup.downstream.proxy_protocol_peers.is_none();
        let asks_without_key = reloadable.authz.as_ref().is_some_and(|authz| !authz.needs_key);
        let warnings = [
            (
                reloadable.authz.is_some() && has_rate_of_keys && !has_proxies,
                "keys.max_per_client: all clients of a proxy that asks on authz.path share one rate, \
                 because listen.trusted_proxies does not name the proxy",
            ),
            (
                has_rate && has_proxies && is_proxy_the_client,
                "listen.client_address: expected \"x-forwarded-for\" or \"forwarded\", because no \
                 max_per_client counts requests of listen.trusted_proxies, and each such proxy is \
                 the client",
            ),
            (
                startup.shares_rates && !has_rate,
                "rates.shared: expected max_per_client of a route, of screen or of keys, because \
                 otherwise no client has a rate",
            ),
            (
                asks_without_key && routes.iter().any(|route| route.path_prefix == "/"),
                "authz.check: expected \"key\", because the clients of the route / can ask on \
                 authz.path too",
            ),
        ];
        let no_feed = (
            !reloadable.feeds.are_configured,
            "table.feed: expected one, because names that are abused from now on stay unknown; \
             write [[table.feed]] and below it name = \"castle\", and there enabled = false too if \
             this machine fetches nothing",
        );
        let of_rules = self.warnings_of_rules(has_proxies, is_proxy_the_client);
        let warnings = warnings.into_iter().chain(of_rules).chain([no_feed]);
        let given = warnings.into_iter().filter(|(is_given, _)| *is_given);
        let mut texts: Vec<String> =
            self.former_defaults.iter().map(FormerDefault::to_warning).collect();
        texts.extend(self.doubtful_settings.iter().map(ConfigFault::to_text));
        texts.extend(given.map(|(_, warning)| warning.to_owned()));
        let relies_on_keys =
            |route: &&UpstreamRoute| has_origins_of_keys && route.has_server_cors();
        texts.extend(routes.iter().filter(relies_on_keys).map(|route| {
            format!(
                "the route {}: the origins of keys no longer count where key is false; the server \
                 decides which pages of other origins may read its answers, unless the route has \
                 origins",
                route.path_prefix
            )
        }));
        texts
    }
}
