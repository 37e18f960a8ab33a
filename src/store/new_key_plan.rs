//! The plan that a request for a new key names.
//!
//! If neither the store nor the key file knows the account, the named plan becomes its plan. Else
//! the named plan must be its present plan, because a new key must not change the limit of the
//! account's other keys. The store compares the plans in the step in which it adds the key.

use super::error::StoreError;
use crate::model::plan::choose_plan;

/// The plan that a request for a new key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKeyPlan {
    /// The named plan.
    pub plan: String,
    /// The plan that the account has by the key file alone; `None` if the key file does not name
    /// the account.
    pub by_key_file: Option<String>,
}

impl NewKeyPlan {
    /// A plan for an account that the key file does not name.
    pub fn of_store_account(plan: impl Into<String>) -> NewKeyPlan {
        NewKeyPlan { plan: plan.into(), by_key_file: None }
    }

    /// The plan that the store writes into the row of a new account. `None` if the key file names
    /// the account, so that the account's plan still comes from the file.
    pub(super) fn plan_to_store(&self) -> Option<&str> {
        self.by_key_file.is_none().then_some(&self.plan)
    }

    /// Fails if the account has another plan than the named one. `stored` is the plan in the
    /// account's row; `has_row` is false if the store does not know the account yet.
    pub(super) fn check_plan_of_account(
        &self,
        account: &str,
        stored: Option<&str>,
        has_row: bool,
    ) -> Result<(), StoreError> {
        if !has_row && self.by_key_file.is_none() && stored.is_none() {
            return Ok(());
        }
        let present = choose_plan(stored, self.by_key_file.as_deref());
        match present == self.plan {
            true => Ok(()),
            false => Err(StoreError::OtherPlan {
                account: account.to_owned(),
                present: present.to_owned(),
                found: self.plan.clone(),
            }),
        }
    }
}
