//! Checks that no log, page or error shows the text of a key, a password or a whole e-mail address.
//!
//! When a test ends, the harness checks the logs and the standard error of its gateway. Thus every
//! test also tests this rule. This module only checks text: it starts and knows no gateway.

/// The number of characters after the prefix of a key that `riskgate keys create` made.
const KEY_LENGTH_AFTER_PREFIX: usize = 32;

/// One gateway's secrets, which no log, page or error may show.
#[derive(Clone, Default)]
pub struct GatewaySecrets {
    /// The prefixes of keys.
    pub prefixes: Vec<String>,
    /// Secret texts, matched literally.
    pub texts: Vec<String>,
}

impl GatewaySecrets {
    /// Panics if `text` contains one of these secrets, a key of the usual form, or an e-mail
    /// address.
    #[track_caller]
    pub fn assert_no_secret_in(&self, source: &str, text: &str) {
        self.assert_no_key_in(source, text);
        // A log shows an address as `…@example.com`.
        let whole = text.match_indices('@').find(|(at, _)| {
            let before = text[..*at].chars().next_back();
            let after = text[at + 1..].chars().next();
            before.is_some_and(|c| c.is_alphanumeric() || ".+-_".contains(c))
                && after.is_some_and(char::is_alphanumeric)
        });
        let encoded = text.find("%40").map(|at| (at, "%40"));
        if let Some((at, _)) = whole.or(encoded) {
            panic!("{source} shows an address: {}", line_containing(text, at));
        }
    }

    /// As [`GatewaySecrets::assert_no_secret_in`], for texts that may contain addresses.
    #[track_caller]
    pub fn assert_no_key_in(&self, source: &str, text: &str) {
        let prefixes = self.prefixes.iter().map(String::as_str).chain(["rg_", "rga_"]);
        let is_key = |prefix: &str, at: usize| {
            let rest = text.as_bytes().get(at + prefix.len()..).unwrap_or_default();
            rest.len() >= KEY_LENGTH_AFTER_PREFIX
                && rest[..KEY_LENGTH_AFTER_PREFIX].iter().all(u8::is_ascii_alphanumeric)
        };
        let mut keys = prefixes.flat_map(|prefix| {
            text.match_indices(prefix).filter(move |(at, _)| is_key(prefix, *at))
        });
        let mut texts = self.texts.iter().flat_map(|secret| text.match_indices(secret.as_str()));
        if let Some((at, _)) = keys.next().or_else(|| texts.next()) {
            panic!("{source} shows a secret: {}", line_containing(text, at));
        }
    }
}

fn line_containing(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    text[start..].lines().next().unwrap_or_default()
}
