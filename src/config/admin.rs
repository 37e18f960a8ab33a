//! The tokens of the admin listener: `admin.token` and `[[admin.token]]`.

use std::collections::{HashMap, HashSet};

use super::description::{SettingKind, toml_text};
use super::listen::ListenAddresses;
use super::raw_value::{RawValue, parse_duration};
use super::settings::{Settings, find_admin_address_on_loopback};
use crate::keys::{ID_OR_ACCOUNT_FORMAT, is_valid_id_or_account, parse_sha256_field, sha256};
use crate::model::month::parse_rfc3339;

/// The name in the audit of the token in the setting `admin.token`.
const NAME_OF_PLAIN_TOKEN: &str = "admin.token";

/// A token of the admin listener, without the token's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// Names the token in the audit.
    pub name: String,
    /// The SHA-256 of the token's text.
    pub digest: [u8; 32],
    /// What the token may do.
    pub scope: TokenScope,
    /// When the token expires, in Unix seconds; `None` if it never expires.
    pub expires_at: Option<i64>,
}

/// What a token of the admin listener may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenScope {
    /// Read everything.
    Read,
    /// Read and change everything.
    Write,
    /// Read only what concerns this account.
    Account(String),
}

impl TokenScope {
    /// Parses `read`, `write` or `account:NAME`.
    pub fn parse(text: &str) -> Option<TokenScope> {
        match text {
            "read" => Some(TokenScope::Read),
            "write" => Some(TokenScope::Write),
            _ => {
                let account = text.strip_prefix("account:")?;
                is_valid_id_or_account(account).then(|| TokenScope::Account(account.to_owned()))
            }
        }
    }
}

impl Settings {
    /// Reads `admin.token` or the file that `admin.token_file` names, and the `[[admin.token]]`
    /// entries. Reports a name or a token that occurs twice.
    pub fn read_admin_tokens(&mut self) -> Vec<AdminToken> {
        let mut tokens: Vec<AdminToken> = self.read_plain_token().into_iter().collect();
        for at in self.list_table_array_keys("admin.token") {
            let token = self.read_token_entry(&at);
            tokens.extend(token);
        }
        let mut names = HashSet::new();
        let repeated = tokens.iter().find(|token| !names.insert(token.name.as_str()));
        if let Some(token) = repeated {
            let name = &token.name;
            let problem = format!("expected a name that no other token has, but found {name:?}");
            self.report_at_key("admin.token", &problem, None);
        }
        let mut digests = HashMap::new();
        for token in &tokens {
            if let Some(other) = digests.insert(token.digest, &token.name) {
                let name = &token.name;
                let problem =
                    format!("{name}: expected a token of its own, but found that of {other}");
                self.report_at_key("admin.token", &problem, None);
            }
        }
        tokens
    }

    /// Reports a fault if the admin listener would answer anybody: it is not on loopback, and no
    /// token is set.
    pub fn report_admin_without_token(
        &mut self,
        addresses: &ListenAddresses,
        tokens: &[AdminToken],
    ) {
        let admin = addresses.admin;
        // A faulty token has its own fault.
        if admin.ip().is_loopback() || !tokens.is_empty() || self.has_admin_token() {
            return;
        }
        let problem = format!(
            "expected an address of loopback, or a token of 16 characters or more in admin.token, \
             but found {admin} and no token"
        );
        let meant = find_admin_address_on_loopback(admin, &addresses.without_admin());
        let hint = format!(
            "write \"{meant}\", or make a token: riskgate admin-token create --name NAME --scope write"
        );
        self.report_at_value("listen.admin", &toml_text(&admin.to_string()), &problem, Some(hint));
        // If a setting has a name near to `admin.token`, the fault of that name replaces this one.
        self.change_last_fault(|fault| fault.with_missing_key("admin.token"));
    }

    /// Returns true if a setting of a token has a value, even a faulty one.
    pub(super) fn has_admin_token(&self) -> bool {
        self.values.keys().any(|key| key.starts_with("admin.token") && self.has_value(key))
    }

