//! The settings in force, each with the place that it is from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Value, json};

use super::description::{SettingDescription, SettingKind, is_index, without_indexes};
use super::read_at_start::is_read_at_start;
use super::readable_name::ReadableSettingName;
use super::settings::{RawSetting, Settings};
use crate::keys::sha256;

/// Which source a setting is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// None: the default.
    Default,
    /// The config file, or a file of a secret that it names.
    File,
    /// The environment or the command line of the process.
    Process,
}

/// A setting in force.
#[derive(Clone, Debug)]
pub struct EffectiveSetting {
    /// The dotted key. An entry of an array of tables has its index: `upstream.route.0.prefix`.
    pub key: String,
    /// The value in TOML; `None` if the setting has no value. Secrets are `"…"`.
    pub value: Option<String>,
    /// `default`, the file and line, the file of a secret, the variable, or `command line`.
    pub source: String,
    /// Which kind of source `source` is.
    pub origin: SettingOrigin,
    /// The [`fingerprint_secret`] of a secret, of a URL, or of the secret in the file that the
    /// setting names; `None` for all other values.
    pub secret_fingerprint: Option<String>,
}

/// All settings in force, in the order of their keys.
#[derive(Clone, Debug)]
pub struct EffectiveSettings(pub Vec<EffectiveSetting>);

impl EffectiveSettings {
    /// Lists the settings that were read.
    pub(super) fn from_settings(settings: &Settings) -> EffectiveSettings {
        EffectiveSettings(list_settings(settings))
    }

    /// Describes each change from these settings to `new`, without secrets: one text for a setting,
    /// for an entry that was added or removed, or for a new order of the rules. An entry of an
    /// array of tables has its prefix or its name in place of its index. `at_start` are the
    /// settings with which the process started.
    pub fn describe_changes(
        &self,
        new: &EffectiveSettings,
        at_start: &EffectiveSettings,
    ) -> Vec<String> {
        let at_start = at_start.group_by_shown_key();
        let (old_order, new_order) = (self.rule_order(), new.rule_order());
        let (old, new) = (self.group_by_shown_key(), new.group_by_shown_key());
        let entries = |all: &BTreeMap<ReadableSettingName, ShownValue>| -> BTreeSet<String> {
            all.keys().filter_map(|key| key.entry.clone()).collect()
        };
        let (old_entries, new_entries) = (entries(&old), entries(&new));
        let mut changes = Vec::new();
        changes.extend(new_entries.difference(&old_entries).map(|it| format!("{it} added")));
        changes.extend(old_entries.difference(&new_entries).map(|it| format!("{it} removed")));
        for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
            let in_both =
                |entry: &String| old_entries.contains(entry) && new_entries.contains(entry);
            if !key.entry.as_ref().is_none_or(in_both) {
                continue;
            }
            let not_set = ShownValue::default();
            let values = [&old, &new].map(|all| all.get(key).unwrap_or(&not_set));
            if let Some(change) = describe_change(values[0], values[1]) {
                let is_of_start = key.entry.is_none() && is_read_at_start(&key.name);
                let is_in_force = at_start.get(key).unwrap_or(&not_set) == values[1];
                let when = match is_of_start {
                    true if is_in_force => ", in force since the start",
                    true => " at the next restart",
                    false => "",
                };
                changes.push(format!("{key} {change}{when}"));
            }
        }
        let of_both = |all: &[String], others: &[String]| -> Vec<String> {
            all.iter().filter(|name| others.contains(name)).cloned().collect()
        };
        if of_both(&old_order, &new_order) != of_both(&new_order, &old_order) {
            changes.push(format!("the order of the rules is now {}", new_order.join(", ")));
        }
        changes
    }

    /// The names of the rules in their order: the first rule that holds decides. Each name is in
    /// TOML.
    pub fn rule_order(&self) -> Vec<String> {
        let index_and_name = |it: &EffectiveSetting| {
            let index = it.key.strip_prefix("rule.")?.strip_suffix(".name")?.parse().ok()?;
            Some((index, it.value.clone()?))
        };
        let names: BTreeMap<usize, String> = self.0.iter().filter_map(index_and_name).collect();
        names.into_values().collect()
    }

    /// Lists the settings that are read at the start only and that `new` changes.
    pub fn list_changed_at_start(&self, new: &EffectiveSettings) -> Vec<String> {
        let (old, new) = (self.group_by_shown_key(), new.group_by_shown_key());
        let of_start =
            |key: &&ReadableSettingName| key.entry.is_none() && is_read_at_start(&key.name);
        let keys: BTreeSet<&ReadableSettingName> =
            old.keys().chain(new.keys()).filter(of_start).collect();
        let not_set = ShownValue::default();
        let value = |all: &BTreeMap<_, ShownValue>, key: &ReadableSettingName| {
            all.get(key).unwrap_or(&not_set).clone()
        };
        let has_changed = |key: &&ReadableSettingName| value(&old, key) != value(&new, key);
        keys.into_iter().filter(has_changed).map(ToString::to_string).collect()
    }

    /// The settings, each with its name as people know it: an entry of an array of tables has its
    /// prefix or its name in place of its index.
    pub fn into_named(self) -> Vec<(String, EffectiveSetting)> {
        let values = self.values_by_key();
        let name = |it: &EffectiveSetting| name_setting(&it.key, &values).to_string();
        let names: Vec<String> = self.0.iter().map(name).collect();
        names.into_iter().zip(self.0).collect()
    }

    fn values_by_key(&self) -> BTreeMap<&str, &str> {
        self.0.iter().filter_map(|it| Some((it.key.as_str(), it.value.as_deref()?))).collect()
    }

    fn group_by_shown_key(&self) -> BTreeMap<ReadableSettingName, ShownValue> {
        let values = self.values_by_key();
        let value = |setting: &EffectiveSetting| ShownValue {
            text: setting.value.clone(),
            fingerprint: setting.secret_fingerprint.clone(),
        };
        self.0.iter().map(|it| (name_setting(&it.key, &values), value(it))).collect()
    }

    /// Renders the settings as a config file, with a comment behind each value that names its
    /// source. Settings without a value are comments.
    pub fn to_toml(&self) -> String {
        let (mut out, mut section) = (String::new(), String::new());
        for EffectiveSetting { key, value, source, .. } in &self.0 {
            let (of_key, name) = key.rsplit_once('.').unwrap_or(("", key));
            if of_key != section {
                section = of_key.to_owned();
                let gap = if out.is_empty() { "" } else { "\n" };
                // Writing to a string can't fail.
                let _ = writeln!(out, "{gap}{}", section_header(&section));
            }
            let _ = match value {
                Some(value) => writeln!(out, "{name} = {value}  # {source}"),
                None => writeln!(out, "# {name} is not set"),
            };
        }
        out
    }

    /// Renders the settings as a JSON array of objects with `key`, `value` (in TOML, or null) and
    /// `source`.
    pub fn to_json(&self) -> Value {
        self.0
            .iter()
            .map(|it| json!({"key": it.key, "value": it.value, "source": it.source}))
            .collect()
    }
}

