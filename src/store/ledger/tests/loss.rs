//! Data loss of a server, and how the ledger recovers.

use super::server::{
    ACME_LEDGER_KEY, LIMIT_1000, assert_recovers_from_loss, report_until_recovered,
    two_nodes_with_leases,
};
use super::*;

#[test]
fn after_deletion_all_nodes_report_again_before_anything_is_granted() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (alice, bob) = two_nodes_with_leases(&mut store);
    server.run(&["DEL", ACME_LEDGER_KEY]);
    assert_recovers_from_loss(&mut store, alice, bob);
}

#[test]
fn after_a_rollback_all_nodes_report_again_before_anything_is_granted() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, bob) = two_nodes_with_leases(&mut store);
    server.run(&["COPY", ACME_LEDGER_KEY, "older"]);
    alice.report(&mut store, 300, [300, 260], LIMIT_1000);
    server.run(&["COPY", "older", ACME_LEDGER_KEY, "REPLACE"]);
    assert_recovers_from_loss(&mut store, alice, bob);
}

#[test]
fn a_server_restarted_without_its_data_recovers_before_anything_is_granted() {
    let mut server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let before = store.probe(test_month(), None).unwrap();
    let (mut alice, mut bob) = two_nodes_with_leases(&mut store);
    server.restart();
    let raise = alice.next_report(364, [300, 260], LIMIT_1000);
    let error = alice.send_report(&mut store, &raise).unwrap_err().to_string();
    assert!(error.contains("reporting leases"), "{error}");
    // No node may report without a probe, because another server may answer now.
    let error = alice.send_report(&mut store, &raise).unwrap_err().to_string();
    assert!(error.ends_with("no connection"), "{error}");
    let after = store.probe(test_month(), Some(&before)).unwrap();
    assert_ne!(after.incarnation, before.incarnation);
    assert!(after.recovery_left > Duration::from_secs(1), "{after:?}");
    for node in [&mut alice, &mut bob] {
        node.recovery_left = after.recovery_left;
    }
    assert_recovers_from_loss(&mut store, alice, bob);
}

#[test]
fn a_server_restarted_with_its_data_recovers_and_keeps_every_total() {
    let mut server = RedisServer::start_on_disk();
    let mut store = open_probed_server(&server);
    let before = store.probe(test_month(), None).unwrap();
    let (mut alice, _) = two_nodes_with_leases(&mut store);
    server.restart();
    let after = store.probe(test_month(), Some(&before)).unwrap();
    assert!(after.recovery_left > Duration::from_secs(1), "{after:?}");
    // Bob has died, and his totals stay counted.
    alice.recovery_left = after.recovery_left;
    let grant = alice.report(&mut store, 364, [300, 260], LIMIT_1000);
    assert!(grant.is_recovering);
    assert_eq!(grant_totals(grant), (300, 500, 470));
    let grant = report_until_recovered(&mut store, &mut alice, [300, 260], LIMIT_1000);
    assert_eq!(grant_totals(grant), (300, 500, 470));
    assert_eq!(alice.report(&mut store, 900, [300, 260], LIMIT_1000).own_leased, 500);
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 730, 1_000)]);
}

#[test]
fn after_a_flush_each_probe_shows_the_recovery_time_left() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let before = store.probe(test_month(), None).unwrap();
    assert_eq!(before.recovery_left, Duration::ZERO, "nothing was lost on the first day");
    let again = store.probe(test_month(), Some(&before)).unwrap();
    assert_eq!(again.incarnation, before.incarnation);
    assert_eq!(again.recovery_left, Duration::ZERO);
    server.run(&["FLUSHALL"]);
    let mut other = open_probed_server(&server);
    for store in [&mut other, &mut store] {
        let after = store.probe(test_month(), Some(&before)).unwrap();
        assert!(after.recovery_left > Duration::from_secs(1), "{after:?}");
    }
    // A node that has just started recovers too.
    assert!(
        open_probed_server(&server).probe(test_month(), None).unwrap().recovery_left
            > Duration::from_secs(1)
    );
}

#[test]
fn calls_of_dead_nodes_that_a_live_node_knew_stay_counted() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, _) = two_nodes_with_leases(&mut store);
    server.run(&["DEL", ACME_LEDGER_KEY]);
    assert!(alice.report(&mut store, 300, [300, 260], LIMIT_1000).is_recovering);
    let grant = report_until_recovered(&mut store, &mut alice, [300, 260], LIMIT_1000);
    assert_eq!(grant_totals(grant), (300, 500, 470), "Bob is dead, his calls were admitted");
    let mut carol = TestNode::new(CAROL);
    assert_eq!(carol.report(&mut store, 1_000, [0, 0], LIMIT_1000).own_leased, 200);
    assert_eq!(store.read_spent_by_others("acme", test_month(), &ALICE).unwrap(), 470);
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 730, 1_000)]);
}

