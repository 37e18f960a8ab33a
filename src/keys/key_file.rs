//! The key file: keys that people or deployments declare. `keys import` reads files of the same
//! format.
//!
//! Parses TOML into keys. If the TOML parser refuses the file, reports the parser's fault with its
//! line. Otherwise reports the faults of all keys. This module opens no store.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::fault::{RingError, RingFault};
use super::token::{MIN_KEY_LEN, Token, hide_keys, sha256};
use crate::model::month::parse_rfc3339;
use crate::model::origin::OriginPattern;
use crate::store::KeyRow;
use crate::support::excerpt::Excerpt;
use crate::support::line_index::LineIndex;
use crate::support::memory;
use crate::support::regular_file::{ReadError, read_regular_text};
use crate::support::url_authority::split_authority;

/// The fields of a key.
const KEY_FIELDS: [&str; 11] = [
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

/// The fields of a key that are times.
const TIME_FIELDS: [&str; 3] = ["created", "expires", "revoked"];

const HOW_TO_HASH: &str = "write hash = \"sha256:…\" with the digits of: printf %s \"$KEY\" | sha256sum; or env = \"NAME\"";

/// Names that people write in place of fields, each with what to write.
const FIELD_SYNONYMS: [(&[&str], &str); 9] = [
    (&["key", "token", "api_key", "secret", "value", "password"], HOW_TO_HASH),
    (&["name", "key_id", "kid"], "write id"),
    (&["sha256", "digest", "key_hash", "hashed_key"], "write hash"),
    (&["user", "owner", "customer", "tenant", "organization"], "write account"),
    (&["origin", "allowed_origins", "cors", "domains"], "write origins"),
    (&["expiry", "expires_at", "expire", "expiration", "ttl"], "write expires"),
    (
        &["limit", "monthly_limit", "quota", "rate_limit", "max_per_client"],
        "a plan has the limit: write plan = \"pro\", or run `riskgate accounts set NAME --limit N`",
    ),
    (
        &["enabled", "active", "disabled", "status", "valid"],
        "remove this line; a key that is no longer valid has revoked = \"2027-01-01T00:00:00Z\"",
    ),
    (&["description", "comment", "note"], "write label"),
];

/// The sections of the config, which have no place in a key file.
pub const CONFIG_SECTIONS: [&str; 21] = [
    "admin", "audit", "authz", "check", "decide", "dns", "drain", "inbox", "keys", "listen", "log",
    "plans", "process", "rates", "rule", "store", "table", "top", "traces", "upstream", "webhook",
];

/// The words of the TOML parser for types and values, each with the words that riskgate writes
/// instead.
const PARSER_WORDS: [(&str, &str); 8] = [
    ("a sequence", "a list such as [\"https://app.example.com\"]"),
    ("a string", "a text between quotes"),
    ("a boolean", "true or false"),
    ("string", "a text"),
    ("integer", "a number"),
    ("floating point", "a number"),
    ("sequence", "a list"),
    ("map", "a section or a date"),
];

/// The largest key file, in bytes: enough for a million keys.
const MAX_KEY_FILE_BYTES: u64 = 256 << 20;

/// The bytes of memory that each byte of a key file needs, to read the file, to build a key ring
/// from it and to record its keys. Measured with 20,000 and 100,000 keys, and rounded up. A failed
/// allocation would end the process, so riskgate checks the free memory first.
const MEMORY_BYTES_PER_FILE_BYTE: u64 = 64;

/// A key of the key file, and the plan that the file gives the key's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredKey {
    /// The key.
    pub key: KeyRow,
    /// The account's plan; `None` if the file gives none.
    pub plan: Option<String>,
}

/// A fault in a key file. No text of a fault contains a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}{}", .hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct KeyFileError {
    /// The place of the fault: `file` or `file:line:column`.
    pub at: String,
    /// What was expected, and what was found.
    pub message: String,
    /// True if the system could not read the file for now (see [`ReadError::is_transient`]), or if
    /// the memory for its keys is missing.
    pub is_transient: bool,
    /// What to write instead.
    hint: Option<String>,
    excerpt: Option<Box<Excerpt>>,
}

impl KeyFileError {
    fn new(at: String, message: String) -> KeyFileError {
        KeyFileError { at, message, is_transient: false, hint: None, excerpt: None }
    }

