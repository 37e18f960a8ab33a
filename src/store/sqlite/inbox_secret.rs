//! The inbox secret in SQLite, in a row of the table `meta`.

use rusqlite::{Connection, Transaction};

use super::connection::Sqlite;
use super::meta::{read_meta_value, write_meta_value};
use crate::store::error::StoreError;
use crate::store::inbox_secret::{StoredIdMark, StoredInboxSecret};
use crate::store::operations::InboxSecretBackend;

/// The row of `meta` with the secret.
const SECRET_KEY: &str = "inbox_secret";
/// The row of `meta` with the mark of the inbox ids.
const ID_MARK_KEY: &str = "inbox_id_mark";
/// The row of `meta` with the confirmation of the mark.
const ID_CONFIRMATION_KEY: &str = "inbox_id_confirmation";

impl InboxSecretBackend for Sqlite {
    fn keep_inbox_secret(
        &mut self,
        known: &StoredInboxSecret,
    ) -> Result<StoredInboxSecret, StoreError> {
        let location = self.path.display().to_string();
        self.write("keeping the inbox secret", |transaction| {
            let stored = read_secret_text(transaction)?;
            let stored = stored.map(|text| StoredInboxSecret::from_stored_text(&text, &location));
            let stored = stored.transpose()?;
            let kept = StoredInboxSecret::choose_kept(stored.as_ref(), known);
            if stored.as_ref() != Some(&kept) {
                write_inbox_secret(transaction, &kept)?;
            }
            Ok(kept)
        })
    }

    fn read_inbox_secret(&mut self) -> Result<Option<StoredInboxSecret>, StoreError> {
        let text = self.read("reading the inbox secret", read_secret_text)?;
        let location = self.path.display().to_string();
        text.map(|text| StoredInboxSecret::from_stored_text(&text, &location)).transpose()
    }

    fn read_inbox_id_mark(&mut self) -> Result<Option<StoredIdMark>, StoreError> {
        self.read("reading the mark of the inbox ids", |connection| {
            let Some(mark) = read_meta_value(connection, ID_MARK_KEY)? else { return Ok(None) };
            let confirmation = read_meta_value(connection, ID_CONFIRMATION_KEY)?;
            Ok(Some(StoredIdMark { mark, confirmation }))
        })
    }

    fn write_inbox_id_mark(&mut self, written: &StoredIdMark) -> Result<(), StoreError> {
        self.write("writing the mark of the inbox ids", |transaction| {
            let confirmation = written.confirmation.as_deref().unwrap_or_default();
            write_meta_value(transaction, ID_MARK_KEY, &written.mark)?;
            Ok(write_meta_value(transaction, ID_CONFIRMATION_KEY, confirmation)?)
        })
    }
}

fn read_secret_text(connection: &Connection) -> rusqlite::Result<Option<String>> {
    read_meta_value(connection, SECRET_KEY)
}

pub(super) fn write_inbox_secret(
    transaction: &Transaction<'_>,
    secret: &StoredInboxSecret,
) -> rusqlite::Result<()> {
    write_meta_value(transaction, SECRET_KEY, secret.to_stored_text())
}
