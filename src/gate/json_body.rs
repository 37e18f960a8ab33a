//! Reads the JSON object in the body of a post.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// Returns the object in a body. The error has the text `expected`, and says what riskgate found.
/// The error repeats no part of the body, which may contain an address.
pub(super) fn parse_json_object<T: DeserializeOwned>(
    body: &[u8],
    expected: &str,
) -> Result<T, String> {
    // serde also takes an array for a struct.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(format!("{expected}, but found no JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| {
        let found = match error.classify() {
            Category::Eof => "JSON that ends too early",
            Category::Syntax | Category::Io => "a fault in the JSON",
            Category::Data => "a missing, repeated or other member, or another type,",
        };
        let (line, column) = (error.line(), error.column());
        format!("{expected}, but found {found} in line {line}, column {column}")
    })
}

#[cfg(test)]
mod tests;
