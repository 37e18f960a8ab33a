use super::*;
use crate::store::StoreUrl;

#[test]
fn the_address_of_sentinels_has_all_its_parts() {
    let url = SentinelUrl::parse("rediss+sentinel://me:p%40ss@a:26380,b,[::1]:7/main/3").unwrap();
    assert_eq!(url.hosts(), ["a:26380", "b:26379", "[::1]:7"]);
    assert_eq!(url.service(), "main");
    assert_eq!(url.server_url("10.0.0.5:6379"), "rediss://me:p%40ss@10.0.0.5:6379/3");
    assert_eq!(url.sentinel_url("b:26379"), "rediss://b:26379");
    assert_eq!(format!("{url} {url:?}").matches("p%40ss").count(), 0);
    assert_eq!(url.to_string(), "rediss+sentinel://a:26380,b:26379,[::1]:7/main/3");
    let plain = SentinelUrl::parse("redis+sentinel://a/main").unwrap();
    assert_eq!(plain.server_url("b:1"), "redis://b:1/0");
    assert_eq!(plain.to_string(), "redis+sentinel://a:26379/main");
}

#[test]
fn other_texts_are_no_address_of_sentinels() {
    for text in [
        "redis+sentinel://",
        "redis+sentinel://a",
        "redis+sentinel://a/",
        "redis+sentinel:///main",
        "redis+sentinel://a,/main",
        "redis+sentinel://a:0/main",
        "redis+sentinel://a:x/main",
        "redis+sentinel://a b/main",
        "redis+sentinel://a/main/x",
        "redis+sentinel://a/main/0/1",
        "redis+sentinel://a/my main",
        "redis+sentinel://a/main?x=1",
        "redis+sentinel://a/main#insecure",
        "redis-sentinel://a/main",
        "REDIS+sentinel://a/main",
    ] {
        let error = StoreUrl::parse(text).unwrap_err().to_string();
        let form = match text.to_lowercase().starts_with("redis+sentinel://") {
            true => "redis+sentinel://",
            false => "sqlite:PATH",
        };
        assert!(error.starts_with(&format!("expected {form}")), "{text}: {error}");
    }
}

#[test]
fn the_address_of_a_cluster_has_all_its_parts() {
    let url = ClusterUrl::parse("rediss+cluster://me:p%40ss@a:7000,b,[::1]:7").unwrap();
    assert_eq!(url.hosts(), ["a:7000", "b:6379", "[::1]:7"]);
    assert_eq!(url.server_url("10.0.0.5:6379"), "rediss://me:p%40ss@10.0.0.5:6379/0");
    assert_eq!(format!("{url} {url:?}").matches("p%40ss").count(), 0);
    assert_eq!(url.to_string(), "rediss+cluster://a:7000,b:6379,[::1]:7");
    let plain = ClusterUrl::parse("redis+cluster://a/").unwrap();
    assert_eq!(plain.server_url("b:1"), "redis://b:1/0");
}

#[test]
fn other_texts_are_no_address_of_a_cluster() {
    for text in [
        "redis+cluster://",
        "redis+cluster://a,",
        "redis+cluster://a:0",
        "redis+cluster://a:x",
        "redis+cluster://a b",
        "redis+cluster://a/0",
        "redis+cluster://a/main",
        "redis+cluster://a?x=1",
        "redis+cluster://a#insecure",
        "redis-cluster://a",
        "REDIS+cluster://a",
    ] {
        let error = StoreUrl::parse(text).unwrap_err().to_string();
        let form = match text.to_lowercase().starts_with("redis+cluster://") {
            true => "redis+cluster://",
            false => "sqlite:PATH",
        };
        assert!(error.starts_with(&format!("expected {form}")), "{text}: {error}");
    }
}
