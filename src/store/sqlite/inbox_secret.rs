//! The inbox secret in SQLite, in a row of the table `meta`.

use rusqlite::{Connection, Transaction};

use super::connection::Sqlite;
use super::meta::read_meta_value;
use crate::store::error::StoreError;
use crate::store::inbox_secret::{StoredIdMark, StoredInboxSecret};
use crate::store::operations::InboxSecretBackend;

/// The row of `meta` with the mark of the inbox ids.
const ID_MARK_KEY: &str = "inbox_id_mark";
/// The row of `meta` with the confirmation of the mark.
const ID_CONFIRMATION_KEY: &str = "inbox_id_confirmation";

impl InboxSecretBackend for Sqlite {
    fn keep_inbox_secret(
        &mut self,
        known: &StoredInboxSecret,
    ) -> Result<StoredInboxSecret, StoreError> {
        const OPERATION: &str = "keeping the inbox secret";
        let (failed, location) = (self.error_while(OPERATION), self.path.display().to_string());
        let transaction = self.begin_write_transaction(OPERATION)?;
        let stored = read_secret_text(&transaction).map_err(&failed)?;
        let stored = stored.map(|text| StoredInboxSecret::from_stored_text(&text, &location));
        let stored = stored.transpose()?;
        let kept = StoredInboxSecret::choose_kept(stored.as_ref(), known);
        if stored.as_ref() != Some(&kept) {
            write_inbox_secret(&transaction, &kept).map_err(&failed)?;
            transaction.commit().map_err(failed)?;
        }
        Ok(kept)
    }

    fn read_inbox_secret(&mut self) -> Result<Option<StoredInboxSecret>, StoreError> {
        let failed = self.error_while("reading the inbox secret");
        let text = read_secret_text(&self.connection).map_err(failed)?;
        let location = self.path.display().to_string();
        text.map(|text| StoredInboxSecret::from_stored_text(&text, &location)).transpose()
    }

    fn read_inbox_id_mark(&mut self) -> Result<Option<StoredIdMark>, StoreError> {
        let failed = self.error_while("reading the mark of the inbox ids");
        let read = |key| read_meta_value(&self.connection, key).map_err(&failed);
        let Some(mark) = read(ID_MARK_KEY)? else { return Ok(None) };
        Ok(Some(StoredIdMark { mark, confirmation: read(ID_CONFIRMATION_KEY)? }))
    }

    fn write_inbox_id_mark(&mut self, written: &StoredIdMark) -> Result<(), StoreError> {
        const OPERATION: &str = "writing the mark of the inbox ids";
        let failed = self.error_while(OPERATION);
        let transaction = self.begin_write_transaction(OPERATION)?;
        let write = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
        let confirmation = written.confirmation.as_deref();
        transaction.execute(write, [ID_MARK_KEY, &written.mark]).map_err(&failed)?;
        transaction
            .execute(write, [ID_CONFIRMATION_KEY, confirmation.unwrap_or_default()])
            .map_err(&failed)?;
        transaction.commit().map_err(failed)
    }
}

fn read_secret_text(connection: &Connection) -> rusqlite::Result<Option<String>> {
    read_meta_value(connection, "inbox_secret")
}

pub(super) fn write_inbox_secret(
    transaction: &Transaction<'_>,
    secret: &StoredInboxSecret,
) -> rusqlite::Result<()> {
    let text = secret.to_stored_text();
    transaction.execute("INSERT OR REPLACE INTO meta VALUES ('inbox_secret', ?1)", [text])?;
    Ok(())
}
