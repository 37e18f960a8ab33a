use super::*;

#[test]
fn a_server_is_an_address_a_host_or_a_service() {
    let host = |host: &str, port| Some(ServerName::Host { host: host.to_owned(), port });
    for (text, expected) in [
        ("127.0.0.1:9000", Some(ServerName::Address("127.0.0.1:9000".parse().unwrap()))),
        ("[::1]:9000", Some(ServerName::Address("[::1]:9000".parse().unwrap()))),
        ("localhost:80", host("localhost", 80)),
        ("Check_1.Internal.:9000", host("check_1.internal.", 9000)),
        ("_check._tcp.Internal", Some(ServerName::Service("_check._tcp.internal".into()))),
    ] {
        assert_eq!(ServerName::parse(text), expected, "{text}");
        assert_eq!(ServerName::parse(&expected.clone().unwrap().to_string()), expected);
    }
    let complete = ServerName::parse("a.localhost.:80").unwrap();
    assert_eq!(complete.host().as_deref(), Some("a.localhost"));
    assert!(complete.is_on_loopback());
    for text in [
        "",
        ":80",
        "localhost",
        "localhost:",
        "localhost:65536",
        "::1:80",
        "a b:80",
        "a..b:80",
        "http://a:80",
        "a/b:80",
        "u@a:80",
        "_check",
        "_check._tcp.internal:80",
        "1.2.3.4",
    ] {
        assert_eq!(ServerName::parse(text), None, "{text}");
    }
}
