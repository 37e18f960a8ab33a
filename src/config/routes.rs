//! `[[upstream.route]]`: further path prefixes that are forwarded upstream.

use std::sync::Arc;
use std::time::Duration;

use super::description::{toml_list, toml_text};
use super::hints::find_nearest_name;
use super::raw_value::RawValue;
use super::settings::Settings;
use crate::gate::route::{PathReadings, RouteMethods, UpstreamRoute};
use crate::message::request_head::takes_body;
use crate::model::path_prefix::{OWN_PATHS, PathPrefix};

/// The methods of a route that names none.
const DEFAULT_METHODS: [&str; 2] = ["GET", "HEAD"];

/// Words for methods that no route can name, each with what to write instead.
const HINTS_FOR_METHODS: [(&[&str], &str); 2] = [
    (
        &["*", "ANY", "ALL", "any", "all", "Any", "All"],
        "write each method: [\"GET\", \"HEAD\", \"POST\", \"PUT\", \"PATCH\", \"DELETE\"]",
    ),
    (
        &["OPTIONS", "CONNECT", "TRACE", "options", "connect", "trace"],
        "leave OPTIONS, CONNECT and TRACE out: every route takes OPTIONS, and none the others",
    ),
];

/// The methods that clients of sign-up pages and APIs send.
const USUAL_METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Characters of patterns, which no path has.
pub(super) const PATTERN_CHARS: [char; 7] = ['*', ':', '{', '^', '$', '(', '\\'];

/// The deadline of a route that sets none.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

impl Settings {
    /// Reads the `[[upstream.route]]` entries. Reports and leaves out those without a valid prefix.
    pub fn read_upstream_routes(&mut self) -> Vec<UpstreamRoute> {
        let mut routes = Vec::new();
        for entry_key in self.list_table_array_keys("upstream.route") {
            let route = self.read_upstream_route(&entry_key, &routes);
            routes.extend(route);
        }
        routes
    }

    fn read_upstream_route(
        &mut self,
        entry_key: &str,
        earlier_routes: &[UpstreamRoute],
    ) -> Option<UpstreamRoute> {
        let path =
            |raw: &RawValue| raw.as_text().filter(|it| is_route_prefix(it)).map(str::to_owned);
        let key = format!("{entry_key}.prefix");
        let found = self.values.get(&key).and_then(|setting| setting.raw.as_text());
        let expected = expected_prefix(found);
        let is_own = found.is_some_and(is_own_path);
        let path = self.require_setting(&key, (expected, "\"/signup\""), path);
        let is_list = self.values.get(&key).is_some_and(|it| matches!(it.raw, RawValue::List(_)));
        if is_list && path.is_none() {
            self.replace_last_hint("write one [[upstream.route]] for each prefix".to_owned());
        }
        if path.is_none() {
            let text = self.texts_of(&key).next();
            let guess = text.and_then(|text| find_meant_path(&text));
            let guess = guess.filter(|it| is_route_prefix(it));
            self.hint_fault_of(&key, guess.map(|it| format!("write {}", toml_text(&it))));
        }
        if is_own && path.is_none() {
            let hint = "remove this [[upstream.route]]: riskgate serves these paths by itself, and \
                        asks upstream.servers for /v1/check/";
            self.hint_last_fault(Some(hint.to_owned()));
        }
        if let Some(path) = &path
            && earlier_routes.iter().any(|other| other.path_prefix.eq_ignore_ascii_case(path))
        {
            // Two routes with one prefix contradict each other, so the second is a fault.
            self.report_taken(&key, "a prefix that no other upstream.route has");
        }
        let methods = self.read_methods(entry_key, path.as_deref());
        let needs_key = self.read_boolean(&format!("{entry_key}.key"), true);
        self.warn_of_key_for_browsers(entry_key);
        let counts = self.read_boolean(&format!("{entry_key}.counts"), needs_key);
        if counts && !needs_key {
            let key = format!("{entry_key}.counts");
            let expected = "false where key is false, since there is no account to count for";
            let hint = "write counts = false, or remove this line".to_owned();
            self.report_required_with_hint(&key, expected, Some(hint));
        }
        let failure_status = format!("{entry_key}.failure_status");
        let has_gateway_statuses =
            self.read_choice(&failure_status, &["500", "gateway"]) == "gateway";
        let deadline = self.read_duration(&format!("{entry_key}.deadline"), DEFAULT_DEADLINE);
        let screen = self.read_screen_rules(&format!("{entry_key}.screen"), path.as_deref());
        Some(UpstreamRoute {
            path_prefix: path?,
            methods,
            host: self.read_route_host(entry_key),
            needs_key,
            is_counted: counts,
            max_per_client: self.read_rate(&format!("{entry_key}.max_per_client")),
            has_gateway_statuses,
            deadline: Some(deadline).filter(|deadline| !deadline.is_zero()),
            cors: self.read_route_cors(entry_key, needs_key),
            screen: screen.map(Arc::new),
        })
    }

