//! The latest forms with one outcome: riskgate keeps one such list for refused forms, and one for
//! forms that a rule decided. Each form has its time, its route, what riskgate did and why, and the
//! domain of the address.
//!
//! No form here has the local part of an address. The memory is bounded. A request replaces one
//! slot, and waits for no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::model::month::format_rfc3339;
use crate::support::snapshot::SnapshotCell;

/// The most forms that are kept.
pub const MAX_LATEST_FORMS: usize = 100;

/// One form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestForm {
    /// When the request began, in Unix seconds.
    pub at: i64,
    /// The prefix of the route, `authz.path`, or `assess`.
    pub route: SmolStr,
    /// What riskgate did with the form.
    pub action: &'static str,
    /// The rule that decided; `None` if no rule did.
    pub rule: Option<SmolStr>,
    /// The reason of the worst verdict, or why the form could not be read.
    pub reason: &'static str,
    /// The worst score; `None` for a form that could not be read.
    pub score: Option<u8>,
    /// The domain of the worst address; `None` if no address was valid.
    pub domain: Option<SmolStr>,
}

/// The last forms of this process.
pub struct LatestForms {
    /// The form with the number n is in the slot n modulo [`MAX_LATEST_FORMS`], beside this number.
    slots: Vec<SnapshotCell<Option<(u64, LatestForm)>>>,
    recorded: AtomicU64,
}

impl Default for LatestForms {
    fn default() -> LatestForms {
        let slots = (0..MAX_LATEST_FORMS).map(|_| SnapshotCell::new(None)).collect();
        LatestForms { slots, recorded: AtomicU64::new(0) }
    }
}

impl LatestForms {
    /// Records a form, in the place of the oldest form.
    pub fn record(&self, form: LatestForm) {
        let number = self.recorded.fetch_add(1, Ordering::Relaxed);
        let slot = number % MAX_LATEST_FORMS as u64;
        self.slots[slot as usize].publish(Some((number, form)));
    }

    /// Returns the forms as JSON, the latest first.
    pub fn to_json(&self) -> Value {
        let snapshots = self.slots.iter().map(SnapshotCell::snapshot);
        let mut forms: Vec<(u64, LatestForm)> =
            snapshots.filter_map(|slot| Option::clone(&slot)).collect();
        forms.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let forms = forms.into_iter().map(|(_, form)| {
            let LatestForm { at, route, action, rule, reason, score, domain } = form;
            json!({
                "at": format_rfc3339(at), "route": route.as_str(), "action": action,
                "rule": rule.as_ref().map(SmolStr::as_str), "reason": reason, "score": score,
                "domain": domain.as_ref().map(SmolStr::as_str),
            })
        });
        forms.collect()
    }
}

#[cfg(test)]
mod tests;
