//! `[[rule]]`, `[inbox]` and `[decide]`: how sign-ups are decided and counted.

use std::sync::Arc;

use super::description::{toml_list, toml_text};
use super::effective::fingerprint_secret;
use super::hints::find_nearest_name;
use super::raw_value::RawValue;
use super::routes::{guess_path, is_below, is_route_prefix};
use super::settings::Settings;
use crate::decide::{
    Action, Condition, ConditionFault, DecisionRule, InboxSecret, MIN_SECRET_BYTES,
    find_contradiction, split_several_conditions,
};
use crate::gate::authz_rules::AuthzRules;
use crate::gate::decisions::{DecisionSettings, SignUpSuccessRule};
use crate::gate::route::UpstreamRoute;
use crate::model::route_label::RouteLabel;

/// The most rules.
const MAX_RULES: usize = 256;
/// The most conditions of a rule.
const MAX_CONDITIONS: usize = 16;
/// The longest name of a rule, in characters.
const MAX_RULE_NAME_CHARS: usize = 64;
/// The longest message of a rule, in characters.
const MAX_RULE_MESSAGE_CHARS: usize = 200;
/// The name in a rule's `routes` that stands for `authz.path`.
const AUTHZ_ROUTE_NAME: &str = RouteLabel::Authz.as_str();

/// Returns the names that a rule's `routes` may contain: the prefixes of screened routes, `authz`
/// if `[authz]` screens, and `assess`.
pub fn list_deciding_routes<'c>(
    routes: &'c [UpstreamRoute],
    authz: Option<&AuthzRules>,
) -> Vec<&'c str> {
    let screened = routes.iter().filter(|route| route.screen.is_some());
    let screens = authz.is_some_and(|rules| rules.screening.is_some());
    screened
        .map(|route| route.path_prefix.as_str())
        .chain(screens.then_some(AUTHZ_ROUTE_NAME))
        .chain([RouteLabel::Assess.as_str()])
        .collect()
}

impl Settings {
    /// Reads `[[rule]]` and `[decide]`, and whether the config has a section `[inbox]`.
    pub(super) fn read_decisions(
        &mut self,
        routes: &[UpstreamRoute],
        authz: Option<&AuthzRules>,
    ) -> Arc<DecisionSettings> {
        let is_by_account =
            self.read_choice("decide.scope", &["deployment", "account"]) == "account";
        let assess_policy = self.read_score_policy("decide");
        let entries = self.list_table_array_keys("rule");
        if let Some(surplus) = entries.get(MAX_RULES) {
            let problem = format!("expected at most {MAX_RULES} rules");
            self.report_at_section(surplus, &problem, None);
        }
        let mut rules: Vec<DecisionRule> = Vec::new();
        for entry in &entries {
            if let Some(rule) = self.read_rule(entry, &rules, routes, authz) {
                rules.push(rule);
            }
        }
        if let Some(screening) = authz.and_then(|rules| rules.screening.as_ref()) {
            let named = rules.iter_mut().filter_map(|rule| rule.routes.as_mut()).flatten();
            let path = &screening.policy.route;
            named.filter(|route| *route == AUTHZ_ROUTE_NAME).for_each(|it| path.clone_into(it));
        }
        let has_inbox_section = self.section_spans.contains_key("inbox")
            || self.values.keys().any(|key| key.starts_with("inbox."));
        let mut decisions = DecisionSettings::with_rules(rules);
        decisions.has_inbox_section = has_inbox_section;
        decisions.is_by_account = is_by_account;
        decisions.assess_policy = assess_policy;
        Arc::new(decisions)
    }

    /// Reads the secret of inbox ids. `None` if the file is faulty, or without `inbox.secret_file`:
    /// then the store has the secret.
    pub(super) fn read_inbox_secret(&mut self) -> Option<InboxSecret> {
        let key = "inbox.secret_file";
        let path = self.read_path(key)?;
        let bytes = self.read_file_of_secret(key, &path, Ok)?;
        let bytes = without_line_end(&bytes);
        if let Some(setting) = self.values.get_mut(key) {
            setting.secret_fingerprint = Some(fingerprint_secret(bytes));
        }
        let secret = InboxSecret::new(bytes);
        if secret.is_none() {
            let file = path.display();
            let problem = format!(
                "expected a file {file} of {MIN_SECRET_BYTES} bytes or more, but found {}",
                bytes.len()
            );
            let hint =
                "write the output of openssl rand -hex 32 into a new file, and its path here"
                    .to_owned();
            self.report_at_key(key, &problem, Some(hint));
            self.mark_fault_of_secret(key);
        }
        secret
    }

