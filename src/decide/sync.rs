//! Shares sign-ups and the inbox secret through the store: with other nodes, and across restarts.
//!
//! While the store is down, this node continues to count with the sign-ups that it knows.

use std::time::{Duration, Instant};

use super::id_mark::IdMarkKeeper;
use super::pseudonymizer::{InboxSecret, Pseudonymizer};
use super::sign_ups::SignUpCounter;
use crate::model::sign_up::{SignUpEntry, times_of_kept_sign_ups};
use crate::store::{SIGN_UPS_PER_WRITE, SignUpCursor, Store, StoreError, StoredInboxSecret};

/// For how long nodes do not use a new secret of a server. If the server has lost an older secret,
/// a running node that knows the older one writes it back within this time.
const NEW_SECRET_DELAY: Duration = Duration::from_secs(3);

/// Writes this node's sign-ups to the store, and reads those of other nodes. Shares the inbox
/// secret through the store, unless a file has it.
pub struct SignUpSync {
    cursor: SignUpCursor,
    new_secret_delay: Duration,
    secret: KnownSecret,
    id_mark: IdMarkKeeper,
    /// Whether the store may still have deleted sign-ups in its log.
    has_deleted_in_log: bool,
}

/// What this node knows of the inbox secret.
enum KnownSecret {
    /// `inbox.secret_file` has the secret.
    OfFile,
    /// This node has found no secret in the store yet. If the store still has none, it gets these
    /// bytes.
    NotRead { random_bytes: [u8; 32] },
    /// A node drew this secret a moment ago. This node does not use it yet: see
    /// [`NEW_SECRET_DELAY`]. The instant is when this node learned the secret.
    JustDrawn(StoredInboxSecret, Instant),
    /// This node uses this secret to the end of the process.
    OfStore(StoredInboxSecret),
}

impl SignUpSync {
    /// A store without a secret gets these random bytes. `None` if the secret is in a file: the
    /// store then gets no secret. `is_on_server` says that the store is on a server, which may lose
    /// its data while nodes run.
    pub fn new(random_bytes: Option<[u8; 32]>, is_on_server: bool) -> SignUpSync {
        let nothing = |random_bytes| KnownSecret::NotRead { random_bytes };
        let secret = random_bytes.map_or(KnownSecret::OfFile, nothing);
        let new_secret_delay = if is_on_server { NEW_SECRET_DELAY } else { Duration::ZERO };
        SignUpSync {
            cursor: SignUpCursor::default(),
            new_secret_delay,
            secret,
            id_mark: IdMarkKeeper::default(),
            has_deleted_in_log: false,
        }
    }

    /// Exchanges the secret and the sign-ups with the store. `now` is in seconds since 1970.
    /// Returns a problem that the operator has to know, if there is one.
    ///
    /// # Errors
    /// If the store fails, or its secret is damaged. The next call writes the sign-ups that were
    /// not written.
    pub fn sync_with_store(
        &mut self,
        store: &mut Store,
        sign_ups: &SignUpCounter,
        ids_are_by_account: bool,
        now: i64,
    ) -> Result<Option<String>, StoreError> {
        let mut problem = self.sync_secret(store, sign_ups, now)?;
        if problem.is_none()
            && let Some(mark) = sign_ups.inbox_id_mark(ids_are_by_account)
        {
            problem = self.id_mark.compare_and_write(store, &mark, Instant::now())?;
        }
        // This node reads before it writes: while it could not reach the store, an inbox may have
        // been deleted. This node must not write earlier sign-ups of the inbox after the deletion.
        // It reads before each page, so that the store has few entries that this node has not read.
        loop {
            self.read_entries(store, sign_ups, now)?;
            sign_ups.set_loaded();
            let page = sign_ups.list_unsaved(SIGN_UPS_PER_WRITE);
            // This node's own entries are counted already, and are not read back.
            self.cursor = store.append_sign_ups(&page, self.cursor)?;
            sign_ups.remove_unsaved(page.len());
            if page.len() < SIGN_UPS_PER_WRITE {
                break;
            }
        }
        self.has_deleted_in_log = self.has_deleted_in_log && !store.checkpoint_wal()?;
        Ok(problem)
    }

    /// Reads the secret and the sign-ups, and writes nothing, because this process does not serve
    /// yet. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// If the store fails, or its secret is damaged.
    pub fn read_from_store(
        &mut self,
        store: &mut Store,
        sign_ups: &SignUpCounter,
        now: i64,
    ) -> Result<(), StoreError> {
        self.read_secret(store, sign_ups, now)?;
        self.read_entries(store, sign_ups, now)?;
        sign_ups.set_loaded();
        Ok(())
    }

