//! The verbs of the ledger.

use super::open::Store;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::{BatchContext, Grant, LeaseReport, Probe};
use crate::store::rows::{RepairedMonth, UsageRow};

impl Store {
    /// Who the store is and what time it has; connects where there is no connection. `known` is
    /// what the last pulse said: if that was another life of the store, or another store, all
    /// nodes restate their numbers for a few seconds before anything is granted anew.
    pub fn probe(&mut self, month: Month, known: Option<&Probe>) -> Result<Probe, StoreError> {
        match self {
            Store::Sqlite(_) => Ok(Probe::default()),
            Store::Redis(store) => store.pulse(month, known),
        }
    }

    /// Applies one node's statements, each atomically, and answers each. A statement whose
    /// sequence number is not newer than the one that the store knows changes nothing. `None` is
    /// one that failed alone: nothing is known of its fate.
    pub fn report_leases(
        &mut self,
        round: BatchContext<'_>,
        statements: &[LeaseReport],
    ) -> Result<Vec<Option<Grant>>, StoreError> {
        match self {
            Store::Sqlite(store) => store.state(round, statements),
            Store::Redis(store) => store.state(round, statements),
        }
    }

    /// How many of `store.wait_replicas` lacked what was last stated; 0 where none are waited for.
    pub fn missing_replicas(&self) -> usize {
        match self {
            Store::Sqlite(_) => 0,
            Store::Redis(store) => store.missing_replicas(),
        }
    }

    /// What nodes other than `node` say that they spent.
    pub fn others_spent(
        &mut self,
        account: &str,
        month: Month,
        node: &[u8; 16],
    ) -> Result<u64, StoreError> {
        match self {
            Store::Sqlite(store) => store.others_spent(account, month, node),
            Store::Redis(store) => store.others_spent(account, month, node),
        }
    }

    /// The latest month that any node has counted in.
    pub fn latest_month(&mut self) -> Result<Option<Month>, StoreError> {
        match self {
            Store::Sqlite(store) => store.latest_month(),
            Store::Redis(store) => store.latest_month(),
        }
    }

    /// Goes back from a later month to this one: what was counted in later ones is forgotten.
    /// Changes nothing where the latest month is no later; answers what was done. For use while
    /// no node runs.
    pub fn repair_month(&mut self, month: Month) -> Result<RepairedMonth, StoreError> {
        match self {
            Store::Sqlite(store) => store.repair_month(month),
            Store::Redis(store) => store.repair_month(month),
        }
    }

    /// The store's own clock in Unix seconds, if it is not this machine's.
    pub fn unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        match self {
            Store::Sqlite(_) => Ok(None),
            Store::Redis(store) => store.unix_now().map(Some),
        }
    }

    /// Spent and leased calls of a month, by account; of one account when it is named.
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
