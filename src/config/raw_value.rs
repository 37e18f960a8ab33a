//! A raw value of the file, the environment or a flag, and its conversions.

use std::ops::Range;
use std::time::Duration;

use toml::de::{DeArray, DeValue};

use super::description::{SettingKind, toml_list, toml_text};
use crate::store::redact_url;

/// A value whose type is not checked yet.
#[derive(Clone, Debug)]
pub enum RawValue {
    Text(String),
    Integer(i64),
    Boolean(bool),
    /// A fraction, which no setting accepts. A hint is made from it.
    Fraction(f64),
    List(Vec<RawValue>),
    /// Text of the environment, of a flag or of a file of a secret, which can be converted to any
    /// type.
    Untyped(String),
    /// The variable in a text, which another program would replace. No setting accepts the text.
    Variable(String),
    /// A TOML value that no setting accepts: its description for faults.
    Unsupported(&'static str),
}

impl RawValue {
    pub fn from_toml(value: &DeValue<'_>) -> RawValue {
        match value {
            DeValue::String(text) => RawValue::of_text(text, RawValue::Text),
            DeValue::Integer(integer) => {
                i64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix())
                    .map_or(RawValue::Unsupported("a number out of range"), RawValue::Integer)
            }
            DeValue::Boolean(flag) => RawValue::Boolean(*flag),
            DeValue::Array(items) => RawValue::List(
                items.iter().map(|item| RawValue::from_toml(item.get_ref())).collect(),
            ),
            DeValue::Float(number) => number
                .as_str()
                .replace('_', "")
                .parse()
                .map_or(RawValue::Unsupported("a fraction"), RawValue::Fraction),
            DeValue::Datetime(_) => RawValue::Unsupported("a date"),
            DeValue::Table(_) => RawValue::Unsupported("a table"),
        }
    }

    /// Makes a value of a text: [`RawValue::Variable`] if the text has a variable, else what
    /// `to_raw` returns.
    pub fn of_text(text: &str, to_raw: impl Fn(String) -> RawValue) -> RawValue {
        match find_variable(text) {
            Some(variable) => RawValue::Variable(variable.to_owned()),
            None => to_raw(text.to_owned()),
        }
    }

