use super::*;

#[test]
fn plain_http_urls_are_parsed_only_for_loopback_hosts() {
    for good in [
        "https://lists.example/daily.txt",
        "http://127.0.0.1:8000/x",
        "http://[::1]/x",
        "http://localhost/x",
        "file:///var/lib/list.txt",
        "lists/daily.txt",
    ] {
        assert!(FeedLocation::parse(good).is_some(), "{good}");
    }
    for bad in [
        "",
        "http://lists.example/x",
        "http://127.0.0.1.example/x",
        "ftp://a/b",
        "file://x",
        "https://",
        "http://localhost@lists.example/",
        "https://a b/",
    ] {
        assert!(FeedLocation::parse(bad).is_none(), "{bad}");
    }
}

#[test]
fn a_published_digest_is_read_from_each_usual_line() {
    let digest = "0a".repeat(32);
    for text in [
        format!("{digest}\n"),
        format!("{}  list.txt\n", digest.to_uppercase()),
        format!("SHA256 (list.txt) = {digest}\n"),
        format!("SHA2-256(list=1.txt)= {digest}\nmore\n"),
    ] {
        assert_eq!(parse_published_digest(&text).as_ref(), Some(&digest), "{text}");
    }
    for text in ["", "<html>", "MD5 (list.txt) = 0a0a", "\n# SHA256\n"] {
        assert_eq!(parse_published_digest(text), None, "{text}");
    }
}

#[test]
fn a_displayed_url_omits_user_and_query() {
    let url = FeedLocation::parse("https://me:word@lists.example/a/b?token=t#x").unwrap();
    assert_eq!(format!("{url} {url:?}"), "https://lists.example/a/b https://lists.example/a/b");
}
