//! Finds the servers of a pipeline's commands by the hash slots of their Redis keys, and reads the
//! replies of servers that do not have a slot.

use redis::cluster_routing::Slot;
use redis::{Arg, Cmd, ServerErrorKind, Value};

use crate::store::redis::reply::{error_kind, reply_number_or_zero};

/// The servers that a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The primary that has the slot.
    Slot(Slot),
    /// The primary that has the keys and accounts: the command names no Redis key.
    Ring,
    /// All primaries that have run the other commands: the command is WAIT.
    ServersOfOthers,
}

/// Finds the servers of a command.
pub(super) fn find_target(command: &Cmd) -> Target {
    match find_redis_key(command) {
        Some(key) => Target::Slot(Slot::for_key(key)),
        None if word(command, 0) == b"WAIT" => Target::ServersOfOthers,
        None => Target::Ring,
    }
}

/// The first Redis key of a command; `None` if it names none. All Redis keys of a command have the
/// same slot.
fn find_redis_key(command: &Cmd) -> Option<&[u8]> {
    match word(command, 0) {
        b"INFO" | b"TIME" | b"SCAN" | b"SCRIPT" | b"WAIT" => None,
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

/// Reads a redirection. The server has not run the command then.
pub(super) fn parse_redirection(reply: &Value) -> Option<Redirection> {
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
}

/// Returns true if the slot is moving and some of the Redis keys have moved. The server has not run
/// the command then.
pub(super) fn must_try_again(reply: &Value) -> bool {
    error_kind(reply) == Some(ServerErrorKind::TryAgain)
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
