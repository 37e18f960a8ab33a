//! The key file: keys declared by hand or by a deployment, also what `keys import` reads.
//!
//! Turns TOML into rows, or into every fault with its line. It opens no store.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::token::{SHORTEST_KEY, Token, digest};
use crate::model::origin::OriginPattern;
use crate::store::KeyRow;
use crate::support::regular_file::read_regular_text;

/// The largest key file, in bytes: room for a million keys.
const LARGEST: u64 = 256 << 20;

/// A key of the file, and the plan that it gives its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredKey {
    /// The key.
    pub key: KeyRow,
    /// The account's plan.
    pub plan: Option<String>,
}

/// A fault in a key file; its text holds no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct KeyFileError {
    /// `file` or `file:line`.
    pub at: String,
    /// What was expected, and what was found.
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    key: Vec<Spanned<WrittenKey>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
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

/// Reads the file at `path`; `variable` looks an environment variable up.
pub fn read_key_file(
    path: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<DeclaredKey>, Vec<KeyFileError>> {
    let name = path.display().to_string();
    let whole = |what: String| vec![KeyFileError { at: name.clone(), what }];
    let text = read_regular_text(path, LARGEST)
        .map_err(|found| whole(format!("expected a key file, but found {found}")))?;
    // Who wants no keys leaves a word; a file without any was emptied, or is being written.
    if text.trim_start_matches('\u{feff}').trim_ascii().is_empty() {
        return Err(whole("expected keys, but found an empty file".to_owned()));
    }
    let lines = text.match_indices('\n').map(|(at, _)| at).collect();
    let reader = Reader { name: &name, lines, variable };
    let written: Written = toml::from_str(&text).map_err(|error| {
        let at = reader.at(error.span().map_or(0, |span| span.start));
        vec![KeyFileError { at, what: without_keys(error.message()) }]
    })?;
    let mut keys = Vec::new();
    let mut faults = Vec::new();
    for key in written.key {
        match reader.key(key) {
            Ok(key) => keys.push(key),
            Err(fault) => faults.push(fault),
        }
    }
    reader.refuse_doubles(&keys, &mut faults);
    if faults.is_empty() { Ok(keys) } else { Err(faults) }
}

struct Reader<'a> {
    name: &'a str,
    /// Where lines end: counting anew for each key would take minutes for a hundred thousand.
    lines: Vec<usize>,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    fn at(&self, offset: usize) -> String {
        let line = self.lines.partition_point(|end| *end < offset) + 1;
        format!("{}:{line}", self.name)
    }

    fn fault<T>(&self, field: &str, value: &Spanned<T>, expected: &str) -> KeyFileError {
        let what = format!("{field}: expected {expected}");
        KeyFileError { at: self.at(value.span().start), what }
    }

    fn key(&self, key: Spanned<WrittenKey>) -> Result<DeclaredKey, KeyFileError> {
        let start = self.at(key.span().start);
        let key = key.into_inner();
        for (field, value) in [("id", &key.id), ("account", &key.account)] {
            if !is_name(value.get_ref()) {
                return Err(self.fault(field, value, NAME_FORM));
            }
        }
        let digest = match (&key.hash, &key.env) {
            (Some(hash), None) => parse_hash(hash.get_ref()).ok_or_else(|| {
                self.fault(
                    "hash",
                    hash,
                    "sha256: and 64 hexadecimal digits, but found something else",
                )
            })?,
            (None, Some(env)) => self.token_of_variable(env)?,
            _ => {
                let what = format!("key {}: expected either hash or env", key.id.get_ref());
                return Err(KeyFileError { at: start, what });
            }
        };
        for origin in &key.origins {
            if OriginPattern::parse(origin.get_ref()).is_err() {
                let found = shown(origin.get_ref());
                let expected =
                    format!("an origin such as https://app.example.com, but found {found}");
                return Err(self.fault("origins", origin, &expected));
            }
        }
        Ok(DeclaredKey {
            plan: key.plan.map(Spanned::into_inner),
            key: KeyRow {
                created_at: self.time("created", key.created.as_ref())?.unwrap_or(0),
                expires_at: self.time("expires", key.expires.as_ref())?,
                revoked_at: self.time("revoked", key.revoked.as_ref())?,
                id: key.id.into_inner(),
                account: key.account.into_inner(),
                label: key.label,
                digest,
                origins: key.origins.into_iter().map(Spanned::into_inner).collect(),
                require_origin: key.require_origin,
            },
        })
    }

    fn token_of_variable(&self, env: &Spanned<String>) -> Result<[u8; 32], KeyFileError> {
        // Who writes the key itself here must not find it in a log.
        let usual = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let name = match env.get_ref() {
            name if name.bytes().all(usual) => name.as_str(),
            _ => "of this name",
        };
        let token = (self.variable)(env.get_ref()).ok_or_else(|| {
            self.fault("env", env, &format!("the variable {name} to be set, but found none"))
        })?;
        let token = Token::parse(token).map_err(|_| {
            let form = format!("the variable {name} to hold 16 to 256 visible ASCII characters");
            self.fault("env", env, &form)
        })?;
        Ok(token.digest())
    }

    fn time(
        &self,
        field: &str,
        value: Option<&Spanned<String>>,
    ) -> Result<Option<i64>, KeyFileError> {
        let Some(value) = value else { return Ok(None) };
        match value.get_ref().parse::<jiff::Timestamp>() {
            Ok(time) => Ok(Some(time.as_second())),
            Err(_) => {
                let found = shown(value.get_ref());
                let expected = format!("a time such as 2027-01-01T00:00:00Z, but found {found}");
                Err(self.fault(field, value, &expected))
            }
        }
    }

    fn refuse_doubles(&self, keys: &[DeclaredKey], faults: &mut Vec<KeyFileError>) {
        let mut ids = std::collections::HashSet::new();
        let mut digests = std::collections::HashSet::new();
        for DeclaredKey { key, .. } in keys {
            if !ids.insert(&key.id) || !digests.insert(key.digest) {
                let what =
                    format!("key {}: expected it once, but found its id or key again", key.id);
                faults.push(KeyFileError { at: self.name.to_owned(), what });
            }
        }
    }
}

