//! Operations of the quota ledger.

use super::open::Store;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::{BatchContext, Grant, LeaseReport, Probe};
use crate::store::reply_check::{check_probe, check_total_below_2_to_63};
use crate::store::rows::{DailyUsageCursor, DailyUsageRow, UsageRow};

impl Store {
    /// Asks the store for its identity and its clock; connects first if there is no connection.
    /// `previous_probe` is this node's last probe. If the server was restarted, replaced or emptied
    /// since then, it grants nothing for a few seconds, while all nodes report their totals again.
    /// The probe also raises the server's latest month to `latest_begun_month`. With SQLite, there
    /// is nothing to probe.
    pub fn probe(
        &mut self,
        latest_begun_month: Month,
        previous_probe: Option<&Probe>,
    ) -> Result<Probe, StoreError> {
        match self {
            Store::Sqlite(_) => Ok(Probe::default()),
            Store::Redis(store) => {
                store.probe(latest_begun_month, previous_probe).and_then(check_probe)
            }
        }
    }

    /// Applies the reports of one node, each atomically, and returns a grant for each, in the same
    /// order. A report whose sequence is not higher than the one in the store changes nothing.
    /// `None` in place of a grant means that only this report failed. The store may or may not have
    /// applied that report.
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

    /// How many of `store.wait_replicas` replicas lack the latest report; 0 with SQLite, and if no
    /// replicas are required.
    pub fn missing_replicas(&self) -> usize {
        match self {
            Store::Sqlite(_) => 0,
            Store::Redis(store) => store.missing_replicas(),
        }
    }

    /// Reads how many calls all nodes but `node_id` have spent in the month.
    pub fn read_spent_by_others(
        &mut self,
        account: &str,
        month: Month,
        node_id: &[u8; 16],
    ) -> Result<u64, StoreError> {
        let total = match self {
            Store::Sqlite(store) => store.read_spent_by_others(account, month, node_id)?,
            Store::Redis(store) => store.read_spent_by_others(account, month, node_id)?,
        };
        check_total_below_2_to_63(account, total)
    }

    /// The latest month that any node has reported to the store; `None` if there is none.
    pub fn latest_month(&mut self) -> Result<Option<Month>, StoreError> {
        match self {
            Store::Sqlite(store) => store.latest_month(),
            Store::Redis(store) => store.latest_month(),
        }
    }

    /// The server's clock in Unix seconds; `None` with SQLite, which uses this machine's clock.
    pub fn unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        match self {
            Store::Sqlite(_) => Ok(None),
            Store::Redis(store) => store.unix_now().map(Some),
        }
    }

    /// Reads the spent and leased calls of a month by account: of all accounts, or of
    /// `only_account`.
    pub fn read_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.read_usage(month, only_account),
            Store::Redis(store) => store.read_usage(month, only_account),
        }
    }

    /// Reads the calls of a month by account, day, route and key, in this order: of all accounts,
    /// or of `only_account`. Reads up to `count` rows after the row `after`, or the first ones.
    pub fn read_daily_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
        after: Option<&DailyUsageCursor>,
        count: usize,
    ) -> Result<Vec<DailyUsageRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.read_daily_usage(month, only_account, after, count),
            Store::Redis(store) => store.read_daily_usage(month, only_account, after, count),
        }
    }
}
