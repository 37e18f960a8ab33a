//! What the ledger operations promise, tested on both stores.

use std::cell::RefCell;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::store::tests::TESTER;

const LIMIT_100: Option<u64> = Some(100);

#[test]
fn a_lease_is_granted_as_far_as_the_sum_stays_within_the_limit() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let (mut alice, mut bob) = (TestNode::new(ALICE), TestNode::new(BOB));
        assert_eq!(grant_totals(alice.report(&mut store, 60, [0, 0], LIMIT_100)), (60, 0, 0));
        assert_eq!(grant_totals(bob.report(&mut store, 60, [0, 0], LIMIT_100)), (40, 60, 0));
        assert_eq!(grant_totals(bob.report(&mut store, 60, [40, 5], LIMIT_100)), (40, 60, 0));
        assert_eq!(grant_totals(alice.report(&mut store, 61, [60, 7], LIMIT_100)), (60, 40, 5));
    });
}

#[test]
fn only_the_floor_is_granted_above_the_limit() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let (mut alice, mut bob) = (TestNode::new(ALICE), TestNode::new(BOB));
        assert_eq!(alice.report(&mut store, 150, [130, 130], LIMIT_100).own_leased, 130);
        assert_eq!(grant_totals(bob.report(&mut store, 8, [3, 3], LIMIT_100)), (3, 130, 130));
        assert_eq!(bob.report(&mut store, 3, [3, 3], Some(0)).own_leased, 3);
        assert_eq!(grant_totals(alice.report(&mut store, 131, [131, 131], LIMIT_100)), (131, 3, 3));
    });
}

#[test]
fn returned_calls_can_be_leased_by_others() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let (mut alice, mut bob) = (TestNode::new(ALICE), TestNode::new(BOB));
        alice.report(&mut store, 100, [0, 0], LIMIT_100);
        assert_eq!(bob.report(&mut store, 10, [0, 0], LIMIT_100).own_leased, 0);
        assert_eq!(alice.report(&mut store, 20, [20, 20], LIMIT_100).own_leased, 20);
        assert_eq!(grant_totals(bob.report(&mut store, 100, [0, 0], LIMIT_100)), (80, 20, 20));
    });
}

#[test]
fn grants_follow_zero_huge_absent_and_lowered_limits() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let mut alice = TestNode::new(ALICE);
        assert_eq!(alice.report(&mut store, 10, [0, 0], Some(0)).own_leased, 0);
        for limit in [None, Some(u64::MAX), Some(i64::MAX as u64), Some(1 << 53)] {
            let held = alice.known.leased_by_all;
            assert_eq!(
                alice.report(&mut store, held + 1_000, [held, held], limit).own_leased,
                held + 1_000
            );
        }
        // The limit falls below the calls held: only the floor stays.
        assert_eq!(alice.report(&mut store, 4_100, [3_900, 3_900], Some(500)).own_leased, 3_900);
        let mut bob = TestNode::new(BOB);
        assert_eq!(bob.report(&mut store, 1, [0, 0], Some(500)).own_leased, 0);
        assert_eq!(bob.report(&mut store, 1, [0, 0], Some(3_901)).own_leased, 1);
    });
}

#[test]
fn totals_up_to_2_to_the_53_stay_exact() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let (mut alice, mut bob) = (TestNode::new(ALICE), TestNode::new(BOB));
        let many = (1 << 52) + 1;
        assert_eq!(grant_totals(alice.report(&mut store, many, [many, many], None)), (many, 0, 0));
        let next = bob.report(&mut store, many - 2, [many - 2, many - 4], None);
        assert_eq!(grant_totals(next), (many - 2, many, many));
        let expected = [usage_row("acme", 2 * many - 4, 2 * many - 2)];
        assert_eq!(store.read_usage(test_month(), Some("acme")).unwrap(), expected);
    });
}

#[test]
fn a_report_that_is_not_newer_changes_nothing() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let mut alice = TestNode::new(ALICE);
        let late = alice.next_report(90, [0, 0], LIMIT_100);
        let lower = alice.next_report(5, [5, 5], LIMIT_100);
        assert_eq!(alice.send_report(&mut store, &lower).unwrap().own_leased, 5);
        // The earlier report arrives late.
        assert_eq!(alice.send_report(&mut store, &late).unwrap().own_leased, 5);
        let before = store.read_usage(test_month(), None).unwrap();
        assert_eq!(before, [usage_row("acme", 5, 5)]);
        alice.sequence += 5;
        let raise = alice.next_report(50, [5, 5], LIMIT_100);
        assert_eq!(alice.send_report(&mut store, &raise).unwrap().own_leased, 50);
        assert_eq!(alice.send_report(&mut store, &lower).unwrap().own_leased, 50);
        assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 5, 50)]);
    });
}