    /// Reads when a sign-up on a screened route counts.
    pub(super) fn read_sign_up_success(&mut self, section: &str) -> SignUpSuccessRule {
        let counts = self.read_boolean(&format!("{section}.count"), true);
        let expected = "a list of statuses of 200 to 599, such as [200, 201, 303]";
        let statuses = self.parse_integer_list(&format!("{section}.success"), expected, |list| {
            let parse = |status: &u64| u16::try_from(*status).ok();
            let parse = |status| parse(status).filter(|status| matches!(status, 200..=599));
            let statuses: Option<Vec<u16>> = list.iter().map(parse).collect();
            statuses.filter(|statuses| !statuses.is_empty())
        });
        match (counts, statuses) {
            (false, _) => SignUpSuccessRule::Never,
            (true, Some(statuses)) => SignUpSuccessRule::Statuses(statuses),
            (true, None) => SignUpSuccessRule::Usual,
        }
    }

    fn read_rule(
        &mut self,
        entry: &str,
        earlier: &[DecisionRule],
        routes: &[UpstreamRoute],
        authz: Option<&AuthzRules>,
    ) -> Option<DecisionRule> {
        let name = self.read_rule_name(entry, earlier);
        let conditions = self.read_conditions(&format!("{entry}.if"));
        let then_key = format!("{entry}.then");
        if !self.values.contains_key(&then_key) {
            let hint = Some("write then = \"review\"".to_owned());
            self.report_required_with_hint(&then_key, "\"pass\", \"review\" or \"block\"", hint);
        }
        let then = self.read_optional_choice(&then_key, &Action::ALL.map(Action::as_str));
        let then = Action::ALL.into_iter().find(|action| Some(action.as_str()) == then);
        let expected = format!(
            "a text of 1 to {MAX_RULE_MESSAGE_CHARS} characters, without line breaks and other \
             control characters"
        );
        let message = self.parse_setting(&format!("{entry}.message"), &expected, |raw| {
            let text = raw.as_text()?;
            let is_valid = (1..=MAX_RULE_MESSAGE_CHARS).contains(&text.chars().count());
            (is_valid && !text.chars().any(char::is_control)).then(|| text.to_owned())
        });
        let routes = self.read_rule_routes(&format!("{entry}.routes"), routes, authz);
        if !self.values.contains_key(&format!("{entry}.if")) && self.has_unknown_setting(entry) {
            // The unknown setting may be meant for `if`. Without it, the rule would always hold.
            return None;
        }
        let rule = DecisionRule {
            name: name?.into(),
            conditions: conditions?,
            then: then?,
            message,
            routes,
        };
        if let Some(unconditional) = earlier.iter().find(|other| other.hides(&rule)) {
            let other = toml_text(&unconditional.name);
            let problem = format!("expected no rule behind {other}, which always holds");
            let hint = format!("write this rule before {other}, or give {other} a condition");
            self.report_at_section(entry, &problem, Some(hint));
        }
        let is_for_all = rule.conditions.is_empty() && rule.routes.is_none();
        let admits = |other: &DecisionRule| other.then != Action::Block;
        if rule.then == Action::Block && is_for_all && !earlier.iter().any(admits) {
            let problem = "expected a condition or routes, because otherwise riskgate refuses \
                           every sign-up";
            let hint = Some("write a condition into `if`, or remove this rule".to_owned());
            self.warn_at_key(&then_key, problem, hint);
        }
        Some(rule)
    }

    /// Whether a section has a setting or a section that riskgate has not read.
    fn has_unknown_setting(&self, section: &str) -> bool {
        let prefix = format!("{section}.");
        let is_read = |key: &str| self.descriptions.iter().any(|it| it.key == key);
        let mut settings = self.values.keys().filter(|key| key.starts_with(&prefix));
        let mut sections = self.section_spans.keys();
        settings.any(|key| !is_read(key)) || sections.any(|key| key.starts_with(&prefix))
    }

    fn read_rule_name(&mut self, entry: &str, earlier: &[DecisionRule]) -> Option<String> {
        let key = format!("{entry}.name");
        let expected =
            format!("a name of 1 to {MAX_RULE_NAME_CHARS} visible ASCII characters and blanks");
        let example = "\"many accounts of one inbox\"";
        let name = self.require_setting(&key, (&expected, example), |raw| {
            let text = raw.as_text()?;
            let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
            let is_valid = is_visible && (1..=MAX_RULE_NAME_CHARS).contains(&text.len());
            (is_valid && text.trim() == text).then(|| text.to_owned())
        })?;
        if earlier.iter().any(|rule| rule.name == name) {
            self.report_taken(&key, "a name that no other rule has");
        }
        Some(name)
    }

