//! Which plan and limit is in force for an account, from everything that names it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fault::{RingError, RingFault};
use super::key::Account;
use super::key_file::DeclaredKey;
use crate::model::monthly_limit::MonthlyLimit;
use crate::quota::Ledger;
use crate::store::{AccountRow, KeyRow};

/// The plan of an account that has none set.
pub const DEFAULT_PLAN: &str = "free";

/// Calls in a calendar month, by plan name.
pub type Plans = BTreeMap<String, MonthlyLimit>;

/// An account before it has a lease: nothing changed yet.
pub(super) struct EffectiveLimit {
    pub name: String,
    pub plan: String,
    pub limit: MonthlyLimit,
    /// Why it can't be served.
    pub fault: Option<RingFault>,
    /// Its plan is the key file's.
    is_plan_from_file: bool,
}

impl EffectiveLimit {
    /// From here on the limit is the lease's too.
    pub(super) fn into_account(self, ledger: &Ledger) -> (String, Arc<Account>) {
        let EffectiveLimit { name, plan, limit, fault, .. } = self;
        let lease = ledger.lease(&name, limit);
        (name.clone(), Arc::new(Account { name, plan, limit, lease, fault }))
    }
}

/// Every account that is named anywhere, with the limit in force. What was set in the store
/// comes before what the key file says, since a person said it later. One that can't be served
/// has a limit of none at all.
pub(super) fn effective_limits<'r>(
    rows: &'r [AccountRow],
    damaged: &'r BTreeSet<String>,
    keys: impl IntoIterator<Item = &'r KeyRow>,
    declared: impl IntoIterator<Item = &'r DeclaredKey>,
    plans: &Plans,
) -> Vec<EffectiveLimit> {
    #[derive(Default)]
    struct AccountSources<'r> {
        is_plan_from_file: Option<&'r str>,
        store_plan: Option<&'r str>,
        limit: Option<MonthlyLimit>,
    }
    let mut named: BTreeMap<&str, AccountSources<'_>> = BTreeMap::new();
    for key in keys {
        named.entry(&key.account).or_default();
    }
    for key in declared {
        let sources = named.entry(&key.key.account).or_default();
        sources.is_plan_from_file = sources.is_plan_from_file.or(key.plan.as_deref());
    }
    for row in rows {
        let sources = named.entry(&row.name).or_default();
        (sources.store_plan, sources.limit) = (row.plan.as_deref(), row.limit);
    }
    for name in damaged {
        named.entry(name).or_default();
    }
    let effective_limits = |(name, sources): (&str, AccountSources<'_>)| {
        let plan = sources.store_plan.or(sources.is_plan_from_file).unwrap_or(DEFAULT_PLAN);
        let limit = sources.limit.or_else(|| plans.get(plan).copied());
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
        let limit = limit.filter(|_| fault.is_none()).unwrap_or(MonthlyLimit::Calls(0));
        let by_file = sources.store_plan.is_none() && sources.is_plan_from_file.is_some();
        EffectiveLimit {
            name: name.to_owned(),
            plan: plan.to_owned(),
            limit,
            fault,
            is_plan_from_file: by_file,
        }
    };
    named.into_iter().map(effective_limits).collect()
}

/// Refuses a key file that gives an account two plans, or one that is not in the config.
pub(super) fn check_plans(
    effective_limits: impl IntoIterator<Item = EffectiveLimit>,
    declared: &[DeclaredKey],
) -> Result<(), RingError> {
    let mut first_plans: BTreeMap<&str, &str> = BTreeMap::new();
    for DeclaredKey { key, plan } in declared {
        let Some(plan) = plan.as_deref() else { continue };
        let earlier = *first_plans.entry(&key.account).or_insert(plan);
        if earlier != plan {
            let (account, first_plans, second) = (key.account.clone(), earlier.into(), plan.into());
            return Err(RingError::ConflictingPlans { account, first: first_plans, second });
        }
    }
    let faults = effective_limits
        .into_iter()
        .filter(|effective| effective.is_plan_from_file)
        .filter_map(|effective| effective.fault);
    faults.into_iter().next().map_or(Ok(()), |fault| Err(fault.into()))
}