#[test]
fn calls_returned_during_recovery_can_be_leased_afterwards() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, mut bob) = two_nodes_with_leases(&mut store);
    // The server was only restarted and lost nothing.
    for node in [&mut alice, &mut bob] {
        node.recovery_left = Duration::from_millis(500);
    }
    assert!(alice.report(&mut store, 300, [300, 260], LIMIT_1000).is_recovering);
    assert_eq!(grant_totals(bob.report(&mut store, 500, [500, 470], LIMIT_1000)), (500, 300, 260));
    assert_eq!(alice.report(&mut store, 260, [260, 260], LIMIT_1000).own_leased, 260);
    assert_eq!(grant_totals(bob.report(&mut store, 500, [500, 470], LIMIT_1000)), (500, 260, 260));
    let grant = report_until_recovered(&mut store, &mut bob, [500, 470], LIMIT_1000);
    assert_eq!(grant_totals(grant), (500, 260, 260));
    assert_eq!(bob.report(&mut store, 900, [500, 470], LIMIT_1000).own_leased, 740);
}

#[test]
fn repeated_losses_keep_the_totals_of_dead_nodes() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, _) = two_nodes_with_leases(&mut store);
    for _ in 0..3 {
        server.run(&["DEL", ACME_LEDGER_KEY]);
        for _ in 0..2 {
            assert!(alice.report(&mut store, 300, [300, 260], LIMIT_1000).is_recovering);
        }
    }
    let grant = report_until_recovered(&mut store, &mut alice, [300, 260], LIMIT_1000);
    assert_eq!(grant_totals(grant), (300, 500, 470));
}

#[test]
fn ledger_scripts_are_loaded_again_after_a_flush() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let mut alice = TestNode::new(ALICE);
    let probe = store.probe(test_month(), None).unwrap();
    for spent in 1..4 {
        server.run(&["SCRIPT", "FLUSH"]);
        let grant = alice.report(&mut store, 50, [spent, spent], LIMIT_1000);
        assert_eq!((grant_totals(grant), grant.is_recovering), ((50, 0, 0), false));
        server.run(&["SCRIPT", "FLUSH"]);
        let again = store.probe(test_month(), Some(&probe)).unwrap();
        assert_eq!(again.incarnation, probe.incarnation);
        assert_eq!(again.recovery_left, Duration::ZERO);
    }
    // A batch whose scripts are missing is sent again as a whole: no report counts twice.
    server.run(&["SCRIPT", "FLUSH"]);
    let batch =
        [alice.next_report(50, [4, 4], LIMIT_1000), alice.next_report(51, [5, 5], LIMIT_1000)];
    let grants = alice.send_reports(&mut store, &batch).unwrap();
    assert_eq!(
        grants.into_iter().map(|grant| grant.unwrap().own_leased).collect::<Vec<_>>(),
        [50, 51]
    );
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 5, 51)]);
}

#[test]
fn totals_expire_in_400_days_or_62_if_month_is_past() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, _) = two_nodes_with_leases(&mut store);
    let ttl = || server.run(&["TTL", ACME_LEDGER_KEY]).parse::<i64>().unwrap();
    assert!((399 * 86_400..=400 * 86_400).contains(&ttl()), "{}", ttl());
    // A final report: to its node the month is past.
    let next = Month::from_number(test_month().number() + 1).unwrap();
    let report = alice.next_report(9, [9, 9], LIMIT_1000);
    let recovery_left = Duration::ZERO;
    let context = ReportBatchContext {
        node_id: &ALICE,
        latest_begun_month: next,
        recovery_left,
        needs_replicas: true,
    };
    store.report_leases(context, &[report]).unwrap();
    assert!((61 * 86_400..=62 * 86_400).contains(&ttl()), "{}", ttl());
    for key in server.matching_keys("*") {
        assert!(key.starts_with("riskgate:"), "{key}");
    }
}

