//! Fills an empty server with the contents of another store.
//!
//! riskgate stages the contents under temporary Redis keys. At the end, one script gives these
//! Redis keys their final names. So if a copy is interrupted, the store is as it was before, and
//! the staged Redis keys expire.
//!
//! On a Cluster, one script can't reach the Redis keys of all slots. There, scripts first give each
//! Redis key outside the slot of the keys its final name: counts, top list, sign-ups and the like.
//! The last script adds keys and accounts. If the copy is interrupted in between, the Cluster has
//! counts without keys.

use redis::{Pipeline, Value};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::{
    ACCOUNTS, API_KEYS, AUDIT, CHANGES, DIGESTS, LEDGER_PREFIX, LEDGER_TTL_SECONDS, OVERRIDES,
    RING_PREFIX, RING_REDIS_KEYS, SOURCE_STATES, TOP_ROWS_KEY, ledger_key,
};
use super::link::Link;
use super::reply::reply_number_or_zero;
use super::rows::{format_account, format_key};
use super::scripts::Script;
use super::top::format_top_row;
use crate::store::audit::ChangeAuthor;
use crate::store::contents::{StoreContents, change_of_filled_store};
use crate::store::error::{self, FoundContents, StoreError};
use crate::store::operations::FillBackend;

/// The node id of copied totals; no running node has it.
pub(super) const COPY_NODE_ID: &str = "00000000000000000000000000000000";
/// The Redis keys that an interrupted copy has staged expire after this many seconds.
pub(super) const STAGED_TTL_SECONDS: u64 = 3_600;
const OPERATION: &str = "filling the store";

/// What the last step of a copy does with a staged Redis key if the server has a Redis key of the
/// final name already.
#[derive(Clone, Copy)]
pub(super) enum OnExistingKey {
    /// The copy fails: the store is not empty.
    Fail,
    /// The fields of the staged hash are added.
    MergeHash,
    /// The members of the staged sorted set are added. A member of both keeps the higher score.
    MergeSortedSet,
}

impl OnExistingKey {
    /// The name in scripts.
    fn name(self) -> &'static str {
        match self {
            OnExistingKey::Fail => "fail",
            OnExistingKey::MergeHash => "hash",
            OnExistingKey::MergeSortedSet => "sorted_set",
        }
    }
}

/// The Redis keys that a copy has staged.
pub(super) struct Staging {
    id: String,
    /// The name of a hash: the staged Redis keys, each with what the last step does with it. See
    /// `fill_ring.lua`.
    moves_key: String,
    is_cluster: bool,
    moves: Vec<StagedMove>,
    /// How many of `moves` expire unless the last step comes first, and stand in the hash unless
    /// they are of other slots.
    written: usize,
}

/// A staged Redis key, and what the last step does with it.
struct StagedMove {
    staged: String,
    final_name: String,
    on_existing: OnExistingKey,
    ttl_seconds: i64,
    /// On a Cluster: the Redis key is outside the slot of the keys and accounts.
    is_of_other_slot: bool,
}

impl Staging {
    fn new(id: String, is_cluster: bool) -> Staging {
        let moves_key = format!("riskgate:{{ring}}:staged:{id}:moves");
        Staging { id, moves_key, is_cluster, moves: Vec::new(), written: 0 }
    }

    /// Returns the temporary name of a Redis key. The temporary and the final name are in the same
    /// hash slot.
    pub(super) fn staged_name(&self, final_name: &str) -> String {
        let rest = final_name.strip_prefix("riskgate:").unwrap_or(final_name);
        format!("riskgate:staged:{}:{rest}", self.id)
    }

    /// Lets the last step give a staged Redis key its final name, and returns the temporary name.
    /// With `ttl_seconds`, the Redis key expires so long after it has got its final name.
    pub(super) fn add_move(
        &mut self,
        final_name: &str,
        on_existing: OnExistingKey,
        ttl_seconds: Option<i64>,
    ) -> String {
        let staged = self.staged_name(final_name);
        self.moves.push(StagedMove {
            staged: staged.clone(),
            final_name: final_name.to_owned(),
            on_existing,
            ttl_seconds: ttl_seconds.unwrap_or(0),
            is_of_other_slot: self.is_cluster && !final_name.starts_with(RING_PREFIX),
        });
        staged
    }

    /// Lets the staged Redis keys expire, unless the last step comes first, and writes the entries
    /// of `moves_key`.
    fn push_expiry_and_moves(&mut self, staging: &mut Pipeline) {
        for new in &self.moves[self.written..] {
            let StagedMove { staged, final_name, on_existing, ttl_seconds, .. } = new;
            staging.cmd("EXPIRE").arg(staged).arg(STAGED_TTL_SECONDS);
            if !new.is_of_other_slot {
                let step = format!("{} {ttl_seconds} {final_name}", on_existing.name());
                staging.cmd("HSET").arg(&self.moves_key).arg(staged).arg(step);
            }
        }
        self.written = self.moves.len();
        staging.cmd("EXPIRE").arg(&self.moves_key).arg(STAGED_TTL_SECONDS);
    }
}

