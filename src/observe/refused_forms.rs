//! The last forms that riskgate refused: when, on which route, why, and the domain of the address.
//!
//! Never has the local part of an address. The memory is bounded, and a request waits for no lock:
//! it replaces one slot.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::model::month::format_rfc3339;
use crate::support::snapshot::SnapshotCell;

/// The most refused forms that are kept.
pub const MAX_REFUSED_FORMS: usize = 100;

/// One refused form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedForm {
    /// When its request began, in Unix seconds.
    pub at: i64,
    /// The prefix of its route, or `authz.path`.
    pub route: SmolStr,
    /// The rule that refused it; `None` if its score did, or if it could not be read.
    pub rule: Option<SmolStr>,
    /// The reason of the worst verdict, or why the form could not be read.
    pub reason: &'static str,
    /// The worst score; `None` for a form that could not be read.
    pub score: Option<u8>,
    /// The domain of the worst address; `None` without a valid one.
    pub domain: Option<SmolStr>,
}

/// The last refused forms of this process.
pub struct RefusedForms {
    /// The n-th refused form is in the slot n modulo their number, with its n.
    slots: Vec<SnapshotCell<Option<(u64, RefusedForm)>>>,
    refused: AtomicU64,
}

impl Default for RefusedForms {
    fn default() -> RefusedForms {
        let slots = (0..MAX_REFUSED_FORMS).map(|_| SnapshotCell::new(None)).collect();
        RefusedForms { slots, refused: AtomicU64::new(0) }
    }
}

impl RefusedForms {
    /// Records a refused form, in the place of the oldest one.
    pub fn record(&self, form: RefusedForm) {
        let number = self.refused.fetch_add(1, Ordering::Relaxed);
        let slot = number % MAX_REFUSED_FORMS as u64;
        self.slots[slot as usize].publish(Some((number, form)));
    }

    /// Returns the forms as JSON, the latest first.
    pub fn to_json(&self) -> Value {
        let snapshots = self.slots.iter().map(SnapshotCell::snapshot);
        let mut forms: Vec<(u64, RefusedForm)> =
            snapshots.filter_map(|slot| Option::clone(&slot)).collect();
        forms.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let forms = forms.into_iter().map(|(_, form)| {
            let RefusedForm { at, route, rule, reason, score, domain } = form;
            json!({
                "at": format_rfc3339(at), "route": route.as_str(),
                "rule": rule.as_ref().map(SmolStr::as_str), "reason": reason, "score": score,
                "domain": domain.as_ref().map(SmolStr::as_str),
            })
        });
        forms.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hundred_forms_are_kept_and_the_latest_is_first() {
        let forms = RefusedForms::default();
        assert_eq!(forms.to_json(), json!([]));
        for number in 0..MAX_REFUSED_FORMS + 7 {
            forms.record(RefusedForm {
                at: number as i64,
                route: SmolStr::new_static("/signup"),
                rule: None,
                reason: "disposable",
                score: Some(100),
                domain: Some(format!("n{number}.com").into()),
            });
        }
        let json = forms.to_json();
        let domains: Vec<&str> =
            json.as_array().unwrap().iter().map(|it| it["domain"].as_str().unwrap()).collect();
        let expected: Vec<String> =
            (7..MAX_REFUSED_FORMS + 7).rev().map(|number| format!("n{number}.com")).collect();
        assert_eq!(domains, expected);
        assert_eq!(
            json[0],
            json!({
                "at": "1970-01-01T00:01:46Z", "route": "/signup", "rule": null,
                "reason": "disposable", "score": 100, "domain": "n106.com",
            })
        );
    }
}
