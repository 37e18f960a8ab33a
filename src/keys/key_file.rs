//! The key file: keys that people or deployments declare. `keys import` reads the same format.
//!
//! Parses TOML into rows, or reports every fault with its line. This module opens no store.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::token::{MIN_KEY_LEN, Token, sha256};
use crate::model::origin::OriginPattern;
use crate::store::KeyRow;
use crate::support::excerpt::Excerpt;
use crate::support::memory;
use crate::support::regular_file::{ReadError, read_regular_text};

/// The fields of a key.
const FIELDS: [&str; 11] = [
    "id",
    "account",
    "plan",
    "label",
    "hash",
    "env",
    "origins",
    "require_origin",
    "created",
    "expires",
    "revoked",
];

/// The largest key file, in bytes: enough for a million keys.
const MAX_KEY_FILE_BYTES: u64 = 256 << 20;

/// What reading a key file, building a key ring from it and recording its keys needs for each byte
/// of the file. A failed allocation would end the process. Measured with 20,000 and 100,000 keys,
/// and rounded up.
const PARSE_BYTES_PER_BYTE: u64 = 64;

/// A key of the key file, and the plan that the file gives the key's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredKey {
    /// The key.
    pub key: KeyRow,
    /// The account's plan; `None` if the file gives none.
    pub plan: Option<String>,
}

/// A fault in a key file. The message never contains a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct KeyFileError {
    /// The place of the fault: `file`, `file:line` or `file:line:column`.
    pub at: String,
    /// What was expected, and what was found.
    pub message: String,
    /// True if the system could not read the file for now, see [`ReadError::is_transient`].
    pub is_transient: bool,
    excerpt: Option<Excerpt>,
}

impl KeyFileError {
    fn in_content(at: String, message: String) -> KeyFileError {
        KeyFileError { at, message, is_transient: false, excerpt: None }
    }

    fn of_reading(at: String, message: String, is_transient: bool) -> KeyFileError {
        KeyFileError { at, message, is_transient, excerpt: None }
    }

