//! Which bytes may stand in which part of a request header.

const TOKEN_BYTES: [bool; 256] = byte_set_with_alphanumerics(b"!#$%&'*+-.^_`|~");

/// A table of the bytes that these are.
pub(super) const fn byte_set_with_alphanumerics(marks: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut mark = 0;
        while mark < marks.len() {
            table[marks[mark] as usize] = true;
            mark += 1;
        }
        table[byte] |= (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
}

/// Whether this byte may stand in a method or a field's name (RFC 9110 section 5.6.2).
pub(super) fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[usize::from(byte)]
}
