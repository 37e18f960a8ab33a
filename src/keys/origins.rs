//! Which origins some key allows: what preflights ask for, since they carry no key.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::key::Key;
use crate::model::origin::{Origin, OriginPattern};

/// Until when some key allows an origin.
#[derive(Clone)]
pub(super) struct Origins {
    /// By the pattern's text.
    patterns: HashMap<Arc<str>, i64>,
    /// Until when some key without origins is good.
    unrestricted_until: i64,
}

impl Origins {
    /// Those of no key.
    pub(super) fn none() -> Origins {
        Origins { patterns: HashMap::new(), unrestricted_until: i64::MIN }
    }

    /// Takes in all keys of a ring.
    pub(super) fn add_all<'k>(&mut self, keys: impl Iterator<Item = &'k Key>) {
        keys.for_each(|key| self.add(key, |_| true));
    }

    /// As they were before, but for some patterns and for keys without any: those are looked up
    /// among all keys anew.
    pub(super) fn look_up<'k>(
        &mut self,
        touched: &HashSet<OriginPattern>,
        keys: impl Iterator<Item = &'k Key>,
    ) {
        self.unrestricted_until = i64::MIN;
        for pattern in touched {
            self.patterns.remove(pattern.to_string().as_str());
        }
        keys.for_each(|key| self.add(key, |pattern| touched.contains(pattern)));
    }

    fn add(&mut self, key: &Key, counts: impl Fn(&OriginPattern) -> bool) {
        if key.revoked {
            return;
        }
        let until = key.expires_at.unwrap_or(i64::MAX);
        if !key.is_restricted {
            self.unrestricted_until = self.unrestricted_until.max(until);
        }
        for pattern in key.origins.iter().filter(|pattern| counts(pattern)) {
            let latest = self.patterns.entry(pattern.to_string().into()).or_insert(until);
            *latest = until.max(*latest);
        }
    }

    pub(super) fn allow(&self, origin: &Origin, unix_now: i64) -> bool {
        let good = |until: &i64| unix_now < *until;
        let known = |pattern: String| self.patterns.get(pattern.as_str()).is_some_and(good);
        good(&self.unrestricted_until) || origin.covering_patterns().any(known)
    }
}