    /// Reads the conditions of a rule. A missing setting gives an empty list, a faulty one `None`.
    fn read_conditions(&mut self, key: &str) -> Option<Vec<Condition>> {
        let expected = format!(
            "a list of at most {MAX_CONDITIONS} conditions such as \
             [\"inbox_accounts_30d >= 3\", \"is_corporate_email == false\"]"
        );
        let texts = self.parse_list(key, &expected, |texts| {
            (texts.len() <= MAX_CONDITIONS).then(|| texts.to_vec())
        });
        if texts.is_none() {
            let raw = self.values.get(key).map(|setting| &setting.raw);
            if let Some(text) = raw.and_then(RawValue::as_text).map(str::to_owned) {
                self.replace_last_hint(hint_for_single_text(&text));
            }
            return (!self.values.contains_key(key)).then(Vec::new);
        }
        let parsed = |text: &String| Condition::parse(text);
        let (good, faulty): (Vec<_>, Vec<_>) =
            texts?.iter().map(parsed).enumerate().partition(|(_, parsed)| parsed.is_ok());
        for (index, fault) in &faulty {
            if let Err(fault) = fault {
                self.report_condition_fault(key, *index, fault);
            }
        }
        let conditions: Vec<Condition> =
            good.into_iter().filter_map(|(_, parsed)| parsed.ok()).collect();
        let contradiction = find_contradiction(&conditions).filter(|_| faulty.is_empty());
        if let Some(index) = contradiction {
            let text = conditions[index].as_str().to_owned();
            let excludes = |other: &&Condition| {
                find_contradiction(&[(*other).clone(), conditions[index].clone()]).is_some()
            };
            let other = conditions[..index].iter().find(excludes);
            let other = other.map_or("others".to_owned(), |it| toml_text(it.as_str()));
            let problem = format!(
                "expected conditions that can hold together, but found {} behind {other}",
                toml_text(&text)
            );
            self.report_in_list(key, (index, 0..text.len()), &text, &problem, None);
        }
        faulty.is_empty().then_some(conditions)
    }

    /// Reports a fault in the condition at this index of a list, with its line and column.
    fn report_condition_fault(&mut self, key: &str, index: usize, fault: &ConditionFault) {
        let texts = self.values.get(key).and_then(|setting| setting.raw.as_text_list());
        let text = texts.and_then(|texts| texts.get(index).cloned()).unwrap_or_default();
        let found = text.get(fault.at.clone()).unwrap_or_default();
        let shown = if found.is_empty() { "nothing".to_owned() } else { toml_text(found) };
        let problem = format!("expected {}, but found {shown}", fault.expected);
        let (_, words) = mend_condition(&text);
        let hint = (!words.is_empty()).then(|| words.join(", and "));
        self.report_in_list(key, (index, fault.at.clone()), &text, &problem, hint);
    }

    fn read_rule_routes(
        &mut self,
        key: &str,
        routes: &[UpstreamRoute],
        authz: Option<&AuthzRules>,
    ) -> Option<Vec<String>> {
        let deciding = list_deciding_routes(routes, authz);
        let shown = deciding.join(", ");
        let own: Vec<String> = self.texts_of(key).collect();
        let is_told_below = |name: &String| own.contains(name) && !has_several_names(name);
        let names =
            self.parse_list(key, &format!("a list of routes that decide: {shown}"), |names| {
                let is_taken = |it: &String| deciding.contains(&it.as_str()) || is_told_below(it);
                (!names.is_empty() && names.iter().all(is_taken)).then(|| names.to_vec())
            });
        if let (None, Some(name)) = (&names, own.first())
            && routes.iter().any(|route| route.path_prefix == *name && route.screen.is_none())
        {
            self.add_to_last_hint(&format!("and give {name} a section [upstream.route.screen]"));
        }
        let Some(names) = names else {
            // A rule with faulty routes is not one for all routes.
            return Some(own).filter(|own| !own.is_empty());
        };
        let unknown = |(_, name): &(usize, &String)| !deciding.contains(&name.as_str());
        for (index, name) in names.iter().enumerate().filter(unknown) {
            let found = toml_text(name);
            let problem = format!("expected a route that decides: {shown}, but found {found}");
            let is_route = routes.iter().any(|route| route.path_prefix.as_str() == name);
            let is_authz_path = || {
                let screening = authz.and_then(|rules| rules.screening.as_ref());
                screening.is_some_and(|it| it.policy.route == *name)
            };
            let hint = if is_route {
                Some(format!("give the route {name} a section [upstream.route.screen]"))
            } else if name == AUTHZ_ROUTE_NAME {
                Some("set authz.path, with \"screen\" in authz.check".to_owned())
            } else if let Some(prefix) = enclosing_prefix(name, &deciding) {
                let prefix = toml_text(prefix);
                Some(format!("write {prefix}: a rule names a route by its whole prefix"))
            } else if is_authz_path() {
                Some(format!("write {} in place of {found}", toml_text(AUTHZ_ROUTE_NAME)))
            } else {
                let short = name.strip_prefix("/v1/").unwrap_or(name);
                match find_nearest_name(short, deciding.iter().copied()) {
                    Some(near) => Some(format!("did you mean {}?", toml_text(near))),
                    None => hint_for_missing_route(name, &deciding),
                }
            };
            self.report_in_list(key, (index, 0..name.len()), name, &problem, hint);
        }
        Some(names)
    }
}

