use super::*;

#[test]
fn many_targets_of_a_service_displace_no_host_of_the_config() {
    let named = ["zeta.example".to_owned(), "both.example.".to_owned()];
    let mut targets: Vec<String> = (0..2_000).map(|it| format!("s{it:04}.example.")).collect();
    targets.push(named[1].clone());
    let hosts = list_hosts_to_query(named.iter(), targets.iter());
    assert_eq!(hosts.len(), MAX_SERVERS);
    assert_eq!(hosts[..3], ["both.example.", "zeta.example", "s0000.example."]);
    let few = list_hosts_to_query(named.iter(), targets[..5].iter().chain(&targets[..5]));
    assert_eq!(few.len(), 7);
}