#[test]
fn a_repeated_report_neither_lowers_nor_raises_a_row() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let (mut alice, mut bob) = (TestNode::new(ALICE), TestNode::new(BOB));
        let raise = alice.next_report(50, [0, 0], LIMIT_100);
        assert_eq!(alice.send_report(&mut store, &raise).unwrap().own_leased, 50);
        // Bob's floor exceeds the limit: he served while the store was down.
        bob.report(&mut store, 80, [80, 80], LIMIT_100);
        let again = alice.send_report(&mut store, &raise).unwrap();
        assert_eq!(grant_totals(again), (50, 80, 80));
        assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 80, 130)]);
        // A repeated report does not raise a row that was lowered meanwhile.
        alice.known.sequence = 1;
        assert_eq!(alice.report(&mut store, 9, [9, 9], LIMIT_100).own_leased, 9);
        assert_eq!(alice.send_report(&mut store, &raise).unwrap().own_leased, 9);
    });
}

#[test]
fn each_report_of_a_batch_gets_its_grant_in_order() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let mut alice = TestNode::new(ALICE);
        let batch: Vec<LeaseReport> = (0..512u64)
            .map(|at| {
                let raise = alice.next_report(at + 1, [at / 2, at / 4], Some(300));
                LeaseReport { account: format!("account-{at}"), ..raise }
            })
            .collect();
        let grants = alice.send_reports(&mut store, &batch).unwrap();
        assert_eq!(grants.len(), batch.len());
        for (at, grant) in (0..).zip(grants) {
            let grant = grant.expect("a grant for each");
            assert_eq!(grant_totals(grant), ((at + 1).min(300), 0, 0), "{at}");
        }
        assert!(alice.send_reports(&mut store, &[]).unwrap().is_empty());
        let mut rows = store.read_usage(test_month(), None).unwrap();
        assert_eq!(rows.len(), 512);
        assert!(rows.is_sorted_by(|a, b| a.account < b.account));
        rows.retain(|row| row.account == "account-40");
        assert_eq!(rows, [usage_row("account-40", 10, 41)]);
    });
}

#[test]
fn totals_are_separate_for_any_account_name_and_month() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let next_month = Month::from_number(JANUARY_2100_NUMBER + 1).unwrap();
        let names = ["acme", "Acme", "a*", "a?[b]", "{acme}", "a}:2100-02", "grüße", "with space"];
        for (count, name) in (1..).zip(names) {
            let mut alice = TestNode::new(ALICE);
            let raise = alice.next_report(count, [count, count], LIMIT_100);
            let raise = LeaseReport { account: name.to_owned(), ..raise };
            assert_eq!(
                grant_totals(alice.send_report(&mut store, &raise).unwrap()),
                (count, 0, 0),
                "{name}"
            );
            let later = LeaseReport { month: next_month, sequence: 2, target: 50, ..raise };
            assert_eq!(alice.send_report(&mut store, &later).unwrap().own_leased, 50, "{name}");
        }
        for (count, name) in (1..).zip(names) {
            assert_eq!(
                store.read_usage(test_month(), Some(name)).unwrap(),
                [usage_row(name, count, count)]
            );
            assert_eq!(
                store.read_usage(next_month, Some(name)).unwrap(),
                [usage_row(name, count, 50)]
            );
            assert_eq!(
                store.read_spent_by_others(name, test_month(), &BOB).unwrap(),
                count,
                "{name}"
            );
        }
        let mut sorted = names;
        sorted.sort_unstable();
        let rows = store.read_usage(test_month(), None).unwrap();
        let found: Vec<&str> = rows.iter().map(|row| row.account.as_str()).collect();
        assert_eq!(found, sorted);
    });
}

#[test]
fn usage_is_the_sum_over_all_nodes() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        assert_eq!(store.read_usage(test_month(), None).unwrap(), []);
        assert_eq!(store.read_usage(test_month(), Some("acme")).unwrap(), []);
        assert_eq!(store.read_spent_by_others("acme", test_month(), &ALICE).unwrap(), 0);
        TestNode::new(ALICE).report(&mut store, 30, [20, 10], LIMIT_100);
        TestNode::new(BOB).report(&mut store, 40, [7, 3], LIMIT_100);
        assert_eq!(store.read_usage(test_month(), None).unwrap(), [usage_row("acme", 13, 70)]);
        assert_eq!(store.read_spent_by_others("acme", test_month(), &ALICE).unwrap(), 3);
        assert_eq!(store.read_spent_by_others("acme", test_month(), &BOB).unwrap(), 10);
        assert_eq!(store.read_spent_by_others("acme", test_month(), &CAROL).unwrap(), 13);
        // Another connection sees the same.
        assert_eq!(
            location.open().read_usage(test_month(), None).unwrap(),
            [usage_row("acme", 13, 70)]
        );
    });
}

