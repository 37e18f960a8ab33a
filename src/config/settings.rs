//! Typed access to settings.
//!
//! Owns types, ranges and the wording of faults, but not the meaning of any setting. Reading goes
//! on after a faulty setting, so that one start reports all faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::description::{SettingDescription, SettingKind, toml_duration, toml_text};
use super::raw_value::{RawValue, parse_duration};

use crate::keys::Plans;
use crate::model::network::Networks;
use crate::store::{MonthlyLimit, STORE_URL_SYNTAX, StoreUrl};

/// A value and its location: file and line, variable or command line.
#[derive(Clone, Debug)]
pub struct RawSetting {
    pub raw: RawValue,
    pub location: String,
    pub is_from_file: bool,
    /// Whether the value is from the environment or the command line of the process, or from a file
    /// that they name.
    pub is_from_process: bool,
}

impl RawSetting {
    /// A value from the environment or the command line.
    pub fn new(raw: RawValue, location: String) -> RawSetting {
        RawSetting { raw, location, is_from_file: false, is_from_process: true }
    }
}

/// All settings by their dotted key.
#[derive(Default)]
pub struct Settings {
    pub values: BTreeMap<String, RawSetting>,
    /// The location of each section by its dotted name, including empty sections.
    pub section_locations: BTreeMap<String, String>,
    /// The settings that the program has asked for so far. At the end, all other keys are unknown.
    pub descriptions: Vec<SettingDescription>,
    /// The folder at which relative paths in the file start.
    pub base_folder: PathBuf,
    /// The faults found so far.
    pub faults: Vec<String>,
    /// The files that were read, or could not be read: the config file and files of secrets.
    pub files: Vec<PathBuf>,
    /// True if the system could not read one of these files for now.
    pub has_transient_fault: bool,
}

impl Settings {
    /// Reports each setting and section that the program never read.
    pub fn report_unknown_keys(&mut self) {
        let is_known = |key: &String| self.descriptions.iter().any(|known| known.key == *key);
        let unknown = self.values.iter().filter(|(key, _)| !is_known(key));
        let faults = unknown.map(|(key, setting)| {
            let section = key.rsplit_once('.').map_or("", |(section, _)| section);
            let same_section = |k: &&str| k.rsplit_once('.').is_some_and(|(s, _)| s == section);
            let known = self.descriptions.iter().map(|known| known.key.as_str());
            let known: Vec<&str> = known.filter(same_section).collect();
            let expected = match known.is_empty() {
                true => "a known section".to_owned(),
                false => format!("one of {}", known.join(", ")),
            };
            format!("{}: {key}: expected {expected}, but found an unknown key", setting.location)
        });
        let has_known_key = |section: &str| {
            let prefix = format!("{section}.");
            self.descriptions.iter().any(|known| known.key.starts_with(&prefix))
        };
        let unknown_sections = self.section_locations.iter().filter(|(section, _)| {
            let holds_keys = self.values.keys().any(|key| key.starts_with(&format!("{section}.")));
            !holds_keys && !has_known_key(section)
        });
        let unknown_sections = unknown_sections.map(|(section, at)| {
            format!("{at}: {section}: expected a known section, but found an unknown one")
        });
        let faults: Vec<String> = faults.chain(unknown_sections).collect();
        self.faults.extend(faults);
    }

