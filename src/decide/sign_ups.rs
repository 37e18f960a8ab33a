//! The counter of sign-ups, which all requests share: inbox ids, counts, and unwritten sign-ups.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::believed_time::MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS;
use crate::model::email::EmailAddress;
use crate::model::network::SignUpNetwork;
use crate::model::sign_up::{InboxDeletion, Pseudonym, SignUp, SignUpEntry, apply_deletions};
use crate::support::exchange_thread::StoreExchangeThread;
use crate::support::lock::lock;
use crate::support::snapshot::SnapshotCell;

use super::counts::SignUpCounts;
use super::facts::CountFacts;
use super::inbox::{InboxRules, canonical_address_text};
use super::pseudonymizer::{InboxSecret, Pseudonymizer, SignUpScope};

/// The most sign-ups that wait to be written to the store. Sign-ups beyond this number count on
/// this node only.
const MAX_UNSAVED: usize = 10_000;

/// The most inboxes to which the addresses of one sign-up form belong. An honest form has one
/// inbox, or the inbox of a second address, such as that of a parent.
const MAX_INBOXES_OF_FORM: usize = 4;

/// Whether the addresses of a form belong to more inboxes than the addresses of a sign-up do. Such
/// a form counts nothing: else one form of an attacker would raise the counts of many strangers.
pub fn has_too_many_inboxes(sign_ups: &[SignUp]) -> bool {
    let is_first = |(at, it): &(usize, &SignUp)| {
        sign_ups[..*at].iter().all(|earlier| earlier.inbox != it.inbox)
    };
    sign_ups.iter().enumerate().filter(is_first).nth(MAX_INBOXES_OF_FORM).is_some()
}

/// Makes inbox ids, counts sign-ups, and holds those that are not in the store yet.
pub struct SignUpCounter {
    inbox_rules: InboxRules,
    /// `None` until the secret is known. Until then, this node makes no ids and no sign-ups.
    pseudonymizer: SnapshotCell<Option<Pseudonymizer>>,
    counts: SignUpCounts,
    /// Whether the sign-ups in the store have been read.
    is_loaded: AtomicBool,
    /// The sign-ups that are not in the store yet.
    unsaved: Mutex<VecDeque<SignUp>>,
    exchange_thread: StoreExchangeThread,
}

impl SignUpCounter {
    /// A counter without sign-ups. Without a secret, it makes no ids until
    /// [`SignUpCounter::set_pseudonymizer`] is called.
    ///
    /// # Errors
    /// Returns the first fault of the built-in list of inbox rules.
    pub fn with_secret(secret: Option<&InboxSecret>) -> Result<SignUpCounter, String> {
        Ok(SignUpCounter {
            inbox_rules: InboxRules::built_in()?,
            pseudonymizer: SnapshotCell::new(secret.map(Pseudonymizer::new)),
            counts: SignUpCounts::new(),
            is_loaded: AtomicBool::new(false),
            unsaved: Mutex::new(VecDeque::new()),
            exchange_thread: StoreExchangeThread::default(),
        })
    }

    /// Sets the maker of pseudonyms, once the secret is known.
    pub fn set_pseudonymizer(&self, pseudonymizer: Pseudonymizer) {
        self.pseudonymizer.publish(Some(pseudonymizer));
    }

    /// The [`Pseudonymizer::inbox_id_mark`] of this node; `None` until the secret is known.
    pub fn inbox_id_mark(&self, ids_are_by_account: bool) -> Option<String> {
        self.pseudonymizer.peek().as_ref().as_ref().map(|it| it.inbox_id_mark(ids_are_by_account))
    }

    /// Whether the secret is known.
    pub fn has_secret(&self) -> bool {
        self.pseudonymizer.peek().is_some()
    }

    /// Records that the sign-ups in the store have been read.
    pub fn set_loaded(&self) {
        self.is_loaded.store(true, Ordering::Release);
    }

    /// Whether this node makes ids, and counts have a value.
    pub fn is_ready(&self) -> bool {
        self.is_loaded() && self.has_secret()
    }

