use super::*;

#[test]
fn the_target_of_a_redirect_is_resolved_against_the_url_of_the_request() {
    const BASE: &str = "https://lists.test:8443/a/b/list.txt?day=1";
    for (reference, expected) in [
        ("new.txt", "https://lists.test:8443/a/b/new.txt"),
        ("https://cdn.test//bucket//list?sig=1", "https://cdn.test//bucket//list?sig=1"),
        ("../list", "https://lists.test:8443/a/list"),
        ("../../../../list", "https://lists.test:8443/list"),
        ("./x/./y/../z?q=../..#part", "https://lists.test:8443/a/b/x/z?q=../.."),
        ("..", "https://lists.test:8443/a/"),
        ("?day=2", "https://lists.test:8443/a/b/list.txt?day=2"),
        ("/x", "https://lists.test:8443/x"),
        ("//other.test/x", "https://other.test/x"),
        ("HTTPS://other.test", "https://other.test/"),
        ("x:y", ""),
        ("https:///x", ""),
        ("a b", ""),
        ("", BASE),
    ] {
        let found = resolve_reference(BASE, reference).unwrap_or_default();
        assert_eq!(found, expected, "{reference}");
    }
    assert_eq!(resolve_reference("https://a.test", "x").unwrap(), "https://a.test/x");
}

#[test]
fn only_the_server_of_the_url_gets_its_user() {
    let target = UrlWithCredentials::parse("https://me:p%40w@Lists.test/a?b#c").unwrap();
    assert_eq!(target.url, "https://Lists.test/a?b");
    assert_eq!(target.authorization.as_deref(), Some("Basic bWU6cEB3"));
    for (location, expected) in [
        ("b", Some("Basic bWU6cEB3")),
        ("https://lists.test:443/b", Some("Basic bWU6cEB3")),
        ("https://lists.test:8443/b", None),
        ("https://a.lists.test/b", None),
        ("https://you@a.test/b", Some("Basic eW91Og==")),
    ] {
        let followed = target.follow(location).unwrap();
        assert_eq!(followed.authorization.as_deref(), expected, "{location}");
    }
    assert!(target.follow("http://lists.test/b").is_err());
    let fault = UrlWithCredentials::parse("https://me:100%@a.test/").err().unwrap();
    assert!(fault.contains("percent-encoding") && !fault.contains("100"), "{fault}");
}

#[test]
fn a_failure_is_told_in_words_and_without_a_url() {
    let proxy = ProxySettings::read(|name| (name == "ALL_PROXY").then(|| "p.test:1".into()));
    let proxy = proxy.proxy_for("lists.test", 443).unwrap();
    let failed = ureq::Error::ConnectProxyFailed("proxy server responded 407/407".to_owned());
    for (error, proxy, expected) in [
        (&ureq::Error::Timeout(ureq::Timeout::Global), None, "no whole answer within 60 s"),
        (&failed, proxy.as_ref(), "status 407, by the proxy p.test:1"),
        (&ureq::Error::HostNotFound, proxy.as_ref(), "no such host, by the proxy p.test:1"),
        (&ureq::Error::BadUri("https://a/?token=t".into()), None, "bad uri: the URL"),
    ] {
        let told = describe_failed_request(error, proxy);
        assert_eq!(told, format!("expected an answer, but found {expected}"));
    }
}
