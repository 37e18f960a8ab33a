//! Which plan and limit is in force for an account, from everything that names it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fault::{RingError, RingFault};
use super::file::DeclaredKey;
use super::key::Account;
use crate::model::monthly_limit::LimitRow;
use crate::quota::Ledger;
use crate::store::{AccountRow, KeyRow};

/// The plan of an account that has none set.
pub const DEFAULT_PLAN: &str = "free";

/// Calls in a calendar month, by plan name.
pub type Plans = BTreeMap<String, LimitRow>;

/// An account before it has a lease: nothing changed yet.
pub(super) struct InForce {
    pub name: String,
    pub plan: String,
    pub limit: LimitRow,
    /// Why it can't be served.
    pub fault: Option<RingFault>,
    /// Its plan is the key file's.
    by_file: bool,
}

impl InForce {
    /// From here on the limit is the lease's too.
    pub(super) fn into_account(self, ledger: &Ledger) -> (String, Arc<Account>) {
        let InForce { name, plan, limit, fault, .. } = self;
        let lease = ledger.lease(&name, limit);
        (name.clone(), Arc::new(Account { name, plan, limit, lease, fault }))
    }
}

/// Every account that is named anywhere, with the limit in force. What was set in the store
/// comes before what the key file says, since a person said it later. One that can't be served
/// has a limit of none at all.
pub(super) fn limits<'r>(
    rows: &'r [AccountRow],
    damaged: &'r BTreeSet<String>,
    keys: impl IntoIterator<Item = &'r KeyRow>,
    declared: impl IntoIterator<Item = &'r DeclaredKey>,
    plans: &Plans,
) -> Vec<InForce> {
    #[derive(Default)]
    struct Said<'r> {
        by_file: Option<&'r str>,
        by_store: Option<&'r str>,
        limit: Option<LimitRow>,
    }
    let mut named: BTreeMap<&str, Said<'_>> = BTreeMap::new();
    for key in keys {
        named.entry(&key.account).or_default();
    }
    for key in declared {
        let said = named.entry(&key.key.account).or_default();
        said.by_file = said.by_file.or(key.plan.as_deref());
    }
    for row in rows {
        let said = named.entry(&row.name).or_default();
        (said.by_store, said.limit) = (row.plan.as_deref(), row.limit);
    }
    for name in damaged {
        named.entry(name).or_default();
    }
    let in_force = |(name, said): (&str, Said<'_>)| {
        let plan = said.by_store.or(said.by_file).unwrap_or(DEFAULT_PLAN);
        let limit = said.limit.or_else(|| plans.get(plan).copied());
        let fault = match limit {
            _ if damaged.contains(name) => {
                Some(RingFault::DamagedAccount { account: name.to_owned() })
            }
            Some(_) => None,
            None => Some(RingFault::UnknownPlan {
                account: name.to_owned(),
                known: plans.keys().cloned().collect::<Vec<_>>().join(", "),
                found: plan.to_owned(),
            }),
        };
        let limit = limit.filter(|_| fault.is_none()).unwrap_or(LimitRow::Calls(0));
        let by_file = said.by_store.is_none() && said.by_file.is_some();
        InForce { name: name.to_owned(), plan: plan.to_owned(), limit, fault, by_file }
    };
    named.into_iter().map(in_force).collect()
}

/// Refuses a key file that gives an account two plans, or one that is not in the config.
pub(super) fn check_plans(
    in_force: impl IntoIterator<Item = InForce>,
    declared: &[DeclaredKey],
) -> Result<(), RingError> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for DeclaredKey { key, plan } in declared {
        let Some(plan) = plan.as_deref() else { continue };
        let earlier = *first.entry(&key.account).or_insert(plan);
        if earlier != plan {
            let (account, first, second) = (key.account.clone(), earlier.into(), plan.into());
            return Err(RingError::TwoPlans { account, first, second });
        }
    }
    let faults = in_force.into_iter().filter(|it| it.by_file).filter_map(|it| it.fault);
    faults.into_iter().next().map_or(Ok(()), |fault| Err(fault.into()))
}
