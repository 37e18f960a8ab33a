//! Typed access to settings.
//!
//! Owns the types of settings and the wording of most faults. The other files of `config` say what
//! each setting means. Reading goes on after a faulty setting, so that one start reports all
//! faults.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::description::{SettingDescription, SettingKind, toml_duration, toml_text};
use super::fault::{ConfigFault, ConfigText, SettingSpan};
use super::hints::{
    Units, find_nearest_name, find_nearest_word, flat_list, parse_switch_word, suggest_value,
};
use super::locations::{FormerDefault, RelativePathBases};
use super::raw_value::{
    RawValue, is_pem, is_too_long_duration, parse_duration, place_in_list,
    redact_urls_and_long_words,
};
use super::readable_name::ReadableSettingName;
use super::variables::{ENV_PREFIX, hint_for_credential, hint_for_variable};

use crate::keys::Plans;
use crate::model::monthly_limit::MAX_MONTHLY_LIMIT;
use crate::model::network::{Networks, network_around};
use crate::store::{MonthlyLimit, STORE_URL_SYNTAX, StoreUrl, has_malformed_escape};

/// What the address of an SQLite store begins with.
const SQLITE_SCHEME: &str = "sqlite:";
/// The usual address of each listener, as a hint shows it.
const USUAL_ADDRESSES: [(&str, &str); 4] = [
    ("listen.http", "\"0.0.0.0:8080\""),
    ("listen.https", "\"0.0.0.0:443\""),
    ("listen.redirect", "\"0.0.0.0:80\": the address at which clients without TLS arrive"),
    ("listen.admin", "\"127.0.0.1:9090\""),
];
/// Switches, each with the setting that is probably meant if somebody gives the switch another
/// value than true or false.
const MEANT_SETTING_OF_SWITCH: [(&str, &str); 3] =
    [("log.access", "path"), ("dns.learn", "resolvers"), ("upstream.tls", "tls_ca")];

/// What to write in place of a name in a list of addresses.
pub(super) const NO_NAME_HERE: &str = "write its address: riskgate resolves no names here";
/// Values of other servers with which the server itself chooses.
const WORDS_FOR_DEFAULT: [&str; 3] = ["auto", "default", "automatic"];
const HINT_FOR_EMPTY_VARIABLE: &str = "unset this variable, or give it a value";

/// Words of other servers for networks that are not public, and for all networks.
const WORDS_FOR_NETWORKS: [(&[&str], &str); 3] = [
    (
        &["private_ranges", "private", "uniquelocal", "internal", "rfc1918", "lan"],
        "write each network: [\"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\", \"fd00::/8\"]",
    ),
    (&["loopback", "localhost", "local"], "write [\"127.0.0.0/8\", \"::1\"]"),
    (
        &["*", "all", "any", "true"],
        "name the addresses of your proxies: any other client could name its own address",
    ),
];

/// A value and its location: the file and line, the file of a secret, the variable, or `command
/// line`.
#[derive(Clone, Debug)]
pub struct RawSetting {
    pub raw: RawValue,
    pub location: String,
    /// The place in the text of the config file; `None` if the value is from elsewhere.
    pub span: Option<SettingSpan>,
    pub is_from_file: bool,
    /// Whether the value is from the environment or the command line of the process, or from a file
    /// that one of these names.
    pub is_from_process: bool,
    /// The fingerprint of the secret in the file that the setting names; `None` if the setting
    /// names no file, or if the secret is the value of another setting.
    pub secret_fingerprint: Option<String>,
}

impl RawSetting {
    /// Whether the value is an empty variable of the environment.
    fn is_empty_variable(&self) -> bool {
        self.location.starts_with(ENV_PREFIX) && self.raw.as_text() == Some("")
    }

    /// A value from the environment or the command line.
    pub fn from_process(raw: RawValue, location: String) -> RawSetting {
        RawSetting {
            raw,
            location,
            span: None,
            is_from_file: false,
            is_from_process: true,
            secret_fingerprint: None,
        }
    }
}

/// All settings by their dotted key.
#[derive(Default)]
pub struct Settings {
    pub values: BTreeMap<String, RawSetting>,
    /// The place of each section by its dotted name, including empty sections.
    pub section_spans: BTreeMap<String, SettingSpan>,
    /// The text of the config file.
    pub file_text: ConfigText,
    /// The settings that the program has asked for so far. At the end, all other keys are unknown.
    pub descriptions: Vec<SettingDescription>,
    /// The folders at which relative paths in the file and default paths start.
    pub base_folders: RelativePathBases,
    /// Whether the default paths of earlier versions do not count, because no earlier version has
    /// used the config.
    pub ignores_former_defaults: bool,
    /// The default paths of earlier versions at which something stands.
    pub former_defaults: Vec<FormerDefault>,
    /// Faults with which the gateway starts nevertheless, and of which it warns.
    pub warnings: Vec<ConfigFault>,
    /// The faults found so far.
    pub faults: Vec<ConfigFault>,
    /// The files that were read, or could not be read: the config file, and files of secrets and of
    /// authorities.
    pub files: Vec<PathBuf>,
    /// True if the system could not read one of these files for now.
    pub has_transient_fault: bool,
}

impl Settings {
    /// Returns the location of a setting, as [`RawSetting`] has it; `config` if the setting is not
    /// set.
    pub fn location_of(&self, key: &str) -> String {
        self.values.get(key).map_or("config".to_owned(), |setting| setting.location.clone())
    }

