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

/// The limit of each plan of the config, by the name of the plan.
pub type Plans = BTreeMap<String, MonthlyLimit>;

/// What the store and the key file say about an account.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccountSources<'r> {
    /// Whether the key file has a key of the account.
    is_in_key_file: bool,
    key_file_plan: Option<&'r str>,
    store_plan: Option<&'r str>,
    own_limit: Option<MonthlyLimit>,
}

impl<'r> AccountSources<'r> {
    /// The plan of the account.
    pub fn plan(&self) -> &'r str {
        choose_plan(self.store_plan, self.key_file_plan)
    }

    /// The plan that the account has by the key file alone; `None` if the file does not name the
    /// account.
    pub fn plan_by_key_file(&self) -> Option<&'r str> {
        self.is_in_key_file.then(|| choose_plan(None, self.key_file_plan))
    }

    /// The limit of the account; `None` if it is that of a plan that the config does not have.
    pub fn limit(&self, plans: &Plans) -> Option<MonthlyLimit> {
        self.own_limit.or_else(|| plans.get(self.plan()).copied())
    }

    /// Whether the account has a limit of its own, which replaces that of the plan.
    pub fn has_own_limit(&self) -> bool {
        self.own_limit.is_some()
    }

    fn is_plan_from_key_file(&self) -> bool {
        self.store_plan.is_none() && self.key_file_plan.is_some()
    }
}

/// Returns the accounts that these rows of the store and these keys of the key file name. If the
/// file gives an account two plans, takes the first one; `find_plan_faults` rejects such a
/// file.
pub fn collect_accounts<'r>(
    rows: &'r [AccountRow],
    declared: impl IntoIterator<Item = &'r DeclaredKey>,
) -> BTreeMap<&'r str, AccountSources<'r>> {
    let mut accounts: BTreeMap<&str, AccountSources<'_>> = BTreeMap::new();
    for DeclaredKey { key, plan } in declared {
        let sources = accounts.entry(&key.account).or_default();
        sources.is_in_key_file = true;
        sources.key_file_plan = sources.key_file_plan.or(plan.as_deref());
    }
    for row in rows {
        let sources = accounts.entry(&row.name).or_default();
        (sources.store_plan, sources.own_limit) = (row.plan.as_deref(), row.own_limit);
    }
    accounts
}

/// The effective plan and limit of an account, before the ledger knows this limit.
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
    /// Sets the limit of the account's lease in the ledger, and builds the account. Returns the
    /// name of the account, and the account.
    pub(super) fn into_account(self, ledger: &Ledger) -> (String, Arc<Account>) {
        let EffectiveLimit { account: name, plan, limit, fault, .. } = self;
        let lease = ledger.open_lease(&name, limit);
        (name.clone(), Arc::new(Account { name, plan, limit, lease, fault }))
    }
}

/// Resolves the effective limit of each account that the arguments name. `account_rows`,
/// `damaged_accounts` and `key_rows` come from the store, and `declared` from the key file. An
/// account with a fault gets a limit of 0 calls.
pub(super) fn resolve_effective_limits<'r>(
    account_rows: &'r [AccountRow],
    damaged_accounts: &'r BTreeSet<String>,
    key_rows: impl IntoIterator<Item = &'r KeyRow>,
    declared: impl IntoIterator<Item = &'r DeclaredKey>,
    plans: &Plans,
) -> Vec<EffectiveLimit> {
    let mut sources_by_account = collect_accounts(account_rows, declared);
    for name in key_rows.into_iter().map(|key| &key.account).chain(damaged_accounts) {
        sources_by_account.entry(name).or_default();
    }
    let resolve_limit = |(name, sources): (&str, AccountSources<'_>)| {
        let (plan, limit) = (sources.plan(), sources.limit(plans));
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
        EffectiveLimit {
            account: name.to_owned(),
            plan: plan.to_owned(),
            limit: limit.filter(|_| fault.is_none()).unwrap_or(MonthlyLimit::Calls(0)),
            fault,
            is_plan_from_key_file: sources.is_plan_from_key_file(),
        }
    };
    sources_by_account.into_iter().map(resolve_limit).collect()
}

/// Finds the faults for which `KeyRing::check_key_file` rejects a key file: one for each account.
pub(super) fn find_plan_faults(
    effective_limits: impl IntoIterator<Item = EffectiveLimit>,
    declared: &[DeclaredKey],
) -> Vec<RingError> {
    let mut conflicts: BTreeMap<&str, RingError> = BTreeMap::new();
    let mut first_plans: BTreeMap<&str, &str> = BTreeMap::new();
    for DeclaredKey { key, plan } in declared {
        let Some(plan) = plan.as_deref() else { continue };
        let first = *first_plans.entry(&key.account).or_insert(plan);
        if first != plan {
            let (account, first, second) = (key.account.clone(), first.into(), plan.into());
            let conflict = RingError::ConflictingPlans { account, first, second };
            conflicts.entry(&key.account).or_insert(conflict);
        }
    }
    let is_of_file = |fault: &RingFault| {
        matches!(fault, RingFault::UnknownPlan { account, .. }
            if !conflicts.contains_key(account.as_str()))
    };
    let unknown: Vec<RingError> = effective_limits
        .into_iter()
        .filter(|effective| effective.is_plan_from_key_file)
        .filter_map(|effective| effective.fault)
        .filter(is_of_file)
        .map(RingError::from)
        .collect();
    conflicts.into_values().chain(unknown).collect()
}
