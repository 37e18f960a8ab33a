//! Which kind of text a setting holds. `hints` makes only the guesses of this kind.

use super::description::{SettingKind, without_indexes};

/// A kind of text: what a person may have meant depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// An address to listen at.
    ListenAddress,
    /// The address of a server, to which riskgate connects.
    ServerAddress,
    /// An address or a network of clients.
    Network,
    /// The host of a server, perhaps with a port.
    Host,
    /// The domain of an e-mail address.
    Domain,
    /// An origin of CORS.
    Origin,
    /// A URL, or a path in its place.
    Url,
    /// The path of a request.
    Path,
    /// A route in a rule: the prefix of a route, or a word for a request of riskgate's own.
    RuleRoute,
    /// The name of a header field.
    HeaderName,
    /// The name of a field in a form.
    FieldName,
    /// Where a proxy that asks has the e-mail address.
    EmailSource,
    /// A name that an operator chooses.
    Name,
    /// A word that riskgate or HTTP defines.
    Word,
    /// A level of the log, and levels of modules.
    LogLevels,
    /// A duration, a day, a month or a time.
    Time,
    /// A number of requests in a time.
    Rate,
    /// A number or a size.
    Number,
    /// A sentence, or any other text.
    Free,
}

impl TextKind {
    /// The kind of the texts of a setting.
    pub(super) fn of_setting(key: &str, setting_kind: &SettingKind) -> TextKind {
        match setting_kind {
            SettingKind::Integer(_) | SettingKind::IntegerList | SettingKind::CallLimit => {
                return TextKind::Number;
            }
            SettingKind::Duration => return TextKind::Time,
            SettingKind::Boolean | SettingKind::Choice(_) => return TextKind::Word,
            SettingKind::Text
            | SettingKind::Secret
            | SettingKind::List
            | SettingKind::TextOrList => (),
        }
        let key = without_indexes(key);
        match key.as_str() {
            "listen.http" | "listen.https" | "listen.admin" | "listen.redirect" => {
                return TextKind::ListenAddress;
            }
            "log.fields" => return TextKind::Word,
            "log.level" => return TextKind::LogLevels,
            "keys.prefix" => return TextKind::Name,
            "authz.email" => return TextKind::EmailSource,
            _ => (),
        }
        match key.rsplit('.').next().unwrap_or_default() {
            "servers" | "resolvers" => TextKind::ServerAddress,
            "trusted_proxies" => TextKind::Network,
            "host" | "tls_name" => TextKind::Host,
            "origins" | "allow_origins" => TextKind::Origin,
            "url" | "sha256_url" | "redirect" | "endpoint" => TextKind::Url,
            "prefix" | "path" | "paths" | "health_path" => TextKind::Path,
            "routes" => TextKind::RuleRoute,
            "header" | "allow_headers" | "expose_headers" => TextKind::HeaderName,
            "fields" => TextKind::FieldName,
            "name" => TextKind::Name,
            "expires" => TextKind::Time,
            "max_per_client" => TextKind::Rate,
            "message" | "if" => TextKind::Free,
            _ => TextKind::Word,
        }
    }

    /// Whether a blank in such a text separates nothing, so that a guess keeps the text in one
    /// piece.
    pub(super) fn keeps_blanks(self) -> bool {
        matches!(
            self,
            TextKind::Url
                | TextKind::Path
                | TextKind::HeaderName
                | TextKind::FieldName
                | TextKind::EmailSource
                | TextKind::Name
                | TextKind::LogLevels
                | TextKind::Free
        )
    }
}
