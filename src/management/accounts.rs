//! Lists accounts with their effective limits, and sets a plan or a limit.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fault::ManagementFault;
use super::keys::{check_account_name, check_plan};
use crate::config::ReloadableConfig;
use crate::keys::{DeclaredKey, Plans, plans_of_key_file};
use crate::model::plan::choose_plan;
use crate::store::{AccountRow, ChangeAuthor, MonthlyLimit, Store};

/// An account as lists show it.
#[derive(Clone, Debug)]
pub struct AccountEntry {
    /// The account's name.
    pub name: String,
    /// The plan that applies.
    pub plan: String,
    /// The limit that applies; `None` if the config does not have the plan.
    pub limit: Option<MonthlyLimit>,
    /// Whether the account has a limit of its own, which replaces that of the plan.
    pub has_own_limit: bool,
}

impl AccountEntry {
    fn new(row: &AccountRow, plan_of_file: Option<&str>, plans: &Plans) -> AccountEntry {
        let plan = choose_plan(row.plan.as_deref(), plan_of_file);
        AccountEntry {
            name: row.name.clone(),
            plan: plan.to_owned(),
            limit: row.own_limit.or_else(|| plans.get(plan).copied()),
            has_own_limit: row.own_limit.is_some(),
        }
    }

    /// Renders the entry for `riskgate accounts list --json` and the admin API.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name, "plan": self.plan, "limit": self.limit.map(limit_to_json),
            "own_limit": self.has_own_limit,
        })
    }
}

/// Renders a limit: calls in a month, or `unlimited`.
pub fn limit_to_json(limit: MonthlyLimit) -> Value {
    match limit {
        MonthlyLimit::Calls(calls) => json!(calls),
        MonthlyLimit::Unlimited => json!("unlimited"),
    }
}

/// Lists the accounts of the store and of the key file by name.
pub fn list_accounts(
    accounts: &[AccountRow],
    declared: &[DeclaredKey],
    plans: &Plans,
) -> Vec<AccountEntry> {
    let plan_of_file = plans_of_key_file(declared);
    let mut entries: BTreeMap<&str, AccountEntry> = plan_of_file
        .iter()
        .map(|(name, plan)| {
            let row = AccountRow { name: (*name).to_owned(), plan: None, own_limit: None };
            (*name, AccountEntry::new(&row, *plan, plans))
        })
        .collect();
    for row in accounts {
        let of_file = plan_of_file.get(row.name.as_str()).copied().flatten();
        entries.insert(&row.name, AccountEntry::new(row, of_file, plans));
    }
    entries.into_values().collect()
}

/// Creates an account, or sets its plan or limit or both. A limit is a number of calls,
/// `unlimited`, or `plan` for the limit of the plan. Returns the account.
///
/// # Errors
/// Returns a fault if a value is faulty, if neither plan nor limit is given, or if the store fails.
pub fn set_account(
    store: &mut Store,
    config: &ReloadableConfig,
    author: &ChangeAuthor,
    name: &str,
    plan: Option<&str>,
    limit: Option<&str>,
) -> Result<AccountEntry, ManagementFault> {
    check_account_name("account", name)?;
    check_plan(config, plan)?;
    if plan.is_none() && limit.is_none() {
        return Err(ManagementFault::invalid("plan", "a plan or a limit", "neither"));
    }
    let limit = limit.map(parse_limit).transpose()?;
    store.changes_by(author).set_account(name, plan, limit)?;
    let row = store.find_account(name)?;
    let row = row.unwrap_or(AccountRow { name: name.to_owned(), plan: None, own_limit: None });
    let declared = super::keys::read_declared_keys(config).unwrap_or_default();
    let plan_of_file = plans_of_key_file(&declared).get(name).copied().flatten();
    Ok(AccountEntry::new(&row, plan_of_file, &config.plans))
}

/// Parses a limit. The inner `None` means that the limit of the plan applies.
fn parse_limit(text: &str) -> Result<Option<MonthlyLimit>, ManagementFault> {
    match (text, text.parse::<i64>()) {
        ("unlimited", _) => Ok(Some(MonthlyLimit::Unlimited)),
        ("plan", _) => Ok(None),
        (_, Ok(calls @ 0..)) => Ok(Some(MonthlyLimit::Calls(calls.cast_unsigned()))),
        _ => Err(ManagementFault::invalid(
            "limit",
            "a whole number, \"unlimited\" or \"plan\"",
            format!("{text:?}"),
        )),
    }
}
