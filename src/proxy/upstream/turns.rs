//! The turns that the upstream servers take.

use std::net::SocketAddr;

use super::name_resolver::ServerTarget;

/// About the most turns in one round of the servers of one priority. With fewer turns, riskgate
/// would keep to the weights less exactly.
const MAX_TURNS: u32 = 1_000;

/// The servers in the order of their turns.
#[derive(Debug, Default)]
pub struct Turns {
    /// The turns of one round, for each priority, the lowest number first. A server with a larger
    /// weight has more turns.
    by_priority: Vec<Vec<SocketAddr>>,
}

impl Turns {
    /// Divides the turns of each priority among its servers by their weights.
    pub fn new(targets: &[ServerTarget]) -> Turns {
        let mut priorities: Vec<u16> = targets.iter().map(|target| target.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let turns_of = |priority: u16| {
            let of_priority = targets.iter().filter(|target| target.priority == priority);
            divide_turns(&of_priority.copied().collect::<Vec<_>>())
        };
        Turns { by_priority: priorities.into_iter().map(turns_of).collect() }
    }

    /// Returns the server of this turn:
    /// - the server of the first priority whose turn it is, if it is healthy;
    /// - else another healthy server of this priority, and these take turns;
    /// - else a server of the next priority, by the same rule;
    /// - else, if no server is healthy, the server of the first priority whose turn it is: it may
    ///   have recovered.
    ///
    /// `None` if there is no server.
    pub fn select(
        &self,
        turn: usize,
        is_healthy: impl Fn(&SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        for turns in &self.by_priority {
            let next = &turns[turn % turns.len()];
            if is_healthy(next) {
                return Some(*next);
            }
            let healthy: Vec<SocketAddr> =
                turns.iter().copied().filter(|it| is_healthy(it)).collect();
            if !healthy.is_empty() {
                return Some(healthy[turn / turns.len() % healthy.len()]);
            }
        }
        let first = self.by_priority.first()?;
        Some(first[turn % first.len()])
    }
}

/// Lists the turns of one round. Each server has as many turns as its weight says. The turns of a
/// server are spread evenly: each turn goes to the server that is furthest behind its share.
fn divide_turns(targets: &[ServerTarget]) -> Vec<SocketAddr> {
    let weights = scale_weights(targets);
    let total: i64 = weights.iter().sum();
    let mut credits = vec![0; targets.len()];
    let take_turn = |_| {
        credits.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight);
        // Of several servers that are equally far behind, the first takes the turn.
        let most = credits.iter().copied().max().unwrap_or_default();
        let next = credits.iter().position(|credit| *credit == most).unwrap_or_default();
        credits[next] -= total;
        targets[next].address
    };
    (0..total).map(take_turn).collect()
}

/// Returns the number of turns of each server in one round. Each server has at least one turn. With
/// equal weights, each server has one turn. If a weight is 0 and others are not, the round is long,
/// so that the server with the weight 0 is rarely asked (RFC 2782).
fn scale_weights(targets: &[ServerTarget]) -> Vec<i64> {
    let weights: Vec<u32> = targets.iter().map(|target| u32::from(target.weight)).collect();
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    let total: u32 = weights.iter().map(|weight| weight / divisor).sum();
    let has_zero_beside_others = total > 0 && weights.contains(&0);
    let scale = |weight: u32| match total > MAX_TURNS || has_zero_beside_others {
        true => u64::from(weight / divisor) * u64::from(MAX_TURNS) / u64::from(total),
        false => u64::from(weight / divisor),
    };
    weights.into_iter().map(|weight| scale(weight).max(1) as i64).collect()
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    match other {
        0 => one,
        _ => greatest_common_divisor(other, one % other),
    }
}

#[cfg(test)]
mod tests {
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
}
