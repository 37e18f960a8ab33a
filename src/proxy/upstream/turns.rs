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
    /// weight has no fewer turns.
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
mod tests;
