//! The quota ledger: it spends each account's monthly calls from leases in memory, and records them
//! in the store.
//!
//! Owns this process's node id, the [`Lease`]s of the accounts and the thread that reports to the
//! store. While a lease holds a call and no other call waits, a compare-and-swap spends the call.
//! Once about half of a lease is spent, the worker thread requests more calls from the store in the
//! background. This module sees no request, and of a key only its id.
//!
//! A call is spent only if the store has granted it. *Unbacked* calls are the exception: if the
//! policy is open and the store can't grant calls, the ledger admits a bounded number of calls
//! without a grant (`store.max_unsettled`).

mod account_faults;
mod accounting;
mod atomic_lease;
mod calendar;
mod charge;
mod clock;
mod key_usage;
mod known_time;
mod lease;
mod lease_report;
mod ledger;
mod node;
mod packed_lease;
mod shared;
mod spending;
mod sync;
mod time_of_command;
mod unsettled_calls;
mod worker;

pub use charge::{Allowance, Charge, Denial, FailurePolicy};
pub use key_usage::{KeyUsage, UsageDay};
pub use lease::Lease;
pub use ledger::{AccountUsage, Ledger, LedgerOptions, LedgerStatus};
pub use time_of_command::{BelievedTimeReport, find_believed_time, find_machine_time};

#[cfg(test)]
mod tests;