#[test]
fn the_latest_month_grows_and_never_falls() {
    on_each_store(|location| {
        let mut store = location.open();
        assert_eq!(store.latest_month().unwrap(), None);
        for (month, expected) in [(1_200, 1_200), (1_199, 1_200), (1_203, 1_203), (0, 1_203)] {
            let month = Month::from_number(month).unwrap();
            // Redis stores the month with a probe, SQLite with the reports.
            store.probe(month, None).unwrap();
            store
                .report_leases(
                    ReportBatchContext {
                        node_id: &ALICE,
                        latest_begun_month: month,
                        recovery_left: Duration::ZERO,
                        needs_replicas: true,
                    },
                    &[],
                )
                .unwrap();
            assert_eq!(store.latest_month().unwrap(), Month::from_number(expected));
            assert_eq!(location.open().latest_month().unwrap(), Month::from_number(expected));
        }
    });
}

/// An action of a random run.
#[derive(Clone, Debug)]
enum Action {
    /// Sends a new report about an account.
    Report { node: usize, account: usize, floor: u64, more: u64, held: u64, limit: Option<u64> },
    /// Sends an old report again, like a delayed duplicate.
    Repeat(prop::sample::Index),
}

fn random_actions() -> impl Strategy<Value = Vec<Action>> {
    let limit = prop_oneof![
        8 => (0..60u64).prop_map(Some),
        1 => Just(None),
        1 => Just(Some(u64::MAX)),
    ];
    let report = (0..3usize, 0..2usize, 0..40u64, 0..40u64, 0..10u64, limit).prop_map(
        |(node, account, floor, more, held, limit)| Action::Report {
            node,
            account,
            floor,
            more,
            held,
            limit,
        },
    );
    let action =
        prop_oneof![3 => report, 1 => any::<prop::sample::Index>().prop_map(Action::Repeat)];
    prop::collection::vec(action, 1..24)
}

/// One store in a random run, the state that each node knows of each account, and all reports that
/// were sent to the store.
struct StoreRun {
    store: Store,
    known_by_node_and_account: [[TotalsKnownToNode; 2]; 3],
    sent_reports: Vec<(usize, usize, LeaseReport)>,
}

impl StoreRun {
    fn perform_action(&mut self, run: usize, sequence: u64, action: &Action) -> Option<Grant> {
        let ids = [ALICE, BOB, CAROL];
        let (node, account, report) = match action {
            Action::Report { node, account, floor, more, held, limit } => {
                let report = LeaseReport {
                    account: format!("run-{run}-{account}"),
                    month: test_month(),
                    sequence,
                    target: floor + more,
                    floor: *floor,
                    spent: floor.saturating_sub(*held),
                    limit: *limit,
                    known: self.known_by_node_and_account[*node][*account],
                    usage: Vec::new(),
                };
                self.sent_reports.push((*node, *account, report.clone()));
                (*node, *account, report)
            }
            Action::Repeat(_) if self.sent_reports.is_empty() => return None,
            Action::Repeat(at) => at.get(&self.sent_reports).clone(),
        };
        let context = ReportBatchContext {
            node_id: &ids[node],
            latest_begun_month: test_month(),
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let mut all = self.store.report_leases(context, std::slice::from_ref(&report)).unwrap();
        let grant = all.remove(0).unwrap();
        if let Action::Report { .. } = action {
            self.known_by_node_and_account[node][account] = TotalsKnownToNode {
                sequence,
                revision: grant.revision,
                leased_by_all: grant.own_leased + grant.others_leased,
                spent_by_all: report.spent + grant.others_spent,
                own_leased: grant.own_leased,
                reported_leased: grant.own_leased,
                reported_spent: report.spent,
            };
            let (sum, limit) = (grant.own_leased + grant.others_leased, report.limit);
            let granted = grant.own_leased > report.floor;
            assert!(!granted || limit.is_none_or(|limit| sum <= limit), "{report:?} {grant:?}");
        }
        Some(grant)
    }
}

#[test]
fn both_stores_answer_any_sequence_of_reports_alike() {
    let folder = tempfile::tempdir().unwrap();
    // The store's folder must outlive the store.
    let test_store = TestStore::File(folder);
    let file = open_and_probe(&test_store);
    let server = RedisServer::start();
    let new = |store| StoreRun {
        store,
        known_by_node_and_account: Default::default(),
        sent_reports: Vec::new(),
    };
    let runs = RefCell::new((0, new(file), new(open_probed_server(&server))));
    let config = ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() };
    proptest!(config, |(actions_to_run in random_actions())| {
        let (count, file, server) = &mut *runs.borrow_mut();
        *count += 1;
        for run in [&mut *file, &mut *server] {
            (run.known_by_node_and_account, run.sent_reports) = (Default::default(), Vec::new());
        }
        for (sequence, action) in (1..).zip(&actions_to_run) {
            let on_file = file.perform_action(*count, sequence, action);
            let on_server = server.perform_action(*count, sequence, action);
            prop_assert_eq!(on_file.map(grant_totals), on_server.map(grant_totals));
            prop_assert!(on_server.is_none_or(|grant| !grant.is_recovering));
        }
        for account in 0..2 {
            let account = format!("run-{count}-{account}");
            let usage = file.store.read_usage(test_month(), Some(&account)).unwrap();
            prop_assert_eq!(&usage, &server.store.read_usage(test_month(), Some(&account)).unwrap());
        }
    });
}

