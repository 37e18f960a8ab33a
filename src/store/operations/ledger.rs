//! The quota ledger.

use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::{LeaseReport, Probe, ReportBatchContext, ReportOutcome};
use crate::store::rows::{DailyUsageCursor, DailyUsageRow, UsageRow};

/// What both kinds of store do with the ledger. [`Store`](crate::store::Store) checks what `probe`
/// and `read_spent_by_others` return.
pub trait LedgerBackend {
    /// Asks a server for its identity and its clock; connects first if there is no connection.
    /// `previous_probe` is this node's last probe. If the server was restarted, replaced or emptied
    /// since then, the server grants nothing for a few seconds, while all nodes report their totals
    /// again. If the server takes writes, the probe also raises the server's latest month to
    /// `latest_begun_month`. With SQLite, the probe does nothing and succeeds.
    fn probe(
        &mut self,
        latest_begun_month: Month,
        previous_probe: Option<&Probe>,
    ) -> Result<Probe, StoreError>;

    /// Applies the reports of one node, each atomically, and returns the outcome of each, in the
    /// same order. A report whose sequence is not higher than the one in the store changes nothing.
    /// A report fails alone if the totals of its account can't be read, or if SQLite lost them.
    fn report_leases(
        &mut self,
        context: ReportBatchContext<'_>,
        reports: &[LeaseReport],
    ) -> Result<Vec<ReportOutcome>, StoreError>;

    /// How many of the `store.wait_replicas` replicas are missing: they did not acknowledge the
    /// last report in time, or were not connected at the last probe. 0 with SQLite, and if no
    /// replicas are required.
    fn missing_replicas(&self) -> usize {
        0
    }

    /// Reads how many calls all nodes but `node_id` have spent in the month.
    fn read_spent_by_others(
        &mut self,
        account: &str,
        month: Month,
        node_id: &[u8; 16],
    ) -> Result<u64, StoreError>;

    /// The latest month that has totals. On a server, this month may be later than the store's
    /// latest month, because no node raises the latest month by the clock of its machine alone.
    fn latest_month_with_totals(&mut self) -> Result<Option<Month>, StoreError>;

    /// Reads the spent and leased calls of a month by account: of all accounts, or of
    /// `only_account`.
    fn read_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError>;

    /// Reads the calls of a month by account, day, route and key, in this order: of all accounts,
    /// or of `only_account`. Reads up to `count` rows after the row `after`, or the first ones.
    fn read_daily_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
        after: Option<&DailyUsageCursor>,
        count: usize,
    ) -> Result<Vec<DailyUsageRow>, StoreError>;

    /// Reads the calls of a month of all accounts, for a copy of the store. Fails if a row can't be
    /// read.
    fn daily_usage_to_copy(&mut self, month: Month) -> Result<Vec<DailyUsageRow>, StoreError>;
}
