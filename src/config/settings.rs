//! Raw settings with their locations, and typed access to them.
//!
//! Owns types, ranges and the wording of faults, but not the meaning of any setting. Reading goes
//! on after a faulty setting, so that one start reports all faults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::raw_value::{RawValue, parse_duration};
use super::secret::Secret;

use crate::keys::Plans;
use crate::model::network::Networks;
use crate::store::{MonthlyLimit, STORE_URL_SYNTAX, StoreUrl};
use crate::support::regular_file::read_regular_text;

const ENV_PREFIX: &str = "RISKGATE__";
/// The largest config file, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// A value and its location: file and line, variable or command line.
#[derive(Clone, Debug)]
pub struct RawSetting {
    raw: RawValue,
    location: String,
}

/// All settings by their dotted key.
#[derive(Default)]
pub struct Settings {
    pub values: BTreeMap<String, RawSetting>,
    /// The location of each section by its dotted name, including empty sections.
    pub section_locations: BTreeMap<String, String>,
    /// The keys that the program has asked for so far. At the end, all other keys are unknown.
    keys_read: Vec<String>,
    /// The faults found so far.
    pub faults: Vec<String>,
}

impl Settings {
    /// Stores the raw settings of a file. Returns an error if the file can't be read, is empty or
    /// is not TOML. All other faults are found later, when the settings are parsed one by one.
    pub fn read_file(&mut self, path: &Path) -> Result<(), Vec<String>> {
        let name = path.display().to_string();
        let text = read_regular_text(path, MAX_CONFIG_BYTES)
            .map_err(|found| vec![format!("{name}: expected a config file, but found {found}")])?;
        if text.trim_start_matches('\u{feff}').trim_ascii().is_empty() {
            return Err(vec![format!("{name}: expected settings, but found an empty file")]);
        }
        let line = |offset: usize| {
            let before = text.get(..offset).unwrap_or_default();
            format!("{name}:{}", before.matches('\n').count() + 1)
        };
        let table = DeTable::parse(&text).map_err(|error| {
            let at = line(error.span().map_or(0, |span| span.start));
            vec![format!("{at}: expected TOML, but found: {}", error.message().replace('\n', " "))]
        })?;
        self.read_toml_table("", table.get_ref(), &line);
        Ok(())
    }

    fn read_toml_table(
        &mut self,
        prefix: &str,
        table: &DeTable<'_>,
        location_of: &dyn Fn(usize) -> String,
    ) {
        for (key, value) in table {
            let dotted = format!("{prefix}{}", key.get_ref());
            let at = location_of(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => {
                    self.section_locations.insert(dotted.clone(), at);
                    self.read_toml_table(&format!("{dotted}."), inner, location_of);
                }
                DeValue::Array(items)
                    if items.iter().any(|i| matches!(i.get_ref(), DeValue::Table(_))) =>
                {
                    for (index, item) in items.iter().enumerate() {
                        if let DeValue::Table(inner) = item.get_ref() {
                            let at = location_of(item.span().start);
                            self.section_locations.insert(format!("{dotted}.{index}"), at);
                            self.read_toml_table(&format!("{dotted}.{index}."), inner, location_of);
                        }
                    }
                }
                other => {
                    let setting = RawSetting { raw: RawValue::from_toml(other), location: at };
                    self.values.insert(dotted, setting);
                }
            }
        }
    }

    /// Reads `RISKGATE__SECTION__KEY` variables, which override the file. Other variables are
    /// ignored.
    pub fn read_environment(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) {
        for (name, value) in variables {
            if !name.as_encoded_bytes().starts_with(ENV_PREFIX.as_bytes()) {
                continue;
            }
            let at = name.to_string_lossy().into_owned();
            let dotted = at[ENV_PREFIX.len()..].to_ascii_lowercase().replace("__", ".");
            match value.into_string() {
                Ok(value) => {
                    self.values
                        .insert(dotted, RawSetting { raw: RawValue::Untyped(value), location: at });
                }
                // The value may be a secret, so the fault does not contain it.
                Err(_) => self
                    .faults
                    .push(format!("{at}: {dotted}: expected UTF-8, but found other bytes")),
            }
        }
    }

    /// Sets a flag, which overrides the file and the environment.
    pub fn set_command_line_flag(&mut self, key: &str, value: &str) {
        let setting = RawSetting {
            raw: RawValue::Untyped(value.to_owned()),
            location: "command line".to_owned(),
        };
        self.values.insert(key.to_owned(), setting);
    }

