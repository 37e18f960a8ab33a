//! The lease in memory under every interleaving of its threads.
//!
//! The purse and the books are the shipped files. A worker that states and hears replies, callers
//! that spend and give back, and a reload that changes the limit run against each other; the
//! store is one number that takes statements by the shipped rule.
//!
//! A program and not a test, since the unit tests of the shipped files are not wanted here.

// The gateway uses more of these files than a model does.
#![allow(dead_code)]

#[path = "../../../src/quota/accounting.rs"]
mod accounting;
#[path = "../../../src/quota/atomic_lease.rs"]
mod atomic_lease;
#[path = "../../../src/quota/lease_report.rs"]
mod lease_report;
#[path = "../../../src/quota/packed_lease.rs"]
mod packed_lease;
#[path = "../../../src/store/ledger.rs"]
mod store;
#[path = "../../../src/model/month.rs"]
mod month;
mod model {
    pub(crate) use crate::month;
}

use loom::sync::{Arc, Mutex};
use loom::thread;

use month::Month;
use accounting::{Numbers, Returned};
use atomic_lease::Purse;
use lease_report::ReportReason;
use store::{Standing, Statement};

fn main() {
    let models: [(&str, fn()); 5] = [
        ("a call is spent once whoever comes first", a_call_is_spent_once_whoever_comes_first),
        ("what is stated back is not spent meanwhile", calls_reported_as_returned_are_not_spent_meanwhile),
        (
            "a call given back races with charges and with the worker",
            a_refund_races_with_charges_and_with_the_worker,
        ),
        (
            "a changed limit voids the lease for spending and for giving back",
            a_changed_limit_voids_the_lease_for_charges_and_refunds,
        ),
        ("a month that begins takes nothing along", a_month_that_begins_takes_nothing_along),
    ];
    for (name, model) in models {
        println!("model {name} ...");
        model();
    }
    println!("\n{} models hold", models.len());
}

struct Lease {
    purse: Purse,
    numbers: Mutex<Numbers>,
    /// This node's row in the store.
    row: Mutex<u64>,
}

fn month() -> Month {
    Month::from_number(322).unwrap()
}

impl Lease {
    /// A lease with `held` calls in hand.
    fn holding(held: u64, limit: u64) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            purse: Purse::new(),
            numbers: Mutex::new(Numbers::new(Some(limit))),
            row: Mutex::new(0),
        });
        lease.numbers.lock().unwrap().request_calls(month());
        lease.round(ReportReason::Wanted);
        assert_eq!(lease.purse.look().held(), held);
        lease
    }

    /// Says what there is to say, and hears the reply.
    fn round(&self, occasion: ReportReason) {
        let said = self.numbers.lock().unwrap().say(&self.purse, "acme", occasion, month());
        let Some(statement) = said.statement else { return };
        let own = self.store(&statement);
        let standing =
            Standing { own, others_leased: 0, others_spent: 0, revision: 0, settling: false };
        // What lies beyond all leases is shown to callers, and decides nothing here.
        let publish_unleased = |_| {};
        let mut numbers = self.numbers.lock().unwrap();
        numbers.reply(&self.purse, statement.sequence, standing, publish_unleased);
    }

    /// What may be spent never passes the row, neither before the store knows nor after.
    fn store(&self, statement: &Statement) -> u64 {
        let own = Standing::decide(statement, 0);
        *self.row.lock().unwrap() = own;
        own
    }

    fn take(&self) -> Option<u64> {
        self.purse.take(u64::from(month().number())).map(|word| word.epoch())
    }

    fn refund(&self, epoch: u64) -> Returned {
        self.numbers.lock().unwrap().refund(&self.purse, month(), epoch)
    }

    /// `spent` calls are admitted and not given back: the books say so, and the row covers
    /// them and what is still in hand.
    fn check(&self, spent: u64) {
        let numbers = self.numbers.lock().unwrap();
        assert_eq!(numbers.spent(&self.purse), spent);
        let row = *self.row.lock().unwrap();
        let held = self.purse.look().held();
        assert!(spent + held <= row, "{spent} spent and {held} held of {row}");
    }
}

fn a_call_is_spent_once_whoever_comes_first() {
    loom::model(|| {
        let lease = Lease::holding(2, 200);
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let lease = Arc::clone(&lease);
                thread::spawn(move || (0..2).filter(|_| lease.take().is_some()).count())
            })
            .collect();
        let spent: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(spent, 2);
        lease.check(2);
    });
}

fn calls_reported_as_returned_are_not_spent_meanwhile() {
    loom::model(|| {
        let lease = Lease::holding(2, 200);
        let taker = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || (0..2).filter(|_| lease.take().is_some()).count() as u64)
        };
        lease.round(ReportReason::Close);
        let spent = taker.join().unwrap();
        lease.check(spent);
    });
}

fn a_refund_races_with_charges_and_with_the_worker() {
    loom::model(|| {
        let lease = Lease::holding(2, 200);
        let caller = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || match lease.take() {
                Some(epoch) => u64::from(lease.refund(epoch) == Returned::Closed),
                None => 0,
            })
        };
        let taker = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || u64::from(lease.take().is_some()))
        };
        lease.round(ReportReason::Wanted);
        let spent = caller.join().unwrap() + taker.join().unwrap();
        lease.round(ReportReason::Tick);
        lease.check(spent);
    });
}

fn a_changed_limit_voids_the_lease_for_charges_and_refunds() {
    loom::model(|| {
        let lease = Lease::holding(2, 200);
        let caller = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || match lease.take() {
                Some(epoch) => u64::from(lease.refund(epoch) == Returned::Closed),
                None => 0,
            })
        };
        lease.numbers.lock().unwrap().set_limit(&lease.purse, Some(150));
        assert_eq!(lease.purse.look().held(), 0, "nothing of the old lease is left");
        let spent = caller.join().unwrap();
        lease.round(ReportReason::Tick);
        lease.check(spent);
    });
}

fn a_month_that_begins_takes_nothing_along() {
    loom::model(|| {
        let lease = Lease::holding(2, 200);
        let next = Month::from_number(323).unwrap();
        let caller = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || match lease.take() {
                Some(epoch) => u64::from(lease.refund(epoch) == Returned::Closed),
                None => 0,
            })
        };
        lease.numbers.lock().unwrap().enter(&lease.purse, next);
        assert!(lease.purse.take(323).is_none(), "a call of the old month");
        let spent = caller.join().unwrap();
        let said = lease.numbers.lock().unwrap().say(&lease.purse, "acme", ReportReason::Tick, next);
        let farewell = said.final_reports.first().expect("a last word on the old month");
        assert!(farewell.spent >= spent && farewell.floor <= 2);
    });
}
