//! Sign-ups, and deletions of them, as both kinds of store keep them.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::audit::{AuditOperation, Change};
use super::error::StoreError;
use crate::model::sign_up::{InboxDeletion, Pseudonym, SignUp, SignUpEntry};

/// The most sign-ups and deletions that a store keeps. The entries written longest ago are deleted.
pub const MAX_SIGN_UPS: usize = 1_000_000;

/// The most sign-ups written at once. The ledger waits while a page is written: on a server, for
/// some five milliseconds.
pub const SIGN_UPS_PER_WRITE: usize = 250;

/// The most sign-ups read at once.
pub(super) const SIGN_UPS_PER_PAGE: usize = 5_000;

/// Each write looks at some of the oldest entries, and deletes those that are too old. The write
/// looks at as many entries as it writes, and at this many more.
pub(super) const OLDEST_SIGN_UPS_PER_WRITE: usize = 100;

/// The length of a sign-up as bytes, without its time.
pub(super) const SIGN_UP_BYTES: usize = 1 + 4 * 16;

/// The most entries that a deletion deletes in one step, apart from those written since its search.
pub(super) const MAX_ENTRIES_DELETED_PER_STEP: usize = 1_000;

const HAS_DOMAIN: u8 = 1;
const HAS_CLIENT: u8 = 2;
/// The entry is a deletion, and has no pseudonym but that of the inbox. No other flag is set then.
const IS_DELETION: u8 = 4;

/// Up to where a caller has read the sign-ups of a store. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignUpCursor {
    /// The number of the last entry that was read; 0 before the first one.
    pub(super) number: u64,
    /// The entry with this number. If the store has another entry with the number, the store was
    /// replaced or has lost sign-ups.
    pub(super) entry: Option<SignUpEntry>,
}

impl SignUpCursor {
    /// The cursor behind a page that was appended to the entries before the cursor. The last
    /// sign-up of the page has this number; `None` if the store had entries that were not read.
    pub(super) fn after_appended(self, page: &[SignUp], last_number: Option<u64>) -> SignUpCursor {
        match (last_number, page.last()) {
            (Some(number), Some(sign_up)) => {
                SignUpCursor { number, entry: Some(SignUpEntry::SignUp(*sign_up)) }
            }
            _ => self,
        }
    }
}

/// A sign-up or a deletion as a store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedEntry {
    /// Grows with every entry that is written, from 1.
    pub number: u64,
    /// `None` if it can't be read.
    pub entry: Option<SignUpEntry>,
}

impl NumberedEntry {
    pub(super) fn new(number: u64, at: i64, bytes: &[u8]) -> NumberedEntry {
        NumberedEntry { number, entry: decode_entry(at, bytes) }
    }
}

/// The sign-ups of some inboxes that a search found in a store.
#[derive(Clone, Debug, Default)]
pub struct SignUpsOfInboxes {
    /// How many sign-ups there are.
    pub count: usize,
    /// The times of the earliest and of the latest sign-up, in Unix seconds.
    pub times: Option<RangeInclusive<i64>>,
    /// The inboxes that have one of these sign-ups.
    pub inboxes: HashSet<Pseudonym>,
    /// The numbers of the sign-ups, and of earlier deletions of these inboxes.
    pub(super) numbers: Vec<u64>,
    /// The number of the last entry that was read.
    pub(super) read_up_to: u64,
}

impl SignUpsOfInboxes {
    /// Splits the numbers to delete. The store deletes the second part in the step that appends the
    /// deletion, and the first part in later steps.
    pub(super) fn split_numbers_to_delete(&self) -> (&[u64], &[u64]) {
        self.numbers.split_at(self.numbers.len().saturating_sub(MAX_ENTRIES_DELETED_PER_STEP))
    }

    /// Adds the entries of a page that are of one of these inboxes.
    pub(super) fn add_page(&mut self, page: &[NumberedEntry], inboxes: &HashSet<Pseudonym>) {
        for NumberedEntry { number, entry } in page {
            self.read_up_to = *number;
            let Some(entry) = entry.filter(|it| inboxes.contains(&it.inbox())) else { continue };
            self.numbers.push(*number);
            if let SignUpEntry::SignUp(SignUp { at, inbox, .. }) = entry {
                self.count += 1;
                let (first, last) = self.times.take().map_or((at, at), RangeInclusive::into_inner);
                self.times = Some(first.min(at)..=last.max(at));
                self.inboxes.insert(inbox);
            }
        }
    }
}

/// The deletion of the sign-ups of some inboxes.
pub struct SignUpDeletion<'d> {
    /// The sign-ups to delete.
    pub found: &'d SignUpsOfInboxes,
    /// The inboxes of these sign-ups, and further inboxes of which nodes may have sign-ups that
    /// they have not written yet. The store also deletes what was written of all these inboxes
    /// since the search.
    pub inboxes: &'d [Pseudonym],
}

