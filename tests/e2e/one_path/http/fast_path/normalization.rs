//! Responses without the values that differ between two moments or two gateways.

/// All responses of an HTTP/1.1 connection.
pub fn normalized_responses(answers: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(answers);
    let line = |line: &str| match line.split_once(": ") {
        Some((name, value)) => normalized_field(name, value),
        None => line.to_owned(),
    };
    let answer = |answer: &str| {
        let Some((header, body)) = answer.split_once("\r\n\r\n") else { return answer.to_owned() };
        let fields = header.split("\r\n").map(line);
        let is_chunked = header.contains("x-riskgate-source")
            && header.contains("Transfer-Encoding: chunked")
            && !body.is_empty();
        let body = if is_chunked { joined_chunks_and_end(body) } else { body.to_owned() };
        format!("{}\n\n{body}", sorted_by_name(fields).join("\n"))
    };
    text.split("HTTP/1.1 ").map(answer).collect()
}

/// One line of a response's header. The case of a name has no meaning (RFC 9110 section 5.1): on
/// the Pingora path, most names are in lower case.
pub fn normalized_field(name: &str, value: &str) -> String {
    let is_own_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = name.to_ascii_lowercase();
    match &*name {
        "date" | "retry-after" => format!("{name}: …"),
        "x-request-id" if is_own_id(value.trim_end()) => format!("{name}: …"),
        "ratelimit" => {
            let until = value.rsplit_once(";t=").map_or(value, |(until, _)| until);
            format!("{name}: {until};t=…")
        }
        _ => format!("{name}: {value}"),
    }
}

/// Sorts fields by name, because the order of fields with different names has no meaning (RFC 9110
/// section 5.3).
pub fn sorted_by_name(fields: impl Iterator<Item = String>) -> Vec<String> {
    let mut fields: Vec<String> = fields.collect();
    fields.sort_by_key(|field| field.split(':').next().unwrap_or_default().to_owned());
    fields
}

/// The joined data of all chunks, and how the chunks ended.
fn joined_chunks_and_end(mut chunks: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n")
        && let Ok(size) = usize::from_str_radix(size, 16)
        && let Some((data, rest)) = rest.split_at_checked(size)
        && let Some(rest) = rest.strip_prefix("\r\n")
    {
        whole += data;
        chunks = rest;
        if size == 0 {
            return format!("{whole} (whole){chunks}");
        }
    }
    format!("{whole} (cut){chunks}")
}
