//! Shares sign-ups and the inbox secret through the store: with other nodes, and across restarts.
//!
//! If the store is down, this node counts on with what it knows.

use std::time::{Duration, Instant};

use super::inbox_key::{InboxKey, InboxSecret};
use super::sign_ups::SignUps;
use crate::store::{SignUpCursor, Store, StoreError, StoredInboxSecret};

/// How long a new secret of a server is not used. If the server had lost an older one, another node
/// writes it back in this time.
const NEW_SECRET_DELAY: Duration = Duration::from_secs(3);

/// Writes this node's sign-ups to the store, and reads those of other nodes.
pub struct SignUpSync {
    cursor: SignUpCursor,
    new_secret_delay: Duration,
    secret: KnownSecret,
}

/// What this node knows of the secret.
enum KnownSecret {
    /// `inbox.secret_file` has it.
    OfFile,
    /// The store was not asked yet. If it has none, it gets this one.
    Nothing { random_bytes: [u8; 32] },
    /// A node has drawn this one a moment ago. This node does not use it yet.
    New(StoredInboxSecret, Instant),
    /// This one, to the end of the process.
    OfStore(StoredInboxSecret),
}

impl SignUpSync {
    /// Shares sign-ups. A store without a secret gets one of these random bytes; `None` if the
    /// secret is in a file, and no matter of the store. `is_on_server` says that a server keeps the
    /// store, and may lose it while nodes run.
    pub fn new(random_bytes: Option<[u8; 32]>, is_on_server: bool) -> SignUpSync {
        let nothing = |random_bytes| KnownSecret::Nothing { random_bytes };
        let secret = random_bytes.map_or(KnownSecret::OfFile, nothing);
        let new_secret_delay = if is_on_server { NEW_SECRET_DELAY } else { Duration::ZERO };
        SignUpSync { cursor: SignUpCursor::default(), new_secret_delay, secret }
    }

    /// Exchanges the secret and the sign-ups with the store. `now` is in seconds since 1970.
    /// Returns what the operator has to know.
    ///
    /// # Errors
    /// If the store did not answer. The next call writes what was not written.
    pub fn sync_with_store(
        &mut self,
        store: &mut Store,
        sign_ups: &SignUps,
        now: i64,
    ) -> Result<Option<String>, StoreError> {
        let problem = self.sync_secret(store, sign_ups, now)?;
        let unsaved = sign_ups.take_unsaved();
        if let Err(error) = store.append_sign_ups(&unsaved) {
            sign_ups.return_unsaved(unsaved);
            return Err(error);
        }
        loop {
            let (page, cursor) = store.read_sign_ups_page(self.cursor)?;
            sign_ups.add_stored(&page);
            if std::mem::replace(&mut self.cursor, cursor) == cursor {
                sign_ups.set_loaded();
                return Ok(problem);
            }
        }
    }

    fn sync_secret(
        &mut self,
        store: &mut Store,
        sign_ups: &SignUps,
        now: i64,
    ) -> Result<Option<String>, StoreError> {
        match &self.secret {
            KnownSecret::OfFile => Ok(None),
            KnownSecret::Nothing { random_bytes } => {
                let kept = match store.read_inbox_secret()? {
                    Some(stored) => stored,
                    None => {
                        log::info!("the store has no inbox secret: drew one");
                        let drawn = StoredInboxSecret { secret: *random_bytes, created_at: now };
                        store.keep_inbox_secret(&drawn)?
                    }
                };
                // Another node may have drawn it a moment ago.
                let age = now.saturating_sub(kept.created_at);
                match age >= self.new_secret_delay.as_secs().cast_signed() {
                    true => self.use_secret(kept, sign_ups),
                    false => self.secret = KnownSecret::New(kept, Instant::now()),
                }
                Ok(None)
            }
            KnownSecret::New(drawn, since) => {
                let kept = store.keep_inbox_secret(drawn)?;
                if since.elapsed() >= self.new_secret_delay {
                    self.use_secret(kept, sign_ups);
                }
                Ok(None)
            }
            KnownSecret::OfStore(known) => keep_secret(store, known),
        }
    }

    fn use_secret(&mut self, secret: StoredInboxSecret, sign_ups: &SignUps) {
        if let Some(bytes) = InboxSecret::new(&secret.secret) {
            sign_ups.set_key(InboxKey::new(&bytes));
        }
        self.secret = KnownSecret::OfStore(secret);
    }
}

/// Keeps the secret of this node in the store. Returns what the operator has to know if the store
/// has another one.
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