    /// Whether the value is or contains a text with a variable.
    pub fn has_variable(&self) -> bool {
        match self {
            RawValue::Variable(_) => true,
            RawValue::List(items) => items.iter().any(RawValue::has_variable),
            _ => false,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            RawValue::Text(text) | RawValue::Untyped(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text if it is a URL, whose secret parts no output may show.
    pub fn as_url(&self) -> Option<&str> {
        self.as_text().filter(|text| text.contains("://"))
    }

    pub fn as_integer(&self) -> Option<u64> {
        match self {
            RawValue::Integer(integer) => u64::try_from(*integer).ok(),
            RawValue::Untyped(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub fn as_boolean(&self) -> Option<bool> {
        match self {
            RawValue::Boolean(flag) => Some(*flag),
            RawValue::Untyped(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub fn as_text_or_list(&self) -> Option<Vec<String>> {
        self.as_text_list().or_else(|| Some(vec![self.as_text()?.to_owned()]))
    }

    pub fn as_integer_list(&self) -> Option<Vec<u64>> {
        match self {
            RawValue::List(items) => items.iter().map(RawValue::as_integer).collect(),
            RawValue::Untyped(text) => {
                text.split(',').map(|part| part.trim().parse().ok()).collect()
            }
            _ => None,
        }
    }

    pub fn as_text_list(&self) -> Option<Vec<String>> {
        match self {
            RawValue::List(items) => {
                items.iter().map(|item| item.as_text().map(str::to_owned)).collect()
            }
            RawValue::Untyped(text) => Some(
                text.split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => None,
        }
    }

    /// Renders the value in TOML, as a setting of this type has it. The secret parts of a URL are
    /// left out, but not those of URLs in a list. `None` if the value is not of this type.
    pub fn to_toml(&self, kind: &SettingKind) -> Option<String> {
        let text = || {
            if self.as_text().is_some_and(is_pem) {
                return Some(toml_text("…"));
            }
            let shown = self.as_url().map(redact_url);
            Some(toml_text(&shown.or_else(|| self.as_text().map(str::to_owned))?))
        };
        match kind {
            SettingKind::Integer(_) => self.as_integer().map(|number| number.to_string()),
            SettingKind::CallLimit => self.as_integer().map(|it| it.to_string()).or_else(text),
            SettingKind::Boolean => self.as_boolean().map(|flag| flag.to_string()),
            SettingKind::IntegerList => Some(format!("{:?}", self.as_integer_list()?)),
            SettingKind::List | SettingKind::TextOrList => {
                let texts = self.as_text_or_list()?;
                Some(toml_list(&texts.iter().map(String::as_str).collect::<Vec<_>>()))
            }
            SettingKind::Text | SettingKind::Duration | SettingKind::Choice(_) => text(),
            SettingKind::Secret => Some(toml_text("…")),
        }
    }

    /// Whether [`RawValue::to_redacted_string`] shows the whole value.
    pub fn is_free_of_secrets(&self) -> bool {
        match self {
            RawValue::Text(text) | RawValue::Untyped(text) => {
                redact_urls_and_long_words(text) == *text
            }
            RawValue::List(items) => items.iter().all(RawValue::is_free_of_secrets),
            RawValue::Integer(_) | RawValue::Boolean(_) | RawValue::Fraction(_) => true,
            RawValue::Variable(_) | RawValue::Unsupported(_) => false,
        }
    }

    /// The value as an error message may show it: without the passwords of URLs, and without words
    /// so long that they may be keys.
    pub fn to_redacted_string(&self) -> String {
        match self {
            RawValue::Text(text) | RawValue::Untyped(text) => {
                format!("{:?}", redact_urls_and_long_words(text))
            }
            RawValue::Integer(integer) => integer.to_string(),
            RawValue::Boolean(flag) => flag.to_string(),
            RawValue::Fraction(number) => number.to_string(),
            RawValue::List(items) => {
                let items: Vec<String> = items.iter().map(RawValue::to_redacted_string).collect();
                format!("[{}]", items.join(", "))
            }
            RawValue::Variable(variable) => {
                format!("the variable {}", redact_urls_and_long_words(variable))
            }
            RawValue::Unsupported(what) => (*what).to_owned(),
        }
    }
}

/// Returns a reference to a variable, such as `${NAME}`, that another program would replace. `None`
/// if the text has none.
fn find_variable(text: &str) -> Option<&str> {
    let is_name = |name: &str| {
        let has_start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        has_start && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let starts_as_name = |inner: &str| {
        let end = inner.find([':', '-', '|', ' ']).unwrap_or(inner.len());
        is_name(&inner[..end])
    };
    for (open, close) in [("${", "}"), ("{{", "}}"), ("{$", "}"), ("{env.", "}"), ("$(", ")")] {
        for (start, _) in text.match_indices(open) {
            let inner = &text[start + open.len()..];
            let Some(end) = inner.find(close) else { continue };
            if starts_as_name(inner[..end].trim().trim_start_matches('.')) {
                return Some(&text[start..start + open.len() + end + close.len()]);
            }
        }
    }
    let of_shell = text.strip_prefix('$');
    let of_windows = text.strip_prefix('%').and_then(|rest| rest.strip_suffix('%'));
    let of_program = text.strip_prefix("env:");
    let is_whole = [of_shell, of_windows, of_program].into_iter().flatten().any(is_name);
    is_whole.then_some(text)
}

/// The longest word that an error message shows, in bytes. Longer words may be keys.
const MAX_SHOWN_WORD_LEN: usize = 24;

/// Leaves the secret parts out of a text that may be a URL or a part of one. Returns any other text
/// unchanged.
pub fn redact_if_url(text: &str) -> String {
    match text.contains(['@', '?']) || text.contains("://") {
        true => redact_url(text),
        false => text.to_owned(),
    }
}

/// Returns true for a text in PEM form (RFC 7468), which may be a private key.
pub(super) fn is_pem(text: &str) -> bool {
    text.contains("-----BEGIN")
}

/// Returns a text without the passwords of URLs, and without words so long that they may be keys.
/// Shows nothing of a text in PEM form.
pub(super) fn redact_urls_and_long_words(text: &str) -> String {
    if is_pem(text) {
        return "…".to_owned();
    }
    let shown = redact_if_url(text);
    let is_word_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let words =
        shown.split_inclusive(is_word_end).map(|word| match word.trim_end_matches(is_word_end) {
            trimmed if trimmed.len() > MAX_SHOWN_WORD_LEN => word.replacen(trimmed, "…", 1),
            _ => word.to_owned(),
        });
    words.collect()
}

/// The longest duration: some 31 years.
const MAX_DURATION_SECONDS: f64 = 1e9;

/// Parses `500ms`, `2.5s`, `10m`, `1h`, `7d` or `0`. Returns None for any other form, and for more
/// than 1e9 seconds.
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
    (seconds <= MAX_DURATION_SECONDS).then(|| Duration::from_secs_f64(seconds))
}

/// Returns true if the text is a duration, but a longer one than riskgate takes.
pub fn is_too_long_duration(text: &str) -> bool {
    let last_digit = text.rfind(|c: char| c.is_ascii_digit());
    let Some((number, unit)) = last_digit.map(|at| text.split_at(at + 1)) else { return false };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_number && parse_duration(text).is_none() && parse_duration(&format!("1{unit}")).is_some()
}

/// Returns the place of an item in the TOML of its list, in bytes.
pub fn span_in_list(list: &str, index: usize) -> Option<Range<usize>> {
    Some(DeValue::parse(list).ok()?.get_ref().as_array()?.get(index)?.span())
}

/// Returns the place of the bytes `within` of a text, in the TOML of its list. If the TOML has
/// escapes, returns the place of the whole text.
pub fn place_in_list(list: &str, index: usize, within: Range<usize>) -> Option<Range<usize>> {
    let parsed = DeValue::parse(list).ok()?;
    let items: &DeArray<'_> = parsed.get_ref().as_array()?;
    let item = items.get(index)?;
    let written = list.get(item.span())?;
    let RawValue::Text(text) = RawValue::from_toml(item.get_ref()) else { return None };
    // With escapes, the bytes of the text are not those of the file.
    let start = written.find(&text).filter(|_| !text.is_empty());
    Some(match start {
        Some(start) => {
            let start = item.span().start + start;
            start + within.start..start + within.end
        }
        None => item.span(),
    })
}
