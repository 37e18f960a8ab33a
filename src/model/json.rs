//! Writes texts as JSON strings.

/// Returns a text as a JSON string, quotes included (RFC 8259 section 7).
pub fn to_json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Appends the concatenated parts as one JSON string.
pub fn push_json_string(out: &mut Vec<u8>, parts: &[&str]) {
    let plain = |byte: &u8| !matches!(byte, 0..0x20 | 0x7f | b'"' | b'\\');
    out.push(b'"');
    for part in parts {
        // No early exit, so that the compiler can check many bytes at a time.
        match part.bytes().fold(true, |all, byte| all & plain(&byte)) {
            true => out.extend_from_slice(part.as_bytes()),
            false => {
                let quoted = to_json_string(part);
                out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
            }
        }
    }
    out.push(b'"');
}