/// Finds an account whose Redis keys have no common hash tag.
fn find_account_of_several_slots(contents: &StoreContents) -> Option<&str> {
    let of_totals = contents.usage.iter().map(|row| &row.account);
    let of_days = contents.daily_usage.iter().flat_map(|(_, rows)| rows).map(|row| &row.account);
    of_totals.chain(of_days).map(String::as_str).find(|account| account.starts_with('}'))
}

impl FillBackend for Redis {
    fn fill_empty_store(
        &mut self,
        author: &ChangeAuthor,
        contents: &StoreContents,
    ) -> Result<(), StoreError> {
        let leftovers = self.find_leftovers_of_empty_store()?;
        for chunk in leftovers.chunks(CHUNK_ROWS) {
            self.delete_redis_keys(OPERATION, "UNLINK", chunk)?;
        }
        let is_cluster = matches!(self.link, Some(Link::Cluster(_)));
        if is_cluster && let Some(account) = find_account_of_several_slots(contents) {
            return Err(StoreError::Conflict(format!(
                "account {account}: expected a name that does not begin with }}, because a Cluster \
                 would spread its counts over several slots; rename or leave out this account"
            )));
        }
        let mut staging = Staging::new(self.random_id()?, is_cluster);
        self.stage_ledger(&mut staging, contents)?;
        self.stage_top(&mut staging, contents)?;
        self.stage_daily_usage(&mut staging, contents)?;
        self.stage_quota_events(&mut staging, &contents.quota_events)?;
        self.stage_overrides(&mut staging, &contents.overrides)?;
        let states = &contents.source_states;
        self.stage_hash(&mut staging, SOURCE_STATES, OnExistingKey::MergeHash, states)?;
        self.stage_inbox_secret(&mut staging, contents.inbox_secret.as_ref())?;
        self.stage_sign_ups(&mut staging, &contents.sign_ups)?;
        self.stage_ring(&mut staging, contents)?;
        let last_own_record = self.stage_audit(&mut staging, contents)?;
        let others = staging.moves.extract_if(.., |it| it.is_of_other_slot);
        let others: Vec<StagedMove> = others.collect();
        let mut moved = Vec::with_capacity(others.len());
        let is_moved = self.move_to_final_names(&others, &mut moved);
        let version = match is_moved {
            Ok(true) => {
                let finished = self.finish_copy(author, contents, &staging, last_own_record);
                if finished.is_err() && !self.cancel_last_step(&staging).unwrap_or(false) {
                    return finished.map(drop);
                }
                finished
            }
            Ok(false) => Ok(0),
            Err(error) => Err(error),
        };
        let error = match version {
            Ok(1..) => return Ok(()),
            // Somebody has written to the store meanwhile.
            Ok(0) => error::store_filled_meanwhile_error(&self.location),
            Err(error) => error,
        };
        self.delete_moved(&moved)?;
        Err(error)
    }
}

impl Redis {
    /// Fails if the store is not empty. Else returns the Redis keys of totals that an interrupted
    /// copy of an earlier riskgate left behind.
    fn find_leftovers_of_empty_store(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut count = redis::pipe();
        count.cmd("EXISTS").arg(&[API_KEYS, ACCOUNTS, CHANGES]);
        count.cmd("EXISTS").arg(OVERRIDES);
        let counts = self.query_with_retry(OPERATION, BULK_TIMEOUT, &count)?;
        let [rows, overrides] = counts.try_into().unwrap_or_default();
        let has_sign_ups = self.has_sign_ups(OPERATION)?;
        let leftovers = self.find_leftover_ledger_keys()?;
        let found = FoundContents {
            has_keys_or_accounts: reply_number_or_zero(rows) > 0,
            has_overrides: reply_number_or_zero(overrides) > 0,
            has_numbers: leftovers.is_none(),
            has_sign_ups,
            is_server: true,
        };
        match leftovers {
            Some(leftovers) if found.is_empty() => Ok(leftovers),
            _ => Err(error::store_not_empty_error(&self.location, found)),
        }
    }