    /// Reads only the secret, and writes nothing.
    ///
    /// # Errors
    /// If the store fails, or its secret is damaged.
    pub fn read_secret(
        &mut self,
        store: &mut Store,
        sign_ups: &SignUpCounter,
        now: i64,
    ) -> Result<(), StoreError> {
        if let KnownSecret::NotRead { .. } = self.secret
            && let Some(stored) = store.read_inbox_secret()?
        {
            self.learn_secret(stored, sign_ups, now);
        }
        Ok(())
    }

    /// Reads the sign-ups and deletions that this node has not read yet, and counts them.
    fn read_entries(
        &mut self,
        store: &mut Store,
        sign_ups: &SignUpCounter,
        now: i64,
    ) -> Result<(), StoreError> {
        loop {
            let (page, cursor) = store.read_sign_ups_page(self.cursor)?;
            sign_ups.add_stored(&page, now);
            self.has_deleted_in_log |=
                page.iter().any(|entry| matches!(entry, SignUpEntry::Deletion(_)));
            if std::mem::replace(&mut self.cursor, cursor) == cursor {
                return Ok(());
            }
        }
    }

    /// Exchanges only the secret with the store. Returns a problem that the operator has to know,
    /// if there is one.
    ///
    /// # Errors
    /// If the store fails, or its secret is damaged.
    pub fn sync_secret(
        &mut self,
        store: &mut Store,
        sign_ups: &SignUpCounter,
        now: i64,
    ) -> Result<Option<String>, StoreError> {
        match &self.secret {
            KnownSecret::OfFile => Ok(None),
            KnownSecret::NotRead { random_bytes } => {
                let kept = match store.read_inbox_secret()? {
                    Some(stored) => stored,
                    None => {
                        log::info!("the store has no inbox secret: offering one of this node");
                        let drawn = StoredInboxSecret { secret: *random_bytes, created_at: now };
                        store.keep_inbox_secret(&drawn)?
                    }
                };
                self.learn_secret(kept, sign_ups, now);
                Ok(None)
            }
            KnownSecret::JustDrawn(drawn, since) => {
                let kept = store.keep_inbox_secret(drawn)?;
                if since.elapsed() >= self.new_secret_delay {
                    self.use_secret(kept, sign_ups);
                }
                Ok(None)
            }
            KnownSecret::OfStore(known) => keep_secret(store, known),
        }
    }

    /// Learns the secret that the store has. Uses the secret, unless another node may have drawn it
    /// a moment ago.
    fn learn_secret(&mut self, stored: StoredInboxSecret, sign_ups: &SignUpCounter, now: i64) {
        let age = now.saturating_sub(stored.created_at);
        match age >= self.new_secret_delay.as_secs().cast_signed() {
            true => self.use_secret(stored, sign_ups),
            false => self.secret = KnownSecret::JustDrawn(stored, Instant::now()),
        }
    }

    fn use_secret(&mut self, secret: StoredInboxSecret, sign_ups: &SignUpCounter) {
        if let Some(bytes) = InboxSecret::new(&secret.secret) {
            sign_ups.set_pseudonymizer(Pseudonymizer::new(&bytes));
        }
        self.secret = KnownSecret::OfStore(secret);
    }
}

/// Deletes sign-ups from the start of the store on, while they are outside
/// [`times_of_kept_sign_ups`]: too old, or of a clock that was ahead. The last written entry stays.
///
/// # Errors
/// If the store fails.
pub fn delete_expired_sign_ups(store: &mut Store, now: i64) -> Result<(), StoreError> {
    /// In a round, the store looks at up to 5,000 sign-ups: in all rounds, at all that it keeps.
    const MAX_DELETION_ROUNDS: usize = 200;
    const DELETING_CALLS_PER_ROUND: usize = 50;
    for _ in 0..MAX_DELETION_ROUNDS {
        let (page, _) = store.read_sign_ups_page(SignUpCursor::default())?;
        let is_kept = |entry: &SignUpEntry| times_of_kept_sign_ups(now).contains(&entry.at());
        if page.len() < 2 || is_kept(&page[0]) {
            break;
        }
        (0..DELETING_CALLS_PER_ROUND)
            .try_for_each(|_| store.append_sign_ups(&[], SignUpCursor::default()).map(drop))?;
    }
    store.checkpoint_wal().map(drop)
}

/// Keeps the secret of this node in the store. Returns a problem for the operator if the store has
/// another secret, which is older.
fn keep_secret(store: &mut Store, known: &StoredInboxSecret) -> Result<Option<String>, StoreError> {
    let found = store.read_inbox_secret()?;
    if found.as_ref() == Some(known) {
        return Ok(None);
    }
    let kept = store.keep_inbox_secret(known)?;
    if kept == *known {
        log::warn!("the store had lost the inbox secret: wrote it back, so inbox ids stay");
        return Ok(None);
    }
    let problem = "the store has another inbox secret, which is older: this node keeps its own \
                   until it restarts, and other nodes make other inbox ids";
    Ok(Some(problem.to_owned()))
}

#[cfg(test)]
mod tests;
