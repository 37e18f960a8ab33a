use super::*;

fn mx(preference: u16, host: &str) -> MxRecord {
    MxRecord { preference, host: host.to_owned() }
}

fn interpret_with_reachable_hosts(answer: DnsAnswer<MxRecord>) -> DnsFinding {
    match interpret_mx(answer) {
        MxInterpretation::Finding(finding) => finding,
        MxInterpretation::Hosts(hosts, host_count, ttl) => {
            let reachabilities = vec![Reachability::Reachable; hosts.len()];
            interpret_hosts(&hosts, host_count, &reachabilities, ttl)
        }
        MxInterpretation::ImplicitMx(ttl) => interpret_implicit_mx(Reachability::Reachable, ttl),
    }
}

fn mx_finding(text: &str, ttl_seconds: i64) -> DnsFinding {
    DnsFinding::Mx { mx_value: text.to_owned(), addresses: Vec::new(), ttl_seconds }
}

#[test]
fn the_finding_is_the_mx_host_with_the_lowest_preference_value() {
    let records = vec![mx(20, "a.test"), mx(10, "z.test"), mx(10, "b.test")];
    assert_eq!(
        interpret_with_reachable_hosts(DnsAnswer::Records(records, 3_600)),
        mx_finding("b.test", 3_600)
    );
}

#[test]
fn a_null_mx_counts_only_without_other_mx_records() {
    assert_eq!(
        interpret_with_reachable_hosts(DnsAnswer::Records(vec![mx(0, "")], 600)),
        mx_finding(".", 600)
    );
    let beside = vec![mx(0, ""), mx(10, "a.test")];
    assert_eq!(
        interpret_with_reachable_hosts(DnsAnswer::Records(beside, 600)),
        mx_finding("a.test", 600)
    );
}

#[test]
fn an_mx_host_that_is_no_public_host_decides_nothing() {
    let interpret = |hosts: &[&str]| {
        let records = hosts.iter().map(|host| mx(10, host)).collect();
        interpret_with_reachable_hosts(DnsAnswer::Records(records, 600))
    };
    for host in ["a*b.test", "nxdomain", "parked", "address"] {
        for hosts in [&[host][..], &[host, ""]] {
            assert_eq!(interpret(hosts).outcome_label(), "unknown", "{hosts:?}");
        }
        assert_eq!(interpret(&[host, "a.test"]), mx_finding("a.test", 600), "{host}");
    }
    assert_eq!(interpret(&["localhost"]), mx_finding("localhost", 600));
}

#[test]
fn a_finding_keeps_the_first_public_addresses_of_its_host() {
    let with = |texts: &[&str]| {
        let addresses = texts.iter().map(|text| text.parse().unwrap()).collect();
        match mx_finding("a.test", 600).with_host_addresses(addresses) {
            DnsFinding::Mx { addresses, .. } => addresses.iter().map(IpAddr::to_string).collect(),
            _ => vec![],
        }
    };
    assert_eq!(with(&["10.0.0.1", "9.9.9.9", "127.0.0.1", "9.9.9.9"]), ["9.9.9.9"]);
    assert_eq!(with(&["::ffff:9.9.9.9", "2620:fe::9"]), ["9.9.9.9", "2620:fe::9"]);
    let many = ["9.9.9.5", "9.9.9.4", "9.9.9.3", "9.9.9.2", "9.9.9.1"];
    assert_eq!(with(&many), ["9.9.9.1", "9.9.9.2", "9.9.9.3", "9.9.9.4"]);
}

#[test]
fn an_unclear_answer_gives_an_unknown_finding() {
    assert_eq!(
        interpret_with_reachable_hosts(DnsAnswer::Unclear("x".to_owned())),
        DnsFinding::Unknown("x".to_owned())
    );
    assert_eq!(
        interpret_with_reachable_hosts(DnsAnswer::Unclear("x".to_owned())).outcome_label(),
        "unknown"
    );
    let unclear = interpret_implicit_mx(Reachability::Unclear, 60);
    assert!(matches!(unclear, DnsFinding::Unknown(_)));
}

#[test]
fn a_name_without_mx_records_is_judged_by_its_own_addresses() {
    let own = interpret_with_reachable_hosts(DnsAnswer::NoData(600));
    assert_eq!(own, DnsFinding::ImplicitMx { ttl_seconds: 600 });
    assert_eq!(own.outcome_label(), "host");
    let itself = interpret_with_reachable_hosts(DnsAnswer::Records(vec![mx(10, "name.test")], 600));
    assert_eq!(itself, mx_finding("name.test", 600), "an MX record that names the name itself");
    assert_eq!(interpret_implicit_mx(Reachability::NoAddress, 600), mx_finding(".", 600));
    assert_eq!(interpret_implicit_mx(Reachability::Loopback, 600), mx_finding("parked", 600));
    assert_eq!(interpret_implicit_mx(Reachability::NoAddress, 600).outcome_label(), "no_mail");
}

#[test]
fn a_name_is_parked_only_if_all_its_hosts_are_dead() {
    use Reachability::{Loopback, NoAddress, Reachable, Unclear};
    let hosts: Vec<String> = ["a.test", "b.test"].map(str::to_owned).to_vec();
    let text = |reachabilities: &[Reachability], host_count| match interpret_hosts(
        &hosts,
        host_count,
        reachabilities,
        600,
    ) {
        DnsFinding::Mx { mx_value: text, .. } => text,
        finding => finding.outcome_label().to_owned(),
    };
    assert_eq!(text(&[Loopback, NoAddress], 2), "parked");
    assert_eq!(text(&[Loopback, Reachable], 2), "b.test");
    assert_eq!(text(&[Unclear], 2), "a.test");
    assert_eq!(text(&[NoAddress, NoAddress], 3), "a.test", "the third host was not looked up");
}

#[test]
fn ttls_are_clamped_and_negative_ttls_to_a_lower_maximum() {
    for (ttl, positive, negative) in [
        (0, 300, 300),
        (7_200, 7_200, 7_200),
        (86_400, 86_400, 10_800),
        (u32::MAX, 604_800, 10_800),
    ] {
        assert_eq!(
            interpret_with_reachable_hosts(DnsAnswer::Records(vec![mx(1, "a.test")], ttl)),
            mx_finding("a.test", positive)
        );
        assert_eq!(
            interpret_with_reachable_hosts(DnsAnswer::NxDomain(ttl)),
            mx_finding("nxdomain", negative)
        );
    }
}
