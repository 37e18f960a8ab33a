use super::*;

#[test]
fn a_message_is_logged_once_in_the_interval() {
    let interval = LogInterval::default();
    assert!(interval.begin_if_due());
    assert!(!interval.begin_if_due());
    let earlier = Instant::now().checked_sub(2 * LOG_INTERVAL).unwrap();
    *interval.last_logged_at.lock().unwrap() = Some(earlier);
    assert!(interval.begin_if_due());
}
