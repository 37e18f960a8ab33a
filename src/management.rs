//! What an operator manages: keys, accounts, overrides, usage, sign-ups and the audit.
//!
//! The commands and the admin API call the same operations here; the operator's page uses the admin
//! API. Each operation checks its input before it changes the store. [`ManagementFault`] says what
//! a failed operation may have changed. Each change has a record in the audit. This module knows no
//! HTTP, prints nothing and reads no command line.

mod accounts;
mod audit;
mod expiry;
mod explanation;
mod fault;
mod key_list;
mod keys;
mod lost_overrides;
mod override_file;
mod overrides;
mod present_time;
mod repeatable;
mod rotation;
mod sign_ups;
mod stored_overrides;
mod usage;

pub use accounts::{
    AccountEntry, check_account_change, fault_of_limit, limit_to_json, list_accounts,
    parse_limit_change, read_plan_of_account, set_account,
};
pub use audit::{AuditFilter, check_operation, read_audit_page};
pub use expiry::Expiry;
pub use explanation::{ExplainedDomain, explain_domain, verdict_to_json};
pub use fault::ManagementFault;
pub use key_list::{KeyEntry, KeyState, list_keys};
pub use keys::{
    ImportedKeys, NewKey, PreparedKey, check_account_name, check_name_if_undeclared,
    check_new_account_name, check_new_key, describe_unknown_id, import_keys, prepare_key,
    quote_sent_name, read_declared_keys, revoke_key,
};
pub use lost_overrides::{ComparisonTimes, tells_lost_override};
pub use overrides::{
    ListedOverride, NameSearch, OverrideChange, OverrideOrigin, OverrideRequest,
    check_override_may_exist, clear_override, fault_of_domain, list_overrides,
    read_override_file_state, set_overrides,
};
pub use present_time::{judge_present_time, read_present_time, set_present_time};
pub use repeatable::RepeatableRequest;
pub use rotation::{
    DEFAULT_OVERLAP, PreparedRotation, check_not_declared, parse_rotation_times, prepare_rotation,
};
pub use sign_ups::{SignUpOwner, delete_sign_ups, find_sign_ups};
pub use stored_overrides::{
    KnownOverrides, TakenOverFile, describe_file_owner, take_over_default_file,
};
pub use usage::find_month_to_show;
