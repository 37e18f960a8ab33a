//! The operations of a store. Their contracts are the same for both kinds of store.
//!
//! If an operation returns `Ok`, SQLite has written its changes to disk, or the Redis server has
//! acknowledged them. After a change of keys, accounts or overrides, `store.wait_replicas` replicas
//! have acknowledged the change too. Such a change is atomic: it takes effect completely or not at
//! all. The exception is `write_back_lost_rows`, which writes lost rows in pages, and returns how
//! many replicas lack these rows.
//!
//! Lost rows, top counts, DNS facts and sign-ups may be written in several pages. Each page is
//! atomic. If the operation fails, some pages may be written already, and the caller can repeat the
//! operation. Of these operations, only `write_back_lost_rows` waits for replicas.
//!
//! A change that takes an author has a record in the audit, which names the author. The first state
//! of a source has no record. A change and its record are one atomic step, with three exceptions:
//!
//! - Some sign-ups are deleted after the record of their deletion is written; on a server, all.
//! - A server deletes what is about later months after it has written the record of the repair.
//! - On a Cluster, filling an empty store writes the Redis keys of other slots before the record.

pub(super) mod contents;
pub(super) mod open;

use std::time::{Duration, Instant};

use super::audit::{AuditOperation, AuditRecord, Change, ChangeAuthor, SourceState};
use super::contents::{SnapshotToCopy, StoreContents};
use super::error::StoreError;
use super::finding::Finding;
use super::inbox_secret::{StoredIdMark, StoredInboxSecret};
use super::ledger::{LeaseReport, Probe, ReportBatchContext, ReportOutcome};
use super::new_key_plan::NewKeyPlan;
use super::overrides::{
    OverrideTakeOver, OverrideUpdate, OverridesVersion, StoredOverride, StoredOverrides,
};
use super::quota_events::{
    ClaimTimes, ClaimedQuotaEvent, NewQuotaEvent, QuotaEventOutcome, QuotaEventRow,
};
use super::rows::{
    AccountRow, DailyUsageCursor, DailyUsageRow, DnsFactRow, KeyRow, MonthRepair,
    RepeatableRequestRow, RingChanges, RingRows, RingVersion, Rotation, TopCredit, TopRow,
    UsageRow,
};
use super::sign_ups::{NumberedEntry, SignUpCursor, SignUpDeletion};
use crate::model::believed_time::{BelievedTime, TimeAnchor};
use crate::model::month::Month;
use crate::model::monthly_limit::LimitChange;
use crate::model::sign_up::SignUp;

/// The connection to a store of either kind.
pub trait ConnectionBackend {
    /// Whether the store is a server, which other nodes may use too.
    fn is_server(&self) -> bool;

    /// The believed time that the caller has told this connection.
    fn told_time(&mut self) -> &mut ToldTime;

    /// Fails if riskgate must not use the store: for example, its file is damaged or read-only, or
    /// its server may evict acknowledged data. A server that does not answer is no failure.
    fn check_safe_if_reachable(&mut self) -> Result<(), StoreError>;

    /// Fails if riskgate must not use an open store any more: its file was moved, deleted or
    /// replaced, or its server may now evict acknowledged data. A server that does not answer is no
    /// failure.
    fn check_still_safe(&mut self) -> Result<(), StoreError>;

    /// Says that the keys of this process were read over this connection, from the store with this
    /// id. From now on, other connections of this process with the same options write to no server
    /// that has another store: their operations fail. Does nothing if the store is a file.
    fn name_store_of_keys(&mut self, _store_id: &str) {}

