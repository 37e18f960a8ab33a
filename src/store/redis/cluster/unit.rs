//! Splits the commands of a pipeline by the hash slots of their Redis keys, and reads the replies
//! of servers that do not have a slot.

use redis::cluster_routing::Slot;
use redis::{Arg, Cmd, Pipeline, ServerErrorKind, Value};

use crate::store::redis::reply::reply_number_or_zero;

/// The servers that a unit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The primary that has the slot.
    Slot(Slot),
    /// The primary that has the keys and accounts: the command names no Redis key.
    Ring,
    /// All primaries that have run the other units: the command is WAIT.
    ServersOfUnits,
}

/// A command, or the commands of a transaction.
pub(super) struct Unit<'p> {
    pub commands: Vec<&'p Cmd>,
    /// The index of the first command in the pipeline.
    pub first_command: usize,
    pub target: Target,
}

/// Splits a pipeline into units, in order.
pub(super) fn split(pipeline: &Pipeline) -> Vec<Unit<'_>> {
    let mut units: Vec<Unit<'_>> = Vec::new();
    let mut is_in_transaction = false;
    for (index, command) in pipeline.cmd_iter().enumerate() {
        let name = word(command, 0);
        let target = match find_redis_key(command) {
            Some(key) => Target::Slot(Slot::for_key(key)),
            None if name == b"WAIT" => Target::ServersOfUnits,
            None => Target::Ring,
        };
        match units.last_mut().filter(|_| is_in_transaction) {
            Some(transaction) => {
                transaction.commands.push(command);
                if transaction.target == Target::Ring {
                    transaction.target = target;
                }
            }
            None => units.push(Unit { commands: vec![command], first_command: index, target }),
        }
        is_in_transaction = (is_in_transaction || name == b"MULTI") && name != b"EXEC";
    }
    units
}

/// The first Redis key of a command; `None` if it names none. All Redis keys of a command have the
/// same slot.
fn find_redis_key(command: &Cmd) -> Option<&[u8]> {
    match word(command, 0) {
        b"INFO" | b"TIME" | b"SCAN" | b"SCRIPT" | b"WAIT" | b"MULTI" | b"EXEC" => None,
        b"EVALSHA" if word(command, 2) == b"0" => None,
        b"EVALSHA" => Some(word(command, 3)),
        _ => Some(word(command, 1)),
    }
}

fn word(command: &Cmd, index: usize) -> &[u8] {
    match command.args_iter().nth(index) {
        Some(Arg::Simple(word)) => word,
        _ => b"",
    }
}

/// A server that does not have the slot names the server that has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redirection {
    pub slot: u16,
    /// `HOST:PORT`, as the Cluster names the server; `:PORT` on the host that answered.
    pub host: String,
    /// The slot is just moving there: the server takes the commands only after ASKING.
    pub is_asking: bool,
}

/// Finds a redirection in the replies to a unit. The server has not run the unit then.
pub(super) fn find_redirection(replies: &[Value]) -> Option<Redirection> {
    replies.iter().find_map(|reply| {
        let Value::ServerError(error) = reply else { return None };
        let is_asking = match error.kind()? {
            ServerErrorKind::Moved => false,
            ServerErrorKind::Ask => true,
            _ => return None,
        };
        let (slot, address) = error.details()?.split_once(' ')?;
        let host = match address.rsplit_once(':')? {
            (host, port) if host.contains(':') => format!("[{host}]:{port}"),
            _ => address.to_owned(),
        };
        Some(Redirection { slot: slot.parse().ok()?, host, is_asking })
    })
}

/// Returns true if the slot is moving and some of the Redis keys have moved. The server has not run
/// the unit then.
pub(super) fn must_try_again(replies: &[Value]) -> bool {
    replies.iter().any(|reply| {
        matches!(reply, Value::ServerError(error)
            if error.kind() == Some(ServerErrorKind::TryAgain))
    })
}

/// How many replicas of each server have the writes: the fewest that a server answers, or the first
/// error.
pub(super) fn merge_wait_replies(replies: impl Iterator<Item = Value>) -> Value {
    let mut fewest = None;
    for reply in replies {
        if let Value::ServerError(_) = reply {
            return reply;
        }
        let reached = reply_number_or_zero(reply);
        fewest = Some(fewest.map_or(reached, |fewest: u64| fewest.min(reached)));
    }
    Value::Int(fewest.unwrap_or_default().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_goes_to_the_slot_of_its_key() {
        let mut commands = redis::pipe();
        commands.cmd("MULTI").cmd("HGET").arg("riskgate:{ring}:meta").arg("x").cmd("EXEC");
        commands.cmd("EVALSHA").arg("digest").arg(2).arg("a{acme}").arg("b{acme}").arg("value");
        commands.cmd("HGET").arg("c{other}").arg("x").cmd("TIME").cmd("WAIT").arg(1).arg(50);
        let units = split(&commands);
        let found: Vec<(usize, usize, Target)> =
            units.iter().map(|it| (it.first_command, it.commands.len(), it.target)).collect();
        let slot = |tag: &str| Target::Slot(Slot::for_key(tag));
        assert_eq!(
            found,
            [
                (0, 3, slot("ring")),
                (3, 1, slot("acme")),
                (4, 1, slot("other")),
                (5, 1, Target::Ring),
                (6, 1, Target::ServersOfUnits),
            ]
        );
    }

    #[test]
    fn a_redirection_names_slot_and_server() {
        let read = |bytes: &str| vec![redis::parse_redis_value(bytes.as_bytes()).unwrap()];
        for (reply, slot, host, is_asking) in [
            ("-MOVED 3999 127.0.0.1:6381\r\n", 3999, "127.0.0.1:6381", false),
            ("-ASK 1 cache-1.internal:7000\r\n", 1, "cache-1.internal:7000", true),
            ("-MOVED 7 ::1:6381\r\n", 7, "[::1]:6381", false),
            ("-MOVED 7 :6381\r\n", 7, ":6381", false),
        ] {
            let host = host.to_owned();
            let expected = Redirection { slot, host, is_asking };
            assert_eq!(find_redirection(&read(reply)), Some(expected), "{reply}");
        }
        for reply in ["-MOVED x\r\n", "-ERR MOVED 1 a:1\r\n", "+MOVED 1 a:1\r\n"] {
            assert_eq!(find_redirection(&read(reply)), None, "{reply}");
        }
        assert!(must_try_again(&read("-TRYAGAIN Multiple keys request during rehashing\r\n")));
    }

    #[test]
    fn the_fewest_replicas_of_a_server_count() {
        let merge = |replies: &[i64]| merge_wait_replies(replies.iter().map(|it| Value::Int(*it)));
        assert_eq!(merge(&[2, 0, 1]), Value::Int(0));
        assert_eq!(merge(&[2]), Value::Int(2));
        assert_eq!(merge(&[]), Value::Int(0));
    }
}
