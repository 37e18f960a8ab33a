use super::*;

#[test]
fn a_part_of_the_response_restarts_only_a_limit_for_parts() {
    let second = Duration::from_secs(1);
    let since = Instant::now() - second * 2;
    let mut whole = ExchangeDeadline::new(TimeLimit::Whole(second), Some(since));
    assert!(whole.has_passed());
    whole.restart_after_response_part();
    assert!(whole.has_passed());
    let mut each_part = ExchangeDeadline::new(TimeLimit::EachPart(Some(second)), Some(since));
    assert!(each_part.has_passed());
    each_part.restart_after_response_part();
    assert!(!each_part.has_passed());
    let unlimited = ExchangeDeadline::new(TimeLimit::EachPart(None), Some(since));
    assert_eq!((unlimited.passes_at(), unlimited.has_passed()), (None, false));
}

#[test]
fn the_time_does_not_run_while_the_client_sends() {
    let nothing = Duration::ZERO;
    let mut deadline = ExchangeDeadline::new(TimeLimit::EachPart(Some(nothing)), None);
    deadline.restart_after_response_part();
    assert_eq!((deadline.passes_at(), deadline.has_passed()), (None, false));
    deadline.start();
    assert!(deadline.has_passed());
}