    fn read_plain_token(&mut self) -> Option<AdminToken> {
        self.read_secret_from_file("admin.token");
        let setting = self.read_and_mark_known("admin.token", SettingKind::Secret)?;
        let text = setting.raw.as_text();
        let has_scheme =
            |text: &str| text.get(..7).is_some_and(|it| it.eq_ignore_ascii_case("bearer "));
        match text.filter(|text| text.len() >= 16 && text.is_ascii()) {
            Some(text) if has_scheme(text) => {
                let problem = "expected a token, but found the value of a field Authorization";
                let hint = "write the token alone, without Bearer before it";
                self.report_at_value("admin.token", "…", problem, Some(hint.to_owned()));
                self.mark_fault_of_secret("admin.token_file");
                None
            }
            Some(text) => Some(AdminToken {
                name: NAME_OF_PLAIN_TOKEN.to_owned(),
                digest: sha256(text.as_bytes()),
                scope: TokenScope::Write,
                expires_at: None,
            }),
            None => {
                self.report_hidden_fault("admin.token", "16 or more ASCII characters");
                let is_text = setting.raw.as_text().is_some();
                let hint = "write the output of: openssl rand -hex 16";
                self.hint_last_fault(is_text.then(|| hint.to_owned()));
                self.mark_fault_of_secret("admin.token_file");
                None
            }
        }
    }

    fn read_token_entry(&mut self, at: &str) -> Option<AdminToken> {
        let parse_name = |raw: &RawValue| {
            raw.as_text().filter(|text| is_valid_id_or_account(text)).map(str::to_owned)
        };
        let name_format = (ID_OR_ACCOUNT_FORMAT, "\"deploy\"");
        let name = self.require_setting(&format!("{at}.name"), name_format, parse_name);
        let digest = self.read_token_hash(&format!("{at}.hash"));
        let parse_scope = |raw: &RawValue| TokenScope::parse(raw.as_text()?);
        let expected = ("\"read\", \"write\" or \"account:NAME\"", "\"read\"");
        let scope = self.require_setting(&format!("{at}.scope"), expected, parse_scope);
        let parse_time = |raw: &RawValue| parse_rfc3339(raw.as_text()?);
        let expected = "a time such as 2027-01-01T00:00:00Z";
        let key = format!("{at}.expires");
        let is_given = self.values.contains_key(&key);
        let expires_at = self.parse_setting(&key, expected, parse_time);
        if is_given && expires_at.is_none() {
            let text = self.texts_of(&key).next().filter(|it| parse_duration(it).is_some());
            if let Some(text) = text {
                self.replace_last_hint(format!(
                    "write a date: `riskgate admin-token create --expires {text}` prints one"
                ));
            }
            let hint = self.hint_for_time_without_quotes(&key);
            self.hint_last_fault(hint);
            // A token with a faulty expiry must not become one that never expires.
            return None;
        }
        Some(AdminToken { name: name?, digest: digest?, scope: scope?, expires_at })
    }

    /// Returns what to write for a time that the file has without quotes.
    fn hint_for_time_without_quotes(&self, key: &str) -> Option<String> {
        let setting = self.values.get(key)?;
        let is_date = matches!(setting.raw, RawValue::Unsupported(_));
        let written = self.file_text.text.get(setting.span.as_ref()?.value.clone())?.trim();
        let time = [written.to_owned(), format!("{written}T00:00:00Z")];
        let time = time.iter().find(|it| parse_rfc3339(it).is_some()).filter(|_| is_date)?;
        Some(format!("write expires = {}, between quotes", toml_text(time)))
    }

    fn read_token_hash(&mut self, key: &str) -> Option<[u8; 32]> {
        let expected = "sha256: and 64 hexadecimal digits, as `riskgate admin-token create` prints";
        let Some(setting) = self.read_and_mark_known(key, SettingKind::Text) else {
            self.report_required(key, expected);
            return None;
        };
        let digest = setting.raw.as_text().and_then(parse_sha256_field);
        if digest.is_none() {
            // Somebody may have written the token in place of its hash.
            self.report_hidden_fault(key, expected);
            let text = setting.raw.as_text().unwrap_or_default();
            let is_hash = parse_sha256_field(&format!("sha256:{text}")).is_some();
            self.hint_last_fault(is_hash.then(|| "write sha256: before it".to_owned()));
        }
        digest
    }
}
