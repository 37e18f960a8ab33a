use super::*;

fn target(port: u16, priority: u16, weight: u16) -> ServerTarget {
    ServerTarget { address: SocketAddr::from(([127, 0, 0, 1], port)), priority, weight }
}

fn count_turns(targets: &[ServerTarget], unhealthy: &[u16]) -> Vec<usize> {
    let turns = Turns::new(targets);
    let is_healthy = |server: &SocketAddr| !unhealthy.contains(&server.port());
    let selected = (0..600).map(|turn| turns.select(turn, is_healthy).unwrap().port());
    let selected: Vec<u16> = selected.collect();
    let count = |target: &ServerTarget| {
        selected.iter().filter(|port| **port == target.address.port()).count()
    };
    targets.iter().map(count).collect()
}

#[test]
fn servers_take_turns_by_weight_within_the_first_healthy_priority() {
    let equal = [target(1, 0, 10), target(2, 0, 10), target(3, 0, 10)];
    assert_eq!(count_turns(&equal, &[]), [200, 200, 200]);
    assert_eq!(count_turns(&equal, &[2]), [300, 0, 300]);
    assert_eq!(count_turns(&equal, &[1, 2, 3]), [200, 200, 200]);
    let weighted = [target(1, 0, 4), target(2, 0, 2), target(3, 5, 1)];
    assert_eq!(count_turns(&weighted, &[]), [400, 200, 0]);
    assert_eq!(count_turns(&weighted, &[1]), [0, 600, 0]);
    assert_eq!(count_turns(&weighted, &[1, 2]), [0, 0, 600]);
    let without_weight = [target(1, 0, 0), target(2, 0, 0)];
    assert_eq!(count_turns(&without_weight, &[]), [300, 300]);
    let drained = [target(1, 0, 100), target(2, 0, 0)];
    assert!(count_turns(&drained, &[])[1] <= 1);
    assert_eq!(count_turns(&drained, &[1]), [0, 600]);
}

#[test]
fn large_weights_keep_a_round_short() {
    let turns = Turns::new(&[target(1, 0, 65_535), target(2, 0, 1), target(3, 0, 32_768)]);
    assert!(turns.by_priority[0].len() <= MAX_TURNS as usize + 2);
}

#[test]
fn without_servers_nobody_is_selected() {
    assert!(Turns::new(&[]).select(0, |_| true).is_none());
}
