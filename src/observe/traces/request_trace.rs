//! The place of a request in its trace (W3C Trace Context).

/// The length of a `traceparent` of version 00.
pub const TRACEPARENT_LENGTH: usize = 55;
/// The flag of a trace that is exported.
const SAMPLED: u8 = 1;

/// The place of one request in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTrace {
    /// The id of the trace: the client's, or a new one.
    pub trace_id: [u8; 16],
    /// The id of the request's own span.
    pub span_id: [u8; 8],
    /// The id of the client's span; `None` if riskgate begins the trace.
    pub parent_id: Option<[u8; 8]>,
    /// Whether the spans are exported.
    pub is_sampled: bool,
}

impl RequestTrace {
    /// Begins the trace of a request with this `traceparent`. If a trusted caller sent a valid
    /// `traceparent`, its flag decides whether the spans are exported. Of all other traces, chance
    /// decides, and exports one in `one_in`: a client must not be able to make riskgate export
    /// spans.
    pub(super) fn begin(
        traceparent: Option<&[u8]>,
        is_caller_trusted: bool,
        one_in: u64,
    ) -> RequestTrace {
        let mut random = [0; 24];
        // If the system gives no random bytes, all new ids are zero. The request does not fail.
        let _ = getrandom::fill(&mut random);
        let [a, b, c] =
            [0, 8, 16].map(|at| <[u8; 8]>::try_from(&random[at..at + 8]).unwrap_or_default());
        let received = traceparent.and_then(parse);
        let mut new_trace_id = [0; 16];
        new_trace_id[..8].copy_from_slice(&a);
        new_trace_id[8..].copy_from_slice(&b);
        let trace_id = received.map_or(new_trace_id, |(trace_id, ..)| trace_id);
        let is_chosen = u64::from_be_bytes(b).is_multiple_of(one_in);
        RequestTrace {
            trace_id,
            span_id: c,
            parent_id: received.map(|(_, parent_id, _)| parent_id),
            is_sampled: match received {
                Some((.., flags)) if is_caller_trusted => flags & SAMPLED != 0,
                _ => is_chosen,
            },
        }
    }

    /// Returns the id of the span of an attempt to get a response from an upstream server. The
    /// first attempt has the number 1. The number 0 stands for the request itself.
    pub fn attempt_span_id(&self, number: usize) -> [u8; 8] {
        u64::from_be_bytes(self.span_id).wrapping_add(number as u64).to_be_bytes()
    }

    /// Returns the `traceparent` for the upstream server that this attempt asks.
    pub fn traceparent(&self, attempt_number: usize) -> [u8; TRACEPARENT_LENGTH] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&self.trace_id, &mut text[3..35]);
        write_hex(&self.attempt_span_id(attempt_number), &mut text[36..52]);
        write_hex(&[u8::from(self.is_sampled)], &mut text[53..55]);
        text
    }

    /// Returns the id of the trace in hexadecimal.
    pub fn trace_id_text(&self) -> String {
        let mut text = [0; 32];
        write_hex(&self.trace_id, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Parses a `traceparent`. Returns the ids of trace and parent, and the flags. A later version than
/// 00 may have more parts (section 4.3 of the recommendation).
fn parse(value: &[u8]) -> Option<([u8; 16], [u8; 8], u8)> {
    let (fixed, rest) = value.split_at_checked(TRACEPARENT_LENGTH)?;
    let version = fixed.get(..2)?;
    let has_valid_end = rest.is_empty() || version != b"00" && rest.starts_with(b"-");
    let has_dashes = [2, 35, 52].into_iter().all(|at| fixed[at] == b'-');
    if !has_valid_end || !has_dashes {
        return None;
    }
    let [version] = read_hex(version)?;
    let trace_id: [u8; 16] = read_hex(&fixed[3..35])?;
    let parent_id: [u8; 8] = read_hex(&fixed[36..52])?;
    let [flags] = read_hex(&fixed[53..55])?;
    let is_valid = version != 0xff && trace_id != [0; 16] && parent_id != [0; 8];
    is_valid.then_some((trace_id, parent_id, flags))
}

/// Reads lower-case hexadecimal digits.
fn read_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

fn write_hex(bytes: &[u8], out: &mut [u8]) {
    // The call fails only if `out` has another length.
    let _ = hex::encode_to_slice(bytes, out);
}

#[cfg(test)]
mod tests;
