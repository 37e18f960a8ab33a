//! Finds and deletes the sign-ups of one inbox.
//!
//! Only memory has the address. No error, no record and no result has a part of the address.

use std::collections::HashSet;

use super::fault::ManagementFault;
use crate::decide::{InboxRules, InboxSecret, Pseudonymizer, SignUpScope};
use crate::model::email::EmailAddress;
use crate::model::month::Month;
use crate::model::sign_up::{Pseudonym, times_of_kept_sign_ups};
use crate::store::{ChangeAuthor, RingRows, SignUpDeletion, SignUpsOfInboxes, Store, StoreError};

/// Whose sign-ups are meant, and what is needed to make the pseudonyms of this inbox.
pub struct SignUpOwner<'o> {
    /// An address of the inbox.
    pub address: &'o EmailAddress,
    /// The secret of `inbox.secret_file`; `None` if the store has the secret.
    pub secret_of_file: Option<&'o InboxSecret>,
    /// The accounts that the caller knows, among them those of the key file. The accounts of the
    /// store need not be among them. If `decide.scope` is or was `"account"`, the inbox has another
    /// pseudonym for each account.
    pub accounts: &'o [&'o str],
}

/// The most pseudonyms for which a deletion is written although the store has no sign-up of them: a
/// gateway may know such sign-ups and not have written them yet.
const MAX_DELETIONS_OF_UNWRITTEN: usize = 1_000;

/// The pseudonyms of one inbox.
struct InboxPseudonyms {
    /// The pseudonyms that gateways make now.
    current: Vec<Pseudonym>,
    /// The pseudonyms that sign-ups in the store may have, also under another `decide.scope`.
    all: HashSet<Pseudonym>,
}

/// Finds the sign-ups of an inbox in the store.
///
/// # Errors
/// If the store has no inbox secret and none is given, if the secret is not that of the gateways,
/// or if the store fails.
pub fn find_sign_ups(
    store: &mut Store,
    owner: &SignUpOwner<'_>,
) -> Result<SignUpsOfInboxes, ManagementFault> {
    let inbox = derive_pseudonyms(store, owner)?;
    Ok(store.find_sign_ups(&inbox.all)?)
}

/// Deletes the sign-ups of an inbox from the store. Gateways read the store twice a second, and
/// forget these sign-ups. Returns how many the store had.
///
/// # Errors
/// As [`find_sign_ups`].
pub fn delete_sign_ups(
    store: &mut Store,
    author: &ChangeAuthor,
    owner: &SignUpOwner<'_>,
) -> Result<usize, ManagementFault> {
    let inbox = derive_pseudonyms(store, owner)?;
    let found = store.find_sign_ups(&inbox.all)?;
    // A gateway may know a sign-up that it has not written yet.
    let mut inboxes = found.inboxes.clone();
    inboxes.extend(inbox.current.into_iter().take(MAX_DELETIONS_OF_UNWRITTEN));
    let inboxes: Vec<Pseudonym> = inboxes.into_iter().collect();
    let deletion = SignUpDeletion { found: &found, inboxes: &inboxes };
    Ok(store.delete_sign_ups(author, &deletion)?)
}

fn derive_pseudonyms(
    store: &mut Store,
    owner: &SignUpOwner<'_>,
) -> Result<InboxPseudonyms, ManagementFault> {
    let of_store = match owner.secret_of_file {
        Some(_) => None,
        None => store.read_inbox_secret()?.and_then(|stored| InboxSecret::new(&stored.secret)),
    };
    let Some(secret) = owner.secret_of_file.or(of_store.as_ref()) else {
        return Err(ManagementFault::Conflict(
            "expected the inbox secret in the store, but found none: no gateway has counted a \
             sign-up, or the store has lost the secret and a running gateway writes it back; \
             nothing was changed"
                .to_owned(),
        ));
    };
    let pseudonymizer = Pseudonymizer::new(secret);
    // With another secret, nothing would be found although the store has sign-ups of the inbox.
    let mark = store.read_inbox_id_mark()?.map(|stored| stored.mark);
    if let Some(mark) = &mark
        && ![true, false].map(|by_account| pseudonymizer.inbox_id_mark(by_account)).contains(mark)
    {
        return Err(ManagementFault::Conflict(
            "inbox.secret_file: expected the secret of the gateways of this store, but they make \
             other inbox ids: use the config with which they were started; nothing was changed"
                .to_owned(),
        ));
    }
    let rules = InboxRules::built_in().map_err(|fault| ManagementFault::File(vec![fault]))?;
    let inbox = rules.canonical_inbox(owner.address);
    let of_deployment = pseudonymizer.inbox_id(&inbox, SignUpScope::Deployment);
    let of_account =
        |account: &String| pseudonymizer.inbox_id(&inbox, SignUpScope::Account(account));
    let accounts = list_accounts_with_sign_ups(store, owner.accounts)?;
    let of_accounts: Vec<Pseudonym> = accounts.iter().map(of_account).collect();
    let all = of_accounts.iter().copied().chain([of_deployment]).collect();
    let are_by_account = mark.is_some_and(|mark| mark == pseudonymizer.inbox_id_mark(true));
    // With `decide.scope = "account"`, a request without a key still has the scope of the
    // deployment.
    let of_accounts = if are_by_account { of_accounts } else { Vec::new() };
    let current = std::iter::once(of_deployment).chain(of_accounts).collect();
    Ok(InboxPseudonyms { current, all })
}

/// Lists each account that may have sign-ups: the `known` ones, those of the store, damaged ones
/// included, and those that made a call in a month of the sign-ups that a store keeps. The last
/// ones may be accounts that somebody has removed from the key file since.
fn list_accounts_with_sign_ups(
    store: &mut Store,
    known: &[&str],
) -> Result<Vec<String>, StoreError> {
    // A server without a key ring has no accounts, but may have sign-ups.
    let RingRows { accounts, keys, damaged, .. } = store.ring_rows()?.unwrap_or_default();
    let of_keys = keys.into_iter().map(|key| key.account);
    let of_ring = accounts.into_iter().map(|row| row.name).chain(damaged.account_names);
    let known = known.iter().map(|name| (*name).to_owned());
    let mut names: Vec<String> = known.chain(of_ring).chain(of_keys).collect();
    let times = times_of_kept_sign_ups(store.now().unix_now);
    let [earliest, latest] = [times.start(), times.end()].map(|at| Month::containing(*at).number());
    for month in (earliest..=latest).filter_map(Month::from_number) {
        names.extend(store.list_accounts_with_calls(month)?);
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}

#[cfg(test)]
mod tests;
