//! The lines of a request head.

use crate::model::refusal::Refusal;

/// Splits a head into lines that end with CRLF, and refuses a bare LF. The caller refuses a CR
/// within a line when it parses the line.
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
