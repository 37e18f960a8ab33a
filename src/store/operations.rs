//! The verbs of a store, with the promise of each: written once, kept by both.
//!
//! What a verb has answered is as durable as the store makes it: on disk in the embedded one;
//! acknowledged by the server, and by `store.wait_replicas` of its replicas, in the other. A verb
//! is atomic: it happens whole or not at all.

use std::time::Duration;

use super::{
    AccountRow, Contents, Credit, KeyRow, LearnedRow, LimitRow, Pulse, Redis, RedisOptions,
    RepairedMonth, RingChanges, RingMark, RingRows, Round, Sqlite, Standing, Statement, Store,
    StoreError, StoreUrl, TopRow, UsageRow,
};
use crate::model::month::Month;

impl Store {
    /// Opens a store. A file is created where there is none; a server need not answer yet.
    ///
    /// `patience` is how long one operation may take: in the embedded store, to wait for another
    /// process's lock.
    pub fn open(
        url: &StoreUrl,
        options: &RedisOptions,
        patience: Duration,
    ) -> Result<Store, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Sqlite::open(path, patience).map(Store::Sqlite),
            StoreUrl::Redis(url) => {
                Redis::new(url, options, patience).map(|store| Store::Redis(Box::new(store)))
            }
        }
    }

    /// Opens a store that must be there already; none is created.
    pub fn open_existing(
        url: &StoreUrl,
        options: &RedisOptions,
        patience: Duration,
    ) -> Result<Store, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Sqlite::open_existing(path, patience).map(Store::Sqlite),
            StoreUrl::Redis(_) => Store::open(url, options, patience),
        }
    }

    /// Opens a store as it is, for a look at it; none where none is yet and one could be made.
    pub fn open_to_check(
        url: &StoreUrl,
        options: &RedisOptions,
        patience: Duration,
    ) -> Result<Option<Store>, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Ok(Sqlite::open_to_check(path, patience)?.map(Store::Sqlite)),
            StoreUrl::Redis(_) => Store::open(url, options, patience).map(Some),
        }
    }

    /// What keeps this store from being used at all: a damaged file, a server that would forget
    /// what it acknowledged. A server that does not answer is no such thing.
    pub fn check(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.check_usable(),
            Store::Redis(store) => store.check(),
        }
    }

    /// What has befallen an open store: its file was replaced, its server set up otherwise.
    pub fn recheck(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.check_in_place(),
            Store::Redis(store) => store.check(),
        }
    }

    /// From now on waits for up to five seconds: a command beside a busy gateway.
    pub fn be_patient(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.be_patient(),
            Store::Redis(_) => Ok(()),
        }
    }

    /// Leaves the store tidy for whoever moves or backs it up.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.checkpoint(),
            Store::Redis(_) => Ok(()),
        }
    }

    // --- the ledger ---

    /// Who the store is and what time it has; connects where there is no connection. `known` is
    /// what the last pulse said: if that was another life of the store, or another store, all
    /// nodes restate their numbers for a few seconds before anything is granted anew.
    pub fn pulse(&mut self, month: Month, known: Option<&Pulse>) -> Result<Pulse, StoreError> {
        match self {
            Store::Sqlite(_) => Ok(Pulse::default()),
            Store::Redis(store) => store.pulse(month, known),
        }
    }

    /// Applies one node's statements, each atomically, and answers each. A statement whose
    /// sequence number is not newer than the one that the store knows changes nothing. `None` is
    /// one that failed alone: nothing is known of its fate.
    pub fn state(
        &mut self,
        round: Round<'_>,
        statements: &[Statement],
    ) -> Result<Vec<Option<Standing>>, StoreError> {
        match self {
            Store::Sqlite(store) => store.state(round, statements),
            Store::Redis(store) => store.state(round, statements),
        }
    }

    /// How many of `store.wait_replicas` lacked what was last stated; 0 where none are waited for.
    pub fn missing_replicas(&self) -> usize {
        match self {
            Store::Sqlite(_) => 0,
            Store::Redis(store) => store.missing_replicas(),
        }
    }

    /// What nodes other than `node` say that they spent.
    pub fn others_spent(
        &mut self,
        account: &str,
        month: Month,
        node: &[u8; 16],
    ) -> Result<u64, StoreError> {
        match self {
            Store::Sqlite(store) => store.others_spent(account, month, node),
            Store::Redis(store) => store.others_spent(account, month, node),
        }
    }

    /// The latest month that any node has counted in.
    pub fn latest_month(&mut self) -> Result<Option<Month>, StoreError> {
        match self {
            Store::Sqlite(store) => store.latest_month(),
            Store::Redis(store) => store.latest_month(),
        }
    }

    /// Goes back from a later month to this one: what was counted in later ones is forgotten.
    /// Changes nothing where the latest month is no later; answers what was done. For use while
    /// no node runs.
    pub fn repair_month(&mut self, month: Month) -> Result<RepairedMonth, StoreError> {
        match self {
            Store::Sqlite(store) => store.repair_month(month),
            Store::Redis(store) => store.repair_month(month),
        }
    }

    /// The store's own clock in Unix seconds, if it is not this machine's.
    pub fn unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        match self {
            Store::Sqlite(_) => Ok(None),
            Store::Redis(store) => store.unix_now().map(Some),
        }
    }

    /// Spent and leased calls of a month, by account; of one account when it is named.
    pub fn usage(
        &mut self,
        month: Month,
        account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.usage(month, account),
            Store::Redis(store) => store.usage(month, account),
        }
    }

    // --- keys and accounts ---

    /// The identity of the store and the version of its keys and accounts; cheap enough to ask
    /// several times a second. `None` where there is no store yet, or where it lost its mark.
    pub fn ring_mark(&mut self) -> Result<Option<RingMark>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_mark(),
            Store::Redis(store) => store.ring_mark(),
        }
    }

    /// All keys and accounts: at least as new as the mark that comes with them. `None` without a
    /// mark.
    pub fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_rows(),
            Store::Redis(store) => store.ring_rows(),
        }
    }

    /// The keys and accounts that changed after version `since`, at least as new as the version
    /// that comes with them. They are all of one history; whether it is the one in which the
    /// caller knows that version, [`RingChanges::follow`] tells.
    pub fn ring_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_changes(since),
            Store::Redis(store) => store.ring_changes(since),
        }
    }

    /// What lay beside keys and accounts when they were last asked for, and is none of ours: told
    /// in words, and else ignored.
    pub fn foreign_entries(&self) -> Vec<String> {
        match self {
            Store::Sqlite(_) => Vec::new(),
            Store::Redis(store) => store.foreign_entries(),
        }
    }

    /// Marks an empty server as a store; every verb that writes keys or accounts does so too.
    pub fn init(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(_) => Ok(()),
            Store::Redis(store) => store.init(),
        }
    }

    /// Adds keys, all or none. An account named for the first time is created; a plan given
    /// with a key becomes its account's.
    pub fn add_keys(&mut self, keys: &[(KeyRow, Option<String>)]) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.add_keys(keys),
            Store::Redis(store) => store.add_keys(keys),
        }
    }

    /// Sets when a key ends: its expiry to at most `expires_at`, and `revoked_at` if given.
    pub fn end_key(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.end_key(id, expires_at, revoked_at),
            Store::Redis(store) => store.end_key(id, expires_at, revoked_at),
        }
    }

    /// Adds `new` and ends the key `old` at `ends` at the latest, in one step. `new` is of the same
    /// account. A key that was revoked or has expired by `now` is not rotated.
    pub fn rotate_key(
        &mut self,
        old: &str,
        new: &KeyRow,
        ends: i64,
        now: i64,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.rotate_key(old, new, ends, now),
            Store::Redis(store) => store.rotate_key(old, new, ends, now),
        }
    }

    /// Takes a rotation back in one step: revokes the key `new`, and gives `old` its expiry
    /// `before` again, unless it ends at another time than `ends` by now.
    pub fn undo_rotation(
        &mut self,
        old: &str,
        new: &str,
        ends: i64,
        before: Option<i64>,
        now: i64,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.undo_rotation(old, new, ends, before, now),
            Store::Redis(store) => store.undo_rotation(old, new, ends, before, now),
        }
    }

    /// Creates an account or changes what is given of it. `Some(None)` goes back to the plan's
    /// limit.
    pub fn set_account(
        &mut self,
        name: &str,
        plan: Option<&str>,
        limit: Option<Option<LimitRow>>,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.set_account(name, plan, limit),
            Store::Redis(store) => store.set_account(name, plan, limit),
        }
    }

    /// Writes back what the store had acknowledged and lost: keys that are not there are added,
    /// those that are end when either row says so, and accounts that are not there are created.
    /// What is there otherwise stays as it is; with nothing to write there is no new version.
    /// Answers how many of `store.wait_replicas` lack what was written here; said again, it counts
    /// them again.
    pub fn restore(
        &mut self,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        match self {
            Store::Sqlite(store) => store.restore(keys, accounts),
            Store::Redis(store) => store.restore(keys, accounts),
        }
    }

    // --- top counts ---

    /// The counts of the top list.
    pub fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.top_rows(),
            Store::Redis(store) => store.top_rows(),
        }
    }

    /// The counts of the top list, and the marks already counted on `day`.
    pub fn top(&mut self, day: i64) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        match self {
            Store::Sqlite(store) => store.top(day),
            Store::Redis(store) => store.top(day),
        }
    }

    /// Counts look-ups, each mark once on its `day`, over all nodes; drops the rows in `gone`
    /// and forgets marks of days before the last. Answers the rows as they now stand.
    pub fn credit_top(
        &mut self,
        credits: &[Credit],
        gone: &[String],
        day: i64,
        half_life: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.credit_top(credits, gone, day, half_life),
            Store::Redis(store) => store.credit_top(credits, gone, day, half_life),
        }
    }

    // --- what the DNS said ---

    /// Keeps what the DNS said of names, in the place of what it said before; of all names, the
    /// [`MOST_LEARNED`](super::MOST_LEARNED) written last.
    pub fn learn(&mut self, rows: &[LearnedRow]) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.learn(rows),
            Store::Redis(store) => store.learn(rows),
        }
    }

    /// Some of what was written after a version, in that order, and the version that it leads to:
    /// to be asked for until that stays as it is. What is older than the version that the caller
    /// knows is another state of the store, which is read from its beginning.
    pub fn learned_since(&mut self, since: u64) -> Result<(Vec<LearnedRow>, u64), StoreError> {
        match self {
            Store::Sqlite(store) => store.learned_since(since),
            Store::Redis(store) => store.learned_since(since),
        }
    }

    /// What the DNS said of a name, as far as it is kept.
    pub fn learned_of(&mut self, name: &str) -> Result<Option<LearnedRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.learned_of(name),
            Store::Redis(store) => store.learned_of(name),
        }
    }

    // --- moving ---

    /// Fills an empty store with what another one held; refuses one that holds keys, accounts or
    /// numbers. Until it is whole no gateway takes anything from it.
    pub fn fill(&mut self, contents: &Contents) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.fill(contents),
            Store::Redis(store) => store.fill(contents),
        }
    }
}

// --- what both stores say alike ---

pub(super) fn not_new(id: &str, known: &str) -> StoreError {
    StoreError::Conflict(format!(
        "key {id}: expected a new key, but found it in the store as {known}"
    ))
}

pub(super) fn unknown_key(id: &str) -> StoreError {
    StoreError::Conflict(format!("expected the id of a key in the store, but found {id:?}"))
}

pub(super) fn has_ended() -> StoreError {
    StoreError::Conflict("expected a key that is in use, but it has ended".to_owned())
}

pub(super) fn not_empty(place: &str) -> StoreError {
    StoreError::Conflict(format!(
        "{place}: expected an empty store, but found one with keys, accounts or numbers"
    ))
}