/// Whether a text can't be the name of one route, or a method and a path.
fn has_several_names(text: &str) -> bool {
    let is_method = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase());
    let has_blank_in_name =
        text.split_once(char::is_whitespace).is_some_and(|(word, _)| !is_method(word));
    text.contains([',', ';', '|']) || has_blank_in_name
}

/// Returns what to write for a path that is no deciding route. `None` if the text is no path, or
/// one of riskgate's own.
fn hint_for_missing_route(name: &str, deciding: &[&str]) -> Option<String> {
    let guess = || guess_path(name).filter(|it| is_route_prefix(it));
    let own = name.starts_with('/') && is_route_prefix(name);
    let prefix = if own { name.to_owned() } else { guess().filter(|_| name.contains('/'))? };
    let shown = toml_text(&prefix);
    Some(match deciding.contains(&prefix.as_str()) {
        true => format!("write {shown}"),
        false => format!(
            "write an [[upstream.route]] with prefix = {shown} and a section \
             [upstream.route.screen]"
        ),
    })
}

/// Returns the longest of these prefixes that is at or above a path.
fn enclosing_prefix<'c>(path: &str, deciding: &[&'c str]) -> Option<&'c str> {
    let prefixes = deciding.iter().filter(|it| it.starts_with('/') && is_below(it, path));
    prefixes.max_by_key(|it| it.len()).copied().filter(|_| path.starts_with('/'))
}

/// Removes one LF or CRLF from the end. Other blanks stay, because a random secret may end in them.
fn without_line_end(bytes: &[u8]) -> &[u8] {
    let line = bytes.strip_suffix(b"\n");
    line.map_or(bytes, |line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Returns the condition that a text was probably meant for, and what to write for each fault on
/// the way there. The condition may still have a fault.
fn mend_condition(text: &str) -> (String, Vec<String>) {
    let (mut mended, mut words) = (text.to_owned(), Vec::new());
    while let Err(fault) = Condition::parse(&mended) {
        let found = mended.get(fault.at.clone()).unwrap_or_default();
        let near = find_nearest_name(found, fault.candidates.iter().copied());
        words.extend(match (&fault.meant, near) {
            (Some(meant), _) => Some(format!("write {meant}")),
            (None, Some(near)) => Some(format!("did you mean {near}?")),
            (None, None) => None,
        });
        let Some(meant) = fault.meant.as_deref().or(near) else { break };
        let (before, behind) = (&mended[..fault.at.start], &mended[fault.at.end..]);
        let next = format!("{before}{meant}{behind}");
        // Some words say what to write, and are no part of a condition.
        let is_nearer = match Condition::parse(&next) {
            Ok(_) => true,
            Err(other) => other.at.start >= before.len() + meant.len(),
        };
        if !is_nearer {
            break;
        }
        mended = next;
    }
    (mended, words)
}

/// Returns what to write for a text in place of a list of conditions.
fn hint_for_single_text(text: &str) -> String {
    if let Some(several) = split_several_conditions(text) {
        let texts: Vec<&str> = several.iter().map(String::as_str).collect();
        return format!("write {}", toml_list(&texts));
    }
    let (mended, words) = mend_condition(text);
    match Condition::parse(&mended) {
        Ok(_) => format!("write {}", toml_list(&[&mended])),
        Err(fault) if words.is_empty() => {
            format!("write a list, [\"…\"], and in it {}", fault.expected)
        }
        Err(_) => format!("write a list, [\"…\"], and in it: {}", words.join(", and ")),
    }
}
