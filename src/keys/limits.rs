//! Which plan and limit is in force for an account, from everything that names it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Account, DEFAULT_PLAN, DeclaredKey, Plans, RingError};
use crate::quota::Ledger;
use crate::store::{AccountRow, KeyRow, LimitRow};

/// An account before it has a lease: nothing changed yet.
pub(super) struct InForce {
    pub name: String,
    pub plan: String,
    pub limit: LimitRow,
}

impl InForce {
    /// From here on the limit is the lease's too.
    pub(super) fn into_account(self, ledger: &Ledger) -> (String, Arc<Account>) {
        let InForce { name, plan, limit } = self;
        let lease = ledger.lease(&name, limit);
        (name.clone(), Arc::new(Account { name, plan, limit, lease }))
    }
}

/// Every account that is named anywhere, with the limit in force. What was set in the store
/// comes before what the key file says, since a person said it later.
pub(super) fn limits<'r>(
    rows: &'r [AccountRow],
    keys: impl IntoIterator<Item = &'r KeyRow>,
    declared: impl IntoIterator<Item = &'r DeclaredKey>,
    plans: &Plans,
) -> Result<Vec<InForce>, RingError> {
    let mut named: BTreeMap<&str, (Option<&str>, Option<LimitRow>)> = BTreeMap::new();
    for key in keys {
        named.entry(&key.account).or_default();
    }
    for key in declared {
        let entry = named.entry(&key.key.account).or_default();
        match (entry.0, key.plan.as_deref()) {
            (Some(first), Some(second)) if first != second => {
                return Err(RingError::TwoPlans {
                    account: key.key.account.clone(),
                    first: first.to_owned(),
                    second: second.to_owned(),
                });
            }
            (None, Some(plan)) => entry.0 = Some(plan),
            _ => {}
        }
    }
    for row in rows {
        let entry = named.entry(&row.name).or_default();
        entry.0 = row.plan.as_deref().or(entry.0);
        entry.1 = row.limit;
    }
    let mut known = Vec::with_capacity(named.len());
    for (name, (plan, limit)) in named {
        let plan = plan.unwrap_or(DEFAULT_PLAN);
        let limit = match limit.or_else(|| plans.get(plan).copied()) {
            Some(limit) => limit,
            None => {
                return Err(RingError::UnknownPlan {
                    account: name.to_owned(),
                    known: plans.keys().cloned().collect::<Vec<_>>().join(", "),
                    found: plan.to_owned(),
                });
            }
        };
        known.push(InForce { name: name.to_owned(), plan: plan.to_owned(), limit });
    }
    Ok(known)
}
