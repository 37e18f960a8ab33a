//! `[[upstream.route]]`: further path prefixes that are forwarded upstream.

use std::sync::Arc;
use std::time::Duration;

use super::description::toml_list;
use super::raw_value::RawValue;
use super::settings::Settings;
use crate::gate::route::UpstreamRoute;
use crate::message::request_head::takes_body;
use crate::model::path_prefix::PathPrefix;

/// The methods of a route that names none.
const DEFAULT_METHODS: [&str; 2] = ["GET", "HEAD"];

/// The deadline of a route that sets none.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

impl Settings {
    /// Reads the `[[upstream.route]]` entries. Reports and leaves out those without a valid prefix.
    pub fn read_upstream_routes(&mut self) -> Vec<UpstreamRoute> {
        let mut prefixes = Vec::new();
        for at in self.list_table_array_keys("upstream.route") {
            let prefix = self.read_upstream_route(&at, &prefixes);
            prefixes.extend(prefix);
        }
        prefixes
    }

    fn read_upstream_route(
        &mut self,
        entry_key: &str,
        earlier_routes: &[UpstreamRoute],
    ) -> Option<UpstreamRoute> {
        let path = |raw: &RawValue| {
            let text = raw.as_text()?;
            (PathPrefix::parse(text).is_some() && !overlaps_own_route(text))
                .then(|| text.to_owned())
        };
        let expected =
            "a path such as /v1/signup, apart from riskgate's own, without a / at its end";
        let key = format!("{entry_key}.prefix");
        if !self.values.contains_key(&key) {
            self.report_missing(&key, expected);
        }
        let path = self.parse_setting(&key, expected, path);
        if let Some(path) = &path
            && earlier_routes.iter().any(|other| other.path_prefix == *path)
        {
            // Two routes with one prefix contradict each other, so the second is a fault.
            self.parse_setting(&key, "a prefix that no other upstream.route has", |_| None::<()>);
        }
        let methods = |methods: &[String]| {
            let is_valid = |method: &String| {
                !method.is_empty()
                    && method.bytes().all(|byte| byte.is_ascii_uppercase())
                    && !matches!(method.as_str(), "OPTIONS" | "CONNECT" | "TRACE")
            };
            (!methods.is_empty() && methods.iter().all(is_valid)).then(|| methods.to_vec())
        };
        let expected = "a list of methods such as [\"GET\", \"POST\"]";
        let methods = self.parse_list(&format!("{entry_key}.methods"), expected, methods);
        self.note_default(toml_list(&DEFAULT_METHODS));
        let methods = methods.unwrap_or_else(|| DEFAULT_METHODS.map(str::to_owned).to_vec());
        let needs_key = self.boolean(&format!("{entry_key}.key"), true);
        let counts = self.boolean(&format!("{entry_key}.counts"), needs_key);
        if counts && !needs_key {
            let key = format!("{entry_key}.counts");
            self.report_missing(
                &key,
                "false where key is false, since there is no account to count for",
            );
        }
        let allow = format!("{}, OPTIONS", methods.join(", ")).into();
        let has_section = self.section_locations.contains_key(&format!("{entry_key}.screen"));
        if has_section && !methods.iter().any(|method| takes_body(method.as_bytes())) {
            let key = format!("{entry_key}.methods");
            self.report_missing(&key, "POST, PUT or PATCH, because the route is screened");
        }
        let failure_status = format!("{entry_key}.failure_status");
        let has_gateway_statuses = self.choice(&failure_status, &["500", "gateway"]) == "gateway";
        let deadline = self.duration(&format!("{entry_key}.deadline"), DEFAULT_DEADLINE);
        let screen = self.read_screen_rules(&format!("{entry_key}.screen"), path.as_deref());
        Some(UpstreamRoute {
            path_prefix: path?,
            methods,
            allow_value: allow,
            needs_key,
            is_counted: counts,
            max_per_client: self.read_rate(&format!("{entry_key}.max_per_client")),
            has_gateway_statuses,
            deadline: Some(deadline).filter(|deadline| !deadline.is_zero()),
            screen: screen.map(Arc::new),
        })
    }
}

/// Returns true if `path` is one of riskgate's own routes, is above one or is below one.
pub(super) fn overlaps_own_route(path: &str) -> bool {
    // The upstream server may ignore case.
    let path = &path.to_ascii_lowercase();
    ["/v1/public", "/v1/check", "/v1/usage"].iter().any(|own| {
        *path == *own
            || path.starts_with(&format!("{own}/"))
            || own.starts_with(&format!("{path}/"))
    })
}
