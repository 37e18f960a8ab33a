use super::*;
use crate::support::random_numbers::{RandomNumbers, seed_range};

fn find(source: ClientAddressSource, peer: &str, values: &[&str]) -> Option<String> {
    let texts = ["10.0.0.0/8".to_owned(), "2001:db8:1::/48".to_owned()];
    let trusted_proxies = Networks::parse(&texts).unwrap();
    let rule = ClientAddressRule { trusted_proxies, source };
    let values = values.iter().map(|value| value.as_bytes());
    rule.find_client(peer.parse().ok(), |_| values).map(|address| address.to_string())
}

#[test]
fn the_client_is_the_first_hop_from_the_right_that_is_no_trusted_proxy() {
    for (peer, values, client) in [
        ("10.0.0.1", &["192.0.2.1"][..], "192.0.2.1"),
        ("10.0.0.1", &["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", &["6.6.6.6, 192.0.2.1, 10.9.9.9"], "192.0.2.1"),
        ("10.0.0.1", &["6.6.6.6", "192.0.2.1 ,10.9.9.9", "2001:db8:1::7"], "192.0.2.1"),
        ("10.0.0.1", &["6.6.6.6,192.0.2.1,,  ,"], "192.0.2.1"),
        ("10.0.0.1", &["192.0.2.1:4711"], "192.0.2.1"),
        ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", &["::ffff:192.0.2.1"], "192.0.2.1"),
        // The peer is no proxy, so what it says does not count.
        ("192.0.2.9", &["6.6.6.6"], "192.0.2.9"),
        // All hops are proxies: the first of them is the client.
        ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", &["6.6.6.6, fe80::1%eth0"], "fe80::1"),
        // A proxy that reports no address.
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &[""], "10.0.0.1"),
        ("10.0.0.1", &["6.6.6.6, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &["6.6.6.6, _hidden"], "10.0.0.1"),
    ] {
        let found = find(ClientAddressSource::XForwardedFor, peer, values);
        assert_eq!(found.as_deref(), Some(client), "{peer} {values:?}");
    }
    assert_eq!(find(ClientAddressSource::XForwardedFor, "none", &["6.6.6.6"]), None);
    let found = find(ClientAddressSource::Peer, "10.0.0.1", &["6.6.6.6"]);
    assert_eq!(found.as_deref(), Some("10.0.0.1"));
}

#[test]
fn forwarded_elements_are_read_from_the_right() {
    for (values, client) in [
        (&["for=192.0.2.1"][..], "192.0.2.1"),
        (&["For=6.6.6.6, proto=https;FOR=\"192.0.2.1:80\";by=10.0.0.7"], "192.0.2.1"),
        (&["for=6.6.6.6", "for=\"[2001:db8::1]:4711\" , for=10.0.0.2"], "2001:db8::1"),
        // A quote that the client left open hides nothing.
        (&["for=\"6.6.6.6, for=192.0.2.1"], "192.0.2.1"),
        (&["for=6.6.6.6, for=unknown"], "10.0.0.1"),
        (&["for=6.6.6.6, for=_secret;by=_x"], "10.0.0.1"),
        (&["for=6.6.6.6, proto=http"], "10.0.0.1"),
        // What the client said in its Host moves nothing.
        (&["for=192.0.2.1;host=\"a, for=6.6.6.6\""], "192.0.2.1"),
        (&["for=192.0.2.1;host=\"a\\\", for=6.6.6.6;b=\\\"\""], "192.0.2.1"),
        (&["for=192.0.2.1;host=\"a\"", "for=10.0.0.2;host=\",for=7.7.7.7\""], "192.0.2.1"),
        (&["for=\"[fe80::1%eth0]:80\""], "fe80::1"),
    ] {
        let found = find(ClientAddressSource::Forwarded, "10.0.0.1", values);
        assert_eq!(found.as_deref(), Some(client), "{values:?}");
    }
}
/// A text that a client may send: pieces of the grammar in any order.
fn random_garbage(random: &mut RandomNumbers) -> String {
    let pieces = [
        "\"",
        "\\",
        "\\\"",
        ",",
        ";",
        "=",
        " ",
        "\t",
        "for=6.6.6.6",
        "for=\"6.6.6.6\"",
        "for=",
        "host=\"",
        "proto=https",
        "by=_x",
        "unknown",
        "a",
        "\"\"",
        "for=10.0.0.9",
        "\u{e9}",
    ];
    (0..random.number_below(12)).map(|_| random.pick_one(&pieces)).collect()
}

/// What a proxy writes about a client that controls `text`, by the grammar of RFC 7239.
fn element_of_proxy(random: &mut RandomNumbers, address: &str, text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| if matches!(c, '"' | '\\') { format!("\\{c}") } else { c.to_string() })
        .collect();
    let host = format!("host=\"{escaped}\"");
    let node = match random.number_below(3) {
        0 => format!("for={address}"),
        1 => format!("FOR=\"{address}\""),
        _ => format!("for=\"{address}:4711\""),
    };
    match random.number_below(4) {
        0 => node,
        1 => format!("{node};{host}"),
        2 => format!("{host};{node};proto=http"),
        _ => format!("by=10.0.0.1 ;proto=https;{node} ; {host};"),
    }
}

#[test]
fn nothing_that_a_client_writes_changes_the_believed_client() {
    for seed in seed_range(20_000) {
        let mut random = RandomNumbers(seed);
        let random = &mut random;
        let mut line = random_garbage(random);
        let mut lines = vec![random_garbage(random)];
        let hops = ["192.0.2.1", "10.0.0.3", "10.0.0.2"];
        for hop in &hops[..=random.number_below(3)] {
            let text = random_garbage(random);
            let element = element_of_proxy(random, hop, &text);
            if random.one_in(3) {
                lines.push(std::mem::take(&mut line));
                line = element;
            } else {
                line = format!("{line}, {element}");
            }
        }
        lines.push(line);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let found = find(ClientAddressSource::Forwarded, "10.0.0.1", &lines);
        assert_eq!(found.as_deref(), Some("192.0.2.1"), "seed {seed}: {lines:?}");
    }
}