    /// Reports each setting and section that the program never read.
    pub fn report_unknown_keys(&mut self) {
        let unknown = self.values.iter().filter(|(key, _)| !self.keys_read.contains(key));
        let faults = unknown.map(|(key, setting)| {
            let section = key.rsplit_once('.').map_or("", |(section, _)| section);
            let same_section = |k: &&String| k.rsplit_once('.').is_some_and(|(s, _)| s == section);
            let known: Vec<&str> =
                self.keys_read.iter().filter(same_section).map(String::as_str).collect();
            let expected = match known.is_empty() {
                true => "a known section".to_owned(),
                false => format!("one of {}", known.join(", ")),
            };
            format!("{}: {key}: expected {expected}, but found an unknown key", setting.location)
        });
        let has_known_key = |section: &str| {
            self.keys_read.iter().any(|key| key.starts_with(&format!("{section}.")))
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

    fn read_and_mark_known(&mut self, key: &str) -> Option<RawSetting> {
        self.keys_read.push(key.to_owned());
        self.values.get(key).cloned()
    }

    fn report_fault(&mut self, key: &str, setting: &RawSetting, expected: &str) {
        let found = setting.raw.to_redacted_string();
        self.faults
            .push(format!("{}: {key}: expected {expected}, but found {found}", setting.location));
    }

    /// Reports a missing setting.
    pub fn report_missing(&mut self, key: &str, expected: &str) {
        self.faults.push(format!("config: {key}: expected {expected}, but found nothing"));
    }

    /// Parses a setting. Returns None if the setting is missing or faulty. Reports a faulty one.
    pub fn parse_setting<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&RawValue) -> Option<T>,
    ) -> Option<T> {
        let setting = self.read_and_mark_known(key)?;
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

    /// Reads a path, or returns the default if the setting is missing. An empty text switches off
    /// what the path is for: the result is None.
    pub fn path_or_default(&mut self, key: &str, default: &str) -> Option<PathBuf> {
        let path = self.parse_setting(key, "a path", |raw| raw.as_text().map(str::to_owned));
        Some(path.unwrap_or_else(|| default.to_owned()))
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    }

    pub fn boolean(&mut self, key: &str, default: bool) -> bool {
        self.parse_setting(key, "true or false", RawValue::as_boolean).unwrap_or(default)
    }

    pub fn optional_integer(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.parse_setting(key, &expected, |raw| raw.as_integer().filter(|n| range.contains(n)))
    }

    pub fn integer(&mut self, key: &str, range: RangeInclusive<u64>, default: u64) -> u64 {
        self.optional_integer(key, range).unwrap_or(default)
    }

    pub fn duration(&mut self, key: &str, default: Duration) -> Duration {
        let expected = "a duration such as 500ms, 2.5s, 10m, 1h or 7d";
        self.parse_setting(key, expected, |raw| parse_duration(raw.as_text()?)).unwrap_or(default)
    }

    /// Reads a duration of at least 1 ms; a zero timeout would reject every request.
    pub fn nonzero_duration(&mut self, key: &str, default: Duration) -> Duration {
        let expected = "a duration of 1ms or more, such as 500ms, 2.5s, 10m, 1h or 7d";
        let parse = |raw: &RawValue| {
            parse_duration(raw.as_text()?).filter(|time| *time >= Duration::from_millis(1))
        };
        self.parse_setting(key, expected, parse).unwrap_or(default)
    }

    /// Reads one of `choices`. The first is the default.
    pub fn choice(&mut self, key: &str, choices: &[&'static str]) -> &'static str {
        let expected = format!("{:?}", choices).replace(", ", " or ").replace(['[', ']'], "");
        let choose = |raw: &RawValue| {
            let text = raw.as_text()?;
            choices.iter().find(|choice| **choice == text).copied()
        };
        self.parse_setting(key, &expected, choose).unwrap_or(choices[0])
    }

    pub fn address(&mut self, key: &str, default: &str) -> SocketAddr {
        let parse = |raw: &RawValue| raw.as_text()?.parse().ok();
        self.parse_setting(key, "an address such as 127.0.0.1:8080", parse)
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
                let location = self.values.get(*key).map_or("config", |setting| &setting.location);
                self.faults.push(format!(
                    "{location}: {key}: expected another address than {other}, but found {address}"
                ));
            }
        }
    }

    pub fn networks(&mut self, key: &str) -> Networks {
        let parse = |raw: &RawValue| Networks::parse(&raw.as_text_list()?);
        self.parse_setting(key, "a list of addresses or networks such as [\"10.0.0.0/8\"]", parse)
            .unwrap_or_default()
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
        let parsed = match self.read_and_mark_known(key) {
            Some(setting) => match setting.raw.as_text().map(StoreUrl::parse) {
                Some(Ok(url)) => Some(url),
                // The URL may contain a password, so the error does not contain the URL.
                Some(Err(error)) => {
                    self.faults.push(format!("{}: {key}: {error}", setting.location));
                    None
                }
                None => {
                    let at = &setting.location;
                    self.faults.push(format!(
                        "{at}: {key}: expected {STORE_URL_SYNTAX}, but found something else"
                    ));
                    None
                }
            },
            None => None,
        };
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
        self.parse_setting(key, "1 to 32 letters, digits or _", parse)
            .unwrap_or_else(|| default.to_owned())
    }

    pub fn read_admin_token(&mut self) -> Option<Secret> {
        let setting = self.read_and_mark_known("admin.token")?;
        match setting.raw.as_text().filter(|text| text.len() >= 16 && text.is_ascii()) {
            Some(token) => Some(Secret(token.to_owned())),
            None => {
                // The value may be a secret, so the fault does not contain it.
                let at = &setting.location;
                self.faults.push(format!(
                    "{at}: admin.token: expected 16 or more ASCII characters, but found something \
                     else"
                ));
                None
            }
        }
    }

    /// Reads every key of `section` as a monthly limit.
    pub fn read_plan_limits(&mut self, section: &str) -> Plans {
        let prefix = format!("{section}.");
        let keys: Vec<String> =
            self.values.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
        let limit = |raw: &RawValue| match raw.as_text() {
            Some("unlimited") => Some(MonthlyLimit::Unlimited),
            _ => raw.as_integer().map(MonthlyLimit::Calls),
        };
        let mut limits = Plans::new();
        for key in keys {
            let expected = "calls in a month as a whole number, or \"unlimited\"";
            if let Some(value) = self.parse_setting(&key, expected, limit) {
                limits.insert(key[prefix.len()..].to_owned(), value);
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