    /// Renders the fault for a terminal, with the line of the file if that is known.
    pub fn to_text(&self) -> String {
        match &self.excerpt {
            Some(excerpt) => {
                format!("{}: {}\n{}", self.at, self.message, excerpt.render(self.hint.as_deref()))
            }
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

/// Reads the key file at `path`. `env_var` looks up an environment variable. Returns all faults
/// that are found.
pub fn read_key_file(
    path: &Path,
    env_var: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<DeclaredKey>, Vec<KeyFileError>> {
    let name = path.display().to_string();
    let text = read_text(path).map_err(|fault| vec![fault])?;
    // An empty file was probably truncated, or a program is about to write it. An operator who
    // wants a file without keys can write a comment into the file.
    if text.trim_ascii().is_empty() {
        let message = "expected keys, but found an empty file".to_owned();
        return Err(vec![KeyFileError::new(name, message)]);
    }
    let lines = LineIndex::new(&text);
    let reader = KeyFileReader { path_text: &name, text: &text, lines, env_var };
    let raw: RawKeyFile = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![reader.syntax_fault(at, redact_keys(error.message()))]
    })?;
    let mut keys = Vec::new();
    let mut faults = Vec::new();
    let mut found = FoundKeys::default();
    for key in raw.key {
        let start = key.span().start;
        let parsed = reader.parse_key(key);
        match parsed
            .and_then(|it| reader.check_is_new(&mut found, it, start).map_err(|fault| vec![fault]))
        {
            Ok(key) => keys.push(key),
            Err(of_key) => faults.extend(of_key),
        }
    }
    if faults.is_empty() { Ok(keys) } else { Err(faults) }
}

fn read_text(path: &Path) -> Result<String, KeyFileError> {
    let fault = |message: String, is_transient: bool| {
        let at = path.display().to_string();
        KeyFileError { is_transient, ..KeyFileError::new(at, message) }
    };
    let text = read_regular_text(path, MAX_KEY_FILE_BYTES).map_err(|found: ReadError| {
        fault(format!("expected a key file, but found {found}"), found.is_transient())
    })?;
    memory::check_available(MEMORY_BYTES_PER_FILE_BYTE * text.len() as u64)
        .map_err(|found| fault(found.to_string(), true))?;
    Ok(text)
}

/// Finds for each account of a faulty key file the first plan that is none of `known`, with its
/// place.
pub fn find_unknown_plans(path: &Path, known: &[String]) -> Vec<KeyFileError> {
    let text = read_text(path).unwrap_or_default();
    let keys = toml::from_str::<RawKeyFile>(&text).map_or(Vec::new(), |raw| raw.key);
    let mut unknown: BTreeMap<String, String> = BTreeMap::new();
    for key in keys.into_iter().map(Spanned::into_inner) {
        if let Some(plan) = key.plan.filter(|plan| !known.contains(plan.get_ref())) {
            unknown.entry(key.account.into_inner()).or_insert(plan.into_inner());
        }
    }
    let known = known.join(", ");
    let faults = unknown.into_iter().filter_map(|(account, found)| {
        let fault = RingFault::UnknownPlan { account, known: known.clone(), found };
        locate_plan_fault(path, &fault.into())
    });
    faults.collect()
}

/// Finds the place of a faulty plan in the key file, and returns the fault with this place. `None`
/// if the error is no fault of a plan, if the file can't be read, or if it has no such plan any
/// more.
pub fn locate_plan_fault(path: &Path, error: &RingError) -> Option<KeyFileError> {
    let (account, plan, hint) = match error {
        RingError::Fault(RingFault::UnknownPlan { account, found, .. }) => {
            let hint = "write one of them, or a line for this plan below [plans] of the config";
            (account, found, hint)
        }
        RingError::ConflictingPlans { account, second, .. } => {
            (account, second, "write the plan in one key of the account, or the same in each")
        }
        _ => return None,
    };
    let text = read_text(path).ok()?;
    let raw: RawKeyFile = toml::from_str(&text).ok()?;
    let keys = raw.key.iter().map(Spanned::get_ref);
    let mut plans =
        keys.filter(|key| key.account.get_ref() == account).filter_map(|it| it.plan.as_ref());
    let place = plans.find(|it| it.get_ref() == plan)?;
    let name = path.display().to_string();
    let lines = LineIndex::new(&text);
    let reader = KeyFileReader { path_text: &name, text: &text, lines, env_var: &|_| None };
    let shown = quote_unless_key(plan);
    let fault = reader.fault_at_value("plan", place.span().start, &shown, error.to_string());
    Some(KeyFileError { hint: Some(hint.to_owned()), ..fault })
}

struct KeyFileReader<'a> {
    path_text: &'a str,
    text: &'a str,
    lines: LineIndex<'a>,
    env_var: &'a dyn Fn(&str) -> Option<String>,
}

impl KeyFileReader<'_> {
    /// What the file is by its first line, if it is no TOML.
    fn find_other_format(&self) -> Option<&'static str> {
        let lines = self.text.lines().map(str::trim);
        let first = lines.into_iter().find(|line| !line.is_empty() && !line.starts_with('#'))?;
        let is_json = first.starts_with(['{', '-']) || first.starts_with("[{") || first == "[";
        match is_json || first.ends_with(':') {
            true => Some("JSON or YAML"),
            false if !first.contains('=') && !first.starts_with('[') => Some("CSV or a plain list"),
            false => None,
        }
    }

    fn format_location(&self, offset: usize) -> String {
        self.lines.format_place(self.path_text, offset)
    }

    /// Makes the fault of a field. `shown` is the value of the field as a fault may show it.
    fn fault_at_value(
        &self,
        field: &str,
        offset: usize,
        shown: &str,
        message: String,
    ) -> KeyFileError {
        let (line_number, before) = self.lines.line_and_text_before(offset);
        let whole = self.text.get(offset..).unwrap_or_default().lines().next().unwrap_or_default();
        let is_of_plain_line = before
            .split_once('=')
            .is_some_and(|(name, list)| name.trim() == field && list.split('"').all(is_showable));
        let name = before.split('=').next().unwrap_or_default().trim_end();
        let before = match (whole.starts_with(shown) && is_of_plain_line, name.trim() == field) {
            (true, _) => before.to_owned(),
            // The excerpt leaves out what stands before the value, because it may be a key.
            (false, true) => format!("{name} = "),
            (false, false) => format!("{field} = "),
        };
        let start = before.chars().count();
        let marked = start..start + shown.chars().count();
        let line = format!("{before}{shown}").replace('\t', " ");
        let excerpt = Some(Box::new(Excerpt::new(line_number, line, marked)));
        KeyFileError { excerpt, ..KeyFileError::new(self.format_location(offset), message) }
    }

    /// Makes the fault of a line that the parser refuses. Of this line, shows only a short header,
    /// or a name that is a field or stands in [`FIELD_SYNONYMS`].
    fn syntax_fault(&self, offset: usize, message: String) -> KeyFileError {
        let (line, before) = self.lines.line_and_text_before(offset);
        let start = offset - before.len();
        let whole = self.text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
        let is_header = whole.starts_with('[')
            && whole.chars().all(|c| c.is_ascii_alphanumeric() || "[]._- ".contains(c));
        let name = whole.split('=').next().unwrap_or_default().trim();
        let other = FIELD_SYNONYMS.iter().find(|(others, _)| others.contains(&name));
        let shown = match KEY_FIELDS.contains(&name) || other.is_some() {
            true => format!("{name} = …"),
            false if is_header && whole.len() < MIN_KEY_LEN => whole.to_owned(),
            false => "…".to_owned(),
        };
        let width = if is_header { shown.chars().count() } else { name.chars().count() };
        let width = if shown == "…" { 1 } else { width };
        let is_of_value = shown.ends_with(" = …") && message.starts_with("invalid type");
        let place = if is_of_value { width + 3..width + 4 } else { 0..width };
        let excerpt = Some(Box::new(Excerpt::new(line, shown, place)));
        let value = whole.split_once('=').unwrap_or_default().1.trim().trim_matches('"');
        let header = whole.trim();
        let is_other_header = is_header && header != "[[key]]";
        let hint = match other {
            _ if is_other_header && is_of_config(header) => Some(
                "name a file of keys, in which each begins with [[key]]; a section such as [plans] \
                 belongs in the config"
                    .to_owned(),
            ),
            _ if is_other_header => Some("write [[key]]".to_owned()),
            Some((_, hint)) => Some((*hint).to_owned()),
            // A time of TOML.
            None if TIME_FIELDS.contains(&name) && message.starts_with("invalid type: map") => {
                Some(format!("write {name} = \"2027-01-01T00:00:00Z\", between quotes"))
            }
            None if name == "revoked" && value == "true" => {
                Some("write revoked = \"2027-01-01T00:00:00Z\", with a time".to_owned())
            }
            None if name == "origins"
                && value.starts_with("https://")
                && is_showable(value)
                && OriginPattern::parse(value).is_ok() =>
            {
                Some(format!("write [\"{value}\"]"))
            }
            None if self.find_other_format().is_some() => Some(
                "write a file of TOML: [[key]], and below it id = \"web-1\", account = \"acme\" \
                 and hash = \"sha256:…\""
                    .to_owned(),
            ),
            None if message.starts_with("unknown field") => {
                Some(format!("a key has {}", KEY_FIELDS.join(", ")))
            }
            None => None,
        };
        let message = match self.find_other_format() {
            _ if is_other_header => "expected [[key]], but found another section".to_owned(),
            Some(format) => format!("expected a file of TOML, but found {format}"),
            None => reword_message(name, &message),
        };
        KeyFileError { hint, excerpt, ..KeyFileError::new(self.format_location(offset), message) }
    }

    fn field_fault(&self, field: &str, value: &Spanned<String>, expected: &str) -> KeyFileError {
        let message = format!("{field}: expected {expected}");
        // An operator may have written a key into `hash` or `env` by mistake.
        let shown = match field {
            "hash" | "env" => "…".to_owned(),
            _ if is_showable(value.get_ref()) => format!("{:?}", value.get_ref()),
            _ => "…".to_owned(),
        };
        self.fault_at_value(field, value.span().start, &shown, message)
    }

    /// Makes the fault of `hash`. A hash is no secret, but an operator may have written the key in
    /// its place.
    fn hash_fault(&self, hash: &Spanned<String>) -> KeyFileError {
        let text = hash.get_ref();
        let rest = text.trim().strip_prefix("sha256:").unwrap_or(text.trim());
        let digits = rest.split(' ').next().unwrap_or_default();
        let is_digest = digits.len() == 64 && digits.bytes().all(|it| it.is_ascii_hexdigit());
        let (found, hint) = match is_digest {
            true if parse_sha256_field(text).is_some() => {
                ("those of an empty text", HOW_TO_HASH.to_owned())
            }
            true if text.starts_with("sha256:") => ("more", format!("write \"sha256:{digits}\"")),
            true => ("the digits alone", format!("write \"sha256:{digits}\"")),
            false if hide_keys(text) != *text => ("a key", HOW_TO_HASH.to_owned()),
            false => ("something else", HOW_TO_HASH.to_owned()),
        };
        let expected = format!("sha256: and 64 hexadecimal digits, but found {found}");
        let fault = self.field_fault("hash", hash, &expected);
        KeyFileError { hint: Some(hint), ..fault }
    }

    fn parse_key(&self, key: Spanned<RawKey>) -> Result<DeclaredKey, Vec<KeyFileError>> {
        let start = key.span().start;
        let key = key.into_inner();
        let names = [("id", &key.id), ("account", &key.account)];
        let names = names.into_iter().filter(|(_, name)| !is_valid_id_or_account(name.get_ref()));
        let mut faults: Vec<KeyFileError> = names
            .map(|(field, value)| {
                let found = quote_unless_key(value.get_ref());
                let expected = format!("{ID_OR_ACCOUNT_FORMAT}, but found {found}");
                let meant = value.get_ref().trim().replace(' ', "-");
                let is_meant = is_valid_id_or_account(&meant) && is_showable(&meant);
                let hint = is_meant.then(|| format!("write {meant:?}"));
                KeyFileError { hint, ..self.field_fault(field, value, &expected) }
            })
            .collect();
        let digest = self.parse_digest(&key, start).map_err(|fault| faults.push(fault));
        faults.extend(key.origins.iter().filter_map(|origin| self.find_origin_fault(origin)));
        let mut time = |field: &str, value: &Option<Spanned<String>>| {
            self.parse_time(field, value.as_ref())
                .map_err(|fault| faults.push(fault))
                .ok()
                .flatten()
        };
        let created_at = time("created", &key.created).unwrap_or(0);
        let (expires_at, revoked_at) =
            (time("expires", &key.expires), time("revoked", &key.revoked));
        let digest = digest.ok().filter(|_| faults.is_empty()).ok_or(faults)?;
        Ok(DeclaredKey {
            plan: key.plan.map(Spanned::into_inner),
            key: KeyRow {
                created_at,
                expires_at,
                revoked_at,
                id: key.id.into_inner(),
                account: key.account.into_inner(),
                label: key.label,
                digest,
                origins: key.origins.into_iter().map(Spanned::into_inner).collect(),
                require_origin: key.require_origin,
            },
        })
    }

    /// Parses `hash` or `env` of a key, whose section begins at the byte `start`.
    fn parse_digest(&self, key: &RawKey, start: usize) -> Result<[u8; 32], KeyFileError> {
        match (&key.hash, &key.env) {
            (Some(hash), None) => {
                let digest = parse_sha256_field(hash.get_ref());
                let is_of_key = digest.is_some_and(|it| it != sha256(b"") && it != sha256(b"\n"));
                digest.filter(|_| is_of_key).ok_or_else(|| self.hash_fault(hash))
            }
            (None, Some(env)) => self.digest_from_env_var(env),
            _ => {
                let message =
                    format!("{}: expected either hash or env", name_key(key.id.get_ref()));
                Err(KeyFileError::new(self.format_location(start), message))
            }
        }
    }

    fn find_origin_fault(&self, origin: &Spanned<String>) -> Option<KeyFileError> {
        let text = origin.get_ref();
        OriginPattern::parse(text).err()?;
        let found = quote_unless_key(text);
        let expected = format!("an origin such as https://app.example.com, but found {found}");
        let fault = self.field_fault("origins", origin, &expected);
        Some(KeyFileError { hint: hint_for_origin(text), ..fault })
    }

    fn digest_from_env_var(&self, env: &Spanned<String>) -> Result<[u8; 32], KeyFileError> {
        // An operator may have written the key in place of the name, so only a plain name is shown.
        let name = match env.get_ref() {
            name if is_env_name(name) => name.as_str(),
            _ => "of this name",
        };
        let token = (self.env_var)(env.get_ref()).ok_or_else(|| {
            let expected = format!("the variable {name} to be set, but found none");
            let hint = name_of_reference(env.get_ref()).map(|it| format!("write {it:?}"));
            KeyFileError { hint, ..self.field_fault("env", env, &expected) }
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
        parse_rfc3339(value.get_ref()).map(Some).ok_or_else(|| {
            let found = quote_unless_key(value.get_ref());
            let expected = format!("a time such as 2027-01-01T00:00:00Z, but found {found}");
            let hint = hint_for_time(value.get_ref());
            KeyFileError { hint, ..self.field_fault(field, value, &expected) }
        })
    }

    /// Returns the key, whose section begins at the byte `start`, and adds it to `found`.
    ///
    /// # Errors
    /// If an earlier section has the same id or the same key.
    fn check_is_new(
        &self,
        found: &mut FoundKeys,
        declared: DeclaredKey,
        start: usize,
    ) -> Result<DeclaredKey, KeyFileError> {
        let id = &declared.key.id;
        let with_id = found.starts_by_id.insert(id.clone(), start);
        let with_digest = found.starts_by_digest.insert(declared.key.digest, start);
        let (what, first, hint) = match (with_id, with_digest) {
            (None, None) => return Ok(declared),
            (_, Some(first)) => ("this key", first, "leave one of both out"),
            (Some(first), None) => ("this id", first, "give each key an id of its own"),
        };
        let line = self.lines.line_and_text_before(first).0;
        let key = name_key(id);
        let message = format!("{key}: expected {what} once, but line {line} has it already");
        let fault = KeyFileError::new(self.format_location(start), message);
        Err(KeyFileError { hint: Some(hint.to_owned()), ..fault })
    }
}

/// For each key that was read so far: the byte at which the section of the key begins.
#[derive(Default)]
struct FoundKeys {
    starts_by_id: HashMap<String, usize>,
    starts_by_digest: HashMap<[u8; 32], usize>,
}

/// Whether the header of a section is one of the config. `[[keys]]` was meant for `[[key]]`.
fn is_of_config(header: &str) -> bool {
    let name = header.trim_matches(['[', ']', ' ']).split('.').next().unwrap_or_default();
    CONFIG_SECTIONS.contains(&name) && header != "[[keys]]"
}

/// Whether a text has the form in which names of variables are written, and is surely no key. A key
/// that riskgate generated has small letters, and keys of other systems have a long part without
/// `_`.
fn is_env_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.bytes().all(is_allowed) && text.split('_').all(|part| part.len() < MIN_KEY_LEN)
}

