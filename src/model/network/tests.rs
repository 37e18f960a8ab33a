use super::*;

fn parse_networks(texts: &[&str]) -> Option<Networks> {
    Networks::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

#[test]
fn a_network_holds_its_addresses_and_no_others() {
    let trusted = parse_networks(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]).unwrap();
    for inside in ["10.255.0.1", "192.0.2.7", "2001:db8::1", "::ffff:10.1.2.3"] {
        assert!(trusted.contains(inside.parse().unwrap()), "{inside}");
    }
    for outside in ["11.0.0.1", "192.0.2.8", "2001:db9::1", "::1"] {
        assert!(!trusted.contains(outside.parse().unwrap()), "{outside}");
    }
    let mapped = parse_networks(&["::ffff:10.0.0.0/104", "::ffff:192.0.2.0/128"]).unwrap();
    assert_eq!(mapped, parse_networks(&["10.0.0.0/8", "192.0.2.0/32"]).unwrap());
    assert_eq!(parse_networks(&["::ffff:0:0/96"]), parse_networks(&["0.0.0.0/0"]));
    assert!(parse_networks(&["::/0", "64:ff9b::/96"]).is_some());
    for bad in ["10.0.0.0/33", "host", "", "10.0.0", "::ffff:0:0/95", "::/64"] {
        assert_eq!(parse_networks(&[bad]), None, "{bad}");
    }
}

#[test]
fn the_address_of_a_hop_may_have_a_port_and_a_zone() {
    for (text, address) in [
        ("192.0.2.1", Some("192.0.2.1")),
        ("192.0.2.1:80", Some("192.0.2.1")),
        ("::ffff:192.0.2.1", Some("192.0.2.1")),
        ("2001:db8::1", Some("2001:db8::1")),
        ("[2001:db8::1]", Some("2001:db8::1")),
        ("[2001:db8::1]:80", Some("2001:db8::1")),
        ("fe80::1%eth0", Some("fe80::1")),
        ("[fe80::1%eth0]", Some("fe80::1")),
        ("[fe80::1%25en1]:80", Some("fe80::1")),
        ("192.0.2.1:_p", Some("192.0.2.1")),
        ("[2001:db8::1]:_a.B-_9", Some("2001:db8::1")),
        ("192.0.2.1:_", None),
        ("192.0.2.1:_p:1", None),
        ("[2001:db8::1]:_/", None),
        ("192.0.2.1:99999", None),
        ("unknown", None),
        ("_hidden", None),
        ("", None),
        ("[2001:db8::1", None),
        ("[fe80::1%eth0", None),
        ("192.0.2.1%eth0", None),
        ("192.0.2.1:80%eth0", None),
        ("[2001:db8::1]x", None),
        ("[2001:db8::1]:99999", None),
        ("[192.0.2.1]", None),
        ("192.0.2.1:x", None),
    ] {
        let expected = address.map(|address| address.parse().unwrap());
        assert_eq!(parse_hop_address(text), expected, "{text}");
    }
}

#[test]
fn a_client_prefix_is_an_ipv4_address_or_an_ipv6_64() {
    let prefix_of = |text: &str| ClientPrefix::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(prefix_of("2001:db8::1"), prefix_of("2001:db8::ffff:1"));
    assert_ne!(prefix_of("2001:db8::1"), prefix_of("2001:db8:0:1::1"));
    assert_ne!(prefix_of("192.0.2.1"), prefix_of("192.0.2.2"));
    assert_eq!(prefix_of("192.0.2.1"), prefix_of("::ffff:192.0.2.1"));
}
