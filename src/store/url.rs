//! Where a store is: what `store.url` may say.

use std::path::PathBuf;

use siphasher::sip::SipHasher13;

use super::StoreError;

/// What `store.url` may be.
pub const STORE_URL_FORM: &str =
    "sqlite:PATH, redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE] or rediss://…";

/// Where the store is: `store.url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `sqlite:PATH`, one file beside the gateway.
    Sqlite(PathBuf),
    /// `redis://` or, with TLS, `rediss://`.
    Redis(RedisUrl),
}

/// The address of a Redis or Valkey server. Its password is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(pub(super) String);

impl StoreUrl {
    /// The store that a setting names.
    pub fn parse(text: &str) -> Result<StoreUrl, StoreError> {
        let wrong = || StoreError::Url { expected: STORE_URL_FORM, found: without_password(text) };
        if let Some(path) = text.strip_prefix("sqlite:") {
            return match path.is_empty() {
                true => Err(wrong()),
                false => Ok(StoreUrl::Sqlite(PathBuf::from(path))),
            };
        }
        // A fragment could switch the verification of certificates off.
        let known = (text.starts_with("redis://") || text.starts_with("rediss://"))
            && !text.contains(['#', '?']);
        match known && super::redis::is_address(text) {
            true => Ok(StoreUrl::Redis(RedisUrl(text.to_owned()))),
            false => Err(wrong()),
        }
    }
}

impl RedisUrl {
    /// Whether the connection is encrypted.
    pub fn has_tls(&self) -> bool {
        self.0.starts_with("rediss://")
    }

    /// As it may be shown: without user and password.
    pub fn shown(&self) -> String {
        without_password(&self.0)
    }
}

impl std::fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What differs must show as different, or a changed password would go unnoticed; what it
        // is must not show.
        let print = SipHasher13::new().hash(self.0.as_bytes());
        write!(f, "{} ({print:016x})", self.shown())
    }
}

/// What stands before the last `@` may be a password, also where the rest is wrong.
fn without_password(url: &str) -> String {
    let Some((before, rest)) = url.rsplit_once('@') else { return url.to_owned() };
    // A password may hold `://` too, so only what looks like a scheme is shown as one.
    match before.split_once("://") {
        Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            format!("{scheme}://{rest}")
        }
        _ => format!("…@{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let url = StoreUrl::parse("rediss://me:s3cr3t@cache.internal:6380/2").unwrap();
        let StoreUrl::Redis(url) = url else { panic!("{url:?}") };
        assert!(url.has_tls());
        assert_eq!(url.shown(), "rediss://cache.internal:6380/2");
        let debug = format!("{url:?}");
        assert!(!debug.contains("s3cr3t") && !debug.contains("me:"), "{debug}");
        let other = StoreUrl::parse("rediss://me:other@cache.internal:6380/2").unwrap();
        assert_ne!(format!("{other:?}"), format!("{:?}", StoreUrl::Redis(url)));
    }

    #[test]
    fn what_is_no_store_is_refused_without_showing_a_password() {
        for text in [
            "localhost:6379",
            "sqlite:",
            "redis://",
            "redis://host:port",
            "rediss://host/#insecure",
            "redis://me:s3cr3t@host:99999",
            "redis://me:s3cr3t@host/database",
            "me:s3cr3t@host:6379",
            "reddis://me:s3cr3t@host",
            "me:s3cr3t://x@host:6379",
            "me:s3cr3t@redis://you:other@host",
        ] {
            let error = StoreUrl::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("expected sqlite:PATH, redis://"), "{error}");
            assert!(!error.contains("s3cr3t"), "{error}");
        }
    }
}