#[test]
fn calls_served_while_a_store_recovers_count_beside_those_of_dead_nodes() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, _) = two_nodes_with_leases(&mut store);
    server.run(&["DEL", ACME_LEDGER_KEY]);
    // Bob is dead. Alice has spent 10 more calls before her first report, 4 of them without a
    // lease, and goes on during the recovery. At last she returns what she holds.
    for [floor, spent] in [[304, 270], [304, 304], [340, 340], [350, 345]] {
        assert!(alice.report(&mut store, floor, [floor, spent], LIMIT_1000).is_recovering);
    }
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 815, 850)]);
    assert!(alice.report(&mut store, 345, [345, 345], LIMIT_1000).is_recovering);
    let grant = report_until_recovered(&mut store, &mut alice, [345, 345], LIMIT_1000);
    assert_eq!(grant_totals(grant), (345, 500, 470));
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 815, 845)]);
}

#[test]
fn calls_that_several_nodes_serve_while_a_store_recovers_all_count() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, mut bob) = two_nodes_with_leases(&mut store);
    let mut carol = TestNode::new(CAROL);
    carol.report(&mut store, 20, [20, 15], LIMIT_1000);
    carol.report(&mut store, 20, [20, 20], LIMIT_1000);
    bob.report(&mut store, 500, [500, 480], LIMIT_1000);
    alice.report(&mut store, 300, [300, 260], LIMIT_1000);
    server.run(&["DEL", ACME_LEDGER_KEY]);
    // Carol is dead. Both others have spent more calls before their first reports: Alice 15, 5 of
    // them without a lease, and Bob 27, 7 of them without a lease.
    assert!(alice.report(&mut store, 305, [305, 275], LIMIT_1000).is_recovering);
    assert!(bob.report(&mut store, 507, [507, 507], LIMIT_1000).is_recovering);
    // A new node has served without a lease as well.
    let mut dora = TestNode::new([0xd0; 16]);
    assert!(dora.report(&mut store, 6, [6, 6], LIMIT_1000).is_recovering);
    assert!(bob.report(&mut store, 510, [510, 510], LIMIT_1000).is_recovering);
    assert!(alice.report(&mut store, 305, [305, 305], LIMIT_1000).is_recovering);
    let grant = report_until_recovered(&mut store, &mut alice, [305, 305], LIMIT_1000);
    assert_eq!(grant_totals(grant), (305, 536, 536));
    let all = usage_row("acme", 841, 841);
    assert_eq!(store.read_usage(test_month(), None).unwrap(), [all]);
}

#[test]
fn a_report_without_an_answer_before_a_loss_never_counts_twice() {
    for is_lost in [false, true] {
        let server = RedisServer::start();
        let mut store = open_probed_server(&server);
        let (mut alice, mut bob) = two_nodes_with_leases(&mut store);
        // Carol's calls count, and she is dead.
        TestNode::new(CAROL).report(&mut store, 20, [20, 20], LIMIT_1000);
        server.run(&["COPY", ACME_LEDGER_KEY, "older"]);
        // The store applies Alice's report, her answer is lost, and Bob sees her total.
        let unanswered = alice.next_report(310, [310, 300], LIMIT_1000);
        alice.send_report(&mut store, &unanswered).unwrap();
        bob.report(&mut store, 500, [500, 480], LIMIT_1000);
        match is_lost {
            true => server.run(&["DEL", ACME_LEDGER_KEY]),
            false => server.run(&["COPY", "older", ACME_LEDGER_KEY, "REPLACE"]),
        };
        assert!(bob.report(&mut store, 500, [500, 485], LIMIT_1000).is_recovering);
        for spent in [303, 309] {
            assert!(alice.report(&mut store, 310, [310, spent], LIMIT_1000).is_recovering);
        }
        let grant = report_until_recovered(&mut store, &mut alice, [310, 310], LIMIT_1000);
        assert_eq!(grant_totals(grant), (310, 520, 505), "{is_lost}");
    }
}

/// The store applies the first report after the loss, and its answer is lost.
#[test]
fn a_report_without_an_answer_after_a_loss_never_counts_twice() {
    let server = RedisServer::start();
    let mut store = open_probed_server(&server);
    let (mut alice, _) = two_nodes_with_leases(&mut store);
    // Carol's calls count, and she is dead.
    TestNode::new(CAROL).report(&mut store, 20, [20, 20], LIMIT_1000);
    let known = alice.report(&mut store, 300, [300, 300], LIMIT_1000);
    let others = grant_totals(known);
    server.run(&["DEL", ACME_LEDGER_KEY]);
    let unanswered = alice.next_report(340, [340, 340], LIMIT_1000);
    alice.send_report(&mut store, &unanswered).unwrap();
    assert!(alice.report(&mut store, 350, [350, 350], LIMIT_1000).is_recovering);
    let grant = report_until_recovered(&mut store, &mut alice, [350, 350], LIMIT_1000);
    assert_eq!(grant_totals(grant), (350, others.1, others.2));
}
