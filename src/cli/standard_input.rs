//! Reads the standard input of a command.

use std::io::{self, IsTerminal as _, Read as _};

use super::failure::CommandFailure;
use super::output::print_message;
use crate::model::email::{EmailAddress, EmailError};
use crate::model::typed_address::TypedAddress;
use crate::support::regular_file::{ReadError, decode_text};

/// Reads all of standard input as UTF-8. Fails if it has more than `max_bytes`. The error says that
/// `expected` was expected, and what was found.
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

/// Refuses each argument but `-`, because the address comes from standard input. `command` has the
/// words of the command.
pub fn require_dash(text: &str, command: &str) -> Result<String, String> {
    match text {
        "-" => Ok(text.to_owned()),
        _ => Err(format!(
            "expected - alone, because the address comes from standard input: echo ADDRESS | \
             riskgate {command} -"
        )),
    }
}

/// Reads an e-mail address from standard input, without the blanks around the address.
pub fn read_address() -> Result<EmailAddress, CommandFailure> {
    read_typed_address().map(|typed| typed.address)
}

/// Reads an address as [`read_address`] does. Returns with it what other software reads.
pub fn read_typed_address() -> Result<TypedAddress, CommandFailure> {
    const MAX_BYTES: u64 = 4 * 1024;
    if io::stdin().is_terminal() {
        print_message("e-mail address, then Enter and Ctrl-D:");
    }
    let text = read_standard_input(MAX_BYTES, "an address").map_err(CommandFailure::usage)?;
    let fault = |error: EmailError| CommandFailure::usage(format!("standard input: {error}"));
    TypedAddress::parse(&text).map_err(fault)
}
