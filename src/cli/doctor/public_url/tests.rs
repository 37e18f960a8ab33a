use super::*;

#[test]
fn the_plain_url_of_an_ipv6_address_has_brackets() {
    for (text, plain) in [
        ("https://[::1]", "http://[::1]/"),
        ("https://[2001:db8::7]:443/a", "http://[2001:db8::7]/"),
        ("https://a.example/?b", "http://a.example/"),
        ("https://127.0.0.1", "http://127.0.0.1/"),
    ] {
        assert_eq!(PublicUrl::parse(text).unwrap().plain_url(), plain);
    }
}
