//! Reports on what this process serves: upstream servers, routes, certificates, the last forms that
//! riskgate refused, and the last forms that a rule decided.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::AdminApi;
use crate::gate::authz_rules::AuthzRules;
use crate::gate::route::{RouteMethods, UpstreamRoute};
use crate::gate::screen_rules::{ScreenPolicy, ScreenRules};
use crate::model::month::format_rfc3339;
use crate::observe::latest_forms::LatestForms;

impl AdminApi {
    pub(super) fn servers_json(&self) -> Value {
        let now = self.state.ledger.believed_now();
        let seconds_ago = |seconds: u64| now.saturating_sub_unsigned(seconds);
        let servers = self.upstreams.describe_servers();
        let items: Vec<Value> = servers
            .into_iter()
            .map(|server| {
                let failed_at =
                    server.last_failure.as_ref().map(|it| seconds_ago(it.age.as_secs()));
                json!({
                    "address": server.address.to_string(),
                    "state": if server.is_healthy { "up" } else { "down" },
                    "last_failed_at": failed_at.map(format_rfc3339),
                    "last_failure": server.last_failure.map(|it| it.reason),
                })
            })
            .collect();
        let unresolved = self.upstreams.list_name_problems();
        json!({
            "items": items,
            "unresolved": unresolved,
            "needed": self.state.reloadable_rules.peek().may_need_upstream(),
        })
    }

    pub(super) fn routes_json(&self) -> Value {
        let rules = self.state.reloadable_rules.peek();
        let items: Vec<Value> = rules.upstream_routes.iter().map(route_to_json).collect();
        let authz = rules.authz.as_ref().and_then(|rules| {
            let path = self.inputs.startup.startup_rules.authz_path.as_ref()?;
            Some(authz_to_json(path.as_str(), rules))
        });
        json!({ "items": items, "authz": authz })
    }

    pub(super) fn certificates_json(&self) -> Value {
        let certificates = self.certificates.as_ref().map(|it| it.describe()).unwrap_or_default();
        let config = self.config();
        let key_files: HashMap<String, String> = config
            .certificates
            .iter()
            .map(|it| (it.chain.display().to_string(), it.key.display().to_string()))
            .collect();
        let items: Vec<Value> = certificates
            .iter()
            .map(|it| {
                json!({
                    "certificate": it.chain,
                    "key": key_files.get(&it.chain),
                    "names": it.names,
                    "expires_at": format_rfc3339(it.validity.expires_at),
                })
            })
            .collect();
        json!({ "items": items })
    }

    pub(super) fn latest_forms_json(&self, forms: &LatestForms) -> Value {
        json!({ "since": format_rfc3339(self.started_at), "items": forms.to_json() })
    }
}

fn route_to_json(route: &UpstreamRoute) -> Value {
    let methods = match &route.methods {
        RouteMethods::All => None,
        RouteMethods::Listed(methods) => Some(methods),
    };
    let origins = route.cors.as_ref().map(|cors| to_texts(&cors.origins));
    json!({
        "prefix": route.path_prefix,
        "methods": methods,
        "key": route.needs_key,
        "counts": route.is_counted,
        "host": route.host,
        "max_per_client": route.max_per_client.map(|rate| rate.to_string()),
        "deadline_seconds": route.deadline.map(|deadline| deadline.as_secs_f64()),
        "origins": origins,
        "screen": route.screen.as_deref().map(screen_to_json),
    })
}

fn screen_to_json(rules: &ScreenRules) -> Value {
    let mut screen = policy_to_json(&rules.policy);
    screen["fields"] = json!(to_texts(&rules.fields));
    screen["paths"] = json!(rules.paths);
    screen["max_per_client"] = json!(rules.max_per_client.first().map(|it| it.rate.to_string()));
    screen["redirect"] = json!(rules.redirect);
    screen
}

fn policy_to_json(policy: &ScreenPolicy) -> Value {
    let reasons: Vec<&str> =
        policy.scores.block_reasons.iter().map(|reason| reason.as_str()).collect();
    json!({
        "mode": policy.mode.as_str(),
        "block_score": policy.scores.block_score.value(),
        "block_reasons": reasons,
        "unscreened": if policy.blocks_unscreened { "block" } else { "pass" },
    })
}

fn authz_to_json(path: &str, rules: &AuthzRules) -> Value {
    let checks = [
        ("key", rules.needs_key),
        ("origin", rules.checks_origin),
        ("quota", rules.is_counted),
        ("screen", rules.screening.is_some()),
    ];
    let checks = checks.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name);
    let screen = rules.screening.as_ref().map(|screening| {
        let headers = screening.header_names.iter().map(|name| format!("header:{name}"));
        let query = screening.query_fields.iter().map(|field| format!("query:{field}"));
        let body = screening.body_fields.iter().map(|field| format!("body:{field}"));
        let mut screen = policy_to_json(&screening.policy);
        screen["fields"] = headers.chain(query).chain(body).collect();
        screen
    });
    json!({ "path": path, "check": checks.collect::<Vec<_>>(), "screen": screen })
}

fn to_texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}