    /// On a Cluster: gives staged Redis keys outside the slot of the keys their final names, and
    /// adds those that have them to `moved`. Returns false if another Redis key has a final name
    /// already.
    fn move_to_final_names<'m>(
        &mut self,
        moves: &'m [StagedMove],
        moved: &mut Vec<&'m StagedMove>,
    ) -> Result<bool, StoreError> {
        if moves.is_empty() {
            return Ok(true);
        }
        // A server that does not have the script fails: what ran already must not run again.
        self.load_scripts(BULK_TIMEOUT)?;
        let (replicas, wait_ms) = (self.wait_replicas, BULK_TIMEOUT.as_millis() as u64 / 2);
        for chunk in moves.chunks(CHUNK_ROWS) {
            let mut run = redis::pipe();
            for StagedMove { staged, final_name, on_existing, ttl_seconds, .. } in chunk {
                Script::MoveStaged.push_call(&mut run, &self.script_digests, &[staged, final_name]);
                run.arg(on_existing.name()).arg(*ttl_seconds);
            }
            if replicas > 0 {
                run.cmd("WAIT").arg(replicas).arg(wait_ms);
            }
            let replies = self.send_once_and_read_replies(OPERATION, &run, BULK_TIMEOUT)?;
            let with_replies = chunk.iter().zip(&replies);
            moved.extend(with_replies.filter(|it| *it.1 == Value::Int(1)).map(|it| it.0));
            self.check_for_errors(OPERATION, &replies)?;
            if replicas > 0 {
                let reached = replies.last().cloned().map_or(0, reply_number_or_zero);
                self.check_replicas_have_it(OPERATION, reached)?;
            }
            if replies.contains(&Value::Int(0)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the last step of a copy fail if the server has not run the step yet. Returns false if
    /// the store has keys: then the server has run the step, and only its reply was lost.
    fn cancel_last_step(&mut self, staging: &Staging) -> Result<bool, StoreError> {
        self.delete_redis_keys(OPERATION, "UNLINK", &[&staging.moves_key])?;
        let keys = [API_KEYS, ACCOUNTS, CHANGES];
        let found: u64 = self.query(OPERATION, "EXISTS", &keys)?;
        Ok(found == 0)
    }

    /// On a Cluster: deletes what a copy that failed has added. The top list, the usage by day, the
    /// quota events and the inbox secret stay, because the copy may have merged them into Redis
    /// keys of the store. A further copy writes them again.
    fn delete_moved(&mut self, moved: &[&StagedMove]) -> Result<(), StoreError> {
        let is_new = |it: &&&StagedMove| matches!(it.on_existing, OnExistingKey::Fail);
        let added: Vec<&String> = moved.iter().filter(is_new).map(|it| &it.final_name).collect();
        for chunk in added.chunks(CHUNK_ROWS) {
            self.delete_redis_keys(OPERATION, "UNLINK", chunk)?;
        }
        Ok(())
    }

    /// Deletes Redis keys, of any slots. `command` is DEL or UNLINK; a user may have the right to
    /// one of them only.
    pub(super) fn delete_redis_keys<K: redis::ToRedisArgs>(
        &mut self,
        operation: &'static str,
        command: &str,
        redis_keys: &[K],
    ) -> Result<(), StoreError> {
        // A Cluster takes no command for Redis keys of several slots.
        let mut delete = redis::pipe();
        for key in redis_keys {
            delete.cmd(command).arg(key);
        }
        self.query_with_retry(operation, BULK_TIMEOUT, &delete).map(drop)
    }

    /// Sends a chunk of a copy, and lets the Redis keys that it staged expire.
    pub(super) fn send_staged(
        &mut self,
        staging: &mut Staging,
        mut commands: Pipeline,
    ) -> Result<(), StoreError> {
        staging.push_expiry_and_moves(&mut commands);
        self.query_with_retry(OPERATION, BULK_TIMEOUT, &commands).map(drop)
    }

    /// Finds the totals that an interrupted copy of an earlier riskgate left behind: earlier
    /// versions wrote them under their final names. Returns their Redis keys. `None` if a node has
    /// written totals, so that the store is not empty.
    fn find_leftover_ledger_keys(&mut self) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let leftovers = self.find_redis_keys(OPERATION, &format!("{LEDGER_PREFIX}*"))?;
        for key in &leftovers {
            let mut fields = Vec::new();
            self.scan_hash_fields(OPERATION, key, |field, _| fields.push(field))?;
            let copy_id = COPY_NODE_ID.as_bytes();
            if fields.iter().any(|field| field.len() == copy_id.len() && field != copy_id) {
                return Ok(None);
            }
        }
        Ok(Some(leftovers.into_iter().collect()))
    }

    fn stage_ledger(
        &mut self,
        staging: &mut Staging,
        contents: &StoreContents,
    ) -> Result<(), StoreError> {
        let month = contents.usage_month;
        for chunk in contents.usage.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            for row in chunk {
                let key = ledger_key(&row.account, month);
                let key = staging.add_move(&key, OnExistingKey::Fail, Some(LEDGER_TTL_SECONDS));
                write.cmd("HSET").arg(&key).arg(COPY_NODE_ID);
                write.arg(format!("1 {} {}", row.leased, row.spent));
                write.arg("leased").arg(row.leased).arg("spent").arg(row.spent);
                write.arg("revision").arg(1).arg("base").arg(0).arg("claim").arg("0 0");
            }
            self.send_staged(staging, write)?;
        }
        Ok(())
    }

    fn stage_top(
        &mut self,
        staging: &mut Staging,
        contents: &StoreContents,
    ) -> Result<(), StoreError> {
        let rows: Vec<_> =
            contents.top_rows.iter().map(|row| (&row.domain, format_top_row(row))).collect();
        self.stage_hash(staging, TOP_ROWS_KEY, OnExistingKey::MergeHash, &rows)
    }

    /// Stages a hash with these fields and values. Without any, stages nothing.
    pub(super) fn stage_hash<F: redis::ToRedisArgs, V: redis::ToRedisArgs>(
        &mut self,
        staging: &mut Staging,
        final_name: &str,
        on_existing: OnExistingKey,
        fields: &[(F, V)],
    ) -> Result<(), StoreError> {
        if fields.is_empty() {
            return Ok(());
        }
        let staged = staging.add_move(final_name, on_existing, None);
        for chunk in fields.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            let hash = write.cmd("HSET").arg(&staged);
            for (field, value) in chunk {
                hash.arg(field).arg(value);
            }
            self.send_staged(staging, write)?;
        }
        Ok(())
    }

    /// Stages a sorted set with these scores and members. Without any, stages nothing.
    pub(super) fn stage_sorted_set<M: redis::ToRedisArgs>(
        &mut self,
        staging: &mut Staging,
        final_name: &str,
        on_existing: OnExistingKey,
        members: &[(i64, M)],
    ) -> Result<(), StoreError> {
        if members.is_empty() {
            return Ok(());
        }
        let staged = staging.add_move(final_name, on_existing, None);
        for chunk in members.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            let set = write.cmd("ZADD").arg(&staged);
            for (score, member) in chunk {
                set.arg(score).arg(member);
            }
            self.send_staged(staging, write)?;
        }
        Ok(())
    }

    /// Stages the keys and accounts. The last step fails if one of their final Redis keys exists.
    fn stage_ring(
        &mut self,
        staging: &mut Staging,
        contents: &StoreContents,
    ) -> Result<(), StoreError> {
        let (keys, accounts) = (&contents.ring.keys, &contents.ring.accounts);
        let rows: Vec<_> =
            keys.iter().map(|key| (&key.id, format!("- {}", format_key(key)))).collect();
        self.stage_hash(staging, API_KEYS, OnExistingKey::Fail, &rows)?;
        let digests: Vec<_> = keys.iter().map(|key| (hex::encode(key.digest), &key.id)).collect();
        self.stage_hash(staging, DIGESTS, OnExistingKey::Fail, &digests)?;
        let rows: Vec<_> = accounts
            .iter()
            .map(|account| (&account.name, format!("- {}", format_account(account))))
            .collect();
        self.stage_hash(staging, ACCOUNTS, OnExistingKey::Fail, &rows)?;
        // The last step replaces all scores by the new version of the ring.
        let members: Vec<(i64, String)> = keys
            .iter()
            .map(|key| (1, format!("key:{}", key.id)))
            .chain(accounts.iter().map(|account| (1, format!("account:{}", account.name))))
            .collect();
        self.stage_sorted_set(staging, CHANGES, OnExistingKey::Fail, &members)
    }

    /// Gives the remaining staged Redis keys their final names, in one step. Returns the new
    /// version of the ring, or 0 if another process has written to the store meanwhile.
    fn finish_copy(
        &mut self,
        author: &ChangeAuthor,
        contents: &StoreContents,
        staging: &Staging,
        last_own_record: Option<String>,
    ) -> Result<u64, StoreError> {
        let staged = [CHANGES, AUDIT].map(|name| staging.staged_name(name));
        let [changes, audit] = staged.each_ref().map(String::as_str);
        let names = [&RING_REDIS_KEYS[..], &[&staging.moves_key, changes, audit, OVERRIDES]];
        let names = names.concat();
        let (keys, accounts) = (contents.ring.keys.len(), contents.ring.accounts.len());
        let arguments = [
            self.random_id()?,
            author.to_json().to_string(),
            contents.usage_month.number().to_string(),
            (keys + accounts).to_string(),
            staging.moves.len().to_string(),
            change_of_filled_store(contents).after.to_string(),
            last_own_record.unwrap_or_default(),
            contents.overrides.len().to_string(),
        ];
        self.run_write_script(OPERATION, Script::FillRing, &names, &arguments)
    }
}