    /// Warns of a screened route that does not say whether its clients have keys. Browsers have
    /// none, so they would get 401.
    fn warn_of_key_for_browsers(&mut self, entry_key: &str) {
        let is_screened = self.section_spans.contains_key(&format!("{entry_key}.screen"));
        let key = format!("{entry_key}.key");
        if is_screened && !self.values.contains_key(&key) {
            let problem = "expected key = true or key = false, because browsers have no API key, \
                           and get 401 while it is true";
            let hint = "write key = false, or key = true if all clients send a key".to_owned();
            self.warn_at_key(&key, problem, Some(hint));
        }
    }

    /// Warns of a method that is probably misspelt.
    fn warn_of_unusual_methods(&mut self, key: &str, methods: &[String]) {
        let unusual = methods.iter().filter(|it| !USUAL_METHODS.contains(&it.as_str()));
        let lower = USUAL_METHODS.map(str::to_ascii_lowercase);
        for method in unusual {
            let near = find_nearest_name(method, lower.iter().map(String::as_str));
            if let Some(near) = near.map(str::to_ascii_uppercase) {
                let problem = format!("expected a method that clients send, but found {method}");
                self.warn_at_value(key, &problem, Some(format!("did you mean \"{near}\"?")));
            }
        }
    }

    /// Reads `methods` of a route. Reports a screened route without a method that takes a body.
    fn read_methods(&mut self, entry_key: &str, path: Option<&str>) -> RouteMethods {
        let methods = |methods: &[String]| {
            let is_valid = |method: &String| {
                !method.is_empty()
                    && method.bytes().all(|byte| byte.is_ascii_uppercase())
                    && !matches!(method.as_str(), "OPTIONS" | "CONNECT" | "TRACE")
                    // Other programs have these words for all methods; no client sends them.
                    && !matches!(method.as_str(), "ANY" | "ALL")
            };
            (!methods.is_empty() && methods.iter().all(is_valid)).then(|| methods.to_vec())
        };
        let expected = "a list of methods such as [\"GET\", \"POST\"]";
        let methods = self.parse_list(&format!("{entry_key}.methods"), expected, methods);
        if methods.is_none() {
            self.amend_hints_of_list(&format!("{entry_key}.methods"), |texts, hint| {
                let is_in = |names: &[&str]| texts.iter().any(|it| names.contains(&it.as_str()));
                let own = HINTS_FOR_METHODS.iter().find(|(names, _)| is_in(names));
                hint.or_else(|| Some(own?.1.to_owned()))
            });
        }
        if let Some(methods) = &methods {
            self.warn_of_unusual_methods(&format!("{entry_key}.methods"), methods);
        }
        self.note_default(toml_list(&DEFAULT_METHODS));
        let is_faulty =
            methods.is_none() && self.values.contains_key(&format!("{entry_key}.methods"));
        let methods = match methods {
            Some(listed) => RouteMethods::Listed(listed),
            None if path == Some("/") => RouteMethods::All,
            None => RouteMethods::Listed(DEFAULT_METHODS.map(str::to_owned).to_vec()),
        };
        let takes_forms = match &methods {
            RouteMethods::All => true,
            RouteMethods::Listed(listed) => listed.iter().any(|it| takes_body(it.as_bytes())),
        };
        let is_screened = self.section_spans.contains_key(&format!("{entry_key}.screen"));
        if is_screened && !takes_forms && !is_faulty {
            let key = format!("{entry_key}.methods");
            let hint = "write methods = [\"GET\", \"POST\"]".to_owned();
            let expected = "POST, PUT or PATCH, because the route is screened";
            self.report_required_with_hint(&key, expected, Some(hint));
        }
        methods
    }

