//! Models of the lease in memory and of the calls counted by key. loom runs each model with every
//! interleaving of its threads.
//!
//! The program includes the shipped source files of the atomic lease, of the lease accounting and
//! of the usage by key. The threads of a model are callers that spend and refund calls, and a
//! worker that sends reports and applies grants, changes the limit or enters a month. A number
//! stands for the store; it changes by the shipped rule.
//!
//! This is a program and not a test, because a test would also compile the unit tests of these
//! files.

// A model uses only part of these files.
#![allow(dead_code)]

#[path = "../../../src/quota/accounting.rs"]
mod accounting;
#[path = "../../../src/quota/atomic_lease.rs"]
mod atomic_lease;
#[path = "../../../src/quota/key_usage.rs"]
mod key_usage;
#[path = "../../../src/quota/lease_report.rs"]
mod lease_report;
#[path = "../../../src/quota/packed_lease.rs"]
mod packed_lease;
#[path = "../../../src/store/ledger.rs"]
mod store;
#[path = "../../../src/quota/sync.rs"]
mod sync;
#[path = "../../../src/model/month.rs"]
mod month;
#[path = "../../../src/model/route_label.rs"]
mod route_label;
mod model {
    pub(crate) use crate::{month, route_label};
}
/// The errors of stores. No model has a store that fails.
mod error {
    pub struct StoreError;
}

use loom::sync::{Arc, Mutex};
use loom::thread;

use accounting::{LeaseAccounting, RefundOutcome};
use atomic_lease::AtomicLease;
use key_usage::{UsageByKey, UsageDay};
use lease_report::ReportReason;
use month::Month;
use route_label::RouteLabel;
use store::{Grant, LeaseReport};

fn main() {
    let models: [(&str, fn()); 6] = [
        (
            "two threads never spend the same call",
            two_threads_never_spend_the_same_call,
        ),
        (
            "calls reported as returned are not spent meanwhile",
            calls_reported_as_returned_are_not_spent_meanwhile,
        ),
        (
            "refunds beside charges and reports keep the accounting exact",
            refunds_beside_charges_and_reports_keep_the_accounting_exact,
        ),
        (
            "a changed limit voids the lease for charges and refunds",
            a_changed_limit_voids_the_lease_for_charges_and_refunds,
        ),
        (
            "a new month keeps no leased call of the old month",
            a_new_month_keeps_no_leased_call_of_the_old_month,
        ),
        (
            "calls around midnight are counted once, each on its day",
            calls_around_midnight_are_counted_once_each_on_its_day,
        ),
    ];
    for (name, model) in models {
        println!("model {name} ...");
        model();
    }
    println!("\n{} models hold", models.len());
}

struct Lease {
    atomic_lease: AtomicLease,
    accounting: Mutex<LeaseAccounting>,
    /// How many calls this node's row in the store counts as leased.
    leased_in_store: Mutex<u64>,
}

fn month() -> Month {
    Month::from_number(322).unwrap()
}

impl Lease {
    /// A lease that holds `held` calls, granted for an account with this limit.
    fn with_held_calls(held: u64, limit: u64) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            atomic_lease: AtomicLease::default(),
            accounting: Mutex::new(LeaseAccounting::new(Some(limit))),
            leased_in_store: Mutex::new(0),
        });
        lease.accounting.lock().unwrap().record_requested_month(month());
        lease.exchange_reports(ReportReason::CallsNeeded);
        assert_eq!(lease.atomic_lease.load().held(), held);
        lease
    }

    /// Sends the pending report to the store and applies its grant.
    fn exchange_reports(&self, reason: ReportReason) {
        let outgoing = self.accounting.lock().unwrap().prepare_reports(
            &self.atomic_lease,
            "acme",
            reason,
            month(),
        );
        let Some(current_month_report) = outgoing.current_month_report else { return };
        let own_leased = self.apply_report(&current_month_report);
        let grant = Grant {
            own_leased,
            others_leased: 0,
            others_spent: 0,
            revision: 0,
            is_recovering: false,
        };
        // The number of unleased calls is only shown to callers; no model depends on it.
        let publish_unleased = |_| {};
        let mut accounting = self.accounting.lock().unwrap();
        accounting.apply_grant(&self.atomic_lease, current_month_report.sequence, grant, publish_unleased);
    }

    /// Applies a report to the node's row. Returns the calls that the row then counts as leased.
    fn apply_report(&self, report: &LeaseReport) -> u64 {
        let own_leased = Grant::decide_leased(report, 0);
        *self.leased_in_store.lock().unwrap() = own_leased;
        own_leased
    }

    fn try_spend(&self) -> Option<u64> {
        self.atomic_lease.spend(u64::from(month().number()), 1).map(|packed| packed.epoch())
    }

    fn refund(&self, epoch: u64) -> RefundOutcome {
        self.accounting.lock().unwrap().refund(&self.atomic_lease, month(), epoch, 1)
    }

    /// Asserts that the accounting has `spent` spent calls, and that the row counts at least these
    /// calls and the held calls as leased.
    fn assert_accounted(&self, spent: u64) {
        let accounting = self.accounting.lock().unwrap();
        assert_eq!(accounting.own_spent(&self.atomic_lease), spent);
        let leased_in_store = *self.leased_in_store.lock().unwrap();
        let held = self.atomic_lease.load().held();
        assert!(
            spent + held <= leased_in_store,
            "{spent} spent and {held} held of {leased_in_store}"
        );
    }
}

