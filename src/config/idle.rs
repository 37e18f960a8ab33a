//! Settings that have no effect, because another setting is missing or says otherwise.

use super::description::{is_index, toml_text};
use super::raw_value::parse_duration;
use super::settings::Settings;
use crate::store::StoreUrl;

/// What a setting needs to have an effect.
enum Need {
    /// That this setting is true.
    True(&'static str),
    /// That this setting is not false.
    NotFalse(&'static str),
    /// That this setting has a value.
    Value(&'static str),
    /// That this list contains this text, or is missing.
    Contains(&'static str, &'static str),
    /// That this setting has another value than this text.
    Not(&'static str, &'static str),
    /// That the store is a server.
    StoreOnServer,
    /// That the store is a server, reached with TLS.
    StoreWithTls,
    /// That Sentinels know the server of the store.
    StoreWithSentinels,
    /// That an upstream server has a name.
    ServerWithName,
}

use Need::{
    Contains, Not, NotFalse, ServerWithName, StoreOnServer, StoreWithSentinels, StoreWithTls, True,
    Value,
};

const NO_TLS_CONSEQUENCE: &str = "riskgate speaks HTTP without TLS to the servers";
const NO_LEARNING_CONSEQUENCE: &str = "only `riskgate table resolve` uses it";
const NO_WEBHOOK_CONSEQUENCE: &str = "riskgate tells nobody";
const NO_TRACES_CONSEQUENCE: &str = "riskgate sends no traces";
const NO_ACCESS_LOG_CONSEQUENCE: &str = "riskgate writes no access log";
const NO_SERVER_CONSEQUENCE: &str = "the store is a file";

/// Each setting, what it needs, and what is so if the need is not met. A name with a `.` or `_` at
/// its end stands for all settings that begin with it.
const NEEDS: [(&str, Need, &str); 25] = [
    ("authz.", Contains("authz.check", "screen"), "riskgate judges no address"),
    ("upstream.tls_name", True("upstream.tls"), NO_TLS_CONSEQUENCE),
    ("upstream.tls_ca", True("upstream.tls"), NO_TLS_CONSEQUENCE),
    ("upstream.tls_verify", True("upstream.tls"), NO_TLS_CONSEQUENCE),
    ("upstream.resolvers", ServerWithName, "riskgate resolves no name"),
    ("upstream.resolve_interval", ServerWithName, "riskgate resolves no name"),
    ("upstream.health_path", Not("upstream.health_interval", "0"), "nothing is checked"),
    ("dns.resolvers", True("dns.learn"), NO_LEARNING_CONSEQUENCE),
    ("dns.rate", True("dns.learn"), NO_LEARNING_CONSEQUENCE),
    ("dns.concurrency", True("dns.learn"), NO_LEARNING_CONSEQUENCE),
    ("webhook.", Value("webhook.url"), NO_WEBHOOK_CONSEQUENCE),
    ("traces.", Value("traces.endpoint"), NO_TRACES_CONSEQUENCE),
    ("log.path", NotFalse("log.access"), NO_ACCESS_LOG_CONSEQUENCE),
    ("log.format", NotFalse("log.access"), NO_ACCESS_LOG_CONSEQUENCE),
    ("log.fields", NotFalse("log.access"), NO_ACCESS_LOG_CONSEQUENCE),
    ("log.max_bytes", Value("log.path"), "riskgate renames no file"),
    ("log.kept_files", Value("log.max_bytes"), "riskgate renames no file"),
    ("listen.hsts", Value("listen.https"), "no answer has the field"),
    ("listen.certificate.", Value("listen.https"), "riskgate shows no certificate"),
    ("store.max_unsettled", Not("store.on_failure", "closed"), "no call passes without a lease"),
    ("store.wait_replicas", StoreOnServer, NO_SERVER_CONSEQUENCE),
    ("store.tls_ca", StoreWithTls, "the connection is not encrypted"),
    ("store.tls_certificate", StoreWithTls, "the connection is not encrypted"),
    ("store.tls_key", StoreWithTls, "the connection is not encrypted"),
    ("store.sentinel_", StoreWithSentinels, "riskgate asks no Sentinel"),
];

impl Settings {
    /// Warns of the settings in [`NEEDS`] that have no effect. TLS files and Sentinel credentials
    /// of a store that uses neither are faults: somebody relies on them for the secrecy of a
    /// connection, or for the choice of a server.
    pub(super) fn report_idle_settings(&mut self, store: &StoreUrl) {
        for (name, need, without) in &NEEDS {
            if self.is_met(need, store) {
                continue;
            }
            let is_idle = |key: &String| match name.ends_with(['.', '_']) {
                true => key.starts_with(name),
                false => key == name,
            };
            let mut keys: Vec<String> =
                self.values.keys().filter(|it| is_idle(it)).cloned().collect();
            keys.retain(|key| !self.is_unset_or_default(key));
            // One warning is enough for an entry of an array.
            let entry = |key: &String| {
                let (entry, _) = key.rsplit_once('.')?;
                is_index(entry.rsplit('.').next()?).then(|| entry.to_owned())
            };
            keys.dedup_by(|one, other| entry(one).is_some() && entry(one) == entry(other));
            if let Value(needed) | True(needed) | Contains(needed, _) = need {
                keys.retain(|key| key != needed && key != "authz.path");
            }
            for key in keys {
                let expected = describe(need);
                let hint = self.hint_for_need(need, store);
                match need {
                    StoreWithTls | StoreWithSentinels => {
                        self.report_at_key(&key, &format!("expected {expected}"), hint);
                    }
                    _ => {
                        let problem = format!("expected {expected}, because otherwise {without}");
                        self.warn_at_key(&key, &problem, hint);
                    }
                }
            }
        }
    }

    fn is_met(&self, need: &Need, store: &StoreUrl) -> bool {
        let raw = |key: &str| self.values.get(key).map(|setting| &setting.raw);
        let flag = |key: &str| raw(key).and_then(|raw| raw.as_boolean());
        let server = match store {
            StoreUrl::Redis(url) => Some(url),
            StoreUrl::Sqlite(_) => None,
        };
        match need {
            True(key) => flag(key) == Some(true),
            NotFalse(key) => flag(key) != Some(false),
            Value(key) => self.has_value(key),
            Contains(key, text) => !self.has_value(key) || self.texts_of(key).any(|it| it == *text),
            Not(key, value) => raw(key).and_then(|raw| raw.as_text()).is_none_or(|text| {
                let duration = parse_duration(text);
                text != *value && (duration.is_none() || duration != parse_duration(value))
            }),
            // A faulty URL of the store has a fault of its own, and says nothing about these needs.
            StoreOnServer | StoreWithTls | StoreWithSentinels if self.is_store_url_faulty() => true,
            StoreOnServer => server.is_some(),
            StoreWithTls => server.is_some_and(|url| url.has_tls()),
            StoreWithSentinels => server.is_some_and(|url| url.names_sentinels()),
            ServerWithName => {
                let is_address = |it: String| it.parse::<std::net::SocketAddr>().is_ok();
                self.values.contains_key("upstream.servers")
                    && !self.texts_of("upstream.servers").all(is_address)
            }
        }
    }

    /// Whether `store.url` is set and can't be parsed. Then `store` is the default, and not what
    /// the operator meant.
    fn is_store_url_faulty(&self) -> bool {
        let text = self.values.get("store.url").map(|setting| setting.raw.as_text());
        text.is_some_and(|text| text.is_none_or(|text| StoreUrl::parse(text).is_err()))
    }

    /// Whether a setting changes nothing: it is missing, empty or has the default, or riskgate does
    /// not know the setting.
    fn is_unset_or_default(&self, key: &str) -> bool {
        let Some(setting) = self.values.get(key).filter(|_| self.has_value(key)) else {
            return true;
        };
        let description = self.descriptions.iter().find(|it| it.key == key);
        description
            .is_none_or(|it| it.default.is_some() && setting.raw.to_toml(&it.kind) == it.default)
    }

    fn hint_for_need(&self, need: &Need, store: &StoreUrl) -> Option<String> {
        let name = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        match (need, store) {
            (True(key), _) => Some(format!("write {} = true", name(key))),
            (NotFalse(key), _) => Some(format!("write {} = true, or remove this line", name(key))),
            (Contains(key, text), _) => Some(format!(
                "write {} into {} too, or remove this line",
                toml_text(text),
                name(key)
            )),
            (StoreWithTls, StoreUrl::Redis(url)) => {
                let shown = url.without_credentials();
                let (scheme, rest) = shown.split_once("://")?;
                let has_credentials = self.texts_of("store.url").any(|it| it.contains('@'));
                let rest = if has_credentials { "…" } else { rest };
                let with_tls = scheme.replacen("redis", "rediss", 1);
                Some(format!("write url = {}", toml_text(&format!("{with_tls}://{rest}"))))
            }
            (StoreWithSentinels, StoreUrl::Redis(_)) => Some(
                "remove this line, or write url = \"redis+sentinel://HOST:PORT,HOST:PORT/SERVICE\""
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

fn describe(need: &Need) -> String {
    match need {
        True(key) | NotFalse(key) => format!("{key} = true"),
        Value(key) => format!("{key} too"),
        Contains(key, text) => format!("{} in {key}", toml_text(text)),
        Not(key, value) => format!("another {key} than {}", toml_text(value)),
        StoreOnServer => {
            "store.url to be redis://…, redis+sentinel://… or redis+cluster://…".to_owned()
        }
        StoreWithTls => {
            "store.url to be rediss://…, rediss+sentinel://… or rediss+cluster://…".to_owned()
        }
        StoreWithSentinels => "store.url to be redis+sentinel://…".to_owned(),
        ServerWithName => "a name in upstream.servers".to_owned(),
    }
}