/// `values` are the values in TOML of all settings by key.
fn name_setting(key: &str, values: &BTreeMap<&str, &str>) -> ReadableSettingName {
    ReadableSettingName::of(key, |key| values.get(key).map(|value| (*value).to_owned()))
}

/// The value of a setting, as a message may show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ShownValue {
    text: Option<String>,
    fingerprint: Option<String>,
}

/// The longest value that a change shows, in characters.
const MAX_SHOWN_VALUE_CHARS: usize = 60;

fn describe_change(old: &ShownValue, new: &ShownValue) -> Option<String> {
    if old == new {
        return None;
    }
    // Only what is hidden differs: a secret, or a password in an address.
    if old.text == new.text {
        return Some("changed".to_owned());
    }
    let shorten = |value: &ShownValue| match &value.text {
        None => "not set".to_owned(),
        Some(text) if text.chars().count() <= MAX_SHOWN_VALUE_CHARS => text.clone(),
        Some(text) => text.chars().take(MAX_SHOWN_VALUE_CHARS).chain(['…']).collect(),
    };
    let (old, new) = (shorten(old), shorten(new));
    Some(if old == new { "changed".to_owned() } else { format!("{old} → {new}") })
}

/// The first 16 bits of the SHA-256 of a secret, in hex. riskgate compares them to tell the audit
/// that a secret has changed. They are too few to find the secret by guesses.
pub fn fingerprint_secret(secret: &[u8]) -> String {
    let [first, second, ..] = sha256(secret);
    format!("{first:02x}{second:02x}")
}

/// Returns the header of a section in TOML: `[[upstream.route]]` for `upstream.route.0`, and
/// `[upstream.route.screen]` for `upstream.route.0.screen`.
fn section_header(section: &str) -> String {
    let names = without_indexes(section);
    match section.rsplit('.').next().is_some_and(is_index) {
        true => format!("[[{names}]]"),
        false => format!("[{names}]"),
    }
}

fn list_settings(settings: &Settings) -> Vec<EffectiveSetting> {
    // A setting that is read twice is listed once.
    let mut listed: BTreeMap<_, EffectiveSetting> = BTreeMap::new();
    for description in &settings.descriptions {
        let setting = settings.values.get(&description.key);
        listed
            .entry(sort_key(&description.key))
            .or_insert_with(|| effective_setting(description, setting));
    }
    listed.into_values().collect()
}

fn effective_setting(
    description: &SettingDescription,
    setting: Option<&RawSetting>,
) -> EffectiveSetting {
    let SettingDescription { key, kind, default } = description;
    let key = key.clone();
    let Some(setting) = setting else {
        let (source, origin) = ("default".to_owned(), SettingOrigin::Default);
        return EffectiveSetting {
            key,
            value: default.clone(),
            source,
            origin,
            secret_fingerprint: None,
        };
    };
    let (value, hidden_text) = match kind {
        SettingKind::Secret => (Some("\"…\"".to_owned()), setting.raw.as_text()),
        kind => (setting.raw.to_toml(kind), setting.raw.as_url()),
    };
    let of_text = || hidden_text.map(|text| fingerprint_secret(text.as_bytes()));
    let is_from_process = setting.is_from_process;
    EffectiveSetting {
        key,
        value,
        source: setting.location.clone(),
        origin: if is_from_process { SettingOrigin::Process } else { SettingOrigin::File },
        secret_fingerprint: setting.secret_fingerprint.clone().or_else(of_text),
    }
}

/// Returns the sort key of a setting. By it, each section stands in one place, a section stands
/// before its entries, and the tenth entry behind the second.
fn sort_key(key: &str) -> (Vec<(usize, String)>, String) {
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let parts = section.split('.').map(|part| match part.parse() {
        Ok(index) => (index, String::new()),
        Err(_) => (usize::MAX, part.to_owned()),
    });
    (parts.collect(), name.to_owned())
}
