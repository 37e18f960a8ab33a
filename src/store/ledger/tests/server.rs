//! Two nodes at a server, for the tests of what a server can do to the ledger.

use super::*;

pub(super) const THOUSAND: Option<u64> = Some(1_000);
/// What an operation may take; a test waits longer than this only for a machine that is busy.
pub(super) const SHORT: Duration = Duration::from_millis(100);

/// The key of acme's numbers.
pub(super) const NUMBERS: &str = "riskgate:ledger:{acme}:2100-01";

pub(super) fn url_of(server: &RedisServer, patience: Duration) -> Store {
    unconnected(&server.url(), &RedisOptions::default(), patience)
}

/// States the same numbers until the account does not settle any more.
#[track_caller]
pub(super) fn settle(
    store: &mut Store,
    node: &mut Node,
    certain: [u64; 2],
    limit: Option<u64>,
) -> Standing {
    node.settle = Duration::ZERO;
    let mut last = None;
    until("the account has settled", || {
        let standing = node.say(store, certain[0], certain, limit);
        last = Some(standing);
        !standing.settling
    });
    last.unwrap()
}

/// Alice and Bob hold a part each, and know of each other.
pub(super) fn alice_and_bob(store: &mut Store) -> (Node, Node) {
    let (mut alice, mut bob) = (Node::new(ALICE), Node::new(BOB));
    alice.say(store, 300, [250, 240], THOUSAND);
    bob.say(store, 500, [480, 470], THOUSAND);
    alice.say(store, 300, [300, 260], THOUSAND);
    (alice, bob)
}

/// Whatever was lost: floors stand, nothing is granted, until all could say their numbers again;
/// then the sum is within the limit as if nothing had been lost.
#[track_caller]
pub(super) fn assert_settles(store: &mut Store, mut alice: Node, mut bob: Node) {
    let mut carol = Node::new(CAROL);
    let word = alice.say(store, 364, [300, 260], THOUSAND);
    assert_eq!((word.own, word.settling), (300, true), "nothing beyond the floor");
    let word = carol.say(store, 8, [0, 0], THOUSAND);
    assert_eq!((word.own, word.settling), (0, true), "nor to one who knows nothing of it");
    let word = bob.say(store, 564, [500, 470], THOUSAND);
    assert_eq!((word.own, word.settling), (500, true));
    let word = settle(store, &mut carol, [0, 0], THOUSAND);
    assert_eq!(numbers(word), (0, 800, 730));
    assert_eq!(carol.say(store, 900, [0, 0], THOUSAND).own, 200);
    assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 730, 1_000)]);
}
