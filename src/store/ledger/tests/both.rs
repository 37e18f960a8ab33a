//! The promises of both stores about the ledger operations.

use std::cell::RefCell;

use proptest::prelude::*;

use super::*;

const HUNDRED: Option<u64> = Some(100);

#[test]
fn a_lease_is_granted_as_far_as_the_sum_stays_within_the_limit() {
    on_both_stores(|location| {
        let mut store = open(location);
        let (mut alice, mut bob) = (Node::new(ALICE), Node::new(BOB));
        assert_eq!(totals(alice.report(&mut store, 60, [0, 0], HUNDRED)), (60, 0, 0));
        assert_eq!(totals(bob.report(&mut store, 60, [0, 0], HUNDRED)), (40, 60, 0));
        assert_eq!(totals(bob.report(&mut store, 60, [40, 5], HUNDRED)), (40, 60, 0));
        assert_eq!(totals(alice.report(&mut store, 61, [60, 7], HUNDRED)), (60, 40, 5));
    });
}

#[test]
fn the_floor_always_stands_and_what_goes_beyond_it_is_not_granted_over_the_limit() {
    on_both_stores(|location| {
        let mut store = open(location);
        let (mut alice, mut bob) = (Node::new(ALICE), Node::new(BOB));
        assert_eq!(alice.report(&mut store, 150, [130, 130], HUNDRED).own_leased, 130);
        assert_eq!(totals(bob.report(&mut store, 8, [3, 3], HUNDRED)), (3, 130, 130));
        assert_eq!(bob.report(&mut store, 3, [3, 3], Some(0)).own_leased, 3);
        assert_eq!(totals(alice.report(&mut store, 131, [131, 131], HUNDRED)), (131, 3, 3));
    });
}

#[test]
fn returned_calls_can_be_leased_by_others() {
    on_both_stores(|location| {
        let mut store = open(location);
        let (mut alice, mut bob) = (Node::new(ALICE), Node::new(BOB));
        alice.report(&mut store, 100, [0, 0], HUNDRED);
        assert_eq!(bob.report(&mut store, 10, [0, 0], HUNDRED).own_leased, 0);
        assert_eq!(alice.report(&mut store, 20, [20, 20], HUNDRED).own_leased, 20);
        assert_eq!(totals(bob.report(&mut store, 100, [0, 0], HUNDRED)), (80, 20, 20));
    });
}

#[test]
fn a_limit_may_be_nothing_huge_or_none_and_may_change() {
    on_both_stores(|location| {
        let mut store = open(location);
        let mut alice = Node::new(ALICE);
        assert_eq!(alice.report(&mut store, 10, [0, 0], Some(0)).own_leased, 0);
        for limit in [None, Some(u64::MAX), Some(i64::MAX as u64), Some(1 << 53)] {
            let held = alice.known.leased;
            assert_eq!(
                alice.report(&mut store, held + 1_000, [held, held], limit).own_leased,
                held + 1_000
            );
        }
        // The limit falls below the calls held: only the floor stays.
        assert_eq!(alice.report(&mut store, 4_100, [3_900, 3_900], Some(500)).own_leased, 3_900);
        let mut bob = Node::new(BOB);
        assert_eq!(bob.report(&mut store, 1, [0, 0], Some(500)).own_leased, 0);
        assert_eq!(bob.report(&mut store, 1, [0, 0], Some(3_901)).own_leased, 1);
    });
}

#[test]
fn numbers_of_many_millions_stay_exact() {
    on_both_stores(|location| {
        let mut store = open(location);
        let (mut alice, mut bob) = (Node::new(ALICE), Node::new(BOB));
        let many = (1 << 52) + 1;
        assert_eq!(totals(alice.report(&mut store, many, [many, many], None)), (many, 0, 0));
        let next = bob.report(&mut store, many - 2, [many - 2, many - 4], None);
        assert_eq!(totals(next), (many - 2, many, many));
        let expected = [row("acme", 2 * many - 4, 2 * many - 2)];
        assert_eq!(store.usage(month(), Some("acme")).unwrap(), expected);
    });
}

#[test]
fn a_report_that_is_not_newer_changes_nothing() {
    on_both_stores(|location| {
        let mut store = open(location);
        let mut alice = Node::new(ALICE);
        let late = alice.next_report(90, [0, 0], HUNDRED);
        let lower = alice.next_report(5, [5, 5], HUNDRED);
        assert_eq!(alice.send(&mut store, &lower).unwrap().own_leased, 5);
        // The earlier report arrives late.
        assert_eq!(alice.send(&mut store, &late).unwrap().own_leased, 5);
        let before = store.usage(month(), None).unwrap();
        assert_eq!(before, [row("acme", 5, 5)]);
        alice.sequence += 5;
        let raise = alice.next_report(50, [5, 5], HUNDRED);
        assert_eq!(alice.send(&mut store, &raise).unwrap().own_leased, 50);
        assert_eq!(alice.send(&mut store, &lower).unwrap().own_leased, 50);
        assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 5, 50)]);
    });
}

