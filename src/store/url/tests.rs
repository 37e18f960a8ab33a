use super::*;

#[test]
fn an_address_is_shown_without_its_password() {
    let url = StoreUrl::parse("rediss://me:s3cr3t@cache.internal:6380/2").unwrap();
    let StoreUrl::Redis(url) = url else { panic!("{url:?}") };
    assert!(url.has_tls());
    assert_eq!(url.without_credentials(), "rediss://cache.internal:6380/2");
    let debug = format!("{url:?}");
    assert!(!debug.contains("s3cr3t") && !debug.contains("me:"), "{debug}");
    let other = StoreUrl::parse("rediss://me:other@cache.internal:6380/2").unwrap();
    assert_ne!(format!("{other:?}"), format!("{:?}", StoreUrl::Redis(url)));
}

const INVALID_STORE_URLS: [&str; 11] = [
    "localhost:6379",
    "sqlite:",
    "sqlite::memory:",
    "sqlite:file:/tmp/x",
    "sqlite:state/",
    "sqlite:~/x.db",
    "sqlite:~",
    "sqlite:a\0b",
    "redis://",
    "redis://host:port",
    "rediss://host/#insecure",
];

/// Addresses in which `$` marks each position where a password may stand, even by mistake.
const URLS_WITH_PASSWORD_MARKERS: [&str; 51] = [
    "redis://me:$@host:99999",
    "redis://me:$@host/database",
    "me:$@host:6379",
    "reddis://me:$@host",
    "me:$://x@host:6379",
    "me:$@redis://you:other@host",
    "redis://host:6379?password=$",
    "redis://host:6379/0?password=$&x=1",
    "redis://host?user=me&pass=$#x",
    "rediss://host#$",
    "redis://me:$",
    "redis://:$",
    "redis://:$/0",
    "redis://me:$/0",
    "redis://me:$%40host:6379",
    "redis://me%3A$%40host:6379",
    "redis://host:6379:$",
    "redis://host/$",
    "redis://host/0/$",
    "redis:me:$",
    "redis:/me:$",
    "redis:me:$@host",
    "redis//:me:$",
    "redis:///$",
    "redis:// $",
    "redis://[$]:6379",
    "redis://[::1]:$",
    "redis://[::1]$",
    "redis://me:pass/$@host:99999",
    "redis://me:pa?$@host",
    "redis://me:pa#$@host",
    "redis://me:pa@$@host:x",
    "redis://me:$ @host:x",
    "redis+tls://me:$@host",
    "REDIS://me:$@host",
    "unix:///$?pass=$",
    "redis+unix:///run/redis?pass=$",
    "redis-sentinel://:$@host",
    "valkey://me:$@host",
    "https://me:$@host",
    "\"redis://me:$@host\"",
    "redis://host,me:$",
    "redis://me:$;host",
    "password=$ host=x",
    "--password $",
    "-a $ redis://host",
    "sqlite:file.db?key=$",
    "sqlite://me:$@host/db",
    "sqlite3:me:$",
    "sqlite:redis://me:$@host",
    "mysql:me:$",
];

#[test]
fn a_wrong_store_url_is_refused_without_showing_a_password() {
    for text in INVALID_STORE_URLS {
        let error = StoreUrl::parse(text).unwrap_err().to_string();
        let is_of_all = text.starts_with("localhost");
        let form = if is_of_all { STORE_URL_SYNTAX } else { expected_form(text) };
        assert!(error.starts_with(&format!("expected {form}, but found")), "{error}");
        assert_eq!(form.contains("cluster"), is_of_all, "{error}");
    }
    let endings = ["", " ", "\n", "/", "?", "#", ":", "@", "@host", ":6379", "/0", "é"];
    for text in URLS_WITH_PASSWORD_MARKERS {
        for ending in endings {
            let text = text.replace('$', "s3cr3t!") + ending;
            for text in [text.clone(), text.replace('!', "")] {
                assert_hides_password(&text);
            }
        }
    }
}

/// Asserts that neither an error nor an accepted address shows the password.
fn assert_hides_password(text: &str) {
    let shown = match StoreUrl::parse(text) {
        Err(error) => format!("{error} {error:?}"),
        Ok(StoreUrl::Redis(url)) => format!("{url:?} {}", url.without_credentials()),
        // A path is no secret and is shown in full.
        Ok(StoreUrl::Sqlite(path)) => panic!("{text} is taken for a file: {path:?}"),
    };
    assert!(!shown.contains("s3cr3t"), "{text}: {shown}");
}

#[test]
fn a_malformed_escape_or_a_blank_around_an_address_is_named() {
    for (text, expected) in [
        ("redis://me:pa%ss@host", "%25 for each %"),
        ("redis://me:50%@host", "%25 for each %"),
        ("redis+sentinel://me:a%4x@host/main", "%25 for each %"),
        ("redis+cluster://me:a%@host", "%25 for each %"),
        (" redis://host", "an address without a blank"),
        ("redis+cluster://host\n", "an address without a blank"),
        ("sqlite:x.db ", "an address without a blank"),
    ] {
        let error = StoreUrl::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("expected {expected}")), "{text}: {error}");
        assert!(!error.contains("pa%") && !error.contains("50%"), "{error}");
    }
    StoreUrl::parse("redis://me:pa%25s%40@host").unwrap();
}
