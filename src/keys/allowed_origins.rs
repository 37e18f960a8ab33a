//! Which origins some key allows: what preflights ask for, since they carry no key.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::key::Key;
use crate::model::origin::{Origin, OriginPattern};

/// Until when some key allows an origin.
#[derive(Clone)]
pub(super) struct AllowedOrigins {
    /// By the pattern's text.
    expiry_by_pattern: HashMap<Arc<str>, i64>,
    /// Until when some key without origins is good.
    unrestricted_until: i64,
}

impl AllowedOrigins {
    /// Those of no key.
    pub(super) fn empty() -> AllowedOrigins {
        AllowedOrigins { expiry_by_pattern: HashMap::new(), unrestricted_until: i64::MIN }
    }

    /// Takes in all keys of a ring.
    pub(super) fn add_keys<'k>(&mut self, keys: impl Iterator<Item = &'k Key>) {
        keys.for_each(|key| self.add_key(key, |_| true));
    }

    /// As they were before, but for some patterns and for keys without any: those are looked up
    /// among all keys anew.
    pub(super) fn refresh_patterns<'k>(
        &mut self,
        changed_patterns: &HashSet<OriginPattern>,
        keys: impl Iterator<Item = &'k Key>,
    ) {
        self.unrestricted_until = i64::MIN;
        for pattern in changed_patterns {
            self.expiry_by_pattern.remove(pattern.to_string().as_str());
        }
        keys.for_each(|key| self.add_key(key, |pattern| changed_patterns.contains(pattern)));
    }

    fn add_key(&mut self, key: &Key, is_included: impl Fn(&OriginPattern) -> bool) {
        if key.is_revoked {
            return;
        }
        let until = key.expires_at.unwrap_or(i64::MAX);
        if !key.is_restricted {
            self.unrestricted_until = self.unrestricted_until.max(until);
        }
        for pattern in key.origins.iter().filter(|pattern| is_included(pattern)) {
            let latest = self.expiry_by_pattern.entry(pattern.to_string().into()).or_insert(until);
            *latest = until.max(*latest);
        }
    }

    pub(super) fn is_allowed(&self, origin: &Origin, unix_now: i64) -> bool {
        let is_current = |until: &i64| unix_now < *until;
        let known =
            |pattern: String| self.expiry_by_pattern.get(pattern.as_str()).is_some_and(is_current);
        is_current(&self.unrestricted_until) || origin.covering_patterns().any(known)
    }
}
