//! Settings as they were written, with the place of each, and the ways to read them.
//!
//! Knows types, ranges and wording; knows no setting's meaning beyond its form. Every fault is
//! collected, none stops the reading.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::keys::Plans;
use crate::route::Prefix;
use crate::store::{LimitRow, StoreUrl};

const ENVIRONMENT: &str = "RISKGATE__";

/// A value before anybody says what it should be.
#[derive(Clone, Debug)]
enum Written {
    Text(String),
    Integer(i64),
    Flag(bool),
    List(Vec<Written>),
    /// From the environment or a flag: text that may mean any type.
    Bare(String),
    Other(&'static str),
}

#[derive(Clone, Debug)]
struct Setting {
    written: Written,
    at: String,
}

/// All settings by their dotted key.
#[derive(Default)]
pub struct Settings {
    found: BTreeMap<String, Setting>,
    known: Vec<String>,
    /// What was wrong, so far.
    pub faults: Vec<String>,
}

impl Settings {
    /// Reads a file; its own faults of grammar end the reading.
    pub fn read_file(&mut self, path: &Path) -> Result<(), Vec<String>> {
        let name = path.display().to_string();
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() => {}
            Ok(_) => {
                return Err(vec![format!("{name}: expected a file, but found something else")]);
            }
            Err(error) => {
                return Err(vec![format!("{name}: expected a config file, but found {error}")]);
            }
        }
        let text = std::fs::read_to_string(path).map_err(|error| {
            vec![format!("{name}: expected a config file in UTF-8, but found {error}")]
        })?;
        let line = |offset: usize| {
            let before = text.get(..offset).unwrap_or_default();
            format!("{name}:{}", before.matches('\n').count() + 1)
        };
        let table = DeTable::parse(&text).map_err(|error| {
            let at = line(error.span().map_or(0, |span| span.start));
            vec![format!("{at}: expected TOML, but found: {}", error.message().replace('\n', " "))]
        })?;
        self.read_table("", table.get_ref(), &line);
        Ok(())
    }

    fn read_table(&mut self, prefix: &str, table: &DeTable<'_>, line: &dyn Fn(usize) -> String) {
        for (key, value) in table {
            let dotted = format!("{prefix}{}", key.get_ref());
            let at = line(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => self.read_table(&format!("{dotted}."), inner, line),
                DeValue::Array(items)
                    if items.iter().any(|i| matches!(i.get_ref(), DeValue::Table(_))) =>
                {
                    for (index, item) in items.iter().enumerate() {
                        if let DeValue::Table(inner) = item.get_ref() {
                            self.read_table(&format!("{dotted}.{index}."), inner, line);
                        }
                    }
                }
                other => {
                    let setting = Setting { written: Written::from_toml(other), at };
                    self.found.insert(dotted, setting);
                }
            }
        }
    }