    /// The text for a terminal: the fault, and the line of the file if it is known.
    pub fn to_text(&self) -> String {
        match &self.excerpt {
            Some(excerpt) => format!("{self}\n{}", excerpt.render(None)),
            None => self.to_string(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKeyFile {
    #[serde(default)]
    key: Vec<Spanned<RawKey>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKey {
    id: Spanned<String>,
    account: Spanned<String>,
    plan: Option<Spanned<String>>,
    label: Option<String>,
    hash: Option<Spanned<String>>,
    env: Option<Spanned<String>>,
    #[serde(default)]
    origins: Vec<Spanned<String>>,
    #[serde(default)]
    require_origin: bool,
    created: Option<Spanned<String>>,
    expires: Option<Spanned<String>>,
    revoked: Option<Spanned<String>>,
}

/// Reads the key file at `path`. `env_var` looks up an environment variable.
pub fn read_key_file(
    path: &Path,
    env_var: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<DeclaredKey>, Vec<KeyFileError>> {
    let name = path.display().to_string();
    let text = read_regular_text(path, MAX_KEY_FILE_BYTES).map_err(|found: ReadError| {
        let message = format!("expected a key file, but found {found}");
        vec![KeyFileError::of_reading(name.clone(), message, found.is_transient())]
    })?;
    memory::check_available(PARSE_BYTES_PER_BYTE * text.len() as u64).map_err(|found| {
        let message = found.to_string();
        vec![KeyFileError::of_reading(name.clone(), message, true)]
    })?;
    // An empty file is an error, because it was probably truncated or is being written at this
    // moment. An operator who wants a file without keys can write a comment into it.
    if text.trim_ascii().is_empty() {
        let message = "expected keys, but found an empty file".to_owned();
        return Err(vec![KeyFileError::in_content(name, message)]);
    }
    let line_ends = text.match_indices('\n').map(|(at, _)| at).collect();
    let reader = KeyFileReader { path_text: &name, text: &text, line_ends, env_var };
    let raw: RawKeyFile = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![reader.syntax_fault(at, redact_keys(error.message()))]
    })?;
    let mut keys = Vec::new();
    let mut faults = Vec::new();
    for key in raw.key {
        match reader.parse_key(key) {
            Ok(key) => keys.push(key),
            Err(fault) => faults.push(fault),
        }
    }
    reader.check_duplicates(&keys, &mut faults);
    if faults.is_empty() { Ok(keys) } else { Err(faults) }
}

struct KeyFileReader<'a> {
    path_text: &'a str,
    text: &'a str,
    /// The offsets at which lines end. Counting lines again for each key would take minutes in a
    /// file with a hundred thousand keys.
    line_ends: Vec<usize>,
    env_var: &'a dyn Fn(&str) -> Option<String>,
}

impl KeyFileReader<'_> {
    /// Returns the number of a byte's line, and the text of the line before the byte.
    fn line_and_text_before(&self, offset: usize) -> (usize, &str) {
        let line = self.line_ends.partition_point(|end| *end < offset);
        let start = if line == 0 { 0 } else { self.line_ends[line - 1] + 1 };
        (line + 1, self.text.get(start..offset).unwrap_or_default())
    }

    fn location(&self, offset: usize) -> String {
        let (line, before) = self.line_and_text_before(offset);
        format!("{}:{line}:{}", self.path_text, before.chars().count() + 1)
    }

    /// A fault of a field. `shown` is its value as a fault may show it.
    fn fault_at_value(
        &self,
        field: &str,
        offset: usize,
        shown: &str,
        message: String,
    ) -> KeyFileError {
        let (line, before) = self.line_and_text_before(offset);
        // What stands before it in a list is left out.
        let name = before.split('=').next().unwrap_or_default().trim_end();
        let name = if name.trim() == field { name } else { field };
        let before = format!("{name} = ");
        let start = before.chars().count();
        let marked = start..start + shown.chars().count();
        let excerpt = Some(Excerpt::new(line, format!("{before}{shown}"), marked));
        KeyFileError { excerpt, ..KeyFileError::in_content(self.location(offset), message) }
    }

    /// A fault of the form. Shows headers and the names of known fields only.
    fn syntax_fault(&self, offset: usize, message: String) -> KeyFileError {
        let (line, before) = self.line_and_text_before(offset);
        let start = offset - before.len();
        let whole = self.text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
        let is_header = whole.starts_with('[')
            && whole.chars().all(|c| c.is_ascii_alphabetic() || "[]".contains(c));
        let name = whole.split('=').next().unwrap_or_default().trim();
        let shown = match FIELDS.contains(&name) {
            true => format!("{name} = …"),
            false if is_header && whole.len() < MIN_KEY_LEN => whole.to_owned(),
            false => "…".to_owned(),
        };
        let width = shown.chars().count();
        let excerpt = Some(Excerpt::new(line, shown, 0..width));
        let hint = if whole.trim() == "[key]" { "; write [[key]]" } else { "" };
        let message = format!("{message}{hint}");
        KeyFileError { excerpt, ..KeyFileError::in_content(self.location(offset), message) }
    }

    fn field_fault(&self, field: &str, value: &Spanned<String>, expected: &str) -> KeyFileError {
        let message = format!("{field}: expected {expected}");
        // These hold a key, or could by mistake.
        let shown = match field {
            "hash" | "env" => "…".to_owned(),
            _ if value.get_ref().len() < MIN_KEY_LEN => format!("{:?}", value.get_ref()),
            _ => "…".to_owned(),
        };
        self.fault_at_value(field, value.span().start, &shown, message)
    }

    fn parse_key(&self, key: Spanned<RawKey>) -> Result<DeclaredKey, KeyFileError> {
        let start = self.location(key.span().start);
        let key = key.into_inner();
        for (field, value) in [("id", &key.id), ("account", &key.account)] {
            if !is_valid_id_or_account(value.get_ref()) {
                return Err(self.field_fault(field, value, ID_OR_ACCOUNT_FORMAT));
            }
        }
        let digest = match (&key.hash, &key.env) {
            (Some(hash), None) => parse_sha256_field(hash.get_ref()).ok_or_else(|| {
                self.field_fault(
                    "hash",
                    hash,
                    "sha256: and 64 hexadecimal digits, but found something else",
                )
            })?,
            (None, Some(env)) => self.digest_from_env_var(env)?,
            _ => {
                let message = format!("key {}: expected either hash or env", key.id.get_ref());
                return Err(KeyFileError::in_content(start, message));
            }
        };
        for origin in &key.origins {
            if OriginPattern::parse(origin.get_ref()).is_err() {
                let found = quote_unless_key(origin.get_ref());
                let expected =
                    format!("an origin such as https://app.example.com, but found {found}");
                return Err(self.field_fault("origins", origin, &expected));
            }
        }
        Ok(DeclaredKey {
            plan: key.plan.map(Spanned::into_inner),
            key: KeyRow {
                created_at: self.parse_time("created", key.created.as_ref())?.unwrap_or(0),
                expires_at: self.parse_time("expires", key.expires.as_ref())?,
                revoked_at: self.parse_time("revoked", key.revoked.as_ref())?,
                id: key.id.into_inner(),
                account: key.account.into_inner(),
                label: key.label,
                digest,
                origins: key.origins.into_iter().map(Spanned::into_inner).collect(),
                require_origin: key.require_origin,
            },
        })
    }

    fn digest_from_env_var(&self, env: &Spanned<String>) -> Result<[u8; 32], KeyFileError> {
        // If someone wrote the key itself here, the error must not repeat it.
        let is_env_name_byte =
            |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let name = match env.get_ref() {
            name if name.bytes().all(is_env_name_byte) => name.as_str(),
            _ => "of this name",
        };
        let token = (self.env_var)(env.get_ref()).ok_or_else(|| {
            self.field_fault("env", env, &format!("the variable {name} to be set, but found none"))
        })?;
        let token = Token::parse(token).map_err(|_| {
            let expected =
                format!("the variable {name} to hold 16 to 256 visible ASCII characters");
            self.field_fault("env", env, &expected)
        })?;
        Ok(token.sha256())
    }

    fn parse_time(
        &self,
        field: &str,
        value: Option<&Spanned<String>>,
    ) -> Result<Option<i64>, KeyFileError> {
        let Some(value) = value else { return Ok(None) };
        match value.get_ref().parse::<jiff::Timestamp>() {
            Ok(time) => Ok(Some(time.as_second())),
            Err(_) => {
                let found = quote_unless_key(value.get_ref());
                let expected = format!("a time such as 2027-01-01T00:00:00Z, but found {found}");
                Err(self.field_fault(field, value, &expected))
            }
        }
    }

    fn check_duplicates(&self, keys: &[DeclaredKey], faults: &mut Vec<KeyFileError>) {
        let mut ids = std::collections::HashSet::new();
        let mut digests = std::collections::HashSet::new();
        for DeclaredKey { key, .. } in keys {
            if !ids.insert(&key.id) || !digests.insert(key.digest) {
                let message =
                    format!("key {}: expected once, but its id or key is used twice", key.id);
                faults.push(KeyFileError::in_content(self.path_text.to_owned(), message));
            }
        }
    }
}

/// Quotes a text of the file, unless the text is long enough to be a key.
fn quote_unless_key(text: &str) -> String {
    if text.len() < MIN_KEY_LEN { format!("{text:?}") } else { "something else".to_owned() }
}

/// Puts a parser's message on one line, and replaces each word that could be a key by `…`, because
/// parsers quote the text that they found.
fn redact_keys(message: &str) -> String {
    let is_word_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',');
    let words =
        message.split_inclusive(is_word_end).map(|word| match word.trim_end_matches(is_word_end) {
            bare if bare.len() >= MIN_KEY_LEN => word.replacen(bare, "…", 1),
            _ => word.to_owned(),
        });
    words.collect::<String>().replace('\n', " ")
}

/// The format of a key's id or an account's name, for error messages.
pub const ID_OR_ACCOUNT_FORMAT: &str =
    "1 to 128 visible ASCII characters without quotes or backslashes, and not . or ..";

/// Whether a text may be a key's id or an account's name. Names go into headers and logs without
/// escaping, and into paths of the admin API: clients remove the segments `.` and `..` from a path.
pub fn is_valid_id_or_account(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    (1..=128).contains(&text.len()) && text.bytes().all(is_allowed) && !matches!(text, "." | "..")
}

/// Parses the field `hash`: `sha256:` and 64 hexadecimal digits. `None` if it has another form.
pub fn parse_sha256_field(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text.strip_prefix("sha256:")?, &mut digest).ok()?;
    Some(digest)
}

