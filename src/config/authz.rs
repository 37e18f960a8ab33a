//! `[authz]`: what riskgate checks for proxies that ask.

use std::sync::Arc;

use super::description::toml_list;
use super::routes::{is_own_path, may_be_read_below};
use super::settings::Settings;
use crate::gate::authz_rules::{AuthzRules, AuthzScreening, EmailSource};
use crate::gate::route::UpstreamRoute;
use crate::model::path_prefix::PathPrefix;

const CHECKS: [&str; 4] = ["key", "origin", "quota", "screen"];

impl Settings {
    /// Reads `authz.path`; `None` if the setting is missing or faulty.
    pub fn read_authz_path(&mut self, upstream_routes: &[UpstreamRoute]) -> Option<PathPrefix> {
        let expected = "a path such as /authz, apart from riskgate's own and not above an \
                        upstream.route, without a / at its end";
        self.parse_setting("authz.path", expected, |raw| {
            let text = raw.as_text()?;
            let path = PathPrefix::parse(text)?;
            let has_route =
                upstream_routes.iter().any(|it| may_be_read_below(text, &it.path_prefix));
            (!has_route && !is_own_path(text)).then_some(path)
        })
    }

    /// Reads the other settings of `[authz]`; `None` without a valid `authz.path`.
    pub fn read_authz_rules(&mut self, path: Option<&PathPrefix>) -> Option<Arc<AuthzRules>> {
        let checks = self.read_authz_checks();
        let policy = self.read_screen_policy("authz", path.map_or("", PathPrefix::as_str));
        let expected = "one or several of header:NAME, query:FIELD and body:FIELD";
        let sources = self.parse_text_or_list("authz.email", expected, |texts| {
            let sources: Option<Vec<EmailSource>> =
                texts.iter().map(|text| EmailSource::parse(text)).collect();
            sources.filter(|sources| !sources.is_empty())
        });
        let has_section = self.section_spans.contains_key("authz");
        if has_section && !self.values.contains_key("authz.path") {
            let problem = "expected a path such as /authz, because no proxy can ask without one";
            let warning = self.begin_fault_at_section("authz", "authz.path").with_problem(problem);
            self.warnings.push(warning);
        }
        path?;
        let has = |check: &str| checks.iter().any(|name| name == check);
        if has("screen") && !self.values.contains_key("authz.email") {
            let expected = "where the e-mail address is, such as header:X-Email, query:email or \
                            body:email, because authz.check contains \"screen\"";
            let hint = Some("write email = \"header:X-Email\"".to_owned());
            self.report_required_with_hint("authz.email", expected, hint);
        }
        Some(Arc::new(AuthzRules {
            needs_key: has("key"),
            checks_origin: has("origin"),
            is_counted: has("quota"),
            screening: sources
                .filter(|_| has("screen"))
                .map(|sources| AuthzScreening::new(policy, sources)),
        }))
    }

    /// Reads `authz.check`. Reports `origin` or `quota` without `key`, which both need.
    fn read_authz_checks(&mut self) -> Vec<String> {
        let expected = "a list of \"key\", \"origin\", \"quota\" and \"screen\"; \"origin\" and \
                        \"quota\" need \"key\"";
        let checks = self.parse_list("authz.check", expected, |names| {
            let has = |check: &str| names.iter().any(|name| name == check);
            let is_valid = !names.is_empty()
                && names.iter().all(|name| CHECKS.contains(&name.as_str()))
                && (has("key") || !has("origin") && !has("quota"));
            is_valid.then(|| names.to_vec())
        });
        if checks.is_none() {
            let given: Vec<String> = self.texts_of("authz.check").collect();
            let in_order =
                CHECKS.iter().filter(|it| **it == "key" || given.iter().any(|t| t == *it));
            let with_key: Vec<&str> = in_order.copied().collect();
            let lacks_key = with_key.len() == given.len() + 1;
            self.amend_hints_of_list("authz.check", |_, hint| {
                let means_all =
                    given.len() == 1 && ["all", "*", "any"].contains(&given[0].as_str());
                let meant = if means_all { &CHECKS[..] } else { &with_key };
                let hint = hint.filter(|_| !means_all);
                let is_meant = means_all || lacks_key;
                hint.or_else(|| is_meant.then(|| format!("write {}", toml_list(meant))))
            });
        }
        self.note_default(toml_list(&CHECKS));
        match checks {
            Some(checks) => checks,
            // A faulty list makes no other setting a requirement.
            None if self.values.contains_key("authz.check") => Vec::new(),
            None => CHECKS.map(str::to_owned).to_vec(),
        }
    }
}
