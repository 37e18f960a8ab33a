use super::*;
use crate::model::route_label::RouteLabel;

#[test]
fn refusals_count_by_code_and_unknown_outcomes_as_other() {
    use crate::model::refusal::Refusal::*;
    for refusal in [BadRequest, Unauthorized, NotFound, UriTooLong, HeadersTooLarge, Internal] {
        assert!(OUTCOMES.contains(&refusal.code()));
    }
    let metrics = Metrics::new().unwrap();
    metrics.requests.count_request(RouteLabel::Domain, "unauthorized", 0.001);
    metrics.requests.count_request(RouteLabel::Domain, "no such outcome", 0.001);
    let text = String::from_utf8(metrics.render()).unwrap();
    for line in [
        r#"riskgate_requests_total{outcome="unauthorized",route="domain"} 1"#,
        r#"riskgate_requests_total{outcome="other",route="domain"} 1"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
}
