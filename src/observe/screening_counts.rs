//! Counts screened forms by route, action, reason and domain, so that the operator sees what would
//! be blocked.
//!
//! The counts begin with the process. Clients choose the domains, so the number of domains that are
//! counted apart is limited.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use smol_str::SmolStr;

/// The most combinations of route, action, reason and domain that are counted apart. Forms beyond
/// them are counted without their domain.
const MAX_FORM_KINDS: usize = 10_000;

/// The counts of screened forms.
#[derive(Default)]
pub struct ScreeningCounts(Mutex<HashMap<FormKind, u64>>);

/// What is counted apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct FormKind {
    /// The prefix of the route.
    route: SmolStr,
    action: &'static str,
    reason: &'static str,
    /// The domain of the worst address; `None` without a valid one.
    domain: Option<SmolStr>,
}

impl ScreeningCounts {
    /// Counts a form.
    pub fn count_form(
        &self,
        route: &str,
        action: &'static str,
        reason: &'static str,
        domain: Option<&str>,
    ) {
        let (route, domain) = (SmolStr::new(route), domain.map(SmolStr::new));
        let mut kind = FormKind { route, action, reason, domain };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MAX_FORM_KINDS && !counts.contains_key(&kind) {
            kind.domain = None;
        }
        *counts.entry(kind).or_insert(0) += 1;
    }

    /// Returns the counts as JSON, the highest first.
    pub fn to_json(&self) -> Value {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<(&FormKind, &u64)> = counts.iter().collect();
        sorted.sort_by_key(|(kind, count)| (std::cmp::Reverse(**count), *kind));
        let forms =
            sorted.into_iter().map(|(FormKind { route, action, reason, domain }, count)| {
                json!({
                    "route": route.as_str(), "action": action, "reason": reason,
                    "domain": domain.as_ref().map(SmolStr::as_str), "count": count,
                })
            });
        forms.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domains_that_are_counted_apart_are_limited() {
        let counts = ScreeningCounts::default();
        for number in 0..MAX_FORM_KINDS + 100 {
            counts.count_form("/a", "pass", "safe", Some(&format!("n{number}.com")));
        }
        counts.count_form("/a", "pass", "safe", Some("n7.com"));
        let forms = counts.to_json();
        let forms = forms.as_array().unwrap();
        assert_eq!(forms.len(), MAX_FORM_KINDS + 1);
        assert_eq!((&forms[0]["domain"], &forms[0]["count"]), (&Value::Null, &json!(100)));
        assert_eq!((&forms[1]["domain"], &forms[1]["count"]), (&json!("n7.com"), &json!(2)));
    }
}
