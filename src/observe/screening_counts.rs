//! Counts screened forms by route, action, reason and domain, so that the operator sees which forms
//! are blocked, or would be.
//!
//! The counts begin with the process. Clients choose the domains, so the number of counts is
//! limited. Forms that pass have a share of their own, so that no crowd of harmless domains hides a
//! blocked one.

use std::collections::HashMap;
use std::sync::Mutex;

use prometheus::IntCounter;
use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::support::lock::lock;

/// If so many combinations of route, action, reason and domain have counts and another one comes,
/// the rarer half of the named domains lose their names: see [`drop_rare_domains`]. The limit holds
/// for forms that pass, and again for all others.
const MAX_FORM_KINDS: usize = 5_000;

/// The counts of screened forms.
#[derive(Default)]
pub struct ScreeningCounts(Mutex<FormCounts>);

#[derive(Default)]
struct FormCounts {
    passed: HashMap<FormKind, FormCount>,
    others: HashMap<FormKind, FormCount>,
}

/// A combination that has a count of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct FormKind {
    /// The prefix of the route.
    route: SmolStr,
    action: &'static str,
    reason: &'static str,
    /// The domain of the worst address; `None` if no address was valid, or if the counts of the
    /// domain were dropped, see [`drop_rare_domains`].
    domain: Option<SmolStr>,
}

struct FormCount {
    count: u64,
    /// The metric of all forms with this route, action and reason.
    metric: IntCounter,
}

impl ScreeningCounts {
    /// Counts a form, here and in `metric`, which counts all forms with this route, action and
    /// reason.
    pub fn count_form(
        &self,
        route: &str,
        action: &'static str,
        reason: &'static str,
        domain: Option<&str>,
        metric: impl FnOnce() -> IntCounter,
    ) {
        let (route, domain) = (SmolStr::new(route), domain.map(SmolStr::new));
        let kind = FormKind { route, action, reason, domain };
        let mut counts = lock(&self.0);
        let counts = if action == "pass" { &mut counts.passed } else { &mut counts.others };
        if counts.len() >= MAX_FORM_KINDS && !counts.contains_key(&kind) {
            drop_rare_domains(counts);
        }
        let form = counts.entry(kind).or_insert_with(|| FormCount { count: 0, metric: metric() });
        form.count += 1;
        form.metric.inc();
    }

    /// Returns the counts as JSON, the highest first.
    pub fn to_json(&self) -> Value {
        let counts = lock(&self.0);
        let forms = counts.passed.iter().chain(&counts.others);
        let forms = forms.map(|(kind, form)| (kind, form.count));
        let mut sorted: Vec<(&FormKind, u64)> = forms.collect();
        sorted.sort_by_key(|(kind, count)| (std::cmp::Reverse(*count), *kind));
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

/// Adds the counts of the rarer half of the domains to the counts without a domain. If such a
/// domain comes again, its count begins at 0. Half of them at once, so that a flood of new domains
/// rarely sorts the counts.
fn drop_rare_domains(counts: &mut HashMap<FormKind, FormCount>) {
    let named = counts.iter().filter(|(kind, _)| kind.domain.is_some());
    let mut kinds: Vec<(u64, FormKind)> =
        named.map(|(kind, form)| (form.count, kind.clone())).collect();
    kinds.sort_unstable();
    kinds.truncate(kinds.len().div_ceil(2));
    for (_, kind) in kinds {
        let Some(dropped) = counts.remove(&kind) else { continue };
        let unnamed = FormKind { domain: None, ..kind };
        let form = counts
            .entry(unnamed)
            .or_insert_with(|| FormCount { count: 0, metric: dropped.metric.clone() });
        form.count += dropped.count;
    }
}

#[cfg(test)]
mod tests;
