use super::*;

const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_request_continues_the_trace_of_its_client() {
    let trace = RequestTrace::begin(Some(VALID.as_bytes()), true, u64::MAX);
    assert_eq!(trace.trace_id_text(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(trace.parent_id, Some([0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]));
    assert!(trace.is_sampled);
    let sent = trace.traceparent(1);
    let text = String::from_utf8(sent.to_vec()).unwrap();
    assert!(text.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{text}");
    assert!(text.ends_with("-01"), "{text}");
    assert_eq!(parse(&sent).unwrap().1, trace.attempt_span_id(1));
    assert_ne!(trace.attempt_span_id(1), trace.attempt_span_id(2));
    // Nobody else can make riskgate export a trace.
    let other = RequestTrace::begin(Some(VALID.as_bytes()), false, u64::MAX);
    assert!(!other.is_sampled && other.traceparent(1).ends_with(b"-00"));
    let even = VALID.replace("a3ce929d0e0e4736", "0000000000000000");
    let sampled = (0..1_000)
        .filter(|_| RequestTrace::begin(Some(even.as_bytes()), false, 1_000_000_000).is_sampled);
    assert_eq!(sampled.count(), 0);
    let unsampled = VALID.replace("-01", "-00");
    assert!(!RequestTrace::begin(Some(unsampled.as_bytes()), true, 1).is_sampled);
    assert!(RequestTrace::begin(Some(unsampled.as_bytes()), false, 1).is_sampled);
}

#[test]
fn a_malformed_traceparent_begins_a_new_trace() {
    for text in [
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ] {
        assert_eq!(parse(text.as_bytes()), None, "{text}");
        assert_eq!(RequestTrace::begin(Some(text.as_bytes()), true, 1).parent_id, None);
    }
    assert!(parse(b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x").is_some());
}
