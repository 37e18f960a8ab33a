//! Operations of the quota ledger.

use super::open::Store;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::{BatchContext, Grant, LeaseReport, Probe};
use crate::store::reply_check::{check_probe, check_total};
use crate::store::rows::{RepairedMonth, UsageRow};

impl Store {
    /// Probes the store for its identity and time; connects if there is no connection. `known` is
    /// the last probe. If the store has been restarted or replaced since then, it grants nothing
    /// for a few seconds, while all nodes report their totals again.
    pub fn probe(&mut self, month: Month, known: Option<&Probe>) -> Result<Probe, StoreError> {
        match self {
            Store::Sqlite(_) => Ok(Probe::default()),
            Store::Redis(store) => store.probe(month, known).and_then(check_probe),
        }
    }

    /// Applies one node's reports, each atomically, and answers each. A report whose sequence is
    /// not newer than the one in the store changes nothing. `None` stands for a report that failed
    /// alone: the store may or may not have applied it.
    pub fn report_leases(
        &mut self,
        context: BatchContext<'_>,
        reports: &[LeaseReport],
    ) -> Result<Vec<Option<Grant>>, StoreError> {
        match self {
            Store::Sqlite(store) => store.report_leases(context, reports),
            Store::Redis(store) => store.report_leases(context, reports),
        }
    }

    /// How many of `store.wait_replicas` lack the latest report; 0 if the store waits for none.
    pub fn missing_replicas(&self) -> usize {
        match self {
            Store::Sqlite(_) => 0,
            Store::Redis(store) => store.missing_replicas(),
        }
    }

    /// The calls that nodes other than `node` have spent.
    pub fn others_spent(
        &mut self,
        account: &str,
        month: Month,
        node: &[u8; 16],
    ) -> Result<u64, StoreError> {
        let total = match self {
            Store::Sqlite(store) => store.others_spent(account, month, node)?,
            Store::Redis(store) => store.others_spent(account, month, node)?,
        };
        check_total(account, total)
    }

    /// The latest month in which any node has counted calls.
    pub fn latest_month(&mut self) -> Result<Option<Month>, StoreError> {
        match self {
            Store::Sqlite(store) => store.latest_month(),
            Store::Redis(store) => store.latest_month(),
        }
    }

    /// Makes `month` the latest month and deletes the totals of later months. If the latest month
    /// is not later, it stays. Use this only while no node runs.
    pub fn repair_month(&mut self, month: Month) -> Result<RepairedMonth, StoreError> {
        match self {
            Store::Sqlite(store) => store.repair_month(month),
            Store::Redis(store) => store.repair_month(month),
        }
    }

    /// The store's clock in Unix seconds, if it is not this machine's.
    pub fn unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        match self {
            Store::Sqlite(_) => Ok(None),
            Store::Redis(store) => store.unix_now().map(Some),
        }
    }

    /// Spent and leased calls of a month by account, or of one account if `account` is given.
    pub fn usage(
        &mut self,
        month: Month,
        account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.usage(month, account),
            Store::Redis(store) => store.usage(month, account),
        }
    }
}
