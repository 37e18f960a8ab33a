use super::*;

#[test]
fn tomcat_decodes_encoded_words() {
    for (text, decoded) in [
        ("=?utf-8?Q?e=6Dail?=", Some("email")),
        ("=?UTF-8?B?ZW1haWw=?=", Some("email")),
        ("=?utf-8?Q?email?=x", Some("email")),
        ("=?utf-8?Q?em?= =?utf-8?Q?ail?=", Some("email")),
        ("a =?utf-8?Q?b?=  c", Some("a b  c")),
        ("=?iso-8859-1?q?a_b?=", Some("a b")),
        ("=?windows-1252?Q?email?=", None),
        ("=?utf-8?B?ZW1haWw?=", None),
        ("=?utf-8?Q??= email", Some(" email")),
        ("=?utf-8?Q?email", Some("=?utf-8?Q?email")),
        ("email", Some("email")),
    ] {
        let expected =
            decoded.map_or(DecodedWords::Unreadable, |text| DecodedWords::Text(text.into()));
        assert_eq!(decode_words_as_tomcat(text), expected, "{text}");
    }
}
