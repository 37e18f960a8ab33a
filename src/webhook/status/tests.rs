use super::*;

#[test]
fn only_long_failures_with_pending_events_are_a_problem() {
    let mut history = DeliveryHistory::default();
    history.count_attempt(DeliveryOutcome::Failed, Some("status 500"), 1_000);
    history.count_attempt(DeliveryOutcome::Failed, Some("status 503"), 1_500);
    assert_eq!(history.problem(1, 1_599), None);
    let problem = history.problem(1, 1_600).unwrap();
    assert!(problem.ends_with("since 1970-01-01T00:16:40Z: status 503"), "{problem}");
    assert_eq!(history.problem(0, 9_000), None, "nothing waits");
    history.count_attempt(DeliveryOutcome::Delivered, None, 2_000);
    assert_eq!(history.problem(1, 9_000), None);
    history.count_attempt(DeliveryOutcome::GivenUp, Some("status 410"), 9_000);
    assert!(history.is_failing());
    let status = WebhookStatus { url: "https://a/…".to_owned(), pending: 2, history };
    assert_eq!(
        status.to_json(),
        json!({
            "url": "https://a/…", "pending": 2, "delivered": 1, "failed_attempts": 3,
            "given_up": 1, "last_error": "status 410",
            "last_delivered_at": "1970-01-01T00:33:20Z",
        })
    );
}
