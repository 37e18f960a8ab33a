use super::*;

const UNAVAILABLE: FailedEnd = FailedEnd::Refuse(Refusal::UpstreamUnavailable);
const TIMEOUT: FailedEnd = FailedEnd::Refuse(Refusal::UpstreamTimeout);
const ALL_FAILURES: [Failure; 9] = [
    Failure::NotStarted,
    Failure::Connect,
    Failure::ClosedEarly { is_reused: true, is_repeatable: true },
    Failure::ClosedEarly { is_reused: false, is_repeatable: false },
    Failure::TimedOut,
    Failure::BrokenResponse(MalformedResponse::Header),
    Failure::Client,
    Failure::RequestBody(BodyFault::TooSlow),
    Failure::Internal,
];

#[test]
fn a_safe_failure_is_retried_once_and_others_never() {
    let closed_early = |is_reused, is_repeatable| Failure::ClosedEarly { is_reused, is_repeatable };
    let safe = [Failure::Connect, closed_early(true, true)];
    let unsafe_ends = [closed_early(false, true), closed_early(true, false)];
    let mut attempts = Attempts::default();
    attempts.start_attempt();
    assert!(!attempts.is_retry());
    for failure in ALL_FAILURES.iter().chain(&unsafe_ends) {
        assert_eq!(attempts.may_retry(*failure, false), safe.contains(failure), "{failure:?}");
        assert!(!attempts.may_retry(*failure, true), "{failure:?}");
    }
    attempts.start_attempt();
    assert!(attempts.is_retry());
    assert!(ALL_FAILURES.iter().all(|failure| !attempts.may_retry(*failure, false)));
}

#[test]
fn only_a_connected_attempt_gets_upstream_timeout() {
    let mut attempts = Attempts::default();
    assert_eq!(attempts.end_after(Failure::NotStarted, true, false), UNAVAILABLE);
    attempts.start_attempt();
    assert_eq!(attempts.end_after(Failure::TimedOut, true, false), UNAVAILABLE);
    attempts.mark_connected();
    assert_eq!(
        attempts.end_after(Failure::BrokenResponse(MalformedResponse::Header), false, false),
        UNAVAILABLE
    );
    assert_eq!(
        attempts.end_after(Failure::BrokenResponse(MalformedResponse::Header), true, false),
        TIMEOUT
    );
    assert_eq!(attempts.end_after(Failure::TimedOut, false, false), TIMEOUT);
    attempts.start_attempt();
    assert_eq!(attempts.end_after(Failure::Connect, true, false), UNAVAILABLE);
}

#[test]
fn a_response_that_has_started_is_aborted_after_every_failure() {
    for failure in ALL_FAILURES {
        let end = Attempts::with_connected_last_attempt().end_after(failure, true, true);
        assert_eq!(end, FailedEnd::Abort, "{failure:?}");
    }
}

#[test]
fn a_client_that_is_still_connected_gets_a_response_after_its_own_failure() {
    for is_past_deadline in [false, true] {
        let end = |failure| {
            Attempts::with_connected_last_attempt().end_after(failure, is_past_deadline, false)
        };
        assert_eq!(end(Failure::Client), FailedEnd::Abort);
        for (fault, refusal) in [
            (BodyFault::Malformed, Refusal::BadRequest),
            (BodyFault::TooLong, Refusal::ContentTooLarge),
            (BodyFault::TooSlow, Refusal::RequestTimeout),
        ] {
            assert_eq!(end(Failure::RequestBody(fault)), FailedEnd::Refuse(refusal));
        }
    }
    let internal =
        Attempts::with_connected_last_attempt().end_after(Failure::Internal, true, false);
    assert_eq!(internal, FailedEnd::Refuse(Refusal::Internal));
}