#[test]
fn a_repeated_report_never_lowers_a_row_though_others_have_grown() {
    on_both_stores(|location| {
        let mut store = open(location);
        let (mut alice, mut bob) = (Node::new(ALICE), Node::new(BOB));
        let raise = alice.next_report(50, [0, 0], HUNDRED);
        assert_eq!(alice.send(&mut store, &raise).unwrap().own_leased, 50);
        // Bob's floor exceeds the limit: he served while the store was down.
        bob.report(&mut store, 80, [80, 80], HUNDRED);
        let again = alice.send(&mut store, &raise).unwrap();
        assert_eq!(totals(again), (50, 80, 80));
        assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 80, 130)]);
        // Nor does a repeated report raise a row that was lowered meanwhile.
        alice.known.sequence = 1;
        assert_eq!(alice.report(&mut store, 9, [9, 9], HUNDRED).own_leased, 9);
        assert_eq!(alice.send(&mut store, &raise).unwrap().own_leased, 9);
    });
}

#[test]
fn each_report_of_a_batch_is_answered_in_order() {
    on_both_stores(|location| {
        let mut store = open(location);
        let mut alice = Node::new(ALICE);
        let batch: Vec<LeaseReport> = (0..512u64)
            .map(|at| {
                let raise = alice.next_report(at + 1, [at / 2, at / 4], Some(300));
                LeaseReport { account: format!("account-{at}"), ..raise }
            })
            .collect();
        let grants = alice.send_all(&mut store, &batch).unwrap();
        assert_eq!(grants.len(), batch.len());
        for (at, grant) in (0..).zip(grants) {
            let grant = grant.expect("a grant for each");
            assert_eq!(totals(grant), ((at + 1).min(300), 0, 0), "{at}");
        }
        assert_eq!(alice.send_all(&mut store, &[]).unwrap(), []);
        let mut rows = store.usage(month(), None).unwrap();
        assert_eq!(rows.len(), 512);
        assert!(rows.is_sorted_by(|a, b| a.account < b.account));
        rows.retain(|row| row.account == "account-40");
        assert_eq!(rows, [row("account-40", 10, 41)]);
    });
}

#[test]
fn accounts_and_months_have_numbers_of_their_own_whatever_they_are_called() {
    on_both_stores(|location| {
        let mut store = open(location);
        let next_month = Month::from_number(MONTH + 1).unwrap();
        let names = ["acme", "Acme", "a*", "a?[b]", "{acme}", "a}:2100-02", "grüße", "with space"];
        for (count, name) in (1..).zip(names) {
            let mut alice = Node::new(ALICE);
            let raise = alice.next_report(count, [count, count], HUNDRED);
            let raise = LeaseReport { account: name.to_owned(), ..raise };
            assert_eq!(totals(alice.send(&mut store, &raise).unwrap()), (count, 0, 0), "{name}");
            let later = LeaseReport { month: next_month, sequence: 2, target: 50, ..raise };
            assert_eq!(alice.send(&mut store, &later).unwrap().own_leased, 50, "{name}");
        }
        for (count, name) in (1..).zip(names) {
            assert_eq!(store.usage(month(), Some(name)).unwrap(), [row(name, count, count)]);
            assert_eq!(store.usage(next_month, Some(name)).unwrap(), [row(name, count, 50)]);
            assert_eq!(store.others_spent(name, month(), &BOB).unwrap(), count, "{name}");
        }
        let mut sorted = names;
        sorted.sort_unstable();
        let rows = store.usage(month(), None).unwrap();
        let found: Vec<&str> = rows.iter().map(|row| row.account.as_str()).collect();
        assert_eq!(found, sorted);
    });
}

#[test]
fn usage_is_the_sum_of_all_reports_and_empty_without_any() {
    on_both_stores(|location| {
        let mut store = open(location);
        assert_eq!(store.usage(month(), None).unwrap(), []);
        assert_eq!(store.usage(month(), Some("acme")).unwrap(), []);
        assert_eq!(store.others_spent("acme", month(), &ALICE).unwrap(), 0);
        Node::new(ALICE).report(&mut store, 30, [20, 10], HUNDRED);
        Node::new(BOB).report(&mut store, 40, [7, 3], HUNDRED);
        assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 13, 70)]);
        assert_eq!(store.others_spent("acme", month(), &ALICE).unwrap(), 3);
        assert_eq!(store.others_spent("acme", month(), &BOB).unwrap(), 10);
        assert_eq!(store.others_spent("acme", month(), &CAROL).unwrap(), 13);
        // Another connection sees the same.
        assert_eq!(location.open().usage(month(), None).unwrap(), [row("acme", 13, 70)]);
    });
}