    /// Lets later operations wait up to five seconds for an SQLite lock, so that a command succeeds
    /// while a busy gateway uses the same file. Does nothing if the store is in Redis.
    fn raise_busy_timeout(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Moves SQLite's write-ahead log into the database file and empties the log, unless another
    /// process reads the store. Keeps a writer waiting for some milliseconds at most. Returns true
    /// if the log is empty: what was deleted is then no longer on the disk, and once no process has
    /// the store open, the database file alone can be moved or backed up. Returns true if the store
    /// is in Redis.
    fn checkpoint_wal(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// From now on, reads see the store as it is at one moment, whatever others change. Does
    /// nothing on a server.
    fn begin_snapshot(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Ends what [`ConnectionBackend::begin_snapshot`] began.
    fn end_snapshot(&mut self) {}
}

/// What shows whether a store can do its work.
pub trait DeploymentBackend {
    /// Checks what a gateway relies on, and changes nothing that the store keeps. `deadline` is how
    /// long a call waits for the store.
    fn check_deployment(&mut self, deadline: Duration) -> Result<Vec<Finding>, StoreError>;

    /// Fails if a server refuses writes, or if the disk of a file is full. Changes nothing that the
    /// store keeps.
    fn check_takes_writes(&mut self) -> Result<(), StoreError>;
}

/// What both kinds of store do with keys and accounts.
pub trait RingBackend {
    /// The id of the store, and the version of its keys and accounts. This read is cheap enough to
    /// be made several times a second. `None` if the store is not initialized, or has lost its id.
    /// On a server, fails if rows were lost.
    fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError>;

    /// How many keys the store has. A server also counts foreign entries, and the keys of an import
    /// that has not ended.
    fn count_keys(&mut self) -> Result<u64, StoreError>;

    /// Reads all keys, all accounts, and the version of the ring. A row may already be newer than
    /// this version, but never older. `None` if the store is not initialized.
    fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError>;

    /// Reads the keys and accounts that changed after version `after_version`, and the version
    /// after these changes. A row may already be newer than this version, but never older. If the
    /// store has lost changes, `after_version` may be of the lost history: see
    /// [`RingChanges::follows`].
    fn ring_changes(&mut self, after_version: u64) -> Result<RingChanges, StoreError>;

    /// Reads keys, accounts, overrides, the states of sources and the id of the audit's last
    /// record, as they are at one moment. `None` as for
    /// [`Store::read_contents`](crate::store::Store::read_contents).
    fn read_snapshot_to_copy(&mut self) -> Result<Option<SnapshotToCopy>, StoreError>;

    /// Finds a key by its id. `None` if there is none, or if its row is not in effect yet or can't
    /// be read.
    fn find_key(&mut self, id: &str) -> Result<Option<KeyRow>, StoreError>;

    /// Finds a key by its digest. `None` as for [`RingBackend::find_key`].
    fn find_key_by_digest(&mut self, digest: &[u8; 32]) -> Result<Option<KeyRow>, StoreError>;

    /// Finds an account by its name. `None` as for [`RingBackend::find_key`].
    fn find_account(&mut self, name: &str) -> Result<Option<AccountRow>, StoreError>;

    /// Describes the entries among the keys and accounts on a server that riskgate did not write,
    /// as the latest read found them: the first ones, and how many more. riskgate ignores such
    /// entries. Always empty with SQLite.
    fn describe_foreign_entries(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes an empty server a store without keys: gives the server a store id and a version. Does
    /// nothing if the server is a store already, and with SQLite. A change of keys, accounts or
    /// overrides makes an empty server a store as well.
    fn mark_as_store(&mut self, author: &ChangeAuthor) -> Result<(), StoreError>;

    /// Lowers the expiry of a key to `expires_at`, unless the key expires earlier. Sets its
    /// revocation time to `revoked_at`, unless the key is revoked already. `None` leaves the expiry
    /// or the revocation as it is. Both are Unix seconds. Fails if the store has no key with this
    /// id.
    fn expire_or_revoke_key(
        &mut self,
        author: &ChangeAuthor,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError>;

    /// Creates an account, or changes its settings. A `new_plan` or `new_limit` of `None` keeps the
    /// present one.
    fn set_account(
        &mut self,
        author: &ChangeAuthor,
        name: &str,
        new_plan: Option<&str>,
        new_limit: Option<LimitChange>,
    ) -> Result<(), StoreError>;
}

/// How both kinds of store add keys.
pub trait KeyAdditionBackend {
    /// Does what [`Store::add_keys`](crate::store::Store::add_keys) does, for at least one key. The
    /// audit records `change`.
    fn add_keys(
        &mut self,
        author: &ChangeAuthor,
        keys_with_plans: &[(KeyRow, Option<NewKeyPlan>)],
        request: Option<&RepeatableRequestRow>,
        change: &Change,
    ) -> Result<(), StoreError>;
}

/// How both kinds of store rotate keys.
pub trait RotationBackend {
    /// In one step, adds the new key and gives the old key the expiry `rotation.old_expires_at`,
    /// unless the old key expires earlier. The caller gives both keys the same account. Remembers
    /// the `request` as [`KeyAdditionBackend::add_keys`] does.
    ///
    /// # Errors
    /// If the store fails, or
    /// - has no old key with this id;
    /// - has the new key or the request already;
    /// - has an old key that is revoked or has expired.
    fn rotate_key(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation,
        request: Option<&RepeatableRequestRow>,
    ) -> Result<(), StoreError>;

    /// Undoes a rotation in one step: revokes the new key at `rotation.unix_now`, and sets the
    /// expiry of the old key back to `former_expires_at`. If the old key's expiry is not
    /// `rotation.old_expires_at`, the present expiry stays: it was earlier already, or another
    /// command has changed it. Fails if the store lacks one of the keys.
    fn undo_rotation(
        &mut self,
        author: &ChangeAuthor,
        rotation: &Rotation,
        former_expires_at: Option<i64>,
    ) -> Result<(), StoreError>;
}

/// How both kinds of store get lost rows back.
pub trait WriteBackBackend {
    /// Writes back rows that the store had acknowledged and lost. Adds missing keys and accounts,
    /// but no key whose id another key has. If the store ends a key later than `keys` does, gives
    /// the key the earlier end. All other rows stay as they are. If there is nothing to write, the
    /// version stays the same.
    ///
    /// Returns how many of the `store.wait_replicas` replicas lack the rows; a repeated call counts
    /// them again.
    fn write_back_lost_rows(
        &mut self,
        author: &ChangeAuthor,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError>;
}

/// How both kinds of store are filled.
pub trait FillBackend {
    /// Fills an empty store with the contents of another store. Fails if the store to fill holds
    /// keys, accounts, overrides, totals or sign-ups. Gateways see its keys and accounts only once
    /// all contents are written.
    fn fill_empty_store(
        &mut self,
        author: &ChangeAuthor,
        contents: &StoreContents,
    ) -> Result<(), StoreError>;
}

/// What both kinds of store do with the audit.
pub trait AuditBackend {
    /// Remembers the state of a source, and appends a record of what differs from the state before.
    /// Returns true if a record was appended. If the store has no state of the source on this
    /// machine, the state before is the latest one on any machine. The first state of a source gets
    /// no record.
    fn record_source_state(
        &mut self,
        author: &ChangeAuthor,
        operation: AuditOperation,
        state: &SourceState,
    ) -> Result<bool, StoreError>;

    /// Reads up to `count` records, the newest first: those before the record `before_id`, or the
    /// latest ones.
    fn read_audit_before(
        &mut self,
        before_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// Reads up to `count` records, the oldest first: those after the record `after_id`, or the
    /// first ones.
    fn read_audit_after(
        &mut self,
        after_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// Reads the records up to the record with this parsed id, a page at a time, so that no page
    /// takes long.
    fn read_audit_up_to(&mut self, last_id: (u64, u64)) -> Result<Vec<AuditRecord>, StoreError> {
        const RECORDS_PER_PAGE: usize = 5_000;
        let mut records: Vec<AuditRecord> = Vec::new();
        loop {
            let after_id = records.last().map(|record| record.id.clone());
            let page = self.read_audit_after(after_id.as_deref(), RECORDS_PER_PAGE)?;
            let is_full = page.len() == RECORDS_PER_PAGE;
            let read_before = records.len() + page.len();
            let is_wanted = |record: &AuditRecord| {
                AuditRecord::parse_id(&record.id).is_some_and(|id| id <= last_id)
            };
            records.extend(page.into_iter().take_while(is_wanted));
            if !is_full || records.len() < read_before {
                return Ok(records);
            }
        }
    }

    /// Reads the remembered state of a source, as [`SourceState::to_stored_text`] renders it.
    ///
    /// [`SourceState::to_stored_text`]: crate::store::SourceState::to_stored_text
    fn read_source_state(&mut self, subject: &str) -> Result<Option<String>, StoreError>;

    /// Finds the record with this id.
    fn find_audit_record(&mut self, id: &str) -> Result<Option<AuditRecord>, StoreError>;

    /// Finds a request that added a key in the last 24 hours.
    fn find_repeatable_request(
        &mut self,
        id: &str,
    ) -> Result<Option<RepeatableRequestRow>, StoreError>;
}

/// What both kinds of store do with overrides.
pub trait OverrideBackend {
    /// The version of the overrides. This read is cheap enough to be made several times a second.
    /// `None` if the store is not initialized, has lost its id, or if SQLite can't read the
    /// version. On a server, fails if the version can't be read, or if the number of overrides is
    /// not the one in the version.
    fn overrides_version(&mut self) -> Result<Option<OverridesVersion>, StoreError>;

    /// Reads all overrides. `None` or an error as for [`OverrideBackend::overrides_version`].
    fn stored_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError>;

    /// Reads the overrides that the store has, even if it has lost others, or if their version
    /// can't be read. `None` if the store is not initialized.
    fn remaining_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError>;

    /// The random id of the change that led to the version with this number. `None` if the change
    /// is not among the latest thousand, or if an earlier version of riskgate made it.
    fn override_change_id(&mut self, number: u64) -> Result<Option<String>, StoreError>;

    /// Reads the overrides of a domain that can be read, the exact one first.
    fn find_overrides(&mut self, domain: &str) -> Result<Vec<StoredOverride>, StoreError>;

    /// Changes the overrides of several different domains in one step; each change has a record of
    /// its own. Returns false and changes nothing if the store's overrides of a domain are not
    /// `before` of its update. Fails if the store would then have more than
    /// [`MAX_STORED_OVERRIDES`](crate::store::MAX_STORED_OVERRIDES).
    fn update_overrides(
        &mut self,
        author: &ChangeAuthor,
        updates: &[OverrideUpdate<'_>],
    ) -> Result<bool, StoreError>;

    /// Adds the rows of a file in one step, and remembers the file. If the store has an override of
    /// the same name and scope, that override stays. Returns how many rows were added; `None` if
    /// the store remembers the file already. Fails if the store would then have more than
    /// [`MAX_STORED_OVERRIDES`](crate::store::MAX_STORED_OVERRIDES).
    fn take_over_overrides(
        &mut self,
        author: &ChangeAuthor,
        take_over: &OverrideTakeOver<'_>,
    ) -> Result<Option<usize>, StoreError>;
}

/// What both kinds of store do with the ledger. [`Store`](crate::store::Store) checks what `probe`
/// and `read_spent_by_others` return.
pub trait LedgerBackend {
    /// Asks a server for its identity and its clock; connects first if there is no connection.
    /// `previous_probe` is this node's last probe. If the server was restarted, replaced or emptied
    /// since then, the server grants nothing beyond the floor of a report for a few seconds, while
    /// all nodes report their totals again. If the server takes writes, the probe also raises the
    /// server's latest month to `latest_begun_month`. With SQLite, the probe does nothing and
    /// succeeds.
    fn probe(
        &mut self,
        latest_begun_month: Month,
        previous_probe: Option<&Probe>,
    ) -> Result<Probe, StoreError>;

    /// Applies the reports of one node, each atomically, and returns the outcome of each, in the
    /// same order. A report whose sequence is not higher than the one in the store changes no
    /// count. A report fails alone if, for example, the totals of its account can't be read, or
    /// SQLite lost them.
    fn report_leases(
        &mut self,
        context: ReportBatchContext<'_>,
        reports: &[LeaseReport],
    ) -> Result<Vec<ReportOutcome>, StoreError>;

    /// How many of the `store.wait_replicas` replicas are missing: they did not acknowledge the
    /// last report in time, or were not connected at the last probe. 0 with SQLite, and if no
    /// replicas are required.
    fn missing_replicas(&self) -> usize {
        0
    }

    /// Reads how many calls all nodes but `node_id` have spent in the month.
    fn read_spent_by_others(
        &mut self,
        account: &str,
        month: Month,
        node_id: &[u8; 16],
    ) -> Result<u64, StoreError>;

    /// The latest month that has totals. On a server, this month may be later than the store's
    /// latest month, because no node raises the latest month by the clock of its machine alone.
    fn latest_month_with_totals(&mut self) -> Result<Option<Month>, StoreError>;

    /// Reads the spent and leased calls of a month by account: of all accounts, or of
    /// `only_account`.
    fn read_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError>;

    /// Lists the accounts that have totals or usage by day in the month, without reading these. A
    /// copy of a store has the totals of one month, and usage by day of others as well.
    fn list_accounts_with_calls(&mut self, month: Month) -> Result<Vec<String>, StoreError>;
}

/// What both kinds of store do with usage by day. The lease reports write it.
pub trait DailyUsageBackend {
    /// Reads the calls of a month by account, day, route and key, in this order: of all accounts,
    /// or of `only_account`. Reads up to `count` rows after the row `after`, or the first ones.
    fn read_daily_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
        after: Option<&DailyUsageCursor>,
        count: usize,
    ) -> Result<Vec<DailyUsageRow>, StoreError>;

    /// Reads the calls of a month of all accounts, for a copy of the store. Fails if a row can't be
    /// read.
    fn daily_usage_to_copy(&mut self, month: Month) -> Result<Vec<DailyUsageRow>, StoreError>;
}

/// What both kinds of store know of the time.
pub trait TimeBackend {
    /// The store's latest month; `None` if there is none. Nodes and copies raise it, and only
    /// [`TimeBackend::repair_month`] lowers it.
    fn latest_month(&mut self) -> Result<Option<Month>, StoreError>;

    /// The server's clock in Unix seconds; `None` with SQLite, which has no clock of its own.
    fn server_unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    /// The believed time that a gateway told this store last; `None` if the store has none.
    fn time_anchor(&mut self) -> Result<Option<TimeAnchor>, StoreError>;

    /// Remembers the believed time of a gateway. The audit does not record this.
    fn remember_time(&mut self, anchor: &TimeAnchor) -> Result<(), StoreError>;

    /// Lowers the store's latest month to `month`, unless it is `month` or an earlier one. Deletes
    /// the totals, the usage by day and the quota events of later months, and forgets the believed
    /// time. Call it only while no node runs.
    fn repair_month(
        &mut self,
        author: &ChangeAuthor,
        month: Month,
    ) -> Result<MonthRepair, StoreError>;
}

/// What both kinds of store do with DNS facts.
pub trait DnsFactBackend {
    /// Saves DNS facts, and replaces earlier facts of the same names. The store keeps the facts of
    /// the [`MAX_DNS_FACTS`](crate::store::MAX_DNS_FACTS) names that were written last.
    fn save_dns_facts(&mut self, facts: &[DnsFactRow]) -> Result<(), StoreError>;

    /// Returns a page of the DNS facts that were written after version `after_version`, in the
    /// order of writing, and the version of the page's last fact. To read all facts, repeat the
    /// call with the returned version until the version stays the same. If `after_version` is
    /// higher than the store's version, the store was replaced or restored from a backup, and the
    /// pages start from the oldest fact.
    fn read_dns_facts_page(
        &mut self,
        after_version: u64,
    ) -> Result<(Vec<DnsFactRow>, u64), StoreError>;

    /// The DNS fact of a name, if the store keeps one.
    fn find_dns_fact(&mut self, name: &str) -> Result<Option<DnsFactRow>, StoreError>;
}

/// What both kinds of store do with quota events, which webhooks deliver.
pub trait QuotaEventBackend {
    /// Records events that the store does not have, in one step. An event that the store has stays
    /// as it is, whether it is pending or finished. Each call also forgets some events that were
    /// finished before `forgotten_before`; SQLite does so only if one of `events` is new.
    ///
    /// Returns n if the store now has the first n of `events`. If [`MAX_PENDING_QUOTA_EVENTS`] are
    /// pending, the store does not take the others.
    ///
    /// [`MAX_PENDING_QUOTA_EVENTS`]: crate::store::MAX_PENDING_QUOTA_EVENTS
    fn record_quota_events(
        &mut self,
        events: &[NewQuotaEvent],
        forgotten_before: i64,
    ) -> Result<usize, StoreError>;

    /// Claims up to `max` pending events that are due, in the order in which they became due.
    /// Counts an attempt for each, and makes each due again at `times.claimed_until`. Until then,
    /// no other caller gets the event. An event that is due after `times.latest_due` counts as due
    /// now: its time was written while a clock was ahead.
    fn claim_quota_events(
        &mut self,
        times: ClaimTimes,
        max: usize,
    ) -> Result<Vec<ClaimedQuotaEvent>, StoreError>;

    /// Records the outcome of a claimed event: the event is finished, or due again later. Returns
    /// false and changes nothing if another caller has claimed or finished the event since.
    fn finish_quota_event(
        &mut self,
        event: &ClaimedQuotaEvent,
        outcome: QuotaEventOutcome,
    ) -> Result<bool, StoreError>;

    /// Returns how many events are pending.
    fn count_pending_quota_events(&mut self) -> Result<u64, StoreError>;

    /// Returns the events that a copy of the store needs: all pending ones, and the finished ones
    /// of `month` and later months, in the order of their keys. Fails if an event can't be read.
    fn quota_events_to_copy(&mut self, month: Month) -> Result<Vec<QuotaEventRow>, StoreError>;
}

/// What both kinds of store do with the top list.
pub trait TopListBackend {
    /// The rows of the top list.
    fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError>;

    /// Reads the rows of the top list for a copy of the store. Fails if a row can't be read.
    fn top_rows_to_copy(&mut self) -> Result<Vec<TopRow>, StoreError>;

    /// Reads the rows of the top list, and the dedup hashes of the look-ups that were counted on
    /// the day `unix_day` (days since 1970). A dedup hash is the hash of account, row and day.
    fn top_rows_and_dedup_hashes(
        &mut self,
        unix_day: i64,
    ) -> Result<(Vec<TopRow>, Vec<u64>), StoreError>;

    /// Adds the look-ups in `credits` to the top list. Each dedup hash counts only once on its day,
    /// even if several nodes report it. Deletes the rows of `evicted_domains`. Returns the
    /// credited rows.
    fn add_credits(
        &mut self,
        credits: &[TopCredit],
        evicted_domains: &[String],
        unix_day: i64,
        half_life_seconds: f64,
    ) -> Result<Vec<TopRow>, StoreError>;
}

/// What both kinds of store do with the inbox secret.
pub trait InboxSecretBackend {
    /// Gives the store the secret that the caller knows, unless the store has an older one (see
    /// `StoredInboxSecret::choose_kept`). Returns the secret that the store has afterwards. So all
    /// nodes come to know the same secret, and a store that has lost its secret gets it back.
    /// Atomic. Fails if the store has a damaged secret.
    fn keep_inbox_secret(
        &mut self,
        known: &StoredInboxSecret,
    ) -> Result<StoredInboxSecret, StoreError>;

    /// The secret of the store; `None` if it has none.
    fn read_inbox_secret(&mut self) -> Result<Option<StoredInboxSecret>, StoreError>;

    /// Reads what [`write_inbox_id_mark`](InboxSecretBackend::write_inbox_id_mark) wrote last;
    /// `None` if the store has no mark.
    fn read_inbox_id_mark(&mut self) -> Result<Option<StoredIdMark>, StoreError>;

    /// Replaces the mark of the inbox ids, and its confirmation. So the store has the mark of the
    /// node that wrote last.
    fn write_inbox_id_mark(&mut self, written: &StoredIdMark) -> Result<(), StoreError>;
}

/// What both kinds of store do with sign-ups.
pub trait SignUpBackend {
    /// Appends sign-ups in pages. The store keeps the [`MAX_SIGN_UPS`](crate::store::MAX_SIGN_UPS)
    /// entries that were written last. If the time that this store was told is settled, each call
    /// deletes some entries as well: those older than 30 days, and those that were written while a
    /// clock was ahead. A call without sign-ups only deletes, and is cheap enough to be made each
    /// second. The entry that was written last always stays.
    ///
    /// The caller has read the entries up to the cursor `read_up_to`, and leaves out what they
    /// delete. The store leaves out what later deletions cover, see
    /// `InboxDeletion::covers_unwritten`. So a write that arrives late brings no deleted sign-up
    /// back.
    ///
    /// Returns up to where the caller has now read: up to the last appended sign-up, unless the
    /// store has an entry before it that the caller has not read.
    fn append_sign_ups(
        &mut self,
        sign_ups: &[SignUp],
        read_up_to: SignUpCursor,
    ) -> Result<SignUpCursor, StoreError>;

    /// Returns up to `count` entries from the number `from` on, in the order of their numbers. If
    /// there are two or more, and `count` allows it, returns at least two. Fewer than `count` don't
    /// mean that the store has no later entry.
    fn read_sign_up_entries(
        &mut self,
        from: u64,
        count: usize,
    ) -> Result<Vec<NumberedEntry>, StoreError>;

    /// Appends a deletion for each of some inboxes, and deletes their sign-ups. Once a node has
    /// read the deletions, it counts no earlier sign-up of these inboxes. The step that appends the
    /// deletions also deletes some of the sign-ups; later steps delete the others. Returns how many
    /// sign-ups were deleted.
    ///
    /// On a server, the record of the audit is written first, because it is in another hash slot.
    /// If the server fails after that, there is a record without a deletion, and the caller can
    /// repeat the deletion.
    fn delete_sign_ups(
        &mut self,
        author: &ChangeAuthor,
        deletion: &SignUpDeletion<'_>,
    ) -> Result<usize, StoreError>;
}

/// How both kinds of store delete rows that are past their time.
pub trait ExpiredRowBackend {
    /// Deletes what is past its time: requests that can't be repeated any more, the dedup hashes of
    /// the top list from before yesterday, and the DNS facts whose expiry is
    /// `latest_useless_dns_expiry` or earlier. A server deletes the dedup hashes of a day by
    /// itself, two days after the last one. Does nothing unless the time that this store was told
    /// is settled.
    ///
    /// Deletes in pages, and a bounded number of rows. A later call deletes the others.
    fn delete_expired_rows(&mut self, latest_useless_dns_expiry: i64) -> Result<(), StoreError>;
}

/// The believed time as the caller last told it, and when the caller told it: a store does not read
/// the clock of its machine that tells the date.
pub struct ToldTime {
    told: BelievedTime,
    told_at: Instant,
}

impl ToldTime {
    /// The time of a connection that was not told any. Such a connection deletes nothing by age.
    pub(super) fn unknown() -> ToldTime {
        ToldTime { told: BelievedTime::UNKNOWN, told_at: Instant::now() }
    }

    pub(super) fn set(&mut self, time: BelievedTime) {
        *self = ToldTime { told: time, told_at: Instant::now() };
    }

    pub(super) fn now(&self) -> BelievedTime {
        let passed = i64::try_from(self.told_at.elapsed().as_secs()).unwrap_or(i64::MAX);
        BelievedTime { unix_now: self.told.unix_now.saturating_add(passed), ..self.told }
    }
}
