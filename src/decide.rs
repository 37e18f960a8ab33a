//! Decides a sign-up: the canonical inbox of an address, facts about the sign-up, counts of earlier
//! sign-ups, and the operator's rules.
//!
//! [`decide`] is one pure function, by which screening, `[authz]` and `POST /v1/assess` decide. No
//! decision waits for the store: counts are in memory, and a thread exchanges sign-ups with the
//! store.

mod condition;
mod counts;
mod facts;
mod id_mark;
mod inbox;
mod pseudonymizer;
mod rules;
mod sign_ups;
mod sync;

pub use self::condition::{
    Condition, ConditionFault, find_contradiction, split_several_conditions,
};
pub use self::facts::{CountFacts, DomainFacts, Fact, FactValue, Facts, MAX_COUNT};
pub use self::inbox::{CanonicalInbox, InboxRules, canonical_address_text};
pub use self::pseudonymizer::{InboxSecret, MIN_SECRET_BYTES, Pseudonymizer, SignUpScope};
pub use self::rules::{Action, Decision, DecisionRule, ScorePolicy, decide, decide_strictest};
pub use self::sign_ups::{SignUpCounter, has_too_many_inboxes};
pub use self::sync::{SignUpSync, delete_expired_sign_ups};