    /// Whether counts have a value.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire)
    }

    /// Makes the sign-up of an address at the time `at`, in seconds since 1970; `None` until the
    /// secret is known. The sign-up counts for the [`CanonicalInbox::counted_domain`] if
    /// `counts_domain` is true. This function counts nothing.
    pub fn make_sign_up(
        &self,
        address: &EmailAddress,
        client: Option<IpAddr>,
        counts_domain: bool,
        scope: SignUpScope<'_>,
        at: i64,
    ) -> Option<SignUp> {
        let pseudonymizer = self.pseudonymizer.peek();
        let pseudonymizer = pseudonymizer.as_ref().as_ref()?;
        let inbox = self.inbox_rules.canonical_inbox(address);
        let registrable = inbox.counted_domain(address).filter(|_| counts_domain);
        Some(SignUp {
            at,
            inbox: pseudonymizer.inbox_id(&inbox, scope),
            address: pseudonymizer.address_pseudonym(&canonical_address_text(address), scope),
            domain: registrable.map(|domain| pseudonymizer.domain_pseudonym(domain, scope)),
            client: client.map(|address| {
                pseudonymizer.network_pseudonym(SignUpNetwork::from(address), scope)
            }),
        })
    }

    /// The rules by which addresses become inboxes.
    pub fn inbox_rules(&self) -> &InboxRules {
        &self.inbox_rules
    }

    /// The pseudonym of the bucket of a client's rate; `None` until the secret is known.
    pub fn rate_bucket_pseudonym(&self, name: &str) -> Option<Pseudonym> {
        self.pseudonymizer.peek().as_ref().as_ref().map(|it| it.rate_bucket_pseudonym(name))
    }

    /// The counts of sign-ups other than this one. They have no value until the sign-ups in the
    /// store have been read.
    pub fn count_others(&self, sign_up: &SignUp) -> CountFacts {
        match self.is_loaded() {
            true => self.counts.count_others(sign_up),
            false => CountFacts::default(),
        }
    }

    /// Counts a form that succeeded on this node: the sign-ups of its addresses. The form raises
    /// each count by one at most. Keeps the counted sign-ups for the store, up to [`MAX_UNSAVED`].
    pub fn record_form(&self, sign_ups: &[SignUp]) {
        if sign_ups.is_empty() {
            return;
        }
        let added = self.counts.add_form(sign_ups);
        let mut unsaved = lock(&self.unsaved);
        let free = MAX_UNSAVED.saturating_sub(unsaved.len());
        unsaved.extend(added.into_iter().take(free));
    }

    /// Counts sign-ups that were read from the store, and forgets the inboxes of the deletions
    /// among `entries`. A sign-up that a later entry deletes does not count. A sign-up that is
    /// ahead of `now` by more than [`MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS`] is of a wrong clock, and
    /// does not count.
    pub fn add_stored(&self, entries: &[SignUpEntry], now: i64) {
        let (sign_ups, deletions) = apply_deletions(entries);
        if !deletions.is_empty() {
            self.forget_deleted(&deletions);
        }
        let is_ahead = |sign_up: &&SignUp| sign_up.at > now + MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS;
        sign_ups.iter().filter(|it| !is_ahead(it)).for_each(|sign_up| self.counts.add(sign_up));
    }

    /// Forgets the sign-ups of deleted inboxes: all in the counts, and the unwritten ones up to the
    /// time of the deletion. Later unwritten sign-ups count again.
    fn forget_deleted(&self, deletions: &[InboxDeletion]) {
        let is_deleted = |sign_up: &SignUp| deletions.iter().any(|it| it.covers_unwritten(sign_up));
        let inboxes: HashSet<Pseudonym> = deletions.iter().map(|it| it.inbox).collect();
        lock(&self.unsaved).retain(|sign_up| !is_deleted(sign_up));
        self.counts.forget_inboxes(&inboxes);
        let unsaved = lock(&self.unsaved);
        let later = unsaved.iter().filter(|sign_up| inboxes.contains(&sign_up.inbox));
        later.for_each(|sign_up| self.counts.add(sign_up));
    }

    /// The thread that exchanges sign-ups with the store.
    pub fn exchange_thread(&self) -> &StoreExchangeThread {
        &self.exchange_thread
    }

    /// Returns the first of the sign-ups that are not in the store yet: `max` at most.
    pub fn list_unsaved(&self, max: usize) -> Vec<SignUp> {
        let unsaved = lock(&self.unsaved);
        unsaved.iter().take(max).copied().collect()
    }

    /// Removes the first `written` of the sign-ups that were not in the store yet: the store has
    /// them now.
    pub fn remove_unsaved(&self, written: usize) {
        let mut unsaved = lock(&self.unsaved);
        let written = written.min(unsaved.len());
        unsaved.drain(..written);
    }

    /// The number of sign-ups that are not in the store yet.
    pub fn count_unsaved(&self) -> usize {
        lock(&self.unsaved).len()
    }
}
