//! Reads the JSON object in the body of a post.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// Returns the object in a body. The error has the text `expected`, and says what riskgate found.
/// Of the body, the error repeats only names in `expected`: all else may contain an address.
pub(super) fn parse_json_object<T: DeserializeOwned>(
    body: &[u8],
    expected: &str,
) -> Result<T, String> {
    // serde would take an array for a struct.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(format!("{expected}, but found no JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| {
        let found = match error.classify() {
            Category::Eof => "JSON that ends too early".to_owned(),
            Category::Syntax | Category::Io => "a fault in the JSON".to_owned(),
            Category::Data => describe_wrong_member(body, &error, expected),
        };
        let (line, column) = (error.line(), error.column());
        format!("{expected}, but found {found} in line {line}, column {column}")
    })
}

/// Says what is wrong with a member. Names the member only if `expected` has its name, because any
/// other name may contain an address.
fn describe_wrong_member(body: &[u8], error: &serde_json::Error, expected: &str) -> String {
    let text = error.to_string();
    let named = |start: &str| text.strip_prefix(start)?.split('`').next();
    if let Some(name) = named("missing field `") {
        return format!("no member {name}");
    }
    if let Some(name) = named("duplicate field `") {
        return format!("the member {name} twice");
    }
    if named("unknown field `").is_some() {
        return "a member of another name".to_owned();
    }
    // The fault is at the end of the value, behind the name and a colon.
    let lines = body.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
    let end = lines.map(<[u8]>::len).sum::<usize>() + error.column();
    let before = String::from_utf8_lossy(&body[..end.min(body.len())]);
    let name = before.rsplit(':').nth(1).and_then(|it| it.trim_end().rsplit('"').nth(1));
    match name.filter(|name| expected.contains(&format!("\"{name}\""))) {
        Some(name) => format!("another type of {name}"),
        None => "a value of another type".to_owned(),
    }
}

#[cfg(test)]
mod tests;
