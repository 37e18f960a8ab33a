//! Reads the standard input of a command.

use std::io::{self, Read as _};

use crate::support::regular_file::{ReadError, decode_text};

/// Reads standard input as UTF-8, up to a size. The error says what was expected, and what was
/// found.
pub fn read_standard_input(max_bytes: u64, expected: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = io::stdin().take(max_bytes + 1).read_to_end(&mut bytes).map_err(ReadError::from);
    let fault = |found: String| format!("standard input: expected {expected}, but found {found}");
    read.map_err(|error| fault(error.to_string()))?;
    if bytes.len() as u64 > max_bytes {
        return Err(fault(format!("more than {max_bytes} bytes")));
    }
    decode_text(bytes).map_err(|error| fault(error.to_string()))
}
