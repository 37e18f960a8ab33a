use super::*;

#[test]
fn a_body_has_its_members_in_order() {
    assert_eq!(
        Refusal::Unauthorized.body(),
        r#"{"error":"unauthorized","message":"Missing or invalid API key.","detail":null}"#
    );
    let spent =
        Refusal::QuotaExceeded { reset_at: "2026-12-01T00:00:00Z".into(), retry_after_seconds: 9 };
    assert_eq!(
        spent.body(),
        "{\"error\":\"quota_exceeded\",\"message\":\"Monthly quota reached. Upgrade your plan \
             or wait for the reset.\",\"detail\":null,\"reset_at\":\"2026-12-01T00:00:00Z\"}"
    );
    let forbidden = Refusal::Forbidden { origin: "https://a\"b\\\u{1}".into() };
    assert!(forbidden.body().ends_with(r#""detail":"Origin: https://a\"b\\\u0001"}"#));
}

#[test]
fn internal_and_upstream_errors_are_fail_open() {
    for refusal in [Refusal::Internal, Refusal::UpstreamUnavailable, Refusal::UpstreamTimeout] {
        assert_eq!(refusal.status(), 500);
        assert!(refusal.is_fail_open());
        assert!(refusal.message().ends_with("Let your user through."));
    }
    assert!(!Refusal::Unauthorized.is_fail_open());
    assert!(!Refusal::TooManyRequests { retry_after_seconds: 1 }.is_fail_open());
}
