//! A domain has exactly one canonical form, and each spelling of the domain parses to that form.

use riskgate::model::domain::{
    DnsName, Domain, MAX_LABEL_LEN, MAX_NAME_LEN, percent_decode, self_and_parent_offsets,
};

/// Panics if a promise is broken for this input.
pub fn check_input(segment: &[u8]) {
    let from_segment = Domain::from_path_segment(segment).ok();
    let decoded = percent_decode(segment).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    // The fast parser for plain ASCII names and the full IDNA parser agree.
    let parsed = decoded.as_deref().and_then(|text| Domain::parse(text).ok());
    assert_eq!(from_segment, parsed, "the two ways disagree");
    let dns_name = decoded.as_deref().and_then(|text| DnsName::parse(text).ok());
    if let Some(name) = &dns_name {
        assert_eq!(DnsName::parse(name.as_str()).as_ref(), Ok(name), "canonical twice");
        assert_canonical(name.as_str());
    }
    let Some(domain) = from_segment else {
        assert!(dns_name.is_none_or(|name| !name.as_str().contains('.')), "a name and no domain");
        return;
    };
    let text = domain.as_str();
    assert_eq!(dns_name.as_ref().map(DnsName::as_str), Some(text), "a domain and another name");
    assert_canonical(text);
    assert!(text.contains('.'));
    for spelling in [text.to_owned(), text.to_ascii_uppercase(), format!("{text}.")] {
        assert_eq!(Domain::parse(&spelling).as_ref(), Ok(&domain), "{spelling:?}");
        assert_eq!(
            Domain::from_path_segment(spelling.as_bytes()).as_ref(),
            Ok(&domain),
            "{spelling:?}"
        );
    }
    let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(Domain::from_path_segment(encoded.as_bytes()).as_ref(), Ok(&domain));
    // If an A-label decodes to text that begins with the A-label prefix, the name has no Unicode
    // form.
    if let (unicode, Ok(())) = idna::domain_to_unicode(text)
        && !unicode.split('.').any(|label| label.starts_with("xn--"))
    {
        assert_eq!(Domain::parse(&unicode).as_ref(), Ok(&domain), "{unicode:?}");
    }
    let (suffix, _) = domain.public_suffix_start();
    assert!(
        self_and_parent_offsets(text).any(|start| start == suffix),
        "a suffix begins with a label"
    );
    match domain.registrable_start() {
        None => assert_eq!(suffix, 0),
        // One label more than the public suffix.
        Some(start) => {
            assert_eq!(self_and_parent_offsets(&text[start..]).nth(1), Some(suffix - start))
        }
    }
}

/// Panics unless the name consists of lower-case LDH labels within the lengths of RFC 1035, and is
/// no IP address.
fn assert_canonical(name: &str) {
    assert!(name.len() <= MAX_NAME_LEN, "{name:?}");
    for label in name.split('.') {
        assert!((1..=MAX_LABEL_LEN).contains(&label.len()), "{name:?}");
        assert!(!label.starts_with('-') && !label.ends_with('-'), "{name:?}");
        let ldh = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(label.bytes().all(ldh), "{name:?}");
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    assert!(!last.bytes().all(|byte| byte.is_ascii_digit()), "{name:?}");
    assert!(name.parse::<std::net::IpAddr>().is_err(), "{name:?}");
}
