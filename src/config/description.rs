//! What a setting is: its type, its default and its meaning.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The type of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// A text.
    Text,
    /// A text that no output shows.
    Secret,
    /// A whole number in this range.
    Integer(RangeInclusive<u64>),
    /// True or false.
    Boolean,
    /// A text such as `500ms`.
    Duration,
    /// One of these texts.
    Choice(Vec<&'static str>),
    /// A list of texts.
    List,
    /// A list of whole numbers.
    IntegerList,
    /// A list of texts, or one text in place of a list of one.
    TextOrList,
    /// The calls of a plan: a whole number, or `unlimited`.
    CallLimit,
}

/// A setting that the program reads.
#[derive(Clone, Debug)]
pub struct SettingDescription {
    /// The dotted key, such as `listen.http`. An entry of an array of tables has its index:
    /// `upstream.route.0.prefix`.
    pub key: String,
    /// The type.
    pub kind: SettingKind,
    /// The default in TOML; `None` if there is none.
    pub default: Option<String>,
}

/// Whether a part of a dotted key is the index of an entry in an array of tables.
pub(super) fn is_index(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns a key without the indexes of entries.
pub(super) fn without_indexes(key: &str) -> String {
    let parts: Vec<&str> = key.split('.').filter(|part| !is_index(part)).collect();
    parts.join(".")
}

/// Returns a text in TOML.
pub fn toml_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Returns a list of texts in TOML.
pub fn toml_list(texts: &[&str]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| toml_text(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// Returns a duration as the config has it, in the largest unit in which it is a whole number.
pub fn toml_duration(duration: Duration) -> String {
    const UNITS: [(&str, u128); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let milliseconds = duration.as_millis();
    let unit = UNITS.iter().find(|(_, length)| milliseconds.is_multiple_of(*length));
    match unit {
        Some((unit, length)) if milliseconds > 0 => {
            toml_text(&format!("{}{unit}", milliseconds / length))
        }
        _ => toml_text("0"),
    }
}

#[cfg(test)]
mod tests;
