use super::*;

#[tokio::test]
async fn a_name_whose_query_panics_gets_an_unknown_finding() {
    let mut queries = NameQueryTasks::default();
    queries.spawn_name_query("broken.com".into(), async { panic!("an internal error") });
    let (name, finding) = queries.next_finding().await.unwrap();
    assert_eq!((&*name, finding.outcome_label()), ("broken.com", "unknown"));
    assert_eq!(queries.in_flight_name_count(), 0);
    assert_eq!(queries.next_finding().await, None);
}
