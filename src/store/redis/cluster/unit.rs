//! Splits the commands of a pipeline by the hash slots of their Redis keys, and reads the replies
//! of servers that do not have a slot.

use redis::cluster_routing::Slot;
use redis::{Arg, Cmd, Pipeline, ServerErrorKind, Value};

use crate::store::redis::reply::{error_kind, reply_number_or_zero};

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
    replies.iter().any(|reply| error_kind(reply) == Some(ServerErrorKind::TryAgain))
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
mod tests;
