//! Reads parts of a server's replies.

use redis::Value;

/// The code and details of an error reply; `None` for any other reply.
pub(super) fn server_error(value: &Value) -> Option<String> {
    match value {
        Value::ServerError(error) => {
            Some(format!("{} {}", error.code(), error.details().unwrap_or_default()))
        }
        _ => None,
    }
}

/// A reply as text; empty if it is none.
pub(super) fn reply_text(value: Value) -> String {
    redis::from_redis_value(value).unwrap_or_default()
}

/// A reply as a number; 0 if it is negative or none.
pub(super) fn reply_number(value: Value) -> u64 {
    redis::from_redis_value::<i64>(value).map_or(0, |number| u64::try_from(number).unwrap_or(0))
}

/// A field of an INFO reply.
pub(super) fn info_field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