/// Formats the SHA-256 of a key's text as the field `hash` of a key file.
pub fn format_key_hash(token: &str) -> String {
    format!("sha256:{}", hex::encode(sha256(token.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_keys_from_text(text: &str) -> Result<Vec<DeclaredKey>, Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        std::fs::write(&path, text).unwrap();
        let variable = |name: &str| (name == "WEB_KEY").then(|| "sv_0123456789abcdef".to_owned());
        read_key_file(&path, &variable).map_err(|faults| {
            let prefix = format!("{}/", folder.path().display());
            faults.iter().map(|fault| fault.to_string().replace(&prefix, "")).collect()
        })
    }

    #[test]
    fn hash_or_env_variable_declares_a_key() {
        let hash = format_key_hash("sv_0123456789abcdef");
        let text = format!(
            "[[key]]\nid = \"web-1\"\naccount = \"acme\"\nplan = \"pro\"\nhash = \"{hash}\"\n\
             origins = [\"https://*.example.org\"]\nrequire_origin = true\n\
             expires = \"2027-01-01T00:00:00Z\"\n"
        );
        let keys = read_keys_from_text(&text).unwrap();
        assert_eq!(keys[0].plan.as_deref(), Some("pro"));
        assert_eq!(keys[0].key.expires_at, Some(1_798_761_600));
        let by_variable =
            read_keys_from_text("[[key]]\nid = \"a\"\naccount = \"acme\"\nenv = \"WEB_KEY\"\n")
                .unwrap();
        assert_eq!(by_variable[0].key.digest, keys[0].key.digest);
    }

    #[test]
    fn a_fault_names_its_line_and_shows_no_key() {
        let head = "[[key]]\nid = \"a\"\naccount = \"acme\"\n";
        for (text, fault) in [
            (format!("{head}hash = \"md5:00\"\n"), "keys.toml:4:8: hash: expected sha256: and 64"),
            (format!("{head}env = \"NONE\"\n"), "keys.toml:4:7: env: expected the variable NONE"),
            (head.to_owned(), "keys.toml:1:1: key a: expected either hash or env"),
            (format!("{head}colour = 1\n"), "keys.toml:4:1: unknown field `colour`"),
            (
                format!("{head}env = \"WEB_KEY\"\norigins = [\"x\"]\n"),
                "keys.toml:5:12: origins: expected",
            ),
            (
                format!("{head}env = \"WEB_KEY\"\nexpires = \"soon\"\n"),
                "keys.toml:5:11: expires: expected",
            ),
            (
                "[[key]]\nid = \"a b\"\naccount = \"c\"\n".to_owned(),
                "keys.toml:2:6: id: expected 1 to 128",
            ),
            ("[[key".to_owned(), "keys.toml:1:"),
        ] {
            let faults = read_keys_from_text(&text).unwrap_err();
            assert!(faults[0].starts_with(fault), "{} is not {fault}", faults[0]);
        }
        let key = "rg_0123456789abcdefghijABCDEFGHIJ01";
        for (text, fault) in [
            (
                format!("{head}env = \"{key}\"\n"),
                "keys.toml:4:7: env: expected the variable of this",
            ),
            (format!("{head}hash = \"{key}\"\n"), "keys.toml:4:8: hash: expected sha256: and 64"),
            (format!("key = \"{key}\"\n"), "keys.toml:1:"),
            (
                format!("{head}env = \"WEB_KEY\"\nexpires = \"{key}\"\n"),
                "keys.toml:5:11: expires: ",
            ),
            (
                format!("{head}env = \"WEB_KEY\"\norigins = [\"{key}\"]\n"),
                "keys.toml:5:12: origins: ",
            ),
            (format!("{head}{key} = 1\n"), "keys.toml:4:1: unknown field `…`"),
        ] {
            let found = read_keys_from_text(&text).unwrap_err()[0].clone();
            assert!(found.starts_with(fault) && !found.contains(key), "{found}");
        }
        let shown = |text: String| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("keys.toml");
            std::fs::write(&path, text).unwrap();
            read_key_file(&path, &|_| None).unwrap_err()[0].to_text()
        };
        let origins = format!("{head}env = \"A\"\norigins = [\"x\"]\n");
        for (text, excerpt) in [
            (format!("{head}expires = \"soon\"\nenv = \"A\"\n"), "5 | env = …\n  |       ^"),
            ("[[key]]\nid = \"a b\"\naccount = \"c\"\n".into(), "2 | id = \"a b\"\n  |      ^^^^^"),
            (format!("{head}hash = \"{key}\"\n"), "4 | hash = …\n  |        ^"),
            ("[key]\nid = \"a\"\n".into(), "write [[key]]\n  |\n1 | [key]\n  | ^^^^^"),
            (format!("{head}{key} = 1\n"), "4 | …\n  | ^"),
            (origins, "4 | env = …"),
        ] {
            let text = shown(text);
            assert!(text.contains(excerpt) && !text.contains(key), "{text}");
        }
        let twice = format!("{head}env = \"WEB_KEY\"\n{head}env = \"WEB_KEY\"\n");
        assert!(read_keys_from_text(&twice).unwrap_err()[0].contains("expected once"));
    }
}
