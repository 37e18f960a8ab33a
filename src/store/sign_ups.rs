//! Sign-ups as both kinds of store keep them.

use super::error::StoreError;
use crate::model::sign_up::{Pseudonym, SignUp};

/// The most sign-ups that a store keeps. Those written longest ago are deleted.
pub const MAX_SIGN_UPS: usize = 1_000_000;

/// The most sign-ups written at once. The ledger waits while a page is written: on a server, some
/// five milliseconds.
pub(super) const SIGN_UPS_PER_WRITE: usize = 250;

/// The most sign-ups read at once.
pub(super) const SIGN_UPS_PER_PAGE: usize = 5_000;

/// How many of the oldest sign-ups one write looks at, beside as many as it writes, to delete those
/// that are too old.
pub(super) const OLDEST_SIGN_UPS_PER_WRITE: usize = 100;

/// The length of a sign-up as bytes, without its time.
pub(super) const SIGN_UP_BYTES: usize = 1 + 4 * 16;

const HAS_DOMAIN: u8 = 1;
const HAS_CLIENT: u8 = 2;

/// Up to where a caller has read the sign-ups of a store. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignUpCursor {
    /// The number of the last sign-up that was read; 0 before the first one.
    number: u64,
    /// That sign-up. If the store has another one of this number, the store was replaced or has
    /// lost sign-ups.
    sign_up: Option<SignUp>,
}

/// A sign-up as a store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberedSignUp {
    /// Grows with every sign-up that is written, from 1.
    pub number: u64,
    /// `None` if it can't be read.
    pub sign_up: Option<SignUp>,
}

impl NumberedSignUp {
    pub(super) fn new(number: u64, at: i64, bytes: &[u8]) -> NumberedSignUp {
        NumberedSignUp { number, sign_up: decode_sign_up(at, bytes) }
    }
}

/// Returns the page of sign-ups after the cursor, and the cursor after the page. `read` returns the
/// sign-ups of a store from a number on, in the order of their numbers: at most so many.
pub(super) fn read_sign_ups_after(
    cursor: SignUpCursor,
    mut read: impl FnMut(u64, usize) -> Result<Vec<NumberedSignUp>, StoreError>,
) -> Result<(Vec<SignUp>, SignUpCursor), StoreError> {
    // The page begins with the sign-up of the cursor, which shows whether the store is the same.
    let mut page = read(cursor.number, SIGN_UPS_PER_PAGE + 1)?;
    let mut after = cursor;
    match page.first() {
        Some(first) if first.number == cursor.number && first.sign_up == cursor.sign_up => {
            page.remove(0);
        }
        // The store has deleted the sign-up of the cursor, because it was old.
        Some(first) if first.number > cursor.number => {}
        _ => (page, after) = (read(0, SIGN_UPS_PER_PAGE)?, SignUpCursor::default()),
    }
    page.truncate(SIGN_UPS_PER_PAGE);
    if let Some(NumberedSignUp { number, sign_up }) = page.last().copied() {
        after = SignUpCursor { number, sign_up };
    }
    // A sign-up that can't be read counts for nothing.
    Ok((page.into_iter().filter_map(|it| it.sign_up).collect(), after))
}

/// The pseudonyms of a sign-up: a byte that says which of them there are; then those of the inbox,
/// the address, the domain and the client, each of 16 bytes, or zeros.
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

/// The sign-up with these bytes of [`encode_sign_up`]. `None` for other bytes.
fn decode_sign_up(at: i64, bytes: &[u8]) -> Option<SignUp> {
    let (&flags, pseudonyms) = bytes.split_first()?;
    let ([inbox, address, domain, client], []) = pseudonyms.as_chunks::<16>() else { return None };
    let optional = |flag, bytes: &[u8; 16]| (flags & flag != 0).then_some(Pseudonym(*bytes));
    (flags & !(HAS_DOMAIN | HAS_CLIENT) == 0).then_some(SignUp {
        at,
        inbox: Pseudonym(*inbox),
        address: Pseudonym(*address),
        domain: optional(HAS_DOMAIN, domain),
        client: optional(HAS_CLIENT, client),
    })
}
