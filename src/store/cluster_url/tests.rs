use super::*;
use crate::store::StoreUrl;

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
