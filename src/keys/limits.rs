//! The effective plan and limit of each account, from the store, the key file and the config.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fault::{RingError, RingFault};
use super::key::Account;
use super::key_file::DeclaredKey;
use crate::model::monthly_limit::MonthlyLimit;
use crate::model::plan::choose_plan;
use crate::quota::Ledger;
use crate::store::{AccountRow, KeyRow};

/// Calls in a calendar month, by plan name.
pub type Plans = BTreeMap<String, MonthlyLimit>;

/// Returns the accounts that the key file names, and the plan that the file gives each: the first
/// one, because a file that gives an account two plans is refused.
pub fn plans_of_key_file<'d>(
    declared: impl IntoIterator<Item = &'d DeclaredKey>,
) -> BTreeMap<&'d str, Option<&'d str>> {
    let mut plans: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for DeclaredKey { key, plan } in declared {
        let known = plans.entry(&key.account).or_default();
        *known = known.or(plan.as_deref());
    }
    plans
}

/// The effective plan and limit of an account. The ledger does not know them yet.
pub(super) struct EffectiveLimit {
    pub account: String,
    pub plan: String,
    pub limit: MonthlyLimit,
    /// Why riskgate can't serve the account; `None` if it can.
    pub fault: Option<RingFault>,
    /// Whether the plan comes from the key file.
    is_plan_from_key_file: bool,
}

impl EffectiveLimit {
    /// Builds the account, and returns it with its name. Also sets the limit of the account's lease
    /// in the ledger.
    pub(super) fn into_account(self, ledger: &Ledger) -> (String, Arc<Account>) {
        let EffectiveLimit { account: name, plan, limit, fault, .. } = self;
        let lease = ledger.lease_with_limit(&name, limit);
        (name.clone(), Arc::new(Account { name, plan, limit, lease, fault }))
    }
}

/// Resolves the effective limit of every account that the store or the key file names.
/// `account_rows`, `damaged_accounts` and `key_rows` come from the store, `declared` from the key
/// file. An account with a fault gets a limit of 0 calls.
pub(super) fn resolve_effective_limits<'r>(
    account_rows: &'r [AccountRow],
    damaged_accounts: &'r BTreeSet<String>,
    key_rows: impl IntoIterator<Item = &'r KeyRow>,
    declared: impl IntoIterator<Item = &'r DeclaredKey>,
    plans: &Plans,
) -> Vec<EffectiveLimit> {
    #[derive(Default)]
    struct AccountSources<'r> {
        file_plan: Option<&'r str>,
        store_plan: Option<&'r str>,
        store_limit: Option<MonthlyLimit>,
    }
    let mut sources_by_account: BTreeMap<&str, AccountSources<'_>> = BTreeMap::new();
    for key in key_rows {
        sources_by_account.entry(&key.account).or_default();
    }
    for (account, plan) in plans_of_key_file(declared) {
        sources_by_account.entry(account).or_default().file_plan = plan;
    }
    for row in account_rows {
        let sources = sources_by_account.entry(&row.name).or_default();
        (sources.store_plan, sources.store_limit) = (row.plan.as_deref(), row.own_limit);
    }
    for name in damaged_accounts {
        sources_by_account.entry(name).or_default();
    }
    let resolve_limit = |(name, sources): (&str, AccountSources<'_>)| {
        let plan = choose_plan(sources.store_plan, sources.file_plan);
        let limit = sources.store_limit.or_else(|| plans.get(plan).copied());
        let fault = match limit {
            _ if damaged_accounts.contains(name) => {
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
        let is_plan_from_file = sources.store_plan.is_none() && sources.file_plan.is_some();
        EffectiveLimit {
            account: name.to_owned(),
            plan: plan.to_owned(),
            limit,
            fault,
            is_plan_from_key_file: is_plan_from_file,
        }
    };
    sources_by_account.into_iter().map(resolve_limit).collect()
}

/// Rejects a key file that gives an account two plans, or a plan that the config does not define.
pub(super) fn check_key_file_plans(
    effective_limits: impl IntoIterator<Item = EffectiveLimit>,
    declared: &[DeclaredKey],
) -> Result<(), RingError> {
    let mut first_plans: BTreeMap<&str, &str> = BTreeMap::new();
    for DeclaredKey { key, plan } in declared {
        let Some(plan) = plan.as_deref() else { continue };
        let first = *first_plans.entry(&key.account).or_insert(plan);
        if first != plan {
            let (account, first, second) = (key.account.clone(), first.into(), plan.into());
            return Err(RingError::ConflictingPlans { account, first, second });
        }
    }
    let faults = effective_limits
        .into_iter()
        .filter(|effective| effective.is_plan_from_key_file)
        .filter_map(|effective| effective.fault);
    faults.into_iter().next().map_or(Ok(()), |fault| Err(fault.into()))
}