#[test]
fn the_latest_month_grows_and_never_falls() {
    on_both_stores(|location| {
        let mut store = location.open();
        assert_eq!(store.latest_month().unwrap(), None);
        for (month, expected) in [(1_200, 1_200), (1_199, 1_200), (1_203, 1_203), (0, 1_203)] {
            let month = Month::from_number(month).unwrap();
            // A server gets the month with a probe, a file with the reports.
            store.probe(month, None).unwrap();
            store
                .report_leases(
                    BatchContext {
                        node: &ALICE,
                        month,
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

fn actions() -> impl Strategy<Value = Vec<Action>> {
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

/// One store in a random run: what each node knows of it, and all reports that it got.
struct Run {
    store: Store,
    known: [[KnownState; 2]; 3],
    sent: Vec<(usize, usize, LeaseReport)>,
}

impl Run {
    fn perform(&mut self, run: usize, sequence: u64, action: &Action) -> Option<Grant> {
        let ids = [ALICE, BOB, CAROL];
        let (node, account, report) = match action {
            Action::Report { node, account, floor, more, held, limit } => {
                let report = LeaseReport {
                    account: format!("run-{run}-{account}"),
                    month: month(),
                    sequence,
                    target: floor + more,
                    floor: *floor,
                    spent: floor.saturating_sub(*held),
                    limit: *limit,
                    known: self.known[*node][*account],
                };
                self.sent.push((*node, *account, report.clone()));
                (*node, *account, report)
            }
            Action::Repeat(_) if self.sent.is_empty() => return None,
            Action::Repeat(at) => at.get(&self.sent).clone(),
        };
        let context = BatchContext {
            node: &ids[node],
            month: month(),
            recovery_left: Duration::ZERO,
            needs_replicas: true,
        };
        let all = self.store.report_leases(context, std::slice::from_ref(&report)).unwrap();
        let grant = all[0].unwrap();
        if let Action::Report { .. } = action {
            self.known[node][account] = KnownState {
                sequence,
                revision: grant.revision,
                leased: grant.own_leased + grant.others_leased,
                spent: report.spent + grant.others_spent,
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
    let file = open(&TestStore::File(folder));
    let server = RedisServer::start();
    let new = |store| Run { store, known: Default::default(), sent: Vec::new() };
    let runs = RefCell::new((0, new(file), new(open_probed(&server))));
    let config = ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() };
    proptest!(config, |(actions_to_run in actions())| {
        let (count, file, server) = &mut *runs.borrow_mut();
        *count += 1;
        for run in [&mut *file, &mut *server] {
            (run.known, run.sent) = (Default::default(), Vec::new());
        }
        for (sequence, action) in (1..).zip(&actions_to_run) {
            let on_file = file.perform(*count, sequence, action);
            let on_server = server.perform(*count, sequence, action);
            prop_assert_eq!(on_file.map(totals), on_server.map(totals));
            prop_assert!(on_server.is_none_or(|grant| !grant.is_recovering));
        }
        for account in 0..2 {
            let account = format!("run-{count}-{account}");
            let usage = file.store.usage(month(), Some(&account)).unwrap();
            prop_assert_eq!(&usage, &server.store.usage(month(), Some(&account)).unwrap());
        }
    });
}

#[test]
fn a_month_that_ran_ahead_is_repaired_and_the_true_one_is_as_it_was() {
    on_both_stores(|location| {
        let mut store = open(location);
        let (before, later) = (month(), Month::from_number(month().number() + 3).unwrap());
        let report_spent = |store: &mut Store, node: &[u8; 16], month: Month, spent: u64| {
            let mut report = Node::new(*node).next_report(spent, [spent, spent], HUNDRED);
            report.month = month;
            let context =
                BatchContext { node, month, recovery_left: Duration::ZERO, needs_replicas: true };
            store.probe(month, None).unwrap();
            store.report_leases(context, &[report]).unwrap();
        };
        assert_eq!(store.repair_month(before).unwrap().dropped, 0, "nobody counted yet");
        report_spent(&mut store, &ALICE, before, 70);
        report_spent(&mut store, &BOB, later, 100);
        assert_eq!(store.latest_month().unwrap(), Some(later));
        let repaired = store.repair_month(before).unwrap();
        assert_eq!((repaired.previous, repaired.dropped), (Some(later), 1));
        assert_eq!(store.latest_month().unwrap(), Some(before));
        assert_eq!(store.usage(before, None).unwrap(), [row("acme", 70, 70)]);
        assert_eq!(store.usage(later, None).unwrap(), []);
        // A second repair, and one with nothing to repair.
        for month in [before, later] {
            let repaired = store.repair_month(month).unwrap();
            assert_eq!((repaired.previous, repaired.dropped), (Some(before), 0));
        }
        assert_eq!(store.latest_month().unwrap(), Some(before));
        assert_eq!(store.usage(before, None).unwrap(), [row("acme", 70, 70)]);
    });
}
