use super::*;

#[test]
fn each_client_gets_its_limit_and_no_more() {
    let exempt = Networks::parse(&["10.0.0.0/8".to_owned()]).unwrap();
    let limit = Arc::new(PerClientLimit::new(2, exempt));
    let acquire = |text: &str| limit.acquire(text.parse().unwrap());
    let (first, second) = (acquire("192.0.2.1").unwrap(), acquire("192.0.2.1").unwrap());
    assert!(acquire("192.0.2.1").is_none());
    assert!(acquire("192.0.2.2").is_some());
    drop(first);
    assert!(acquire("192.0.2.1").is_some());
    drop(second);
    assert!(limit.units_by_client.is_empty(), "a client that holds nothing is forgotten");
    let exempt: Vec<PerClientGuard> = (0..9).map(|_| acquire("10.1.1.1").unwrap()).collect();
    assert_eq!(exempt.len(), 9);
}

#[test]
fn units_that_would_exceed_the_limit_are_not_counted() {
    let limit = Arc::new(PerClientLimit::new(10, Networks::default()));
    let begin = || limit.guard_without_units("192.0.2.1".parse().unwrap());
    let (mut first, mut second) = (begin(), begin());
    assert!(!first.try_add(11) && limit.units_by_client.is_empty());
    assert!(first.try_add(6) && !second.try_add(5) && second.try_add(4) && !first.try_add(1));
    drop(first);
    assert!(second.try_add(6) && !second.try_add(1));
    drop(second);
    assert!(limit.units_by_client.is_empty());
}