/// The change that deletes `count` sign-ups of an inbox. The change names neither the inbox nor its
/// domain, because the audit is kept for longer than sign-ups.
pub(super) fn change_of_deleted_sign_ups(count: usize) -> Change {
    Change {
        operation: AuditOperation::SignUpsDelete,
        target: "the sign-ups of one inbox".to_owned(),
        before: json!({ "sign_ups": count }),
        after: Value::Null,
    }
}

/// Returns the page of entries after the cursor, and the cursor after the page. `read` gets a
/// number and a count, and returns up to `count` entries of the store from that number on, in
/// order. If this shows that the store was replaced or has lost entries, begins with the first
/// entry.
pub(super) fn read_sign_ups_after(
    cursor: SignUpCursor,
    mut read: impl FnMut(u64, usize) -> Result<Vec<NumberedEntry>, StoreError>,
) -> Result<(Vec<SignUpEntry>, SignUpCursor), StoreError> {
    // The page begins with the entry of the cursor, which shows whether the store is the same.
    let mut page = read(cursor.number, SIGN_UPS_PER_PAGE + 1)?;
    let mut after = cursor;
    match page.first() {
        Some(first) if first.number == cursor.number && first.entry == cursor.entry => {
            page.remove(0);
        }
        // The store has deleted the entry of the cursor.
        Some(first) if first.number > cursor.number => {}
        _ => (page, after) = (read(0, SIGN_UPS_PER_PAGE)?, SignUpCursor::default()),
    }
    page.truncate(SIGN_UPS_PER_PAGE);
    if let Some(NumberedEntry { number, entry }) = page.last().copied() {
        after = SignUpCursor { number, entry };
    }
    // An entry that can't be read counts for nothing.
    Ok((page.into_iter().filter_map(|it| it.entry).collect(), after))
}

/// Returns the sign-ups of a page without those that a deletion covers which the writer of the page
/// has not read. `append_sign_ups.lua` does the same.
pub(super) fn leave_out_deleted(page: &[SignUp], not_read: &[NumberedEntry]) -> Vec<SignUp> {
    let deletions = not_read.iter().filter_map(|it| match it.entry {
        Some(SignUpEntry::Deletion(deletion)) => Some(deletion),
        _ => None,
    });
    let deletions: Vec<InboxDeletion> = deletions.collect();
    let is_deleted = |sign_up: &SignUp| deletions.iter().any(|it| it.covers_unwritten(sign_up));
    page.iter().copied().filter(|sign_up| !is_deleted(sign_up)).collect()
}

/// Encodes the pseudonyms of a sign-up. The first byte says whether there is a domain and a client.
/// Then follow the inbox, the address, the domain and the client, 16 bytes each, with zeros for one
/// that is missing.
pub(super) fn encode_sign_up(sign_up: &SignUp) -> [u8; SIGN_UP_BYTES] {
    let SignUp { at: _, inbox, address, domain, client } = sign_up;
    let mut bytes = [0; SIGN_UP_BYTES];
    bytes[0] = if domain.is_some() { HAS_DOMAIN } else { 0 };
    bytes[0] |= if client.is_some() { HAS_CLIENT } else { 0 };
    let pseudonyms = [Some(*inbox), Some(*address), *domain, *client];
    for (place, pseudonym) in bytes[1..].as_chunks_mut::<16>().0.iter_mut().zip(pseudonyms) {
        *place = pseudonym.map_or([0; 16], |it| it.0);
    }
    bytes
}

/// Encodes a deletion as a sign-up with another first byte, and with zeros for address, domain and
/// client. Earlier versions of riskgate skip a deletion, because they can't read it.
pub(super) fn encode_deletion(inbox: Pseudonym) -> [u8; SIGN_UP_BYTES] {
    let mut bytes = [0; SIGN_UP_BYTES];
    bytes[0] = IS_DELETION;
    bytes[1..17].copy_from_slice(&inbox.0);
    bytes
}

/// Decodes bytes of [`encode_sign_up`] or [`encode_deletion`]. `None` for any other bytes.
fn decode_entry(at: i64, bytes: &[u8]) -> Option<SignUpEntry> {
    let (&flags, pseudonyms) = bytes.split_first()?;
    let ([inbox, address, domain, client], []) = pseudonyms.as_chunks::<16>() else { return None };
    let optional = |flag, bytes: &[u8; 16]| (flags & flag != 0).then_some(Pseudonym(*bytes));
    let inbox = Pseudonym(*inbox);
    if flags == IS_DELETION {
        return Some(SignUpEntry::Deletion(InboxDeletion { at, inbox }));
    }
    let sign_up = SignUp {
        at,
        inbox,
        address: Pseudonym(*address),
        domain: optional(HAS_DOMAIN, domain),
        client: optional(HAS_CLIENT, client),
    };
    (flags & !(HAS_DOMAIN | HAS_CLIENT) == 0).then_some(SignUpEntry::SignUp(sign_up))
}
