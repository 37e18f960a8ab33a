//! Lists accounts with their effective limits, and sets a plan or a limit.

use serde_json::{Value, json};

use super::fault::ManagementFault;
use super::keys::{check_account_name, check_name_if_new, check_plan, read_declared_keys};
use crate::config::{ReloadableConfig, TextKind, find_nearest_name, guess_text};
use crate::keys::{AccountSources, DeclaredKey, Plans, collect_accounts};
use crate::store::{AccountRow, ChangeAuthor, LimitChange, MonthlyLimit, Store, StoreError};

/// An account as lists show it.
#[derive(Clone, Debug)]
pub struct AccountEntry {
    /// The account's name.
    pub name: String,
    /// The name of the plan that applies.
    pub plan: String,
    /// The limit that applies; `None` if it is that of a plan that the config does not have.
    pub limit: Option<MonthlyLimit>,
    /// Whether the account has a limit of its own, which replaces that of the plan.
    pub has_own_limit: bool,
}

impl AccountEntry {
    fn new(name: &str, sources: &AccountSources<'_>, plans: &Plans) -> AccountEntry {
        AccountEntry {
            name: name.to_owned(),
            plan: sources.plan().to_owned(),
            limit: sources.limit(plans),
            has_own_limit: sources.has_own_limit(),
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

/// Renders a limit: the number of calls in a month, or `"unlimited"`.
pub fn limit_to_json(limit: MonthlyLimit) -> Value {
    match limit {
        MonthlyLimit::Calls(calls) => json!(calls),
        MonthlyLimit::Unlimited => json!("unlimited"),
    }
}

/// Lists the accounts of the store and of the key file, sorted by name.
pub fn list_accounts(
    accounts: &[AccountRow],
    declared: &[DeclaredKey],
    plans: &Plans,
) -> Vec<AccountEntry> {
    let accounts = collect_accounts(accounts, declared);
    accounts.iter().map(|(name, sources)| AccountEntry::new(name, sources, plans)).collect()
}

/// Checks the values of a change of an account, without a store.
///
/// # Errors
/// Returns a fault if a value is faulty, or if neither plan nor limit is given.
pub fn check_account_change(
    config: &ReloadableConfig,
    name: &str,
    plan: Option<&str>,
    limit: Option<LimitChange>,
) -> Result<(), ManagementFault> {
    check_account_name("account", name)?;
    check_plan(config, plan)?;
    match plan.is_none() && limit.is_none() {
        true => Err(ManagementFault::invalid("plan", "a plan or a limit", "neither")),
        false => Ok(()),
    }
}

/// Creates an account, or sets its plan or limit or both. Returns the account.
///
/// # Errors
/// Returns a fault if a value is faulty, if neither plan nor limit is given, if the key file is
/// needed and faulty, or if the store fails.
pub fn set_account(
    store: &mut Store,
    config: &ReloadableConfig,
    author: &ChangeAuthor,
    name: &str,
    plan: Option<&str>,
    limit: Option<LimitChange>,
) -> Result<AccountEntry, ManagementFault> {
    check_account_change(config, name, plan, limit)?;
    check_name_if_new(store, config, name)?;
    store.set_account(author, name, plan, limit)?;
    let entry = with_account_sources(store, config, name, |sources| {
        AccountEntry::new(name, sources, &config.plans)
    });
    Ok(entry?)
}

/// Reads the name of the plan that an account has. If the key file is faulty, only the store
/// counts.
///
/// # Errors
/// If the store fails.
pub fn read_plan_of_account(
    store: &mut Store,
    config: &ReloadableConfig,
    account: &str,
) -> Result<String, StoreError> {
    with_account_sources(store, config, account, |sources| sources.plan().to_owned())
}

/// Calls `answer` with what the store and the key file say about an account.
fn with_account_sources<T>(
    store: &mut Store,
    config: &ReloadableConfig,
    account: &str,
    answer: impl FnOnce(&AccountSources<'_>) -> T,
) -> Result<T, StoreError> {
    let row = store.find_account(account)?;
    let declared = read_declared_keys(config).unwrap_or_default();
    let accounts = collect_accounts(row.as_slice(), &declared);
    Ok(answer(&accounts.get(account).copied().unwrap_or_default()))
}

/// Parses a number of calls, `unlimited`, or `plan` for the limit of the plan. `found` is the value
/// as a fault shows it.
///
/// # Errors
/// Returns a fault that says what was meant if the text is none of the three.
pub fn parse_limit_change(text: &str, found: String) -> Result<LimitChange, ManagementFault> {
    parse_limit_text(text).ok_or_else(|| {
        let near = || find_nearest_name(text, ["unlimited", "plan"].into_iter()).map(str::to_owned);
        let is_valid = |it: &str| parse_limit_text(it).is_some();
        let meant = guess_text(text, TextKind::Number, is_valid).or_else(near);
        fault_of_limit(found).with_meant(meant)
    })
}

/// The fault of a value in place of a limit.
pub fn fault_of_limit(found: String) -> ManagementFault {
    let expected =
        "a whole number up to 9,007,199,254,740,991 (2^53 - 1), \"unlimited\" or \"plan\"";
    ManagementFault::invalid("limit", expected, found)
}

/// `None` if the text is none of the three.
fn parse_limit_text(text: &str) -> Option<LimitChange> {
    match (text, text.parse::<u64>()) {
        ("unlimited", _) => Some(LimitChange::SetOwnLimit(MonthlyLimit::Unlimited)),
        ("plan", _) => Some(LimitChange::UsePlanLimit),
        (_, Ok(calls)) => MonthlyLimit::of_calls(calls).map(LimitChange::SetOwnLimit),
        _ => None,
    }
}
