//! Helpers for the tests on a server: two nodes with leases, and how their totals recover.

use super::*;

pub(super) const LIMIT_1000: Option<u64> = Some(1_000);
/// The timeout of an operation. A test waits longer only on a busy machine.
pub(super) const SHORT_TIMEOUT: Duration = Duration::from_millis(100);

/// The key of acme's totals.
pub(super) const ACME_LEDGER_KEY: &str = "riskgate:ledger:{acme}:2100-01";

pub(super) fn open_unprobed(server: &RedisServer, timeout: Duration) -> Store {
    open_without_connecting(&server.url(), &RedisOptions::default(), timeout)
}

/// Sends reports with the same totals until the account has recovered, and returns the last grant.
#[track_caller]
pub(super) fn report_until_recovered(
    store: &mut Store,
    node: &mut TestNode,
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

/// Returns two nodes that have leased 300 and 500 calls and know each other's totals.
pub(super) fn two_nodes_with_leases(store: &mut Store) -> (TestNode, TestNode) {
    let (mut alice, mut bob) = (TestNode::new(ALICE), TestNode::new(BOB));
    alice.report(store, 300, [250, 240], LIMIT_1000);
    bob.report(store, 500, [480, 470], LIMIT_1000);
    alice.report(store, 300, [300, 260], LIMIT_1000);
    (alice, bob)
}

/// Asserts that the store recovers after a data loss. At first, the store grants only floors, for
/// so long that all nodes report again. After that, the store grants calls within the limit, as if
/// nothing had been lost.
#[track_caller]
pub(super) fn assert_recovers_from_loss(store: &mut Store, mut alice: TestNode, mut bob: TestNode) {
    let mut carol = TestNode::new(CAROL);
    let grant = alice.report(store, 364, [300, 260], LIMIT_1000);
    assert_eq!((grant.own_leased, grant.is_recovering), (300, true), "nothing beyond the floor");
    let grant = carol.report(store, 8, [0, 0], LIMIT_1000);
    assert_eq!(
        (grant.own_leased, grant.is_recovering),
        (0, true),
        "nor to a node that knows nothing of it"
    );
    let grant = bob.report(store, 564, [500, 470], LIMIT_1000);
    assert_eq!((grant.own_leased, grant.is_recovering), (500, true));
    let grant = report_until_recovered(store, &mut carol, [0, 0], LIMIT_1000);
    assert_eq!(grant_totals(grant), (0, 800, 730));
    assert_eq!(carol.report(store, 900, [0, 0], LIMIT_1000).own_leased, 200);
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 730, 1_000)]);
}