    fn read_route_host(&mut self, entry_key: &str) -> Option<String> {
        self.parse_setting(&format!("{entry_key}.host"), HOST_FORMAT, |raw| {
            raw.as_text().filter(|text| is_host_field(text)).map(str::to_owned)
        })
    }
}

/// What a setting for the `Host` field takes.
pub(super) const HOST_FORMAT: &str =
    "a host such as www.example.com, perhaps with a port, without a scheme and a path";

/// Returns true if the text can be the value of a `Host` field: a host, or a host and a port.
pub(super) fn is_host_field(text: &str) -> bool {
    let Ok(authority) = text.parse::<http::uri::Authority>() else { return false };
    let has_port = authority.port_u16().is_some_and(|port| port > 0);
    !text.contains('@') && !authority.host().is_empty() && (has_port || authority.host() == text)
}

/// Returns what was expected in place of this prefix: the rule that the prefix breaks. `found` is
/// `None` if the prefix is missing.
fn expected_prefix(found: Option<&str>) -> &'static str {
    match found {
        Some(text) if is_own_path(text) => {
            "a path apart from riskgate's own, which are /v1/public, /v1/check, /v1/usage and \
             /v1/assess"
        }
        Some(text) if text.contains("://") => "a path such as /v1/signup, without scheme and host",
        Some(text) if text.contains(PATTERN_CHARS) => {
            "a path such as /v1/signup: all paths below it belong to it, without a pattern"
        }
        Some(text) if !text.starts_with('/') => "a path with a / at its start, such as /v1/signup",
        Some(text) if text.contains(['?', '#']) => "a path such as /v1/signup, without a query",
        Some(text) if text.ends_with('/') => "a path without a / at its end, such as /v1/signup",
        Some(_) => "a path of letters, digits, -, ., _ and ~, such as /v1/signup",
        None => "/ or a path such as /v1/signup",
    }
}

/// Returns the path that a URL, a path with a query or a pattern was meant for.
pub(super) fn find_meant_path(text: &str) -> Option<String> {
    let path = match text.split_once("://") {
        Some((_, rest)) => &rest[rest.find('/')?..],
        None => text.trim_start_matches('^'),
    };
    let end = path.find(|c: char| "?#*$[({:\\+".contains(c)).unwrap_or(path.len());
    let (start, rest) = path.split_at(end);
    // The last segment is a part of a pattern.
    let start = match rest.starts_with(['[', '(', '{', ':', '\\', '+']) {
        true => start.get(..=start.rfind('/')?)?,
        false => start.trim_end_matches('.'),
    };
    let start = start.trim_end_matches('/');
    (start.starts_with('/') && start != text).then(|| start.to_owned())
}

/// Returns the path that a text was meant for, such as `/signup` for `POST /signup/`. `None` if the
/// text contains no path.
pub fn guess_path(text: &str) -> Option<String> {
    let is_method = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase());
    let behind_method = text.split_once(' ').filter(|(word, _)| is_method(word));
    let text = behind_method.map_or(text, |(_, path)| path);
    let path = find_meant_path(text).unwrap_or_else(|| text.to_owned());
    let path = format!("/{}", path.trim_start_matches('/'));
    PathPrefix::parse(&path).map(|_| path)
}

/// Returns true if `path` is `prefix` or a path below it.
pub(super) fn is_below(prefix: &str, path: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns true if a route may have this prefix.
pub(super) fn is_route_prefix(text: &str) -> bool {
    (text == "/" || PathPrefix::parse(text).is_some()) && !is_own_path(text)
}

/// Returns true if some server may read one of riskgate's own paths in this path.
pub(super) fn is_own_path(path: &str) -> bool {
    OWN_PATHS.iter().any(|own| may_be_read_below(own, path))
}

/// Returns true if some server may read `path` as `prefix`, or as a path below it.
pub(super) fn may_be_read_below(prefix: &str, path: &str) -> bool {
    PathReadings::of(path.as_bytes()).is_some_and(|readings| readings.is_at_or_below(prefix))
}

#[cfg(test)]
mod tests;
