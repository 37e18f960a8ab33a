use super::*;

use crate::support::lock::lock;

fn new_connection_limit(max: usize, max_per_client: usize) -> Arc<ConnectionLimit> {
    Arc::new(ConnectionLimit::new(max, max_per_client))
}

fn register_connection(limit: &Arc<ConnectionLimit>, address: &str) -> ConnectionGuard {
    limit.register(address.parse().unwrap()).unwrap()
}

/// An evicted connection has no sender any more.
fn is_open(guard: &mut ConnectionGuard) -> bool {
    matches!(guard.eviction.try_recv(), Err(oneshot::error::TryRecvError::Empty))
}

#[test]
fn a_client_over_its_limit_evicts_its_own_oldest_connection() {
    let limit = new_connection_limit(10, 2);
    let mut other = register_connection(&limit, "192.0.2.2");
    let (mut first, mut second) =
        (register_connection(&limit, "192.0.2.1"), register_connection(&limit, "192.0.2.1"));
    let mut third = register_connection(&limit, "192.0.2.1");
    assert!(!is_open(&mut first) && is_open(&mut second) && is_open(&mut third));
    assert!(is_open(&mut other));
    drop(second);
    let _fourth = register_connection(&limit, "192.0.2.1");
    assert!(is_open(&mut third), "a closed connection goes first");
}

#[test]
fn a_full_listener_evicts_from_the_client_with_the_most_connections() {
    let limit = new_connection_limit(4, 3);
    let mut alone = register_connection(&limit, "192.0.2.9");
    let mut many: Vec<_> = (0..3).map(|_| register_connection(&limit, "2001:db8::1")).collect();
    let mut newcomer = register_connection(&limit, "192.0.2.7");
    assert!(is_open(&mut alone) && is_open(&mut newcomer));
    assert!(!is_open(&mut many[0]) && is_open(&mut many[1]) && is_open(&mut many[2]));
    assert_eq!(lock(&limit.open_connections).connections.len(), 4);
    drop((alone, many, newcomer));
    assert!(
        lock(&limit.open_connections).connections.is_empty(),
        "closed connections are not kept"
    );
}

#[test]
fn if_clients_have_equally_many_the_oldest_connection_is_evicted() {
    let limit = new_connection_limit(3, 2);
    let mut open: Vec<_> =
        (1..=3).map(|last| register_connection(&limit, &format!("192.0.2.{last}"))).collect();
    let _newcomer = register_connection(&limit, "192.0.2.9");
    assert_eq!(open.iter_mut().map(is_open).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn a_busy_connection_is_not_evicted() {
    let limit = new_connection_limit(3, 2);
    let (mut first, mut second) =
        (register_connection(&limit, "192.0.2.1"), register_connection(&limit, "192.0.2.1"));
    let (first_flag, second_flag) = (first.busy_flag(), second.busy_flag());
    let first_busy = first_flag.mark_busy();
    let mut third = register_connection(&limit, "192.0.2.1");
    assert!(is_open(&mut first) && !is_open(&mut second) && is_open(&mut third));
    drop(second);
    // The flag of a closed connection has no effect on others.
    drop(second_flag.mark_busy());
    let third_flag = third.busy_flag();
    let third_busy = third_flag.mark_busy();
    assert!(limit.register("192.0.2.1".parse().unwrap()).is_none(), "both are busy");
    assert!(is_open(&mut first) && is_open(&mut third));
    // The listener is full, and only the client with one connection has one that is not busy.
    let mut small = register_connection(&limit, "192.0.2.7");
    let _newcomer = register_connection(&limit, "192.0.2.9");
    assert!(is_open(&mut first) && is_open(&mut third) && !is_open(&mut small));
    drop((first_busy, third_busy));
    let _latest = register_connection(&limit, "192.0.2.1");
    assert!(!is_open(&mut first) && is_open(&mut third));
}
