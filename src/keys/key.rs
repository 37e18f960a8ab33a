//! API keys and their accounts, as requests read them.

use std::sync::{Arc, OnceLock};

use super::fault::RingFault;
use crate::model::monthly_limit::MonthlyLimit;
use crate::model::origin::{Origin, OriginPattern};
use crate::quota::{KeyUsage, Lease};

/// An account with its effective limit and its lease.
pub struct Account {
    /// The account's name.
    pub name: String,
    /// The account's plan.
    pub plan: String,
    /// The effective limit: the account's own limit, else the limit of its plan. An account with a
    /// fault has a limit of 0 calls.
    pub limit: MonthlyLimit,
    /// The lease from which the account's calls are spent.
    pub lease: Arc<Lease>,
    /// Why riskgate can't serve the account; `None` if it can.
    pub(super) fault: Option<RingFault>,
}

/// A key, without its text. Most fields that every call reads come first, so that a call reads few
/// cache lines.
#[derive(Clone)]
#[repr(C)]
pub struct Key {
    /// The SHA-256 of the key's text.
    pub(super) digest: [u8; 32],
    /// The account's lease, referenced here so that a call follows one pointer less.
    pub lease: Arc<Lease>,
    /// The key's counts by day and route; empty until a call needs them.
    pub(super) usage: OnceLock<Arc<KeyUsage>>,
    pub(super) is_revoked: bool,
    pub(super) has_own_fault: bool,
    /// `has_own_fault`, or the account has a fault: copied here so that a call follows one pointer
    /// less.
    pub(super) is_faulty: bool,
    pub(super) is_origin_restricted: bool,
    /// Whether riskgate refuses a request without `Origin`.
    pub require_origin: bool,
    /// Unix seconds; `None` if the key does not expire.
    pub(super) expires_at: Option<i64>,
    /// The origins that a restricted key allows.
    pub(super) origins: Vec<OriginPattern>,
    /// The account's limit, copied here so that a call follows one pointer less.
    pub limit: MonthlyLimit,
    /// The account that the key belongs to.
    pub account: Arc<Account>,
    /// The key's public id.
    pub id: String,
}

impl Key {
    /// Returns the key's counts by day and route.
    pub fn usage(&self) -> &Arc<KeyUsage> {
        self.usage.get_or_init(|| self.lease.usage_of_key(&self.id))
    }

    /// Whether the key or its account has a fault, so that riskgate answers its calls with 500.
    pub fn is_faulty(&self) -> bool {
        self.is_faulty
    }

    /// Whether the key allows only the origins that it lists.
    pub fn is_origin_restricted(&self) -> bool {
        self.is_origin_restricted
    }

    /// Whether the key is made for browsers: it lists origins, or demands `Origin`.
    pub fn is_for_browsers(&self) -> bool {
        self.is_origin_restricted || self.require_origin
    }

    /// Whether the key allows this origin. An unrestricted key allows every origin.
    pub fn is_origin_allowed(&self, origin: &Origin) -> bool {
        !self.is_origin_restricted || self.origins.iter().any(|pattern| pattern.matches(origin))
    }
}
