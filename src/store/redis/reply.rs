//! Reads parts of a server's replies.

use redis::{ServerErrorKind, Value};

/// The code and details of an error reply; `None` for any other reply.
pub(super) fn error_reply_text(value: &Value) -> Option<String> {
    let Value::ServerError(error) = value else { return None };
    // riskgate follows the redirections of a Cluster. So this is a server of one.
    let advice = match error.kind() {
        Some(ServerErrorKind::Moved) => "; write redis+cluster:// for a server of a Cluster",
        _ => "",
    };
    Some(format!("{} {}{advice}", error.code(), error.details().unwrap_or_default()))
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
