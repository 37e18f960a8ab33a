//! A key and the account that it opens, as a request sees them.

use std::sync::Arc;

use super::fault::RingFault;
use crate::model::monthly_limit::MonthlyLimit;
use crate::model::origin::{Origin, OriginPattern};
use crate::quota::Lease;

/// Who calls: an account with its limit in force and its lease.
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its plan.
    pub plan: String,
    /// The limit in force: its own, else its plan's.
    pub limit: MonthlyLimit,
    /// What its calls are spent from.
    pub lease: Arc<Lease>,
    /// Why it can't be served.
    pub(super) fault: Option<RingFault>,
}

/// A key, without its text. What a call asks first stands first, in as few lines of the cache as
/// may be.
#[repr(C)]
pub struct Key {
    pub(super) digest: [u8; 32],
    /// The account's lease, one step nearer.
    pub lease: Arc<Lease>,
    pub(super) is_revoked: bool,
    pub(super) is_faulty: bool,
    pub(super) is_restricted: bool,
    /// Whether a request without `Origin` is refused.
    pub require_origin: bool,
    pub(super) expires_at: Option<i64>,
    pub(super) origins: Vec<OriginPattern>,
    /// The account's limit, one step nearer.
    pub limit: MonthlyLimit,
    /// Whose it is.
    pub account: Arc<Account>,
    /// Its public id.
    pub id: String,
}

impl Key {
    /// Whether it can't be served as it should, and its calls are our failure.
    pub fn is_faulty(&self) -> bool {
        self.is_faulty || self.account.fault.is_some()
    }

    /// Whether the key names origins at all.
    pub fn is_restricted(&self) -> bool {
        self.is_restricted
    }

    /// Whether one of its patterns covers the origin; a key without origins allows every one.
    pub fn is_origin_allowed(&self, origin: &Origin) -> bool {
        !self.is_restricted || self.origins.iter().any(|pattern| pattern.matches(origin))
    }
}
