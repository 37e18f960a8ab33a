//! Reads parts of a server's replies.

use redis::{ServerError, ServerErrorKind, Value};

/// The kind of an error reply; `None` for any other reply, and for an error of another kind.
pub(super) fn error_kind(value: &Value) -> Option<ServerErrorKind> {
    let Value::ServerError(error) = value else { return None };
    error.kind()
}

/// The code and details of an error reply; `None` for any other reply.
pub(super) fn plain_error_text(value: &Value) -> Option<String> {
    let Value::ServerError(error) = value else { return None };
    Some(format!("{} {}", error.code(), error.details().unwrap_or_default()))
}

/// The code and details of the error reply of a data server, and what to do; `None` for any other
/// reply.
pub(super) fn error_reply_text(value: &Value) -> Option<String> {
    let text = plain_error_text(value)?;
    let advice = match error_kind(value) {
        // riskgate follows the redirections of a Cluster. So this is a server of one.
        Some(ServerErrorKind::Moved) => "; write redis+cluster:// for a server of a Cluster",
        _ if is_refusal_of_command(&text) => {
            "; `riskgate store check` names what the user or the server lacks"
        }
        _ => "",
    };
    Some(text + advice)
}

/// What to do about a server that refuses writes with this error reply.
pub(super) fn advise_on_write_refusal(error: &ServerError) -> &'static str {
    match error.code() {
        "OOM" => "raise maxmemory: a full server refuses writes",
        "MISCONF" => "see that its disk has space and works, and look into the log of the server",
        "NOREPLICAS" => "add replicas, or lower min-replicas-to-write",
        "READONLY" => "set store.url to the primary server",
        "CLUSTERDOWN" => "ask the server for CLUSTER INFO: each slot needs a server",
        _ => "look into the log of the server",
    }
}

/// Returns true if the server does not run a command for this user, or does not have it. Servers
/// have other words for commands in scripts.
fn is_refusal_of_command(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    const WORDS: [&str; 5] = [
        "noperm",
        "acl failure in script",
        "can't run this command",
        "unknown command",
        "unknown redis command",
    ];
    WORDS.iter().any(|words| text.contains(words))
}

/// Redis 6.2 puts the error of a command in a script behind words of its own: `ERR Error running
/// script (call to f_DIGEST): @user_script:LINE: WRONGTYPE …`. Returns such an error as later
/// versions send it, with its own code: `WRONGTYPE …`. Returns all other replies as they are.
pub(super) fn unwrap_script_error(reply: Value) -> Value {
    let parse_error =
        |text: String| redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).ok();
    let text = plain_error_text(&reply);
    text.and_then(|it| find_script_error(&it)).and_then(parse_error).unwrap_or(reply)
}

/// The code and details of the error of a command in a script of Redis 6.2.
fn find_script_error(text: &str) -> Option<String> {
    let (_, error) = text.strip_prefix("ERR Error running script (call to ")?.split_once("): ")?;
    let (_, error) = error.strip_prefix("@user_script:")?.split_once(": ")?;
    let error = strip_line_of_script(error);
    let code = error.split(' ').next()?;
    let has_code = code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    Some(if has_code { error.to_owned() } else { format!("ERR {error}") })
}

/// Redis 6.2 puts the line of the script before the error of a command that it refuses to run:
/// `@user_script: LINE: -OOM …`. Returns the error as later versions tell it to the script: `OOM
/// …`.
pub(super) fn strip_line_of_script(error: &str) -> &str {
    let refusal = error.strip_prefix("@user_script: ").and_then(|rest| rest.split_once(": "));
    refusal.map_or(error, |(_, refusal)| refusal.strip_prefix('-').unwrap_or(refusal))
}

/// A reply as text; empty if the reply is not a text.
pub(super) fn reply_text_or_empty(value: Value) -> String {
    redis::from_redis_value(value).unwrap_or_default()
}

/// A reply as a number; 0 if the number is negative, or the reply is not a number.
pub(super) fn reply_number_or_zero(value: Value) -> u64 {
    redis::from_redis_value::<i64>(value).map_or(0, |number| u64::try_from(number).unwrap_or(0))
}

/// The lines of `INFO replication` about the replicas: one for each.
pub(super) fn replica_lines(info: &str) -> impl Iterator<Item = &str> {
    info.lines().filter(|line| {
        line.strip_prefix("slave")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// A field of an INFO reply.
pub(super) fn info_field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests;
