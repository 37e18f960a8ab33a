use super::*;

#[test]
fn each_client_gets_a_sixteenth_and_all_get_the_whole() {
    let exempt = Networks::parse(&["10.0.0.0/8".to_owned()]).unwrap();
    let held = Arc::new(HeldBytes::new(160, exempt));
    let begin = |address: &str| held.make_guard(Some(address.parse().unwrap()));
    let (mut first, mut second) = (begin("192.0.2.1"), begin("192.0.2.1"));
    assert!(first.grow_to(4) && first.grow_to(4) && first.grow_to(7));
    assert!(!second.grow_to(4) && !second.grow_to(4), "the client has 7 of 10");
    assert_eq!(held.used_bytes(), 7, "what was refused is not counted");
    assert!(second.grow_to(3), "the rest of the client");
    drop(second);
    let mut other = begin("192.0.2.2");
    assert!(other.grow_to(10));
    let mut exempt = begin("10.0.0.1");
    assert!(exempt.grow_to(160 - 17) && !exempt.grow_to(160 - 16));
    assert!(!begin("192.0.2.3").grow_to(1), "the whole is used");
    drop((first, other, exempt));
    assert_eq!(held.used_bytes(), 0);
}

#[test]
fn bytes_that_a_client_has_taken_no_longer_count() {
    let held = Arc::new(HeldBytes::new(160, Networks::default()));
    let begin = || held.make_guard(Some("192.0.2.1".parse().unwrap()));
    let (mut first, mut second) = (begin(), begin());
    assert!(first.grow_to(10) && !second.grow_to(1));
    first.shrink_to(20);
    assert_eq!(held.used_bytes(), 10);
    first.shrink_to(4);
    assert_eq!(held.used_bytes(), 4);
    assert!(second.grow_to(6) && !first.grow_to(5));
    drop(first);
    drop(second);
    assert_eq!(held.used_bytes(), 0);
    assert!(begin().grow_to(10), "the share of the client is free");
}

#[test]
fn what_exceeds_the_limit_of_a_client_counts_for_nobody() {
    let held = Arc::new(HeldBytes::new(160, Networks::default()));
    let begin = || held.make_guard(Some("192.0.2.1".parse().unwrap()));
    let (mut first, mut second) = (begin(), begin());
    assert!(first.grow_to(10));
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| (0..1_000_000).all(|_| !second.grow_to(150)));
        while !refused.is_finished() {
            assert_eq!(held.used_bytes(), 10);
        }
        assert!(refused.join().unwrap());
    });
}