fn two_threads_never_spend_the_same_call() {
    loom::model(|| {
        let lease = Lease::with_held_calls(2, 200);
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let lease = Arc::clone(&lease);
                thread::spawn(move || (0..2).filter(|_| lease.try_spend().is_some()).count())
            })
            .collect();
        let spent: usize =
            callers.into_iter().map(|other_caller| other_caller.join().unwrap()).sum();
        assert_eq!(spent, 2);
        lease.assert_accounted(2);
    });
}

fn calls_reported_as_returned_are_not_spent_meanwhile() {
    loom::model(|| {
        let lease = Lease::with_held_calls(2, 200);
        let other_caller = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || (0..2).filter(|_| lease.try_spend().is_some()).count() as u64)
        };
        lease.exchange_reports(ReportReason::Shutdown);
        let spent = other_caller.join().unwrap();
        lease.assert_accounted(spent);
    });
}

fn refunds_beside_charges_and_reports_keep_the_accounting_exact() {
    loom::model(|| {
        let lease = Lease::with_held_calls(2, 200);
        let caller = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || match lease.try_spend() {
                Some(epoch) => u64::from(lease.refund(epoch) == RefundOutcome::Stale),
                None => 0,
            })
        };
        let other_caller = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || u64::from(lease.try_spend().is_some()))
        };
        lease.exchange_reports(ReportReason::CallsNeeded);
        let spent = caller.join().unwrap() + other_caller.join().unwrap();
        lease.exchange_reports(ReportReason::Tick);
        lease.assert_accounted(spent);
    });
}

fn a_changed_limit_voids_the_lease_for_charges_and_refunds() {
    loom::model(|| {
        let lease = Lease::with_held_calls(2, 200);
        let caller = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || match lease.try_spend() {
                Some(epoch) => u64::from(lease.refund(epoch) == RefundOutcome::Stale),
                None => 0,
            })
        };
        lease.accounting.lock().unwrap().set_limit(&lease.atomic_lease, Some(150));
        assert_eq!(lease.atomic_lease.load().held(), 0, "no call of the old lease is left");
        let spent = caller.join().unwrap();
        lease.exchange_reports(ReportReason::Tick);
        lease.assert_accounted(spent);
    });
}

fn a_new_month_keeps_no_leased_call_of_the_old_month() {
    loom::model(|| {
        let lease = Lease::with_held_calls(2, 200);
        let next = Month::from_number(323).unwrap();
        let caller = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || match lease.try_spend() {
                Some(epoch) => u64::from(lease.refund(epoch) == RefundOutcome::Stale),
                None => 0,
            })
        };
        lease.accounting.lock().unwrap().enter_month(&lease.atomic_lease, next);
        assert!(lease.atomic_lease.spend(323, 1).is_none(), "no call of the old month is left");
        let spent = caller.join().unwrap();
        let outgoing = lease.accounting.lock().unwrap().prepare_reports(
            &lease.atomic_lease,
            "acme",
            ReportReason::Tick,
            next,
        );
        let final_report = outgoing.final_reports.first().expect("a final report on the old month");
        assert!(final_report.spent >= spent && final_report.floor <= 2);
    });
}

fn calls_around_midnight_are_counted_once_each_on_its_day() {
    loom::model(|| {
        let (today, tomorrow) = (UsageDay::new(month(), 1), UsageDay::new(month(), 2));
        let usage_by_key = Arc::new(UsageByKey::default());
        let usage = usage_by_key.find_or_create("k1");
        usage.count_calls(RouteLabel::Domain, today, 1);
        let callers = [today, tomorrow].map(|day| {
            let usage = std::sync::Arc::clone(&usage);
            thread::spawn(move || usage.count_calls(RouteLabel::Domain, day, 1))
        });
        // A report is answered while the callers count.
        usage_by_key.note_in_flight(&usage_by_key.collect_changes(usize::MAX).0);
        usage_by_key.confirm_in_flight();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        usage.uncount_calls(RouteLabel::Domain, today, 1);
        usage_by_key.mark_unreported();
        let (counts, _) = usage_by_key.collect_changes(usize::MAX);
        let mut counts: Vec<_> = counts.iter().map(|count| (count.day, count.calls)).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(1, 1), (2, 1)]);
    });
}
