use super::*;

#[test]
fn names_of_containers_have_underscores() {
    for name in ["my_app.", "a_b.my_app_1.internal.", "_check._tcp.my_app.internal."] {
        assert_eq!(parse_host(name).unwrap().to_ascii(), name);
    }
    assert!(parse_host("my app.").is_err());
}
use FamilyAnswer::{Absent, Failed, Found};

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_failed_query_keeps_the_addresses_of_its_family_and_a_denial_removes_them() {
    let known = HostAddresses {
        complete_name: "a.".to_owned(),
        by_family: [ips(&["10.0.0.1"]), ips(&["::1"])],
    };
    let failed = || Failed("SERVFAIL".to_owned());
    let absent = || Absent("none".to_owned());
    let new = || Found(ips(&["10.0.0.2"]));
    let new_six = || Found(ips(&["::2"]));
    for (answers, expected, is_problem) in [
        ([new(), new_six()], Some(ips(&["10.0.0.2", "::2"])), false),
        ([new(), failed()], Some(ips(&["10.0.0.2", "::1"])), true),
        ([failed(), new_six()], Some(ips(&["10.0.0.1", "::2"])), true),
        ([new(), absent()], Some(ips(&["10.0.0.2"])), false),
        ([absent(), new_six()], Some(ips(&["::2"])), false),
        ([failed(), absent()], None, true),
        ([absent(), absent()], None, true),
        ([failed(), failed()], None, true),
    ] {
        let combined = combine_answers("a.".to_owned(), answers.clone(), Some(&known));
        let found = combined.as_ref().ok().and_then(|query| query.addresses.clone());
        let found = found.map(|addresses| addresses.iter().collect::<Vec<_>>());
        assert_eq!(found, expected, "{answers:?}");
        let problem = combined.map_or_else(Some, |query| query.problem);
        assert_eq!(problem.is_some(), is_problem, "{answers:?}: {problem:?}");
    }
    // A family that never had an address is not missed.
    let first = combine_answers("a.".to_owned(), [new(), failed()], None).unwrap();
    assert_eq!(first.problem, None);
}

#[test]
fn the_search_list_is_tried_in_order_and_a_name_with_dots_first_as_it_is() {
    let search = ["b.test.", "c.test"].map(|it| it.parse::<Name>().unwrap());
    let names = |host: &str, ndots| list_complete_names(host, &search, ndots);
    assert_eq!(names("a", 1), ["a.b.test.", "a.c.test.", "a."]);
    assert_eq!(names("a.d", 1), ["a.d.", "a.d.b.test.", "a.d.c.test."]);
    assert_eq!(names("a.d", 2), ["a.d.b.test.", "a.d.c.test.", "a.d."]);
    assert_eq!(names("localhost", 1)[0], "localhost.");
    assert_eq!(names("a.", 1), ["a."]);
    assert_eq!(names("a.d.", 5), ["a.d."]);
}

#[test]
fn a_host_of_the_hosts_file_has_only_the_addresses_of_the_file() {
    let mut file = Hosts::default();
    file.read_hosts_conf("10.0.0.1 a\n10.0.0.2 A b.test\n::1 b.test\n".as_bytes()).unwrap();
    let found = |host: &str| {
        let addresses = find_in_hosts_file(&file, host)?;
        Some(addresses.iter().collect::<Vec<_>>())
    };
    assert_eq!(found("a"), Some(ips(&["10.0.0.1", "10.0.0.2"])));
    assert_eq!(found("b.test."), Some(ips(&["10.0.0.2", "::1"])));
    assert_eq!(found("b"), None);
}
