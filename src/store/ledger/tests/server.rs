//! Two nodes on a server, for the tests of data loss and failures.

use super::*;

pub(super) const THOUSAND: Option<u64> = Some(1_000);
/// The timeout of an operation. A test waits longer only on a busy machine.
pub(super) const SHORT: Duration = Duration::from_millis(100);

/// The key of acme's totals.
pub(super) const LEDGER_KEY: &str = "riskgate:ledger:{acme}:2100-01";

pub(super) fn open_lazily(server: &RedisServer, timeout: Duration) -> Store {
    open_unconnected(&server.url(), &RedisOptions::default(), timeout)
}

/// Reports the same totals until the account has recovered.
#[track_caller]
pub(super) fn report_until_recovered(
    store: &mut Store,
    node: &mut Node,
    floor_and_spent: [u64; 2],
    limit: Option<u64>,
) -> Grant {
    node.recovery_left = Duration::ZERO;
    let mut last = None;
    wait_until("the account has recovered", || {
        let grant = node.report(store, floor_and_spent[0], floor_and_spent, limit);
        last = Some(grant);
        !grant.is_recovering
    });
    last.unwrap()
}

/// Alice and Bob hold a part each and know each other's totals.
pub(super) fn alice_and_bob(store: &mut Store) -> (Node, Node) {
    let (mut alice, mut bob) = (Node::new(ALICE), Node::new(BOB));
    alice.report(store, 300, [250, 240], THOUSAND);
    bob.report(store, 500, [480, 470], THOUSAND);
    alice.report(store, 300, [300, 260], THOUSAND);
    (alice, bob)
}

/// Asserts the recovery from any loss: floors stay, and nothing is granted until all nodes had time
/// to report again. Then the sum is within the limit, as if nothing had been lost.
#[track_caller]
pub(super) fn assert_recovers(store: &mut Store, mut alice: Node, mut bob: Node) {
    let mut carol = Node::new(CAROL);
    let grant = alice.report(store, 364, [300, 260], THOUSAND);
    assert_eq!((grant.own_leased, grant.is_recovering), (300, true), "nothing beyond the floor");
    let grant = carol.report(store, 8, [0, 0], THOUSAND);
    assert_eq!(
        (grant.own_leased, grant.is_recovering),
        (0, true),
        "nor to a node that knows nothing of it"
    );
    let grant = bob.report(store, 564, [500, 470], THOUSAND);
    assert_eq!((grant.own_leased, grant.is_recovering), (500, true));
    let grant = report_until_recovered(store, &mut carol, [0, 0], THOUSAND);
    assert_eq!(totals(grant), (0, 800, 730));
    assert_eq!(carol.report(store, 900, [0, 0], THOUSAND).own_leased, 200);
    assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 730, 1_000)]);
}