    /// Returns where the setting is from: file and line, variable or command line.
    pub fn location_of(&self, key: &str) -> String {
        self.values.get(key).map_or("config".to_owned(), |setting| setting.location.clone())
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

    fn report_fault(&mut self, key: &str, setting: &RawSetting, expected: &str) {
        let found = setting.raw.to_redacted_string();
        self.faults
            .push(format!("{}: {key}: expected {expected}, but found {found}", setting.location));
    }

    /// Reports a fault without the value, which may be a secret.
    pub(super) fn report_hidden_fault(&mut self, key: &str, setting: &RawSetting, expected: &str) {
        let at = &setting.location;
        self.faults.push(format!("{at}: {key}: expected {expected}, but found something else"));
    }

    /// Reports a missing setting.
    pub fn report_missing(&mut self, key: &str, expected: &str) {
        self.faults.push(format!("config: {key}: expected {expected}, but found nothing"));
    }

    /// Parses a text. Returns None if the setting is missing or faulty. Reports a faulty one.
    pub fn parse_setting<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&RawValue) -> Option<T>,
    ) -> Option<T> {
        self.parse_kind(key, SettingKind::Text, expected, parse)
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
        let setting = self.read_and_mark_known(key, kind)?;
        let value = parse(&setting.raw);
        if value.is_none() {
            self.report_fault(key, &setting, expected);
        }
        value
    }

    /// Reads a text. Returns None if it is missing, faulty or empty.
    pub fn text(&mut self, key: &str) -> Option<String> {
        self.parse_setting(key, "a text", |raw| raw.as_text().map(str::to_owned))
            .filter(|text| !text.is_empty())
    }

    /// Reads a path. Returns None if it is missing, faulty or empty.
    pub fn path(&mut self, key: &str) -> Option<PathBuf> {
        let path = self.text(key)?;
        Some(self.resolve_path(key, path.into()))
    }

    /// Reads a path, or returns the default if the setting is missing. An empty text switches off
    /// what the path is for: the result is None.
    pub fn path_or_default(&mut self, key: &str, default: &str) -> Option<PathBuf> {
        let path = self.parse_setting(key, "a path", |raw| raw.as_text().map(str::to_owned));
        self.note_default(toml_text(default));
        let path = path.unwrap_or_else(|| default.to_owned());
        (!path.is_empty()).then(|| self.resolve_path(key, path.into()))
    }

    /// Returns a path that this setting names. A relative path in the file starts at the file's
    /// folder; any other relative path starts at the working directory.
    pub fn resolve_path(&self, key: &str, path: PathBuf) -> PathBuf {
        match self.values.get(key).is_some_and(|setting| setting.is_from_file) {
            true => self.base_folder.join(path),
            false => path,
        }
    }

    pub fn boolean(&mut self, key: &str, default: bool) -> bool {
        let value =
            self.parse_kind(key, SettingKind::Boolean, "true or false", RawValue::as_boolean);
        self.note_default(default.to_string());
        value.unwrap_or(default)
    }

    pub fn optional_integer(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let parse = |raw: &RawValue| raw.as_integer().filter(|n| range.contains(n));
        self.parse_kind(key, SettingKind::Integer(range.clone()), &expected, parse)
    }

    pub fn integer(&mut self, key: &str, range: RangeInclusive<u64>, default: u64) -> u64 {
        let value = self.optional_integer(key, range);
        self.note_default(default.to_string());
        value.unwrap_or(default)
    }

    pub fn duration(&mut self, key: &str, default: Duration) -> Duration {
        let expected = "a duration such as 500ms, 2.5s, 10m, 1h or 7d";
        self.parse_duration_or(key, expected, Duration::ZERO, default)
    }

    /// Reads a duration of at least 1 ms; a zero timeout would reject every request.
    pub fn nonzero_duration(&mut self, key: &str, default: Duration) -> Duration {
        let expected = "a duration of 1ms or more, such as 500ms, 2.5s, 10m, 1h or 7d";
        self.parse_duration_or(key, expected, Duration::from_millis(1), default)
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
        let value = self.parse_kind(key, SettingKind::Duration, expected, parse);
        self.note_default(toml_duration(default));
        value.unwrap_or(default)
    }

    /// Reads one of `choices`. The first is the default.
    pub fn choice(&mut self, key: &str, choices: &[&'static str]) -> &'static str {
        let expected = format!("{:?}", choices).replace(", ", " or ").replace(['[', ']'], "");
        let choose = |raw: &RawValue| {
            let text = raw.as_text()?;
            choices.iter().find(|choice| **choice == text).copied()
        };
        let value = self.parse_kind(key, SettingKind::Choice(choices.to_vec()), &expected, choose);
        self.note_default(toml_text(choices[0]));
        value.unwrap_or(choices[0])
    }

    pub fn address(&mut self, key: &str, default: &str) -> SocketAddr {
        let parse = |raw: &RawValue| raw.as_text()?.parse().ok();
        let value = self.parse_setting(key, "an address such as 127.0.0.1:8080", parse);
        self.note_default(toml_text(default));
        value
            .or_else(|| default.parse().ok())
            .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub fn optional_address(&mut self, key: &str) -> Option<SocketAddr> {
        let parse = |raw: &RawValue| raw.as_text()?.parse().ok();
        self.parse_setting(key, "an address such as 127.0.0.1:8443", parse)
    }

    /// Reports listeners that have the same address.
    pub fn report_address_conflicts(&mut self, addresses: &[(&str, Option<SocketAddr>)]) {
        let set: Vec<(&str, SocketAddr)> =
            addresses.iter().filter_map(|(key, address)| Some((*key, (*address)?))).collect();
        for (at, (key, address)) in set.iter().enumerate() {
            let other = set[..at].iter().find(|(_, other)| do_addresses_conflict(address, other));
            if let Some((other, _)) = other {
                let location = self.location_of(key);
                self.faults.push(format!(
                    "{location}: {key}: expected another address than {other}, but found {address}"
                ));
            }
        }
    }

    pub fn networks(&mut self, key: &str) -> Networks {
        let expected = "a list of addresses or networks such as [\"10.0.0.0/8\"]";
        let networks = self.parse_list(key, expected, Networks::parse);
        self.note_default("[]");
        networks.unwrap_or_default()
    }

    /// Lists the dotted keys of the members of a TOML array of tables, such as `upstream.route.0`
    /// for `upstream.route`.
    pub fn list_table_array_keys(&self, array: &str) -> Vec<String> {
        let prefix = format!("{array}.");
        let indexes: std::collections::BTreeSet<usize> = self
            .values
            .keys()
            .chain(self.section_locations.keys())
            .filter_map(|key| key.strip_prefix(&prefix)?.split('.').next()?.parse().ok())
            .collect();
        indexes.into_iter().map(|index| format!("{prefix}{index}")).collect()
    }

    pub fn store_url(&mut self, key: &str, default: &str) -> StoreUrl {
        self.read_secret_file(key);
        let setting = self.read_and_mark_known(key, SettingKind::Text);
        self.note_default(toml_text(default));
        let parsed = match setting {
            Some(setting) => match setting.raw.as_text().map(StoreUrl::parse) {
                Some(Ok(url)) => Some(url),
                // The URL may contain a password, so the error does not contain the URL.
                Some(Err(error)) if !self.values.contains_key(&format!("{key}_file")) => {
                    self.faults.push(format!("{}: {key}: {error}", setting.location));
                    None
                }
                // A wrong file may contain another secret, so the error does not contain its text.
                _ => {
                    self.report_hidden_fault(key, &setting, STORE_URL_SYNTAX);
                    None
                }
            },
            None => None,
        };
        let parsed = parsed.map(|url| match url {
            StoreUrl::Sqlite(path) => StoreUrl::Sqlite(self.resolve_path(key, path)),
            url => url,
        });
        parsed
            .or_else(|| StoreUrl::parse(default).ok())
            .unwrap_or_else(|| StoreUrl::Sqlite("state/riskgate.db".into()))
    }

    pub fn key_prefix(&mut self, key: &str, default: &str) -> String {
        let is_valid = |text: &str| {
            (1..=32).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let parse = |raw: &RawValue| raw.as_text().filter(|text| is_valid(text)).map(str::to_owned);
        let prefix = self.parse_setting(key, "1 to 32 letters, digits or _", parse);
        self.note_default(toml_text(default));
        prefix.unwrap_or_else(|| default.to_owned())
    }

    /// Reads every key of `section`, but for `shipped`, as a monthly limit. `defaults` are the
    /// limits of keys that are not set.
    pub fn read_plan_limits(&mut self, section: &str, defaults: &[(&str, u64)]) -> Plans {
        let prefix = format!("{section}.");
        let set = self.values.keys().filter_map(|key| key.strip_prefix(&prefix));
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
            let default =
                defaults.iter().find(|(known, _)| *known == name).map(|(_, calls)| *calls);
            if let Some(default) = default {
                self.note_default(default.to_string());
            }
            if let Some(value) = value.or(default.map(MonthlyLimit::Calls)) {
                limits.insert(name, value);
            }
        }
        limits
    }
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