/// Returns the name in a reference to a variable, such as `$NAME` or `${NAME}`.
fn name_of_reference(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('$').or_else(|| text.strip_prefix("env:"))?;
    let name = rest.strip_prefix('{').and_then(|it| it.strip_suffix('}')).unwrap_or(rest);
    (!name.is_empty() && is_env_name(name)).then_some(name)
}

/// Quotes a text of the file, unless the text may be a key.
fn quote_unless_key(text: &str) -> String {
    if is_showable(text) { format!("{text:?}") } else { "something else".to_owned() }
}

/// Names a key by its id, unless the id may be the text of a key.
pub(super) fn name_key(id: &str) -> String {
    let is_generated_id = id.strip_prefix("key_").is_some_and(|rest| rest.len() == MIN_KEY_LEN);
    if is_generated_id || is_showable(id) { format!("key {id}") } else { "a key".to_owned() }
}

/// Whether a text is surely no key: it is too short for a key, or is a URL of which no part may be
/// a key.
fn is_showable(text: &str) -> bool {
    let is_url = text.starts_with("https://") || text.starts_with("http://");
    let part = |part: &str| part.len() < MIN_KEY_LEN || part.contains('.');
    text.len() < MIN_KEY_LEN || is_url && hide_keys(text) == text && text.split('/').all(part)
}

