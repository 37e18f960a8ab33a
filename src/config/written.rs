//! A value as it was written, in a file, the environment or a flag, and what it can mean.

use std::time::Duration;

use toml::de::DeValue;

use crate::store::without_password;

/// A value before anybody says what it should be.
#[derive(Clone, Debug)]
pub enum Written {
    Text(String),
    Integer(i64),
    Flag(bool),
    List(Vec<Written>),
    /// From the environment or a flag: text that may mean any type.
    Bare(String),
    Other(&'static str),
}

impl Written {
    pub fn from_toml(value: &DeValue<'_>) -> Written {
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

    pub fn text(&self) -> Option<&str> {
        match self {
            Written::Text(text) | Written::Bare(text) => Some(text),
            _ => None,
        }
    }

    pub fn integer(&self) -> Option<u64> {
        match self {
            Written::Integer(integer) => u64::try_from(*integer).ok(),
            Written::Bare(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub fn flag(&self) -> Option<bool> {
        match self {
            Written::Flag(flag) => Some(*flag),
            Written::Bare(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub fn texts(&self) -> Option<Vec<String>> {
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

    /// As a fault shows it: without what may be a key or the password of an address.
    pub fn shown(&self) -> String {
        match self {
            Written::Text(text) | Written::Bare(text) => format!("{:?}", without_secrets(text)),
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

/// A word that is as long as a key may be is not shown.
const LONGEST_WORD: usize = 24;

fn without_secrets(text: &str) -> String {
    let shown = match text.contains(['@', '?']) || text.contains("://") {
        true => without_password(text),
        false => text.to_owned(),
    };
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let words = shown.split_inclusive(ends).map(|word| match word.trim_end_matches(ends) {
        bare if bare.len() > LONGEST_WORD => word.replacen(bare, "…", 1),
        _ => word.to_owned(),
    });
    words.collect()
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