    /// Whether a setting has a value. An empty text and an empty list are none, so an empty path
    /// names no file.
    pub(super) fn has_value(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|setting| match &setting.raw {
            RawValue::List(items) => !items.is_empty(),
            raw => raw.as_text() != Some(""),
        })
    }

    pub(super) fn read_and_mark_known(
        &mut self,
        key: &str,
        kind: SettingKind,
    ) -> Option<RawSetting> {
        let description = SettingDescription { key: key.to_owned(), kind, default: None };
        self.descriptions.push(description);
        self.values.get(key).cloned()
    }

    /// Notes the default, in TOML, of the setting that was read last.
    pub fn note_default(&mut self, default: impl Into<String>) {
        if let Some(last) = self.descriptions.last_mut() {
            last.default = Some(default.into());
        }
    }

    /// Reports a fault without the value, which may be a secret. A value with a variable is shown.
    pub(super) fn report_hidden_fault(&mut self, key: &str, expected: &str) {
        let raw = self.values.get(key).map(|setting| &setting.raw);
        let found = match raw {
            Some(raw) if raw.has_variable() => raw.to_redacted_string(),
            _ => "something else".to_owned(),
        };
        self.report_at_value(key, "…", &format!("expected {expected}, but found {found}"), None);
    }

    /// Reports that `expected` is required here: at the value, if the setting has one, else at its
    /// section.
    pub fn report_required(&mut self, key: &str, expected: &str) {
        self.report_required_with_hint(key, expected, None);
    }

    /// Like [`Settings::report_required`], with what to write.
    pub fn report_required_with_hint(&mut self, key: &str, expected: &str, hint: Option<String>) {
        match self.values.get(key) {
            Some(setting) => {
                let found = setting.raw.to_redacted_string();
                let problem = format!("expected {expected}, but found {found}");
                self.report_at_value(key, &found, &problem, hint);
            }
            None => {
                let problem = format!("expected {expected}, but found nothing");
                self.report_at_key(key, &problem, hint);
                self.change_last_fault(|fault| fault.with_missing_key(key));
            }
        }
    }

    /// Reports a fault of a value. `shown_value` is the value as a fault may show it.
    pub(super) fn report_at_value(
        &mut self,
        key: &str,
        shown_value: &str,
        problem: &str,
        hint: Option<String>,
    ) {
        let has_variable = self.values.get(key).is_some_and(|it| it.raw.has_variable());
        let hint = if has_variable { Some(self.hint_for_variable_in(key)) } else { hint };
        let fault = self.begin_fault_at_shown_value(key, shown_value).with_problem(problem);
        self.faults.push(fault.with_hint(hint));
    }

    /// Warns of a value.
    pub(super) fn warn_at_value(&mut self, key: &str, problem: &str, hint: Option<String>) {
        let warning = self.begin_fault_at_value(key).with_problem(problem);
        self.warnings.push(warning.with_hint(hint));
    }

    /// Warns of a setting as a whole.
    pub(super) fn warn_at_key(&mut self, key: &str, problem: &str, hint: Option<String>) {
        let warning = self.begin_fault_at_key(key).with_problem(problem);
        self.warnings.push(warning.with_hint(hint));
    }

    /// Whether no part of a value in the file may be secret, so that a fault may show the value as
    /// it is written. `shown` is what a fault shows of it otherwise.
    fn is_plain(&self, setting: &RawSetting, shown: &str) -> bool {
        let written =
            setting.span.as_ref().and_then(|it| self.file_text.text.get(it.value.clone()));
        let written = written.filter(|text| redact_urls_and_long_words(text) == *text);
        let is_harmless = match &setting.raw {
            RawValue::Integer(_) | RawValue::Boolean(_) | RawValue::Fraction(_) => true,
            raw if raw.as_text().and_then(parse_duration).is_some() => true,
            raw => raw.to_redacted_string() == shown && raw.is_free_of_secrets(),
        };
        shown != "…" && written.is_some() && is_harmless
    }

    /// Returns a value as a fault says it: without what may be secret, and a number as it is
    /// written.
    fn found_value(&self, setting: &RawSetting) -> String {
        let found = setting.raw.to_redacted_string();
        let is_of_number =
            |it: &RawValue| matches!(it, RawValue::Integer(_) | RawValue::Fraction(_));
        let is_number = match &setting.raw {
            RawValue::List(items) => items.iter().all(is_of_number),
            raw => is_of_number(raw),
        };
        let written =
            setting.span.as_ref().and_then(|it| self.file_text.text.get(it.value.clone()));
        written.filter(|_| is_number).map_or(found, str::to_owned)
    }

    fn hint_for_variable_in(&self, key: &str) -> String {
        let raw = self.values.get(key).map(|it| it.raw.to_redacted_string()).unwrap_or_default();
        if key.ends_with("_file") && raw.contains("CREDENTIALS_DIRECTORY") {
            return hint_for_credential(key);
        }
        let is_of_entry = key.split('.').any(|part| part.parse::<usize>().is_ok());
        let is_from_file = self.values.get(key).is_some_and(|it| it.is_from_file);
        let file_key = format!("{key}_file");
        let has_file = self.descriptions.iter().any(|it| it.key == file_key);
        hint_for_variable(key, is_from_file && !is_of_entry, has_file.then_some(&file_key))
    }

    /// Begins a fault of a section that lacks the setting `key`: the place, without a problem yet.
    pub(super) fn begin_fault_at_section(&self, section: &str, key: &str) -> ConfigFault {
        match self.section_spans.get(section) {
            Some(span) => self.file_text.fault_at_key(span, key),
            None => ConfigFault::new(format!("config: {key}")),
        }
    }

    /// Begins a fault of a value: the place and the name of the setting, without a problem yet.
    pub(super) fn begin_fault_at_value(&self, key: &str) -> ConfigFault {
        let setting = self.values.get(key);
        let shown = setting.map_or(String::new(), |setting| setting.raw.to_redacted_string());
        self.begin_fault_at_shown_value(key, &shown)
    }

    fn begin_fault_at_shown_value(&self, key: &str, shown: &str) -> ConfigFault {
        let setting = self.values.get(key);
        let is_unsupported = |it: &RawSetting| matches!(it.raw, RawValue::Unsupported(_));
        let shown = if setting.is_some_and(is_unsupported) { "…" } else { shown };
        let is_plain = setting.is_some_and(|setting| self.is_plain(setting, shown));
        let shown = (!is_plain).then_some(shown);
        match setting.and_then(|setting| setting.span.as_ref()) {
            Some(span) => self.file_text.fault_at_value(span, shown, &self.shown_key(key)),
            None => self.begin_fault_without_text(key),
        }
    }

    /// Begins a fault at the name of a setting, or else at the section that lacks it.
    fn begin_fault_at_key(&self, key: &str) -> ConfigFault {
        let enclosing = || {
            let ends = key.match_indices('.').rev().map(|(at, _)| at);
            ends.map(|end| &key[..end]).find_map(|section| self.section_spans.get(section))
        };
        let place = match self.values.get(key) {
            Some(setting) => setting.span.as_ref(),
            None => enclosing(),
        };
        match place {
            Some(span) => self.file_text.fault_at_key(span, &self.shown_key(key)),
            None => self.begin_fault_without_text(key),
        }
    }

    fn begin_fault_without_text(&self, key: &str) -> ConfigFault {
        ConfigFault::new(format!("{}: {}", self.location_of(key), self.shown_key(key)))
    }

    /// Reports a fault in a text of a list: in the bytes `within` of the text at `index`.
    pub(super) fn report_in_list(
        &mut self,
        key: &str,
        (index, within): (usize, std::ops::Range<usize>),
        text: &str,
        problem: &str,
        hint: Option<String>,
    ) {
        let problem = format!("{}: {problem}", self.shown_key(key));
        let span = self.values.get(key).and_then(|setting| setting.span.as_ref());
        let place = span.and_then(|span| {
            let list = self.file_text.text.get(span.value.clone())?;
            let place = place_in_list(list, index, within)?;
            let place = span.value.start + place.start..span.value.start + place.end;
            Some((place, span.value.end))
        });
        let fault = match place {
            Some((place, end)) => self.file_text.fault_in_text(place, end, text, &problem),
            None => ConfigFault::new(format!("{}: {problem}", self.location_of(key))),
        };
        self.faults.push(fault.with_hint(hint));
    }

    /// Reports a fault at the name of a setting, or else at the section that lacks it.
    pub(super) fn report_at_key(&mut self, key: &str, problem: &str, hint: Option<String>) {
        let fault = self.begin_fault_at_key(key).with_problem(problem);
        self.faults.push(fault.with_hint(hint));
    }

    /// Changes the fault that was reported last, if any.
    pub(super) fn change_last_fault(&mut self, change: impl FnOnce(ConfigFault) -> ConfigFault) {
        let fault = self.faults.pop().map(change);
        self.faults.extend(fault);
    }

    /// Gives the last fault a hint, if it has none yet.
    pub(super) fn hint_last_fault(&mut self, hint: Option<String>) {
        self.change_last_fault(|fault| fault.or_hint(hint));
    }

    /// Gives the last fault a hint, if a setting is set and the fault has no hint yet.
    pub(super) fn hint_fault_of(&mut self, key: &str, hint: Option<String>) {
        if self.values.contains_key(key) {
            self.hint_last_fault(hint);
        }
    }

    /// Gives the last fault this hint, in place of any other.
    pub(super) fn replace_last_hint(&mut self, hint: String) {
        self.change_last_fault(|fault| fault.with_hint(Some(hint)));
    }

    /// Adds words to the hint of the last fault, if the fault has one.
    pub(super) fn add_to_last_hint(&mut self, words: &str) {
        self.change_last_fault(|fault| {
            let hint = fault.hint().map(|hint| format!("{hint}, {words}"));
            fault.with_hint(hint)
        });
    }

    /// Amends the hints of the faults of a list. If single texts of the list have faults, amends
    /// the hint of each of them. If none has, amends the hint of the last fault, which must be
    /// about the whole list. `amend` gets the faulty texts, or all texts of the list, and the
    /// present hint. Does nothing if the setting is not set.
    pub(super) fn amend_hints_of_list(
        &mut self,
        key: &str,
        amend: impl Fn(&[String], Option<String>) -> Option<String>,
    ) {
        let mut is_of_text = false;
        for fault in &mut self.faults {
            is_of_text |= fault.amend_hint_of_list(key, &amend);
        }
        if !is_of_text && self.values.contains_key(key) {
            let texts: Vec<String> = self.texts_of(key).collect();
            self.change_last_fault(|fault| {
                let hint = amend(&texts, fault.hint().map(str::to_owned));
                fault.with_hint(hint)
            });
        }
    }

    /// Returns the texts of a list. A single text counts as a list of one. Any other value, or
    /// none, gives no text.
    pub(super) fn texts_of(&self, key: &str) -> impl Iterator<Item = String> {
        let texts = self.values.get(key).and_then(|setting| setting.raw.as_text_or_list());
        texts.unwrap_or_default().into_iter()
    }

    /// Reports a fault of a whole section: at its header, or else at a header or a setting in it.
    pub(super) fn report_at_section(&mut self, section: &str, problem: &str, hint: Option<String>) {
        let problem = format!("{}: {problem}", self.shown_key(section));
        let prefix = format!("{section}.");
        let sections = || self.section_spans.iter().find(|(key, _)| key.starts_with(&prefix));
        let inside = self.values.iter().find(|(key, _)| key.starts_with(&prefix));
        let own = self.section_spans.get(section).or_else(|| Some(sections()?.1));
        let span = own.or_else(|| inside?.1.span.as_ref());
        let fault = match (span, inside) {
            (Some(span), _) => self.file_text.fault_at_key(span, &problem),
            (None, Some((_, setting))) => {
                ConfigFault::new(format!("{}: {problem}", setting.location))
            }
            (None, None) => ConfigFault::new(format!("config: {problem}")),
        };
        self.faults.push(fault.with_hint(hint));
    }

    /// Returns the key as faults show it: an entry of an array has its prefix or its name in place
    /// of its index, or else its number.
    pub(super) fn shown_key(&self, key: &str) -> String {
        let toml_of = |key: &str| {
            let text = self.values.get(key)?.raw.as_text()?;
            Some(toml_text(&redact_urls_and_long_words(text)))
        };
        ReadableSettingName::of(key, toml_of).to_string()
    }

    /// Reads a setting as `parse` reads its value. Returns `None` if the setting is missing or
    /// faulty. Reports a faulty one.
    pub fn parse_setting<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&RawValue) -> Option<T>,
    ) -> Option<T> {
        self.parse_kind(key, SettingKind::Text, expected, parse)
    }

    /// Reads a setting that has no default. Reports a missing or faulty setting, and returns
    /// `None`. `example` is a value, as TOML has it.
    pub(super) fn require_setting<T>(
        &mut self,
        key: &str,
        (expected, example): (&str, &str),
        parse: impl Fn(&RawValue) -> Option<T>,
    ) -> Option<T> {
        if !self.values.contains_key(key) {
            let name = key.rsplit('.').next().unwrap_or_default();
            let hint = format!("write {name} = {example}");
            self.report_required_with_hint(key, expected, Some(hint));
        }
        let value = self.parse_setting(key, expected, parse);
        let text = self.values.get(key).map(|setting| setting.raw.as_text());
        if value.is_none() && text == Some(Some("")) {
            self.replace_last_hint("write one".to_owned());
        }
        value
    }

    /// Like [`Settings::parse_setting`], for a list of texts.
    pub fn parse_list<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&[String]) -> Option<T>,
    ) -> Option<T> {
        self.parse_kind(key, SettingKind::List, expected, |raw| parse(&raw.as_text_list()?))
    }

    /// Like [`Settings::parse_setting`], for a list of whole numbers.
    pub fn parse_integer_list<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&[u64]) -> Option<T>,
    ) -> Option<T> {
        let parse = |raw: &RawValue| parse(&raw.as_integer_list()?);
        self.parse_kind(key, SettingKind::IntegerList, expected, parse)
    }

    /// Like [`Settings::parse_list`], but a text may stand in place of a list of one.
    pub fn parse_text_or_list<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&[String]) -> Option<T>,
    ) -> Option<T> {
        let parse = |raw: &RawValue| parse(&raw.as_text_or_list()?);
        self.parse_kind(key, SettingKind::TextOrList, expected, parse)
    }

    fn parse_kind<T>(
        &mut self,
        key: &str,
        kind: SettingKind,
        expected: &str,
        parse: impl Fn(&RawValue) -> Option<T>,
    ) -> Option<T> {
        let choices = match &kind {
            SettingKind::Choice(choices) => choices.clone(),
            _ => Vec::new(),
        };
        let takes_list = matches!(kind, SettingKind::List | SettingKind::TextOrList);
        let units = Units::of_setting(key, &kind);
        let setting = self.read_and_mark_known(key, kind)?;
        let value = parse(&setting.raw);
        let is_told = value.is_some()
            || takes_list && self.report_wrong_texts((key, units), &setting.raw, expected, &parse);
        if !is_told {
            let found = self.found_value(&setting);
            let word = match &setting.raw {
                RawValue::Integer(number) => Some(number.to_string()),
                raw => raw.as_text().map(str::to_owned),
            };
            let near = word.and_then(|it| find_nearest_name(&it, choices.into_iter()));
            let near = near.map(str::to_owned).or_else(|| {
                let is_valid = |word: &str| parse(&RawValue::Text(word.to_owned())).is_some();
                find_nearest_word(setting.raw.as_text()?, expected, is_valid)
            });
            let hint = match near {
                Some(near) => Some(format!("did you mean {}?", toml_text(&near))),
                None if setting.is_empty_variable() => Some(HINT_FOR_EMPTY_VARIABLE.to_owned()),
                // A location may be almost any text, so a guess at it would often be wrong.
                None if key.ends_with("url") => None,
                None if setting.raw.as_text().is_some_and(|it| WORDS_FOR_DEFAULT.contains(&it)) => {
                    Some("remove this line: without it, the default is in force".to_owned())
                }
                None if !matches!(setting.raw, RawValue::Untyped(_)) && !self.has_value(key) => {
                    Some("write a value, or remove this line".to_owned())
                }
                None => suggest_value(&setting.raw, units, |guess| parse(guess).is_some()),
            };
            let problem = format!("expected {expected}, but found {found}");
            self.report_at_value(key, &found, &problem, hint);
        }
        value
    }

    /// Reports each wrong text of a list, if the list has no other fault. Returns false, without a
    /// report, if the fault is another one, or if a hint for the whole list says more.
    fn report_wrong_texts<T>(
        &mut self,
        (key, units): (&str, Units),
        raw: &RawValue,
        expected: &str,
        parse: impl Fn(&RawValue) -> Option<T>,
    ) -> bool {
        let RawValue::List(items) = raw else { return false };
        let is_valid = |items: Vec<RawValue>| parse(&RawValue::List(items)).is_some();
        let (good, bad): (Vec<_>, Vec<_>) =
            items.iter().enumerate().partition(|(_, item)| is_valid(vec![(*item).clone()]));
        let rest: Vec<RawValue> = good.into_iter().map(|(_, item)| item.clone()).collect();
        // Some texts need others beside them, such as `origin` in `authz.check`.
        let is_wrong_beside =
            |item: &RawValue| !is_valid([&rest[..], std::slice::from_ref(item)].concat());
        let bad = bad.into_iter().filter(|(_, item)| is_wrong_beside(item));
        let bad: Option<Vec<(usize, String)>> =
            bad.map(|(at, item)| Some((at, item.as_text()?.to_owned()))).collect();
        let Some(bad) = bad.filter(|bad| !bad.is_empty()) else { return false };
        let near = |text: &str| {
            find_nearest_word(text, expected, |it| is_valid(vec![RawValue::Text(it.to_owned())]))
        };
        let is_guess = |guess: &RawValue| parse(guess).is_some();
        let is_list_guessed = suggest_value(raw, units, is_guess).is_some();
        let is_told_at_list = match items.len() {
            // Without a near word, the list may be the fault.
            1 => is_list_guessed || near(&bad[0].1).is_none(),
            _ if flat_list(items, units).is_some_and(|flat| is_guess(&flat)) => true,
            _ => bad.len() > 1 && is_list_guessed || !rest.is_empty() && !is_valid(rest),
        };
        if is_told_at_list {
            return false;
        }
        let is_valid_text =
            |guess: &RawValue| matches!(guess, RawValue::Text(_)) && is_valid(vec![guess.clone()]);
        for (index, text) in bad {
            let raw = RawValue::Text(text.clone());
            let hint = match near(&text) {
                Some(near) => Some(format!("did you mean {}?", toml_text(&near))),
                None => suggest_value(&raw, units, is_valid_text),
            };
            let problem = format!("expected {expected}, but found {}", raw.to_redacted_string());
            self.report_at_list_item(key, (index, &text), &problem, hint);
        }
        true
    }

    /// Reports a fault of a text in a list. Shows the list without what may be secret.
    fn report_at_list_item(
        &mut self,
        key: &str,
        (index, text): (usize, &str),
        problem: &str,
        hint: Option<String>,
    ) {
        let problem = format!("{}: {problem}", self.shown_key(key));
        let setting = self.values.get(key);
        let RawValue::List(items) = setting.map_or(&RawValue::Boolean(false), |it| &it.raw) else {
            return;
        };
        let shown: Vec<String> = items.iter().map(RawValue::to_redacted_string).collect();
        let span = setting.and_then(|setting| setting.span.as_ref());
        let fault = match span {
            Some(span) => self.file_text.fault_at_item(span, &shown, index, &problem),
            None => ConfigFault::new(format!("{}: {problem}", self.location_of(key))),
        };
        self.faults.push(fault.with_list_text(key, text).with_hint(hint));
    }

    /// Reports that an earlier entry of the array has the text of the setting `key` already.
    pub(super) fn report_taken(&mut self, key: &str, expected: &str) {
        let text_of = |key: &str| self.values.get(key)?.raw.as_text().map(str::to_owned);
        let Some((entry, name)) = key.rsplit_once('.') else { return };
        let Some((array, text)) = entry.rsplit_once('.').map(|it| it.0).zip(text_of(key)) else {
            return;
        };
        let entries = self.list_table_array_keys(array);
        let earlier = entries.iter().take_while(|it| *it != entry);
        let mut others = earlier.filter_map(|it| {
            let other_key = format!("{it}.{name}");
            let other = text_of(&other_key).filter(|it| it.eq_ignore_ascii_case(&text))?;
            Some((self.location_of(&other_key), other))
        });
        let hint = others.next().map(|(location, other)| {
            let case = if other == text { "" } else { ", and capital letters make no difference" };
            let place = match location.rsplit_once(':') {
                Some((_, line)) => format!("line {line}"),
                None => location,
            };
            format!("{place} has {}{case}", toml_text(&redact_urls_and_long_words(&other)))
        });
        let found = toml_text(&redact_urls_and_long_words(&text));
        let problem = format!("expected {expected}, but found {found}");
        self.report_at_value(key, &found, &problem, hint);
    }

    /// Reads a text. Returns None if it is missing, faulty or empty.
    pub fn read_text(&mut self, key: &str) -> Option<String> {
        self.parse_setting(key, "a text", |raw| raw.as_text().map(str::to_owned))
            .filter(|text| !text.is_empty())
    }

    /// Reads a path. Returns None if it is missing, faulty or empty.
    pub fn read_path(&mut self, key: &str) -> Option<PathBuf> {
        let path = self.read_text(key)?;
        self.path_of_text(key, path)
    }

    /// Returns the path that the setting `key` names. Reports a text that stands in a file, such as
    /// a private key, and shows no part of it.
    pub(super) fn path_of_text(&mut self, key: &str, text: String) -> Option<PathBuf> {
        let found = match text.as_str() {
            text if is_pem(text) && text.contains("PRIVATE KEY-----") => {
                "the text of a private key"
            }
            text if is_pem(text) => "the text of a file in PEM form",
            text if text.contains(['\r', '\n', '\0']) => "a text with a line end",
            _ => return Some(self.resolve_path(key, text.into())),
        };
        let problem = format!("expected the path of a file, but found {found}");
        let hint = "write this text into a file of its own, and write the path of this file here";
        self.report_at_key(key, &problem, Some(hint.to_owned()));
        None
    }

    /// Reads a path. Returns the default if the setting is missing, and `None` if it is an empty
    /// text, which switches off what the path is for.
    pub fn read_path_or_default(&mut self, key: &str, default: &str) -> Option<PathBuf> {
        let path = self.parse_setting(key, "a path", |raw| raw.as_text().map(str::to_owned));
        self.note_default(toml_text(default));
        match path {
            Some(path) if path.is_empty() => None,
            Some(path) => self.path_of_text(key, path),
            None => Some(self.base_folders.of_defaults.join(default)),
        }
    }

    /// Like [`Settings::read_path_or_default`], for data that must not get lost. Earlier versions
    /// looked for the default path in the working directory. If something stands only there,
    /// returns that path.
    pub fn read_path_or_former_default(&mut self, key: &str, default: &str) -> Option<PathBuf> {
        let path = self.read_path_or_default(key, default);
        match self.values.contains_key(key) {
            true => path,
            false => Some(self.find_default_path(key, default, "")),
        }
    }

    /// Returns the path of a default. If something stands only at the default path of earlier
    /// versions, returns that one and warns. The warning names the value to write: `scheme` with
    /// the path behind it.
    fn find_default_path(&mut self, key: &str, default: &str, scheme: &str) -> PathBuf {
        let present = self.base_folders.of_defaults.join(default);
        let Some(former) = self.find_former_default(default) else { return present };
        let absolute = std::path::absolute(&present).unwrap_or_else(|_| present.clone());
        let is_used = is_surely_missing(&present);
        // riskgate warns of a second store that is not used, because somebody may miss its keys.
        // Other files can be made again.
        if !is_used && (key != "store.url" || former == absolute) {
            return present;
        }
        let value = toml_text(&format!("{scheme}{}", former.display()));
        let name = key.rsplit('.').next().unwrap_or_default();
        let line = format!("{name} = {value}");
        let (key, found) = (key.to_owned(), former.clone());
        let former_default = FormerDefault { key, line, present: absolute, former: found, is_used };
        self.former_defaults.push(former_default);
        if is_used { former } else { present }
    }

    /// Returns the path at which earlier versions wrote a file by default: in the working
    /// directory, if the file is only there, or else in the folder of default paths. The file need
    /// not exist.
    pub fn find_file_of_earlier_versions(&self, default: &str) -> PathBuf {
        let present = self.base_folders.of_defaults.join(default);
        let former = self.find_former_default(default).filter(|_| is_surely_missing(&present));
        former.unwrap_or(present)
    }

    /// Returns the absolute path at which earlier versions looked for the default path, in the
    /// working directory, if something stands there that an earlier version may have made for this
    /// config.
    fn find_former_default(&self, default: &str) -> Option<PathBuf> {
        let former = std::path::absolute(default).ok().filter(|_| !self.ignores_former_defaults)?;
        former.exists().then_some(former)
    }

    /// Resolves a path that the setting `key` names. A relative path from the file starts at
    /// `base_folders.of_file`; any other relative path starts at the working directory.
    pub fn resolve_path(&self, key: &str, path: PathBuf) -> PathBuf {
        match self.values.get(key).is_some_and(|setting| setting.is_from_file) {
            true => self.base_folders.of_file.join(path),
            false => path,
        }
    }

    pub fn read_boolean(&mut self, key: &str, default: bool) -> bool {
        let value =
            self.parse_kind(key, SettingKind::Boolean, "true or false", RawValue::as_boolean);
        if value.is_none() && self.values.contains_key(key) {
            self.hint_last_fault(self.hint_for_switch(key));
        }
        self.note_default(default.to_string());
        value.unwrap_or(default)
    }

    pub fn read_optional_integer(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let parse = |raw: &RawValue| raw.as_integer().filter(|n| range.contains(n));
        self.parse_kind(key, SettingKind::Integer(range.clone()), &expected, parse)
    }

    pub fn read_integer(&mut self, key: &str, range: RangeInclusive<u64>, default: u64) -> u64 {
        let value = self.read_optional_integer(key, range);
        self.note_default(default.to_string());
        value.unwrap_or(default)
    }

    pub fn read_duration(&mut self, key: &str, default: Duration) -> Duration {
        let expected = "a duration such as 500ms, 2.5s, 10m, 1h or 7d";
        self.parse_duration_or(key, expected, Duration::ZERO, default)
    }

    /// Reads a duration, and rounds it up to whole seconds.
    pub fn read_whole_seconds(&mut self, key: &str, default_seconds: u64) -> Duration {
        let time = self.read_duration(key, Duration::from_secs(default_seconds));
        Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
    }

    /// Reads a duration of at least 1 ms; a zero timeout would reject every request.
    pub fn read_nonzero_duration(&mut self, key: &str, default: Duration) -> Duration {
        let expected = "a duration of 1ms or more, such as 500ms, 2.5s, 10m, 1h or 7d";
        self.parse_duration_or(key, expected, Duration::from_millis(1), default)
    }

    /// Reads a duration of at least 1 s.
    pub fn read_seconds_or_longer(&mut self, key: &str, default: Duration) -> Duration {
        let expected = "a duration of 1s or more, such as 10m, 1h or 7d";
        self.parse_duration_or(key, expected, Duration::from_secs(1), default)
    }

    fn parse_duration_or(
        &mut self,
        key: &str,
        expected: &str,
        shortest: Duration,
        default: Duration,
    ) -> Duration {
        let parse =
            |raw: &RawValue| parse_duration(raw.as_text()?).filter(|time| *time >= shortest);
        let is_too_long = self.texts_of(key).any(|text| is_too_long_duration(&text));
        let expected = if is_too_long { "a duration of at most 11574d" } else { expected };
        let value = self.parse_kind(key, SettingKind::Duration, expected, parse);
        if let Some(hint) = self.hint_for_time(key, default).filter(|_| value.is_none()) {
            self.replace_last_hint(hint);
        }
        if value.is_none() && !shortest.is_zero() {
            let hint = self.hint_for_short_time(key, shortest, default);
            self.hint_fault_of(key, hint);
        }
        self.note_default(toml_duration(default));
        value.unwrap_or(default)
    }

    /// Returns what to write for a time that is too short, and for no time. A time that can't be
    /// endless may be much longer than its default.
    fn hint_for_short_time(
        &self,
        key: &str,
        shortest: Duration,
        default: Duration,
    ) -> Option<String> {
        if self.is_endless(key) {
            let long = toml_duration(default * 10);
            return Some(format!("write a long time, such as {long}: this time can't be endless"));
        }
        let raw = self.values.get(key).map(|setting| &setting.raw)?;
        let time = toml_duration(shortest);
        let is_untyped = matches!(raw, RawValue::Untyped(_));
        let shown = if is_untyped { time.trim_matches('"') } else { &time };
        parse_duration(raw.as_text()?).map(|_| format!("write {shown}"))
    }

    /// Returns what to write for a number without a unit. The default tells the unit. If it is a
    /// second or less, a large number means milliseconds. If it is an hour or more, a small number
    /// means hours. If it is two days or more, a small number means days.
    fn hint_for_time(&self, key: &str, default: Duration) -> Option<String> {
        const DAY: Duration = Duration::from_hours(24);
        let (unit, numbers) = match default {
            _ if default.is_zero() => return None,
            _ if default <= Duration::from_secs(1) => ("ms", 50..=u64::MAX),
            _ if default >= 2 * DAY => ("d", 1..=999),
            _ if default >= DAY / 24 => ("h", 1..=48),
            _ => return None,
        };
        let raw = self.values.get(key).map(|setting| &setting.raw)?;
        let number = raw.as_integer().or_else(|| raw.as_text()?.parse().ok());
        let time = format!("{}{unit}", number.filter(|it| numbers.contains(it))?);
        let is_untyped = matches!(raw, RawValue::Untyped(_));
        Some(format!("write {}", if is_untyped { time } else { toml_text(&time) }))
    }

    /// Whether a value is what other servers have for no limit.
    fn is_endless(&self, key: &str) -> bool {
        const WORDS: [&str; 6] = ["none", "off", "never", "unlimited", "infinite", "-1"];
        let is_zero = |text: &str| parse_duration(text).is_some_and(|it| it.is_zero());
        match self.values.get(key).map(|it| &it.raw) {
            Some(RawValue::Integer(number)) => *number <= 0,
            Some(RawValue::Boolean(flag)) => !flag,
            Some(raw) => raw.as_text().is_some_and(|it| WORDS.contains(&it) || is_zero(it)),
            None => false,
        }
    }

    /// Reads one of `choices`. The first is the default.
    pub fn read_choice(&mut self, key: &str, choices: &[&'static str]) -> &'static str {
        let value = self.read_optional_choice(key, choices);
        self.note_default(toml_text(choices[0]));
        value.unwrap_or(choices[0])
    }

    /// Reads one of `choices`, without a default.
    pub fn read_optional_choice(
        &mut self,
        key: &str,
        choices: &[&'static str],
    ) -> Option<&'static str> {
        let expected = format!("{:?}", choices).replace(", ", " or ").replace(['[', ']'], "");
        let choose = |raw: &RawValue| {
            let text = raw.as_text()?;
            choices.iter().find(|choice| **choice == text).copied()
        };
        self.parse_kind(key, SettingKind::Choice(choices.to_vec()), &expected, choose)
    }

    pub fn read_address(&mut self, key: &str, default: &str) -> SocketAddr {
        let parse = |raw: &RawValue| raw.as_text()?.parse().ok();
        let value = self.parse_setting(key, &format!("an address such as {default}"), parse);
        if value.is_none() {
            self.hint_at_listener(key, Some(default));
        }
        self.note_default(toml_text(default));
        value
            .or_else(|| default.parse().ok())
            .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub fn read_optional_address(&mut self, key: &str) -> Option<SocketAddr> {
        let parse = |raw: &RawValue| raw.as_text()?.parse().ok();
        let value = self.parse_setting(key, "an address such as 127.0.0.1:8443", parse);
        if value.is_none() {
            self.hint_at_listener(key, None);
        }
        value
    }

    /// Gives the fault of a listener's address a hint, if it has none yet. A listener with a
    /// default can't be switched off.
    fn hint_at_listener(&mut self, key: &str, default: Option<&str>) {
        let hint = self.values.get(key).and_then(|setting| {
            let word = setting.raw.as_text().map(parse_switch_word);
            match setting.raw.as_boolean().or(word.flatten()) {
                Some(true) => {
                    let usual = USUAL_ADDRESSES.iter().find(|(listener, _)| *listener == key)?;
                    Some(format!("write {}", usual.1))
                }
                Some(false) => Some(match default {
                    Some(default) => {
                        format!("remove this line: riskgate then listens at {default}, on loopback")
                    }
                    None => "remove this line".to_owned(),
                }),
                None => hint_for_listener(key, setting.raw.as_text()?),
            }
        });
        if hint.is_some() {
            self.hint_last_fault(hint);
        }
    }

    /// Returns what to write if a setting that is true or false has the value of another one.
    fn hint_for_switch(&self, key: &str) -> Option<String> {
        let (_, other) = MEANT_SETTING_OF_SWITCH.iter().find(|(switch, _)| *switch == key)?;
        let raw = &self.values.get(key)?.raw;
        let name = key.rsplit('.').next().unwrap_or_default();
        let value = match (raw, raw.as_text()) {
            (RawValue::List(_), _) => raw.to_redacted_string(),
            // A version or an empty text is no value of the other setting.
            (_, Some(text)) if !text.contains(|c: char| c.is_ascii_alphabetic()) => {
                return Some(format!("write {name} = true, or remove this line"));
            }
            (_, Some(text)) => toml_text(&redact_urls_and_long_words(text)),
            _ => return None,
        };
        Some(format!("write {name} = true, and {other} = {value}"))
    }

    /// Reports listeners that have the same address.
    pub fn report_address_conflicts(&mut self, set: &[(&str, SocketAddr)]) {
        for (at, listener) in set.iter().enumerate() {
            let other = set[..at].iter().find(|it| do_addresses_conflict(&listener.1, &it.1));
            if let Some(other) = other {
                // The fault is told at the setting that is set, because a default stands in no
                // line.
                let ((key, address), (other, _)) = match self.values.contains_key(listener.0) {
                    true => (listener, other),
                    false => (other, listener),
                };
                let problem = format!("expected another address than {other}, but found {address}");
                // The listener without a token has to be on loopback, by its other fault.
                let meant = match *key == "listen.admin" && !self.has_admin_token() {
                    true => SocketAddr::from(([127, 0, 0, 1], address.port())),
                    false => *address,
                };
                let hint = free_address_for(key, meant, set);
                self.report_at_value(key, &format!("\"{address}\""), &problem, hint);
            }
        }
    }

    pub fn read_networks(&mut self, key: &str) -> Networks {
        let expected = "a list of addresses or networks such as [\"10.0.0.0/8\"]";
        let networks = self.parse_list(key, expected, Networks::parse);
        if networks.is_none() {
            self.amend_hints_of_list(key, |texts, hint| {
                let mut own = texts.iter().filter_map(|text| hint_for_network(text));
                hint.or_else(|| own.next())
            });
        }
        self.note_default("[]");
        let with_host_bits = |it: String| network_around(&it).map(|all| (it, all));
        let wide: Vec<_> = self.texts_of(key).filter_map(with_host_bits).collect();
        for (text, around) in wide.into_iter().filter(|_| networks.is_some()) {
            let address = text.split('/').next().unwrap_or_default();
            let problem = format!("expected the first address of a network, but found {text:?}");
            let hint = format!("write \"{around}\", or \"{address}\" for this address alone");
            self.warn_at_value(key, &problem, Some(hint));
        }
        networks.unwrap_or_default()
    }

    /// Lists the dotted keys of the members of a TOML array of tables, such as `upstream.route.0`
    /// for `upstream.route`.
    pub fn list_table_array_keys(&self, array: &str) -> Vec<String> {
        let prefix = format!("{array}.");
        let indexes: std::collections::BTreeSet<usize> = self
            .values
            .keys()
            .chain(self.section_spans.keys())
            .filter_map(|key| key.strip_prefix(&prefix)?.split('.').next()?.parse().ok())
            .collect();
        indexes.into_iter().map(|index| format!("{prefix}{index}")).collect()
    }

    /// Reads the address of a store, from the setting or from the file that `KEY_file` names. The
    /// default is an SQLite file.
    pub fn read_store_url(&mut self, key: &str, default_path: &str) -> StoreUrl {
        self.read_secret_from_file(key);
        let setting = self.read_and_mark_known(key, SettingKind::Text);
        self.note_default(toml_text(&format!("{SQLITE_SCHEME}{default_path}")));
        let parsed = match setting {
            Some(setting) => match setting.raw.as_text().map(StoreUrl::parse) {
                Some(Ok(url)) => Some(url),
                // The URL may contain a password, so the fault does not show it.
                Some(Err(error)) if !self.has_value(&format!("{key}_file")) => {
                    let hint = match setting.is_empty_variable() {
                        true => Some(HINT_FOR_EMPTY_VARIABLE.to_owned()),
                        false => setting.raw.as_text().and_then(hint_for_store),
                    };
                    self.report_at_value(key, "…", &error.to_string(), hint);
                    None
                }
                // The file may contain another secret, so the fault does not show its text.
                _ => {
                    self.report_hidden_fault(key, STORE_URL_SYNTAX);
                    None
                }
            },
            None => None,
        };
        let parsed = parsed.map(|url| match url {
            StoreUrl::Sqlite(path) => StoreUrl::Sqlite(self.resolve_path(key, path)),
            url => url,
        });
        let is_set = self.values.contains_key(key);
        parsed.unwrap_or_else(|| {
            let path = default_path.to_owned();
            // With a faulty setting riskgate does not start, so this path is never used.
            StoreUrl::Sqlite(match is_set {
                true => path.into(),
                false => self.find_default_path(key, &path, SQLITE_SCHEME),
            })
        })
    }

    pub fn read_key_prefix(&mut self, key: &str, default: &str) -> String {
        let is_valid = |text: &str| {
            (1..=32).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let parse = |raw: &RawValue| raw.as_text().filter(|text| is_valid(text)).map(str::to_owned);
        let prefix = self.parse_setting(key, "1 to 32 letters, digits or _", parse);
        self.note_default(toml_text(default));
        prefix.unwrap_or_else(|| default.to_owned())
    }

    /// Reports and drops plans that are written as sections, such as `[plans.free]`.
    fn report_plans_as_sections(&mut self, prefix: &str) {
        let is_of_array = |name: &str| name.starts_with(|c: char| c.is_ascii_digit());
        let sections = self
            .section_spans
            .keys()
            .filter(|it| it.strip_prefix(prefix).is_some_and(|name| !is_of_array(name)));
        for section in sections.cloned().collect::<Vec<_>>() {
            let name = &section[prefix.len()..];
            let inside = format!("{section}.");
            let mut values = self.values.iter().filter(|(key, _)| key.starts_with(&inside));
            let limit = values.find_map(|(_, setting)| setting.raw.as_integer()).unwrap_or(1_000);
            let hint = format!("write {name} = {limit} below [plans]");
            let problem = "expected calls in a month, but found a section";
            self.report_at_section(&section, problem, Some(hint));
            self.values.retain(|key, _| !key.starts_with(&inside));
            self.section_spans.remove(&section);
        }
    }

    /// Reads every key of `section`, but for `shipped`, as a monthly limit. `defaults` are the
    /// limits of keys that are not set.
    ///
    /// `hint` says what to write for a name that is no plan.
    pub fn read_plan_limits(
        &mut self,
        section: &str,
        defaults: &[(&str, u64)],
        hint: impl Fn(&str) -> Option<String>,
    ) -> Plans {
        let prefix = format!("{section}.");
        self.report_plans_as_sections(&prefix);
        // Settings in an array of tables below `plans` are reported as unknown.
        let is_in_section = |key: &&String| {
            self.section_spans.keys().any(|it| {
                it.starts_with(&prefix)
                    && key.strip_prefix(it.as_str()).is_some_and(|it| it.starts_with('.'))
            })
        };
        let set = self.values.keys().filter(|key| !is_in_section(key));
        let set = set.filter_map(|key| key.strip_prefix(&prefix));
        let mut names: Vec<String> =
            set.filter(|name| *name != "shipped").map(str::to_owned).collect();
        names.extend(defaults.iter().map(|(name, _)| (*name).to_owned()));
        names.sort_unstable();
        names.dedup();
        let limit = |raw: &RawValue| match raw.as_text() {
            Some("unlimited") => Some(MonthlyLimit::Unlimited),
            _ => raw.as_integer().map(MonthlyLimit::Calls),
        };
        let mut limits = Plans::new();
        for name in names {
            let expected = "calls in a month as a whole number, or \"unlimited\"";
            let key = format!("{prefix}{name}");
            let value = self.parse_kind(&key, SettingKind::CallLimit, expected, limit);
            if value.is_none() && self.values.contains_key(&key) {
                self.hint_last_fault(hint(&name));
            }
            let default =
                defaults.iter().find(|(known, _)| *known == name).map(|(_, calls)| *calls);
            if let Some(default) = default {
                self.note_default(default.to_string());
            }
            if let Some(MonthlyLimit::Calls(calls)) = value
                && MonthlyLimit::of_calls(calls).is_none()
            {
                // A fault would keep a config from being read that earlier versions took.
                let problem = format!(
                    "expected at most {MAX_MONTHLY_LIMIT}, because clients see no higher number, \
                     but found {calls}"
                );
                self.warn_at_value(&key, &problem, Some("write \"unlimited\"".to_owned()));
            }
            if let Some(value) = value.or(default.map(MonthlyLimit::Calls)) {
                limits.insert(name, value);
            }
        }
        limits
    }
}

/// Whether nothing stands at a path. A path that the system does not let riskgate check may exist.
fn is_surely_missing(path: &Path) -> bool {
    fs::exists(path).is_ok_and(|exists| !exists)
}

/// Returns what to write for a listener whose address another one of `listeners` has: the same
/// address, with a port that none has there.
fn free_address_for(
    key: &str,
    address: SocketAddr,
    listeners: &[(&str, SocketAddr)],
) -> Option<String> {
    let free = find_free_address(key, address, listeners)?;
    Some(format!("write {}", toml_text(&free.to_string())))
}

/// Returns this address with the usual port of the listener, or with the next port that none of
/// `listeners` has there. Tries ten ports.
fn find_free_address(
    key: &str,
    address: SocketAddr,
    listeners: &[(&str, SocketAddr)],
) -> Option<SocketAddr> {
    let usual = match key {
        "listen.https" => 8443,
        "listen.admin" => 9090,
        _ => 8080,
    };
    let mut free = (usual..usual + 10).map(|port| SocketAddr::new(address.ip(), port));
    free.find(|it| !listeners.iter().any(|(_, other)| do_addresses_conflict(it, other)))
}

/// Returns the address of loopback that the admin listener may have in place of `admin`: with the
/// same port, if none of the `other` listeners has it.
pub(super) fn find_admin_address_on_loopback(
    admin: SocketAddr,
    others: &[(&str, SocketAddr)],
) -> SocketAddr {
    let same_port = SocketAddr::from(([127, 0, 0, 1], admin.port()));
    match others.iter().any(|(_, other)| do_addresses_conflict(&same_port, other)) {
        true => find_free_address("listen.admin", same_port, others).unwrap_or(same_port),
        false => same_port,
    }
}

/// Returns what to write for a name in place of the address of a listener.
fn hint_for_listener(key: &str, text: &str) -> Option<String> {
    let units = Units::of_setting(key, &SettingKind::Text);
    if text.starts_with("unix:") || text.starts_with('/') {
        let port = units.port;
        return Some(format!("write \"127.0.0.1:{port}\": riskgate listens at no Unix socket"));
    }
    let (name, port) = text.rsplit_once(':')?;
    let is_name =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c));
    if port.parse::<u32>().is_ok_and(|port| port > 65_535) {
        return Some("write a port of 1 to 65535".to_owned());
    }
    let port: u16 = port.parse().ok()?;
    is_name.then(|| {
        let address = units.move_to_loopback_if_required(format!("0.0.0.0:{port}"));
        format!("write \"{address}\": riskgate listens at an address of this machine")
    })
}

/// Returns what to write for what stands in place of a network.
fn hint_for_network(text: &str) -> Option<String> {
    let words = WORDS_FOR_NETWORKS.iter().find(|(words, _)| words.contains(&text));
    let name = || is_host_name(text).then_some(NO_NAME_HERE);
    let most_bits = text.split_once('/').and_then(|(address, _)| {
        Some(if address.parse::<std::net::IpAddr>().ok()?.is_ipv4() { 32 } else { 128 })
    });
    let bits = most_bits.map(|most| format!("write a number of 0 to {most} behind the /"));
    words.map(|(_, hint)| *hint).or_else(name).map(str::to_owned).or(bits)
}

/// Whether a text may be the name of a host, and is no address.
pub(super) fn is_host_name(text: &str) -> bool {
    let (name, port) = text.split_once(':').unwrap_or((text, "0"));
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
        && port.parse::<u16>().is_ok()
}

/// How to write characters that have a meaning of their own in a URL.
const HINT_FOR_PASSWORD: &str = "write %2F for /, %23 for #, %3F for ?, %40 for @ and %25 for % in \
                                 the user and the password";

/// Returns what to write for what stands in place of a store's URL: the path of a file, or the
/// address of a server.
pub fn hint_for_store(text: &str) -> Option<String> {
    if text.trim() != text {
        return Some("remove the blanks before and behind the address".to_owned());
    }
    if has_malformed_escape(text) {
        return Some(HINT_FOR_PASSWORD.to_owned());
    }
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_some() && !text.contains(['/', '@', '?']) {
        let server = text.strip_prefix("redis:").unwrap_or(text);
        return Some(format!("write {}", toml_text(&format!("redis://{server}"))));
    }
    if text == "sqlite:" || text.starts_with("sqlite:") && text.ends_with('/') {
        return Some("write the path of a file, such as sqlite:state/riskgate.db".to_owned());
    }
    if let Some((path, _)) = text.strip_prefix("sqlite:").and_then(|it| it.split_once('?')) {
        return Some(format!(
            "write {}: an SQLite store has no options",
            toml_text(&format!("sqlite:{path}"))
        ));
    }
    if let Some(hint) = hint_for_scheme(text) {
        return Some(hint);
    }
    if text.starts_with("sqlite:~") {
        return Some(
            "write the whole path, such as sqlite:/home/me/x.db: no shell replaces ~".to_owned(),
        );
    }
    let path = text.strip_prefix("sqlite://").unwrap_or(text);
    let is_path = !path.contains([':', '@', '?', '#']) && !path.contains("//");
    let is_file = path.ends_with(".db") || path.ends_with(".sqlite");
    (is_path && is_file).then(|| format!("write {}", toml_text(&format!("sqlite:{path}"))))
}

/// Returns what to write for the URL of another kind of store.
fn hint_for_scheme(text: &str) -> Option<String> {
    const IN_MEMORY: [&str; 5] = ["memory", ":memory:", "sqlite::memory:", "sqlite", "redis"];
    if IN_MEMORY.contains(&text) || text.starts_with("memory:") {
        return Some(
            "write \"sqlite:state/riskgate.db\": a store is in a file, or on a server, \
                     as redis://HOST:PORT"
                .to_owned(),
        );
    }
    let (written, rest) = text.split_once("://")?;
    let scheme = written.to_ascii_lowercase();
    if let Some(hint) = hint_for_slip(written, rest) {
        return Some(hint);
    }
    let is_one_of = |words: &[&str]| words.iter().any(|word| scheme.contains(word));
    let has_several = text.split('@').next_back()?.contains(',');
    let has_tls = is_one_of(&["rediss", "valkeys", "tls", "ssl"]);
    let is_redis = matches!(scheme.as_str(), "redis" | "rediss");
    let own = if has_tls { "rediss" } else { "redis" };
    Some(match () {
        () if scheme.ends_with("+cluster") => {
            format!("write {own}+cluster://HOST:PORT,HOST:PORT without a path")
        }
        () if is_one_of(&["cluster"]) => format!("write {own}+cluster://HOST:PORT,HOST:PORT"),
        () if scheme.ends_with("+sentinel") && text.contains('?') => {
            let service = text.split_once("master=").map_or("SERVICE", |(_, rest)| {
                rest.split(|c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c))
                    .next()
                    .unwrap_or_default()
            });
            let service = if service.is_empty() { "SERVICE" } else { service };
            format!("write {own}+sentinel://HOST:PORT,HOST:PORT/{service}/0")
        }
        () if is_one_of(&["sentinel"]) && !scheme.ends_with("+sentinel") => {
            format!("write {own}+sentinel://HOST:PORT,HOST:PORT/SERVICE")
        }
        () if is_redis && has_several => format!(
            "write one server, for Sentinels {own}+sentinel://HOST:PORT,HOST:PORT/SERVICE, or for \
             a Cluster {own}+cluster://HOST:PORT,HOST:PORT"
        ),
        () if is_redis && text.split('@').next_back()?.contains('?') => format!(
            "write {own}://HOST:PORT/DATABASE without a ?, with the number of the database behind /"
        ),
        () if is_redis
            && text.rsplit_once('@').is_some_and(|(user, _)| {
                user.split_once("://").is_some_and(|(_, it)| it.contains(['/', '#', '?', '@']))
            }) =>
        {
            HINT_FOR_PASSWORD.to_owned()
        }
        () if is_redis && has_named_database(text) => {
            format!("write {own}://HOST:PORT/0: behind the / is the number of a database")
        }
        () if is_one_of(&["valkey", "keydb", "dragonfly", "redis"])
            && !is_redis
            && !scheme.ends_with("+sentinel") =>
        {
            format!("write {own}://HOST:PORT; Valkey has the same scheme")
        }
        () if is_one_of(&["file"]) => "write sqlite:PATH".to_owned(),
        () if is_one_of(&["postgres", "mysql", "maria", "mongo", "memcache", "etcd", "http"]) => {
            "write redis://HOST:PORT of a Redis or Valkey server, or for one node \
             sqlite:state/riskgate.db; there are no other stores"
                .to_owned()
        }
        () => return None,
    })
}

