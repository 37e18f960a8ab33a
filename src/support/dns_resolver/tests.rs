use super::*;

#[test]
fn a_link_local_resolver_keeps_its_interface() {
    let interfaces = "\
            fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n\
            00000000000000000000000000000001 01 80 10 80       lo\n\
            fe8000000000000000fc00fffe000002 1f 40 20 80    wlan0\n";
    let resolv_conf = "search a.test\nnameserver fe80::1%eth0\nnameserver\tfe80::2%wlan0 # b\n\
                           nameserver fe80::3%7\nnameserver fe80::4%none\nnameserver ::1\n\
                           # nameserver fe80::5%eth0\nnameserver 10.0.0.1\noptions ndots:2\n";
    let scopes = parse_scope_ids(resolv_conf, interfaces);
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let expected = [(address("fe80::1"), 4), (address("fe80::2"), 31), (address("fe80::3"), 7)];
    assert_eq!(scopes, HashMap::from(expected));
    let addresses = ["[fe80::1%4]:53", "[fe80::9]:53", "10.0.0.1:53"].map(|it| it.parse().unwrap());
    assert_eq!(scope_ids_of_addresses(&addresses), HashMap::from([(address("fe80::1"), 4)]));
}