    /// `RISKGATE__SECTION__KEY` overrides the file.
    pub fn read_environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, value) in variables {
            if let Some(key) = name.strip_prefix(ENVIRONMENT) {
                let dotted = key.to_ascii_lowercase().replace("__", ".");
                self.found.insert(dotted, Setting { written: Written::Bare(value), at: name });
            }
        }
    }

    /// A flag overrides both; a flag given several times makes a list.
    pub fn set_flag(&mut self, key: &str, value: &str) {
        let setting =
            Setting { written: Written::Bare(value.to_owned()), at: "command line".to_owned() };
        self.found.insert(key.to_owned(), setting);
    }

    /// Whatever nobody asked for is a fault.
    pub fn refuse_unknown(&mut self) {
        let unknown = self.found.iter().filter(|(key, _)| !self.known.contains(key));
        let faults = unknown.map(|(key, setting)| {
            let section = key.rsplit_once('.').map_or("", |(section, _)| section);
            let same_section = |k: &&String| k.rsplit_once('.').is_some_and(|(s, _)| s == section);
            let known: Vec<&str> =
                self.known.iter().filter(same_section).map(String::as_str).collect();
            let expected = match known.is_empty() {
                true => "a known section".to_owned(),
                false => format!("one of {}", known.join(", ")),
            };
            format!("{}: {key}: expected {expected}, but found an unknown key", setting.at)
        });
        let faults: Vec<String> = faults.collect();
        self.faults.extend(faults);
    }

    fn take(&mut self, key: &str) -> Option<Setting> {
        self.known.push(key.to_owned());
        self.found.get(key).cloned()
    }

    fn fault(&mut self, key: &str, setting: &Setting, expected: &str) {
        let found = setting.written.shown();
        self.faults.push(format!("{}: {key}: expected {expected}, but found {found}", setting.at));
    }

    /// A fault of something that is not there.
    pub fn missing(&mut self, key: &str, expected: &str) {
        self.faults.push(format!("config: {key}: expected {expected}, but found nothing"));
    }

    /// Takes a setting through `parse`, or says what was expected.
    fn parsed<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&Written) -> Option<T>,
    ) -> Option<T> {
        let setting = self.take(key)?;
        let value = parse(&setting.written);
        if value.is_none() {
            self.fault(key, &setting, expected);
        }
        value
    }

    pub fn text(&mut self, key: &str) -> Option<String> {
        self.parsed(key, "a text", |written| written.text().map(str::to_owned))
            .filter(|text| !text.is_empty())
    }

    pub fn flag(&mut self, key: &str, default: bool) -> bool {
        self.parsed(key, "true or false", Written::flag).unwrap_or(default)
    }

    pub fn optional_count(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.parsed(key, &expected, |written| written.integer().filter(|n| range.contains(n)))
    }

    pub fn count(&mut self, key: &str, range: RangeInclusive<u64>, default: u64) -> u64 {
        self.optional_count(key, range).unwrap_or(default)
    }

    pub fn duration(&mut self, key: &str, default: Duration) -> Duration {
        let expected = "a duration such as 500ms, 2.5s, 10m, 1h or 7d";
        self.parsed(key, expected, |written| parse_duration(written.text()?)).unwrap_or(default)
    }

    pub fn choice(&mut self, key: &str, choices: &[&'static str]) -> &'static str {
        let expected = format!("{:?}", choices).replace(", ", " or ").replace(['[', ']'], "");
        let choose = |written: &Written| {
            let text = written.text()?;
            choices.iter().find(|choice| **choice == text).copied()
        };
        self.parsed(key, &expected, choose).unwrap_or(choices[0])
    }

    pub fn address(&mut self, key: &str, default: &str) -> SocketAddr {
        let parse = |written: &Written| written.text()?.parse().ok();
        self.parsed(key, "an address such as 127.0.0.1:8080", parse)
            .or_else(|| default.parse().ok())
            .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub fn addresses(&mut self, key: &str) -> Vec<IpAddr> {
        let parse = |written: &Written| {
            written.texts()?.iter().map(|text| text.parse().ok()).collect::<Option<Vec<IpAddr>>>()
        };
        self.parsed(key, "a list of IP addresses", parse).unwrap_or_default()
    }

    pub fn servers(&mut self, key: &str, default: &str) -> Vec<String> {
        let parse = |written: &Written| {
            let servers = written.texts()?;
            let good = |server: &String| {
                server.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
                })
            };
            (!servers.is_empty() && servers.iter().all(good)).then_some(servers)
        };
        self.parsed(key, "a list of servers such as [\"127.0.0.1:9000\"]", parse)
            .unwrap_or_else(|| vec![default.to_owned()])
    }

    pub fn store_url(&mut self, key: &str, default: &str) -> StoreUrl {
        let parse = |written: &Written| StoreUrl::parse(written.text()?).ok();
        self.parsed(key, "sqlite:PATH", parse)
            .or_else(|| StoreUrl::parse(default).ok())
            .unwrap_or_else(|| StoreUrl::Sqlite("state/riskgate.db".into()))
    }

    pub fn key_prefix(&mut self, key: &str, default: &str) -> String {
        let good = |text: &str| {
            (1..=32).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let parse = |written: &Written| written.text().filter(|text| good(text)).map(str::to_owned);
        self.parsed(key, "1 to 32 letters, digits or _", parse)
            .unwrap_or_else(|| default.to_owned())
    }

    pub fn admin_token(&mut self) -> Option<String> {
        let setting = self.take("admin.token")?;
        match setting.written.text().filter(|text| text.len() >= 16 && text.is_ascii()) {
            Some(token) => Some(token.to_owned()),
            None => {
                // What was found is a secret, or nearly one.
                let at = &setting.at;
                self.faults.push(format!(
                    "{at}: admin.token: expected 16 or more ASCII characters, but found something else"
                ));
                None
            }
        }
    }

    /// The short way for plain requests has its setting before it exists.
    pub fn refuse_lane(&mut self) {
        let off = |written: &Written| written.flag().filter(|on| !on);
        self.parsed("listen.lane", "false, since this version has no lane", off);
    }

    /// Every key below `section` as a limit.
    pub fn limits(&mut self, section: &str) -> Plans {
        let head = format!("{section}.");
        let keys: Vec<String> =
            self.found.keys().filter(|key| key.starts_with(&head)).cloned().collect();
        let limit = |written: &Written| match written.text() {
            Some("unlimited") => Some(LimitRow::Unlimited),
            _ => written.integer().map(LimitRow::Calls),
        };
        let mut limits = Plans::new();
        for key in keys {
            let expected = "calls in a month as a whole number, or \"unlimited\"";
            if let Some(value) = self.parsed(&key, expected, limit) {
                limits.insert(key[head.len()..].to_owned(), value);
            }
        }
        limits
    }

    /// `[[upstream.route]]`.
    pub fn prefixes(&mut self) -> Vec<Prefix> {
        let head = "upstream.route.";
        let indexes: std::collections::BTreeSet<usize> = self
            .found
            .keys()
            .filter_map(|key| key.strip_prefix(head)?.split('.').next()?.parse().ok())
            .collect();
        indexes.into_iter().filter_map(|index| self.prefix(&format!("{head}{index}"))).collect()
    }

    fn prefix(&mut self, at: &str) -> Option<Prefix> {
        let path = |written: &Written| {
            let text = written.text()?;
            let segment =
                |s: &str| !s.is_empty() && s != "." && s != ".." && s.bytes().all(is_plain);
            let good = text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(segment));
            (good && !taken(text)).then(|| text.to_owned())
        };
        let expected =
            "a path such as /v1/signup, apart from riskgate's own, without a / at its end";
        let key = format!("{at}.prefix");
        if !self.found.contains_key(&key) {
            self.missing(&key, expected);
        }
        let path = self.parsed(&key, expected, path);
        let methods = |written: &Written| {
            let methods = written.texts()?;
            let good = |method: &String| {
                !method.is_empty()
                    && method.bytes().all(|byte| byte.is_ascii_uppercase())
                    && !matches!(method.as_str(), "OPTIONS" | "CONNECT" | "TRACE")
            };
            (!methods.is_empty() && methods.iter().all(good)).then_some(methods)
        };
        let methods = self
            .parsed(
                &format!("{at}.methods"),
                "a list of methods such as [\"GET\", \"POST\"]",
                methods,
            )
            .unwrap_or_else(|| vec!["GET".to_owned(), "HEAD".to_owned()]);
        let needs_key = self.flag(&format!("{at}.key"), true);
        let counts = self.flag(&format!("{at}.counts"), needs_key);
        if counts && !needs_key {
            let key = format!("{at}.counts");
            self.missing(&key, "false where key is false, since there is no account to count for");
        }
        // Kept for the life of the process: there are as many as routes in the config.
        let allow: &'static str =
            Box::leak(format!("{}, OPTIONS", methods.join(", ")).into_boxed_str());
        Some(Prefix { path: path?, methods, allow, needs_key, counts })
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether a prefix would lie over one of our own routes, or below one.
fn taken(path: &str) -> bool {
    ["/v1/public", "/v1/check", "/v1/usage"].iter().any(|own| {
        path == *own || path.starts_with(&format!("{own}/")) || own.starts_with(&format!("{path}/"))
    })
}

impl Written {
    fn from_toml(value: &DeValue<'_>) -> Written {
        match value {
            DeValue::String(text) => Written::Text(text.to_string()),
            DeValue::Integer(integer) => {
                i64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix())
                    .map_or(Written::Other("a number out of range"), Written::Integer)
            }
            DeValue::Boolean(flag) => Written::Flag(*flag),
            DeValue::Array(items) => {
                Written::List(items.iter().map(|item| Written::from_toml(item.get_ref())).collect())
            }
            DeValue::Float(_) => Written::Other("a fraction"),
            DeValue::Datetime(_) => Written::Other("a date"),
            DeValue::Table(_) => Written::Other("a table"),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Written::Text(text) | Written::Bare(text) => Some(text),
            _ => None,
        }
    }

    fn integer(&self) -> Option<u64> {
        match self {
            Written::Integer(integer) => u64::try_from(*integer).ok(),
            Written::Bare(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn flag(&self) -> Option<bool> {
        match self {
            Written::Flag(flag) => Some(*flag),
            Written::Bare(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn texts(&self) -> Option<Vec<String>> {
        match self {
            Written::List(items) => {
                items.iter().map(|item| item.text().map(str::to_owned)).collect()
            }
            Written::Bare(text) => Some(
                text.split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => None,
        }
    }

    fn shown(&self) -> String {
        match self {
            Written::Text(text) | Written::Bare(text) => format!("{text:?}"),
            Written::Integer(integer) => integer.to_string(),
            Written::Flag(flag) => flag.to_string(),
            Written::List(items) => {
                let items: Vec<String> = items.iter().map(Written::shown).collect();
                format!("[{}]", items.join(", "))
            }
            Written::Other(what) => (*what).to_owned(),
        }
    }
}

/// `500ms`, `2.5s`, `10m`, `1h`, `7d`, or `0`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * factor;
    (seconds <= 1e9).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigFile, Overrides};
    use super::*;

    fn read(text: &str) -> Result<Config, Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("riskgate.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(&Overrides { file: ConfigFile::At(path), flags: Vec::new() }).map_err(
            |faults| {
                let prefix = format!("{}/", folder.path().display());
                faults.iter().map(|fault| fault.replace(&prefix, "")).collect()
            },
        )
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        let config = read("").unwrap();
        assert_eq!(config.http.to_string(), "127.0.0.1:8080");
        assert_eq!(config.plans["free"], LimitRow::Calls(100));
        assert_eq!(config.upstream.deadline, Duration::from_millis(2_500));
    }

    #[test]
    fn every_fault_is_told_with_its_line() {
        let faults = read(
            "[listen]\nhttp = \"nowhere\"\nport = 3\n\n[store]\nurl = \"localhost:6379\"\n\
             on_failure = \"maybe\"\n[plans]\nfree = -1\n[[upstream.route]]\nprefix = \"/v1/check\"\n",
        )
        .unwrap_err();
        for expected in [
            r#"riskgate.toml:2: listen.http: expected an address such as 127.0.0.1:8080, but found "nowhere""#,
            r#"riskgate.toml:6: store.url: expected sqlite:PATH, but found "localhost:6379""#,
            r#"riskgate.toml:7: store.on_failure: expected "open" or "closed", but found "maybe""#,
            "riskgate.toml:9: plans.free: expected calls in a month as a whole number",
            "riskgate.toml:11: upstream.route.0.prefix: expected a path such as /v1/signup",
            "riskgate.toml:3: listen.port: expected one of listen.",
        ] {
            assert!(
                faults.iter().any(|fault| fault.starts_with(expected)),
                "{expected}\n{faults:#?}"
            );
        }
        assert!(read("[listen\n").unwrap_err()[0].starts_with("riskgate.toml:1: expected TOML"));
    }

    #[test]
    fn the_environment_overrides_the_file() {
        let mut settings = Settings::default();
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        settings.read_environment(
            [
                variable("RISKGATE__LISTEN__MAX_CONNECTIONS", "7"),
                variable("RISKGATE__UPSTREAM__SERVERS", "a:1, b:2"),
                variable("RISKGATE__LOG__ACCESS", "false"),
                variable("OTHER", "x"),
            ]
            .into_iter(),
        );
        assert_eq!(settings.count("listen.max_connections", 1..=9, 1), 7);
        assert_eq!(settings.servers("upstream.servers", "c:3"), ["a:1", "b:2"]);
        assert!(!settings.flag("log.access", true));
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("2.5s"), Some(Duration::from_millis(2_500)));
        assert_eq!(parse_duration("90d"), Some(Duration::from_secs(90 * 86_400)));
        assert_eq!(parse_duration("0"), Some(Duration::ZERO));
        for text in ["", "5", "s", "-1s", "1y", "1.2.3s", "1 s", "99999999999d"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