/// Returns what to write for a scheme in capitals, a port that no server has, and Sentinels without
/// a service.
fn hint_for_slip(written: &str, rest: &str) -> Option<String> {
    let scheme = written.to_ascii_lowercase();
    if written != scheme && StoreUrl::parse(&format!("{scheme}://{rest}")).is_ok() {
        return Some(format!("write {scheme}:// in small letters"));
    }
    if scheme == "redis" && asks_for_tls(rest) {
        return Some("write rediss://HOST:PORT/DATABASE: rediss:// means TLS".to_owned());
    }
    let is_high = |port: &str| port.parse::<u32>().is_ok_and(|port| port > 65_535);
    let authority = rest.split('@').next_back()?.split('/').next()?;
    if authority.split(',').any(|it| it.rsplit_once(':').is_some_and(|it| is_high(it.1))) {
        return Some("write a port of 1 to 65535".to_owned());
    }
    let names_no_service = scheme.ends_with("+sentinel") && !rest.contains(['/', '?']);
    names_no_service.then(|| {
        format!(
            "write {scheme}://HOST:PORT,HOST:PORT/SERVICE: SERVICE is the name that the Sentinels \
             have for the server"
        )
    })
}

/// Whether a URL has a query that asks for TLS, as other programs read it.
fn asks_for_tls(url: &str) -> bool {
    let query = url.split('@').next_back().and_then(|it| it.split_once('?'));
    query.is_some_and(|(_, query)| {
        query.split('&').any(|part| match part.split_once('=') {
            Some(("ssl" | "tls", value)) => matches!(value, "true" | "1"),
            Some((name, _)) => name == "ssl_cert_reqs",
            None => false,
        })
    })
}

/// Whether a URL of one server has a name in place of the number of a database.
fn has_named_database(url: &str) -> bool {
    let rest = url.split('@').next_back().unwrap_or_default();
    let path = rest.rsplit("://").next().and_then(|it| it.split_once('/')).map(|it| it.1);
    path.is_some_and(|it| !it.is_empty() && !it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true if the two addresses can't be bound at the same time. Port 0, which is any free
/// port, conflicts with none.
fn do_addresses_conflict(one: &SocketAddr, other: &SocketAddr) -> bool {
    let is_all = |address: &SocketAddr| address.ip().is_unspecified();
    // An IPv6 socket on all addresses also accepts IPv4 connections.
    let covers = |a: &SocketAddr, b: &SocketAddr| is_all(a) && (a.is_ipv6() || b.is_ipv4());
    one.port() == other.port()
        && one.port() != 0
        && (one.ip() == other.ip() || covers(one, other) || covers(other, one))
}
