use super::*;

#[test]
fn keys_and_addresses_are_hidden_and_everything_else_stays() {
    for (text, expected) in [
        ("curl/8.5.0", "curl/8.5.0"),
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",
        ),
        ("a rg_0123456789abcdef0123456789abcdef, b", "a …, b"),
        ("key=correcthorsebatterystaplex!", "key=…!"),
        ("bot (jane@example.com; x)", "bot … x)"),
        ("GET /v1/check/jane%40example.com HTTP/1.1", "GET … HTTP/1.1"),
        ("jane%2540example.com jane&#64;example.com jane\\u0040example.com", "… … …"),
        ("j\u{ff20}b.co j\u{fe6b}b.co j&commat;b.co", "… … …"),
        ("correct-horse-battery-staple", "…"),
        ("InvalidHTTPHeader", "InvalidHTTPHeader"),
        (
            "a name without @, but found one with @; write a.com",
            "a name without @, but found one with @; write a.com",
        ),
    ] {
        assert_eq!(redact_secrets(text), expected);
    }
}

#[test]
fn a_client_sees_its_names_and_numbers_again_but_no_key_and_no_address() {
    for (text, expected) in [
        ("\"enterprise-yearli\"", "\"enterprise-yearli\""),
        ("unknown field `requests_per_month`", "unknown field `requests_per_month`"),
        ("maximumCallsPerMonth", "maximumCallsPerMonth"),
        ("9007199254740992", "9007199254740992"),
        ("key_0123456789abcdef", "key_0123456789abcdef"),
        ("\"sv_0123456789abcdef0123456789abcdef\"", "\"…\""),
        ("\"0123456789abcdef0123456789abcdef\"", "\"…\""),
        ("a jane@example.com b", "a … b"),
    ] {
        assert_eq!(redact_sent_text(text), expected);
    }
}
