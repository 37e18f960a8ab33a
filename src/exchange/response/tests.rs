use super::*;
use crate::model::refusal::Refusal;

#[test]
fn only_informational_responses_are_dropped() {
    for (status, kind) in [
        (99, StatusKind::Invalid),
        (100, StatusKind::Informational),
        (101, StatusKind::Invalid),
        (102, StatusKind::Informational),
        (199, StatusKind::Informational),
        (200, StatusKind::Final),
        (999, StatusKind::Final),
        (1000, StatusKind::Invalid),
    ] {
        assert_eq!(StatusKind::from(status), kind, "{status}");
    }
}

#[test]
fn a_connection_closes_if_its_client_wants_that_or_the_process_ends() {
    assert!(!closes_after_response(None, false, false));
    assert!(closes_after_response(None, true, false));
    assert!(closes_after_response(None, false, true));
    for (refusal, closes) in [(Refusal::BadRequest, true), (Refusal::NotFound, false)] {
        let reply = Reply::of_refusal(&refusal);
        assert_eq!(closes_after_response(Some(&reply), false, false), closes);
    }
}

#[test]
fn a_response_to_head_a_204_and_a_304_have_no_body() {
    let framing = |is_chunked, content_length| ResponseFraming {
        connection_options: Vec::new(),
        is_chunked,
        content_length,
    };
    for (status, is_head_method) in [(200, true), (204, false), (304, false)] {
        for (is_chunked, length) in [(true, None), (false, Some(5)), (false, None)] {
            let framing = framing(is_chunked, length).body_framing(status, is_head_method);
            assert_eq!(framing, BodyFraming::Empty);
        }
    }
    assert_eq!(framing(true, Some(5)).body_framing(200, false), BodyFraming::Chunked);
    assert_eq!(framing(false, Some(5)).body_framing(200, false), BodyFraming::Length(5));
    assert_eq!(framing(false, Some(0)).body_framing(200, false), BodyFraming::Empty);
    assert_eq!(framing(false, None).body_framing(200, false), BodyFraming::UntilClose);
    assert!(may_have_framing_fields(304) && !may_have_framing_fields(204));
}