/// Returns what to write in place of `*`, of an origin with a path, or of an origin without a
/// scheme.
fn hint_for_origin(text: &str) -> Option<String> {
    if text == "*" {
        return Some("leave origins out: a key without them is for all origins".to_owned());
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let host = split_authority(rest).0;
    let origin = format!("{scheme}://{host}");
    let is_origin = OriginPattern::parse(&origin).is_ok() && host.contains('.');
    (is_origin && is_showable(&origin)).then(|| format!("write {origin:?}"))
}

/// Returns what to write in place of a day, or of a time without a `T` or a zone.
fn hint_for_time(text: &str) -> Option<String> {
    if let [first, second, year] = text.split('/').collect::<Vec<_>>()[..] {
        let [day_first, month_first] = [(first, second), (second, first)]
            .map(|(day, month)| hint_for_time(&format!("{year}-{month}-{day}")));
        // Of some days, nobody knows which number is the month.
        return day_first.xor(month_first);
    }
    let with_t = text.replace(' ', "T");
    let forms = [with_t.clone(), format!("{with_t}Z"), format!("{with_t}T00:00:00Z")];
    let time = forms.into_iter().find(|it| parse_rfc3339(it).is_some())?;
    Some(format!("write {time:?}"))
}

/// Rewords the message of the TOML parser about a field in the words of riskgate.
fn reword_message(field: &str, message: &str) -> String {
    let reword = |words: &str| {
        let known = PARSER_WORDS.iter().find(|(start, _)| words.starts_with(start));
        known.map_or_else(|| words.to_owned(), |(_, own)| (*own).to_owned())
    };
    if let Some(rest) = message.strip_prefix("invalid type: ") {
        let (found, expected) = rest.split_once(", expected ").unwrap_or((rest, "another value"));
        return format!("{field}: expected {}, but found {}", reword(expected), reword(found));
    }
    if let Some(missing) = message.strip_prefix("missing field ") {
        return format!("expected a field {}, but found none", missing.trim_matches('`'));
    }
    match message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next()) {
        Some(name) => format!("{name}: expected a known field, but found an unknown one"),
        None => message.to_owned(),
    }
}

/// Puts a message of the TOML parser on one line, and replaces each word of [`MIN_KEY_LEN`] bytes
/// or more by `…`: the parser quotes the text that it found, which could be a key.
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

/// Whether a text may be a key's id or an account's name. riskgate writes these texts into headers
/// and logs without escaping. They stand in paths of the admin API, and clients remove the segments
/// `.` and `..` from a path.
pub fn is_valid_id_or_account(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    (1..=128).contains(&text.len()) && text.bytes().all(is_allowed) && !matches!(text, "." | "..")
}

/// Parses the field `hash`: `sha256:` and 64 hexadecimal digits. `None` for a text of another form.
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
mod tests;
