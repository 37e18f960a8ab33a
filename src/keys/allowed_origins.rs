//! The origins that at least one key allows. riskgate decides by these origins how to answer a
//! preflight, because a preflight carries no key.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::key::Key;
use crate::model::origin::{Origin, OriginPattern};

/// The origins that keys of a ring allow, and until when.
#[derive(Clone)]
pub(super) struct AllowedOrigins {
    /// For each pattern, by its text: when the last key expires that allows the pattern, in Unix
    /// seconds.
    expiry_by_pattern: HashMap<Arc<str>, i64>,
    /// When the last key expires that allows every origin, in Unix seconds.
    unrestricted_key_until: i64,
}

impl AllowedOrigins {
    /// The origins of an empty ring.
    pub(super) fn empty() -> AllowedOrigins {
        AllowedOrigins { expiry_by_pattern: HashMap::new(), unrestricted_key_until: i64::MIN }
    }

    pub(super) fn has_patterns(&self) -> bool {
        !self.expiry_by_pattern.is_empty()
    }

    /// Adds the origins of these keys.
    pub(super) fn add_keys<'k>(&mut self, keys: impl Iterator<Item = &'k Key>) {
        keys.for_each(|key| self.add_key(key, |_| true));
    }

    /// Computes again when the changed patterns expire, and when the last unrestricted key expires.
    /// `keys` must be all keys of the ring. The other patterns stay as they are.
    pub(super) fn recompute_expiry_of_patterns<'k>(
        &mut self,
        changed_patterns: &HashSet<OriginPattern>,
        keys: impl Iterator<Item = &'k Key>,
    ) {
        self.unrestricted_key_until = i64::MIN;
        for pattern in changed_patterns {
            self.expiry_by_pattern.remove(pattern.to_string().as_str());
        }
        keys.for_each(|key| self.add_key(key, |pattern| changed_patterns.contains(pattern)));
    }

    /// Adds those patterns of a key that `is_included` accepts. A revoked key adds nothing.
    fn add_key(&mut self, key: &Key, is_included: impl Fn(&OriginPattern) -> bool) {
        if key.is_revoked {
            return;
        }
        let until = key.expires_at.unwrap_or(i64::MAX);
        if !key.is_origin_restricted {
            self.unrestricted_key_until = self.unrestricted_key_until.max(until);
        }
        for pattern in key.origins.iter().filter(|pattern| is_included(pattern)) {
            let latest = self.expiry_by_pattern.entry(pattern.to_string().into()).or_insert(until);
            *latest = until.max(*latest);
        }
    }

    pub(super) fn is_allowed(&self, origin: &Origin, unix_now: i64) -> bool {
        let is_current = |until: &i64| unix_now < *until;
        let is_pattern_allowed =
            |pattern: String| self.expiry_by_pattern.get(pattern.as_str()).is_some_and(is_current);
        is_current(&self.unrestricted_key_until)
            || origin.covering_patterns().any(is_pattern_allowed)
    }
}