/// What was found, unless it could be a key.
fn shown(text: &str) -> String {
    if text.len() < SHORTEST_KEY { format!("{text:?}") } else { "something else".to_owned() }
}

/// What a parser says, in one line and without anything that could be a key: it repeats what it
/// found.
fn without_keys(message: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',');
    let words = message.split_inclusive(ends).map(|word| match word.trim_end_matches(ends) {
        bare if bare.len() >= SHORTEST_KEY => word.replacen(bare, "…", 1),
        _ => word.to_owned(),
    });
    words.collect::<String>().replace('\n', " ")
}

/// What a name of a key or an account looks like, in words.
pub const NAME_FORM: &str = "1 to 128 visible ASCII characters without quotes or backslashes";

/// Whether a text may name a key or an account: it goes into headers and logs as it is.
pub fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    (1..=128).contains(&text.len()) && text.bytes().all(good)
}

fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let hex = text.strip_prefix("sha256:")?;
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// A key's hash as a key file writes it, from the key's text.
pub fn hash_text(token: &str) -> String {
    let hex: String = digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<DeclaredKey>, Vec<String>> {
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
    fn a_key_is_declared_by_hash_or_variable() {
        let hash = hash_text("sv_0123456789abcdef");
        let text = format!(
            "[[key]]\nid = \"web-1\"\naccount = \"acme\"\nplan = \"pro\"\nhash = \"{hash}\"\n\
             origins = [\"https://*.example.org\"]\nrequire_origin = true\n\
             expires = \"2027-01-01T00:00:00Z\"\n"
        );
        let keys = read(&text).unwrap();
        assert_eq!(keys[0].plan.as_deref(), Some("pro"));
        assert_eq!(keys[0].key.expires_at, Some(1_798_761_600));
        let by_variable =
            read("[[key]]\nid = \"a\"\naccount = \"acme\"\nenv = \"WEB_KEY\"\n").unwrap();
        assert_eq!(by_variable[0].key.digest, keys[0].key.digest);
    }

    #[test]
    fn each_fault_says_where_and_what_was_expected() {
        let head = "[[key]]\nid = \"a\"\naccount = \"acme\"\n";
        for (text, fault) in [
            (format!("{head}hash = \"md5:00\"\n"), "keys.toml:4: hash: expected sha256: and 64"),
            (format!("{head}env = \"NONE\"\n"), "keys.toml:4: env: expected the variable NONE"),
            (head.to_owned(), "keys.toml:1: key a: expected either hash or env"),
            (format!("{head}colour = 1\n"), "keys.toml:4: unknown field `colour`"),
            (
                format!("{head}env = \"WEB_KEY\"\norigins = [\"x\"]\n"),
                "keys.toml:5: origins: expected",
            ),
            (
                format!("{head}env = \"WEB_KEY\"\nexpires = \"soon\"\n"),
                "keys.toml:5: expires: expected",
            ),
            (
                "[[key]]\nid = \"a b\"\naccount = \"c\"\n".to_owned(),
                "keys.toml:2: id: expected 1 to 128",
            ),
            ("[[key".to_owned(), "keys.toml:1: "),
        ] {
            let faults = read(&text).unwrap_err();
            assert!(faults[0].starts_with(fault), "{} is not {fault}", faults[0]);
        }
        let key = "rg_0123456789abcdefghijABCDEFGHIJ01";
        for (text, fault) in [
            (format!("{head}env = \"{key}\"\n"), "keys.toml:4: env: expected the variable of this"),
            (format!("{head}hash = \"{key}\"\n"), "keys.toml:4: hash: expected sha256: and 64"),
            (format!("key = \"{key}\"\n"), "keys.toml:1: "),
            (format!("{head}env = \"WEB_KEY\"\nexpires = \"{key}\"\n"), "keys.toml:5: expires: "),
            (format!("{head}env = \"WEB_KEY\"\norigins = [\"{key}\"]\n"), "keys.toml:5: origins: "),
            (format!("{head}{key} = 1\n"), "keys.toml:4: unknown field `…`"),
        ] {
            let said = read(&text).unwrap_err()[0].clone();
            assert!(said.starts_with(fault) && !said.contains(key), "{said}");
        }
        let twice = format!("{head}env = \"WEB_KEY\"\n{head}env = \"WEB_KEY\"\n");
        assert!(read(&twice).unwrap_err()[0].contains("expected it once"));
    }
}
