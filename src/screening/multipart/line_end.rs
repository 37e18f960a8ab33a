//! The line ends of a multipart body.

use memchr::memmem;

/// The bytes that end the lines of a body.
#[derive(Clone, Copy)]
pub(in crate::screening) enum LineEnd {
    /// CRLF, as RFC 2046 section 4.1.1 says.
    Crlf,
    /// LF, which PHP and some other servers read. Some client programs write the line end of their
    /// platform.
    Lf,
}

impl LineEnd {
    pub fn as_str(self) -> &'static str {
        match self {
            LineEnd::Crlf => "\r\n",
            LineEnd::Lf => "\n",
        }
    }
}

/// Returns the line end that a body uses. In a body without an empty CRLF line, no server finds a
/// part with CRLF lines.
pub(in crate::screening) fn detect_line_end(body: &[u8]) -> LineEnd {
    match memmem::find(body, b"\r\n\r\n") {
        Some(_) => LineEnd::Crlf,
        None => LineEnd::Lf,
    }
}
