//! `[upstream.route.screen]`, and the settings that it shares with `[authz]`.

use super::description::{toml_list, toml_text};
use super::raw_value::RawValue;
use super::routes::{PATTERN_CHARS, guess_path, is_below};
use super::settings::Settings;
use crate::decide::ScorePolicy;
use crate::gate::screen_rules::{PostRate, ScreenMode, ScreenPolicy, ScreenRules};
use crate::model::path_prefix::PathPrefix;
use crate::model::verdict::{Reason, Score};
use crate::screening::FieldPath;

/// The message of a refusal, unless the config has another.
const DEFAULT_REFUSAL_MESSAGE: &str = "Please use another e-mail address.";
/// What to write for a form whose fields are not named.
const HINT_FOR_MISSING_FIELDS: &str = "write fields = [\"email\"], as the form names it";

impl Settings {
    /// Reads `[upstream.route.screen]`; `None` if the route has no such section.
    pub(super) fn read_screen_rules(
        &mut self,
        section: &str,
        route: Option<&str>,
    ) -> Option<ScreenRules> {
        if !self.section_spans.contains_key(section) {
            return None;
        }
        let key = |name: &str| format!("{section}.{name}");
        let expected = "a list of names such as [\"email\", \"user.email\"]";
        if !self.values.contains_key(&key("fields")) {
            let hint = Some(HINT_FOR_MISSING_FIELDS.to_owned());
            self.report_required_with_hint(&key("fields"), expected, hint);
        }
        let fields = self.parse_list(&key("fields"), expected, |names| {
            let paths: Option<Vec<FieldPath>> =
                names.iter().map(|name| FieldPath::parse(name)).collect();
            paths.filter(|paths| !paths.is_empty())
        });
        if fields.is_none() {
            self.amend_hints_of_list(&key("fields"), |texts, hint| {
                hint.or_else(|| hint_for_fields(texts))
            });
            if !self.has_value(&key("fields")) {
                self.replace_last_hint(HINT_FOR_MISSING_FIELDS.to_owned());
            }
        }
        let redirect = |raw: &RawValue| {
            let target = raw.as_text()?;
            let is_visible = target.bytes().all(|byte| byte.is_ascii_graphic());
            // Browsers take `//host` and `/\host` for other hosts.
            let is_path =
                target.starts_with('/') && !target.starts_with("//") && !target.starts_with("/\\");
            (is_visible && (is_path || target.starts_with("https://"))).then(|| target.to_owned())
        };
        Some(ScreenRules {
            paths: self.read_screened_paths(&key("paths"), route),
            policy: self.read_screen_policy(section, route.unwrap_or_default()),
            fields: fields.unwrap_or_default(),
            max_per_client: self
                .read_rate(&key("max_per_client"))
                .into_iter()
                .map(|rate| PostRate { route: route.unwrap_or_default().to_owned(), rate })
                .collect(),
            redirect: self.parse_setting(
                &key("redirect"),
                "a path or an https URL, percent-encoded",
                redirect,
            ),
            success: self.read_sign_up_success(section),
        })
    }

    /// Reads `paths`; none if the whole route is screened, or if the setting is faulty.
    fn read_screened_paths(&mut self, key: &str, route: Option<&str>) -> Vec<String> {
        let is_path = |path: &String| {
            PathPrefix::parse(path).is_some() && route.is_none_or(|route| is_below(route, path))
        };
        let expected = match route {
            Some(route) if route != "/" => {
                format!("a list of paths at or below {route}, such as [\"{route}\"]")
            }
            _ => "a list of paths of the route, such as [\"/signup\"]".to_owned(),
        };
        let paths = self.parse_list(key, &expected, |paths| {
            (!paths.is_empty() && paths.iter().all(is_path)).then(|| paths.to_vec())
        });
        if paths.is_none() {
            let is_only = self.texts_of(key).count() == 1;
            self.amend_hints_of_list(key, |texts, hint| {
                let wrong = texts.iter().find(|it| !is_path(it));
                let own = || hint_for_path(wrong?, (route.unwrap_or_default(), is_only), is_path);
                let is_pattern = |it: &String| it.contains(PATTERN_CHARS) && !it.contains("://");
                let more =
                    if wrong.is_some_and(is_pattern) { ": paths have no patterns" } else { "" };
                hint.or_else(own).map(|hint| format!("{hint}{more}"))
            });
        }
        paths.unwrap_or_default()
    }

    /// Reads the settings that say what follows from a verdict.
    pub(super) fn read_screen_policy(&mut self, section: &str, route: &str) -> ScreenPolicy {
        let key = |name: &str| format!("{section}.{name}");
        let mode = match self.read_choice(&key("mode"), &["shadow", "annotate", "block"]) {
            "annotate" => ScreenMode::Annotate,
            "block" => ScreenMode::Block,
            _ => ScreenMode::Shadow,
        };
        let scores = self.read_score_policy(section);
        let message = self.read_text(&key("message"));
        self.note_default(toml_text(DEFAULT_REFUSAL_MESSAGE));
        ScreenPolicy {
            route: route.to_owned(),
            mode,
            scores,
            message: message.unwrap_or_else(|| DEFAULT_REFUSAL_MESSAGE.to_owned()),
            blocks_unscreened: self.read_choice(&key("unscreened"), &["pass", "block"]) == "block",
        }
    }

    /// Reads `block_score` and `block_reasons`.
    pub(super) fn read_score_policy(&mut self, section: &str) -> ScorePolicy {
        let expected = "a list of reasons: safe, disposable, undeliverable, role_account";
        let block_reasons =
            self.parse_list(&format!("{section}.block_reasons"), expected, |names| {
                let reasons: Option<Vec<Reason>> =
                    names.iter().map(|name| Reason::parse(name)).collect();
                reasons.filter(|reasons| !reasons.is_empty())
            });
        self.note_default(toml_list(&Reason::ALL.map(Reason::as_str)));
        let key = format!("{section}.block_score");
        let score = self.read_integer(&key, 0..=100, Score::DEFAULT_BLOCK_SCORE.value().into());
        ScorePolicy {
            block_score: Score::new(score as u8).unwrap_or(Score::ZERO),
            block_reasons: block_reasons.unwrap_or_else(|| Reason::ALL.to_vec()),
        }
    }
}

/// Returns what to write in place of a faulty path of the route with the prefix `route`. `is_only`
/// says whether the list has no other path.
fn hint_for_path(
    text: &str,
    (route, is_only): (&str, bool),
    is_path: impl Fn(&String) -> bool,
) -> Option<String> {
    let shown = |path: &str| if is_only { toml_list(&[path]) } else { toml_text(path) };
    let path = guess_path(text)?;
    if is_path(&path) {
        return Some(format!("write {}", shown(&path)));
    }
    // Nobody but the operator knows whether the route has this path.
    let below = format!("{}{path}", route.trim_end_matches('/'));
    let shown_below = is_path(&below).then(|| shown(&below))?;
    Some(format!(
        "if you mean {shown_below}, write it; for {path} itself, write an [[upstream.route]] of \
         its own"
    ))
}

/// Returns what to write in place of the first faulty name of a field, if it is a pattern.
fn hint_for_fields(names: &[String]) -> Option<String> {
    let name = names.iter().find(|it| FieldPath::parse(it).is_none())?;
    let is_pattern = name.contains(['*', '/', '^', '(', '=', '#']);
    is_pattern.then(|| "write the name of the field, as the form has it: no pattern".to_owned())
}
