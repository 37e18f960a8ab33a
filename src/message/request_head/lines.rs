//! The lines of a request head.

use crate::model::refusal::Refusal;

/// Splits a head into lines that end with CRLF. It refuses a bare LF. A CR within a line is refused
/// by the caller that parses the line, because no part of a line may contain a CR.
#[derive(Clone)]
pub(super) struct CrlfLines<'b>(pub &'b [u8]);

impl<'b> CrlfLines<'b> {
    /// Returns the next line without its CRLF; `None` after the last line.
    pub fn next_line(&mut self) -> Result<Option<&'b [u8]>, Refusal> {
        let Some(end) = memchr::memchr(b'\n', self.0) else { return Ok(None) };
        let (line, rest) = self.0.split_at(end + 1);
        self.0 = rest;
        line.strip_suffix(b"\r\n").map(Some).ok_or(Refusal::BadRequest)
    }
}
