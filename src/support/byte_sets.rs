//! Sets of bytes, such as those of a token of HTTP.

const TOKEN_BYTES: [bool; 256] = byte_set_with_alphanumerics(b"!#$%&'*+-.^_`|~");

/// Returns a table that is true for ASCII letters, digits and these bytes.
pub(crate) const fn byte_set_with_alphanumerics(punctuation: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut mark = 0;
        while mark < punctuation.len() {
            table[punctuation[mark] as usize] = true;
            mark += 1;
        }
        table[byte] |= (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
}

/// Returns true for a byte of a token, such as a method or a field name (RFC 9110 section 5.6.2).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[usize::from(byte)]
}