#[test]
fn repair_month_deletes_totals_of_later_months_only() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let (before, later) =
            (test_month(), Month::from_number(test_month().number() + 3).unwrap());
        let report_spent = |store: &mut Store, node: &[u8; 16], month: Month, spent: u64| {
            let mut report = TestNode::new(*node).next_report(spent, [spent, spent], LIMIT_100);
            report.month = month;
            let context = ReportBatchContext {
                node_id: node,
                latest_begun_month: month,
                recovery_left: Duration::ZERO,
                needs_replicas: true,
            };
            store.probe(month, None).unwrap();
            store.report_leases(context, &[report]).unwrap();
        };
        assert_eq!(
            store.repair_month(&TESTER, before).unwrap().deleted_totals,
            0,
            "nobody counted yet"
        );
        report_spent(&mut store, &ALICE, before, 70);
        report_spent(&mut store, &BOB, later, 100);
        assert_eq!(store.latest_month().unwrap(), Some(later));
        let repaired = store.repair_month(&TESTER, before).unwrap();
        assert_eq!((repaired.latest_month_before, repaired.deleted_totals), (Some(later), 1));
        assert_eq!(store.latest_month().unwrap(), Some(before));
        assert_eq!(store.read_usage(before, None).unwrap(), [usage_row("acme", 70, 70)]);
        assert_eq!(store.read_usage(later, None).unwrap(), []);
        // A second repair, or a repair to a month that is not earlier, changes nothing.
        for month in [before, later] {
            let repaired = store.repair_month(&TESTER, month).unwrap();
            assert_eq!((repaired.latest_month_before, repaired.deleted_totals), (Some(before), 0));
        }
        assert_eq!(store.latest_month().unwrap(), Some(before));
        assert_eq!(store.read_usage(before, None).unwrap(), [usage_row("acme", 70, 70)]);
    });
}

#[test]
fn a_repair_of_the_month_records_only_what_it_changed() {
    on_each_store(|location| {
        let mut store = open_and_probe(location);
        let later = Month::from_number(test_month().number() + 3).unwrap();
        let report_about_later = |store: &mut Store, begun_month: Month| {
            let mut report = TestNode::new(ALICE).next_report(9, [9, 9], LIMIT_100);
            report.month = later;
            let context = ReportBatchContext {
                node_id: &ALICE,
                latest_begun_month: begun_month,
                recovery_left: Duration::ZERO,
                needs_replicas: true,
            };
            store.probe(begun_month, None).unwrap();
            store.report_leases(context, &[report]).unwrap();
        };
        let records = |store: &mut Store| -> Vec<_> {
            let mut records = store.read_audit_after(None, 100).unwrap();
            records.retain(|record| record.operation == "store.repair_month");
            records.into_iter().map(|record| (record.before, record.after)).collect()
        };
        let (now, later_text) = (test_month().to_string(), later.to_string());
        for month in [test_month(), later] {
            store.repair_month(&TESTER, month).unwrap();
        }
        assert_eq!(records(&mut store), [], "there was nothing to repair");
        report_about_later(&mut store, later);
        for _ in 0..2 {
            store.repair_month(&TESTER, test_month()).unwrap();
        }
        let repaired =
            (json!({ "month": later_text }), json!({ "month": now, "deleted_totals": 1 }));
        assert_eq!(records(&mut store), std::slice::from_ref(&repaired));
        // Totals of a later month, whose beginning no node has told the store.
        report_about_later(&mut store, test_month());
        store.repair_month(&TESTER, test_month()).unwrap();
        let deleted = (json!({ "month": now }), json!({ "month": now, "deleted_totals": 1 }));
        assert_eq!(records(&mut store), [repaired, deleted]);
        assert_eq!(store.read_usage(later, None).unwrap(), []);
    });
}
