//! `[[upstream.route]]`: further prefixes that are passed upstream.

use super::settings::Settings;
use super::written::Written;
use crate::gate::route::Prefix;

impl Settings {
    /// `[[upstream.route]]`.
    pub fn prefixes(&mut self) -> Vec<Prefix> {
        let mut prefixes = Vec::new();
        for at in self.members("upstream.route") {
            let prefix = self.prefix(&at, &prefixes);
            prefixes.extend(prefix);
        }
        prefixes
    }

    fn prefix(&mut self, at: &str, others: &[Prefix]) -> Option<Prefix> {
        let path = |written: &Written| {
            let text = written.text()?;
            let segment =
                |s: &str| !s.is_empty() && s != "." && s != ".." && s.bytes().all(is_plain);
            let good = text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(segment));
            (good && !taken(text)).then(|| text.to_owned())
        };
        let expected =
            "a path such as /v1/signup, apart from riskgate's own, without a / at its end";
        let key = format!("{at}.prefix");
        if !self.found.contains_key(&key) {
            self.missing(&key, expected);
        }
        let path = self.parsed(&key, expected, path);
        if let Some(path) = &path
            && others.iter().any(|other| other.path == *path)
        {
            // Which of the two was meant can't be known.
            self.parsed(&key, "a prefix that no other upstream.route has", |_| None::<()>);
        }
        let methods = |written: &Written| {
            let methods = written.texts()?;
            let good = |method: &String| {
                !method.is_empty()
                    && method.bytes().all(|byte| byte.is_ascii_uppercase())
                    && !matches!(method.as_str(), "OPTIONS" | "CONNECT" | "TRACE")
            };
            (!methods.is_empty() && methods.iter().all(good)).then_some(methods)
        };
        let methods = self
            .parsed(
                &format!("{at}.methods"),
                "a list of methods such as [\"GET\", \"POST\"]",
                methods,
            )
            .unwrap_or_else(|| vec!["GET".to_owned(), "HEAD".to_owned()]);
        let needs_key = self.flag(&format!("{at}.key"), true);
        let counts = self.flag(&format!("{at}.counts"), needs_key);
        if counts && !needs_key {
            let key = format!("{at}.counts");
            self.missing(&key, "false where key is false, since there is no account to count for");
        }
        let allow = format!("{}, OPTIONS", methods.join(", ")).into();
        Some(Prefix { path: path?, methods, allow, needs_key, counts })
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether a prefix would lie over one of our own routes, or below one.
fn taken(path: &str) -> bool {
    // A server behind riskgate may ignore case.
    let path = &path.to_ascii_lowercase();
    ["/v1/public", "/v1/check", "/v1/usage"].iter().any(|own| {
        *path == *own
            || path.starts_with(&format!("{own}/"))
            || own.starts_with(&format!("{path}/"))
    })
}
