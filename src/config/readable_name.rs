//! The name of a setting as people know it.

use std::fmt;

/// The name of a setting as people know it. An entry of an array has its prefix or its name in
/// place of its index, because the same entry may have another index in another config. An entry
/// with neither has its number, which counts from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadableSettingName {
    /// The entry of an array of tables, such as `upstream.route "/signup"`.
    pub entry: Option<String>,
    /// The rest of the key; empty for an entry itself.
    pub name: String,
}

impl ReadableSettingName {
    /// `toml_of` returns the value of a setting in TOML, as the name may show it.
    pub fn of(key: &str, toml_of: impl Fn(&str) -> Option<String>) -> ReadableSettingName {
        let parts: Vec<&str> = key.split('.').collect();
        let numbered =
            parts.iter().enumerate().find_map(|(at, part)| Some((at, part.parse::<usize>().ok()?)));
        let Some((at, index)) = numbered else {
            return ReadableSettingName { entry: None, name: key.to_owned() };
        };
        let (array, entry) = (parts[..at].join("."), parts[..=at].join("."));
        let text = |name: &str| toml_of(&format!("{entry}.{name}"));
        let shown = text("prefix").or_else(|| text("name"));
        let shown = shown.unwrap_or_else(|| (index + 1).to_string());
        ReadableSettingName {
            entry: Some(format!("{array} {shown}")),
            name: parts[at + 1..].join("."),
        }
    }
}

impl fmt::Display for ReadableSettingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(entry) if self.name.is_empty() => f.write_str(entry),
            Some(entry) => write!(f, "{entry}: {}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
