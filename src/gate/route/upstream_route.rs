//! The routes of `[[upstream.route]]`: path prefixes that are forwarded to the upstream servers.
//!
//! Of the prefixes that an upstream server may read in a path, the longest one wins. The order in
//! the config does not count.

use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use crate::gate::admission::OriginHeader;
use crate::gate::screen_rules::ScreenRules;
use crate::message::request_head::is_method_of_no_route;
use crate::message::response::{Cors, CorsGrant};
use crate::model::origin::OriginPattern;
use crate::model::path_prefix::{OWN_PATHS, PathPrefix};
use crate::support::client_rates::Rate;

use super::path_reading::{PathReadings, PossiblePath};

/// A path prefix that is forwarded to the upstream servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRoute {
    /// The prefix, which matches the path of the same text and every path below it. It begins with
    /// `/`, and only the prefix `/` ends with `/`.
    pub path_prefix: String,
    /// The methods that are forwarded.
    pub methods: RouteMethods,
    /// The `Host` that the server gets; if `None`, that of the client, if it sent one.
    pub host: Option<String>,
    /// Whether a request on this route needs a key.
    pub needs_key: bool,
    /// Whether a request on this route spends a call of the quota; `counts` in the config.
    pub is_counted: bool,
    /// How often one client may send a request on this route.
    pub max_per_client: Option<Rate>,
    /// Whether riskgate answers 502 if it got no valid response of a server, and 504 if the server
    /// was too slow. If false, riskgate answers 500.
    pub has_gateway_statuses: bool,
    /// The longest time from a complete request to the header of the response, and for each part
    /// of the response's body; `None` if there is no limit.
    pub deadline: Option<Duration>,
    /// The pages of other origins that may read the responses. If `None`, the keys decide; on a
    /// route without a key, the server decides.
    pub cors: Option<RouteCors>,
    /// How riskgate screens posts on this route; `None` if it does not.
    pub screen: Option<Arc<ScreenRules>>,
}

/// What a route grants to pages of other origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteCors {
    /// The origins.
    pub origins: Vec<OriginPattern>,
    /// What pages of these origins may do.
    pub grant: Arc<CorsGrant>,
}

impl RouteCors {
    /// Returns the CORS headers of a response to a page of this origin.
    pub fn headers_for(&self, origin: &OriginHeader) -> Cors {
        match origin {
            OriginHeader::Valid(origin, text)
                if self.origins.iter().any(|it| it.matches(origin)) =>
            {
                Cors::Allowed { origin: text.clone(), grant: Some(Arc::clone(&self.grant)) }
            }
            _ => Cors::Denied,
        }
    }
}

/// The methods of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteMethods {
    /// All methods but those of [`is_method_of_no_route`].
    All,
    /// These methods, in upper case.
    Listed(Vec<String>),
}

impl RouteMethods {
    /// Returns true if the route has this method.
    pub fn contains(&self, method: &str) -> bool {
        match self {
            RouteMethods::All => !is_method_of_no_route(method.as_bytes()),
            RouteMethods::Listed(methods) => methods.iter().any(|listed| listed == method),
        }
    }

    /// The value of `Allow`: the methods, and OPTIONS. For [`RouteMethods::All`], the usual ones.
    pub fn allow_value(&self) -> SmolStr {
        match self {
            RouteMethods::All => "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS".into(),
            RouteMethods::Listed(methods) => format!("{}, OPTIONS", methods.join(", ")).into(),
        }
    }
}

/// Returns the index of the route with the longest prefix that an upstream server may read in the
/// path of this target. For this choice, no segment counts as a host, and the query does not count.
/// Returns `None` in each of these cases:
/// - No route has such a prefix.
/// - Servers disagree about where the path leads: see [`PathReadings::of`].
/// - A server may read one of riskgate's own paths in this target, or the query may lead there.
/// - The route needs no key, but a server that ignores a part of the path, or that reads the query
///   as a path, may read a path of a route that needs a key.
pub(super) fn find_upstream_route_index(
    routes: &[UpstreamRoute],
    authz_path: Option<&PathPrefix>,
    target: &[u8],
) -> Option<usize> {
    if routes.is_empty() {
        return None;
    }
    let readings = PathReadings::of(target)?;
    let mut own = OWN_PATHS.into_iter().chain(authz_path.map(PathPrefix::as_str));
    if own.any(|own| readings.is_at_or_below(own) || readings.may_unread_query_lead_to(own)) {
        return None;
    }
    let is_found = |prefix: &str| readings.is_at_or_below_without_host_and_query(prefix);
    let found = find_longest(routes, is_found)?;
    // A request must not reach a route that needs a key through a route that needs none.
    let avoids_key = !routes[found].needs_key
        && readings.may_hide_path()
        && (readings.may_query_lead_to_each_path() && routes.iter().any(|route| route.needs_key)
            || readings.paths().any(|path| {
                find_longest(routes, |prefix| path.is_at_or_below(prefix))
                    .is_some_and(|read| routes[read].needs_key)
            }));
    (!avoids_key).then_some(found)
}

/// Returns the index of the route with the longest prefix that matches.
fn find_longest(routes: &[UpstreamRoute], matches: impl Fn(&str) -> bool) -> Option<usize> {
    let indexes = (0..routes.len()).filter(|index| matches(&routes[*index].path_prefix));
    indexes.max_by_key(|index| routes[*index].path_prefix.len())
}

/// Returns how riskgate screens a request for this target, whose route has this index; `None` if
/// riskgate does not screen it. Some servers may ignore a part of the path, or read the query as a
/// path, and so read the path of another route. riskgate then applies the strictest rules of all
/// these routes.
pub fn find_screen_rules(
    routes: &[UpstreamRoute],
    index: usize,
    target: &[u8],
) -> Option<Arc<ScreenRules>> {
    let rules = routes[index].screen_rules_for(target);
    let may_have_others = routes.len() > 1;
    let readings = may_have_others.then(|| PathReadings::of(target)).flatten();
    let Some(readings) = readings.filter(PathReadings::may_hide_path) else {
        return rules.cloned();
    };
    let rules_of = |read: PossiblePath<'_>| {
        let is_at_or_below = |prefix: &str| read.is_at_or_below(prefix);
        let rules = routes[find_longest(routes, is_at_or_below)?].screen.as_ref()?;
        let is_screened =
            rules.paths.is_empty() || rules.paths.iter().any(|path| is_at_or_below(path));
        is_screened.then_some(rules)
    };
    let of_paths = readings.paths().filter_map(rules_of);
    let of_all_routes = routes.iter().filter_map(|route| route.screen.as_ref());
    let others = of_paths.chain(of_all_routes.filter(|_| readings.is_query_unreadable()));
    rules.into_iter().chain(others).cloned().reduce(|rules, others| match rules == others {
        true => rules,
        false => Arc::new(rules.strictest_of(&others)),
    })
}

impl UpstreamRoute {
    /// Returns true if the server decides which pages of other origins may read its responses.
    pub fn has_server_cors(&self) -> bool {
        !self.needs_key && self.cors.is_none()
    }

    /// Returns how this route screens a request for this target; `None` if it does not.
    fn screen_rules_for(&self, target: &[u8]) -> Option<&Arc<ScreenRules>> {
        let rules = self.screen.as_ref()?;
        let readings = || PathReadings::of(target);
        let is_screened = rules.paths.is_empty()
            || readings().is_none_or(|it| {
                it.is_query_unreadable() || rules.paths.iter().any(|path| it.is_at_or_below(path))
            });
        is_screened.then_some(rules)
    }
}

#[cfg(test)]
mod tests;
