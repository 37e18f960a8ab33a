//! Keys and accounts on a server.
//!
//! Rows lie in hashes, by id and by name, and are never deleted; a sorted set says at which
//! version each of them changed last, so that what changed after any version can be told for
//! ever. Every write is one script, only that many keys at once take several: see `import`. The
//! version is read before the rows, so that these are at least as new.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use redis::{Pipeline, Value};

use super::super::{LimitRow, RingChanges, RingMark, RingRows, StoreError, verbs};
use super::ledger::MARK;
use super::rows::{account_row, key_row, limit_text, plan_text};
use super::{BULK, CHUNK, Redis, Script, hex};

pub(super) const ROWS: &str = "riskgate:{ring}:keys";
pub(super) const DIGESTS: &str = "riskgate:{ring}:digests";
pub(super) const ACCOUNTS: &str = "riskgate:{ring}:accounts";
pub(super) const CHANGED: &str = "riskgate:{ring}:changed";
const IMPORTS: &str = "riskgate:{ring}:imports";
/// What all scripts of the ring are given.
pub(super) const RING: [&str; 6] = [MARK, ROWS, DIGESTS, ACCOUNTS, CHANGED, IMPORTS];

const READING: &str = "reading the keys";

/// The ring as it stands at one moment.
struct Standing {
    mark: RingMark,
    /// Imports that were committed: how each is numbered, and the version that it led to.
    imports: HashMap<String, (u64, u64)>,
}

impl Redis {
    pub(in super::super) fn ring_mark(&mut self) -> Result<Option<RingMark>, StoreError> {
        Ok(self.ring_standing(self.patience)?.map(|standing| standing.mark))
    }

    /// None without a mark. It is sure then that no row was lost beside it: rows are never deleted,
    /// so there are as many as ever changed.
    fn ring_standing(&mut self, patience: Duration) -> Result<Option<Standing>, StoreError> {
        const DOING: &str = "reading the key version";
        type Reply = ((Option<String>, Option<u64>), u64, u64, u64, u64, HashMap<String, String>);
        let mut read = redis::pipe();
        // One moment for all: a write in between would look like a loss.
        read.cmd("MULTI");
        read.cmd("HMGET").arg(MARK).arg("store_id").arg("version");
        read.cmd("HLEN").arg(ROWS).cmd("HLEN").arg(DIGESTS).cmd("HLEN").arg(ACCOUNTS);
        read.cmd("ZCARD").arg(CHANGED).cmd("HGETALL").arg(IMPORTS);
        read.cmd("EXEC");
        let reply = self.ask_within(DOING, patience, &read)?.pop().unwrap_or(Value::Nil);
        let (mark, keys, digests, accounts, changed, imports): Reply =
            self.understand(DOING, reply)?;
        match mark {
            (None, _) => Ok(None),
            (Some(store_id), Some(version)) if digests == keys && changed == keys + accounts => {
                let imports = imports.into_iter().filter_map(committed).collect();
                Ok(Some(Standing { mark: RingMark { store_id, version }, imports }))
            }
            _ => Err(self.lost_rows(&format!("{keys} keys and {accounts} accounts"))),
        }
    }

    pub(in super::super) fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        let Some(standing) = self.ring_standing(BULK)? else { return Ok(None) };
        // Keys first: whoever sees a key sees its account too.
        let keys = self.scan(&standing, ROWS, key_row)?;
        let accounts = self.scan(&standing, ACCOUNTS, account_row)?;
        let RingMark { store_id, version } = standing.mark;
        Ok(Some(RingRows { store_id, version, accounts, keys }))
    }

    pub(in super::super) fn ring_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        let standing = self.ring_standing(BULK)?.ok_or_else(|| self.lost_rows("no mark"))?;
        let mut members: HashSet<String> = HashSet::new();
        let later = standing.imports.values().filter(|(_, version)| *version > since);
        let of_imports = later.map(|(number, _)| (format!("-{number}"), format!("-{number}")));
        // Imports first: one of their keys that changes meanwhile is found among what changed since.
        for (from, to) in of_imports.chain([(format!("({since}"), "+inf".to_owned())]) {
            let mut read = redis::pipe();
            read.cmd("ZRANGEBYSCORE").arg(CHANGED).arg(from).arg(to);
            members.extend(self.read::<Vec<String>>(READING, &read)?);
        }
        let of = |head: &str| -> Vec<&str> {
            members.iter().filter_map(|member| member.strip_prefix(head)).collect()
        };
        let keys = self.pick(&standing, ROWS, &of("key:"), key_row)?;
        let accounts = self.pick(&standing, ACCOUNTS, &of("account:"), account_row)?;
        let RingMark { store_id, version } = standing.mark;
        Ok(RingChanges { store_id, version, accounts, keys })
    }

    /// All rows of a hash, a chunk at a time.
    fn scan<R>(
        &mut self,
        standing: &Standing,
        hash: &str,
        row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<Vec<R>, StoreError> {
        // A scan may tell a row twice.
        let mut rows: HashMap<String, R> = HashMap::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd("HSCAN").arg(hash).arg(cursor).arg("COUNT").arg(CHUNK);
            let (next, pairs): (u64, Vec<(String, String)>) = self.read(READING, &scan)?;
            for (name, text) in pairs {
                if let Some(text) = standing.there(&text) {
                    let row = row(&name, text).ok_or_else(|| self.lost_rows(&name))?;
                    rows.insert(name, row);
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(rows.into_values().collect());
            }
        }
    }

    /// Some rows of a hash, by name.
    fn pick<R>(
        &mut self,
        standing: &Standing,
        hash: &str,
        names: &[&str],
        row: impl Fn(&str, &str) -> Option<R>,
    ) -> Result<Vec<R>, StoreError> {
        let mut rows = Vec::with_capacity(names.len());
        for some in names.chunks(CHUNK) {
            let mut read = redis::pipe();
            read.cmd("HMGET").arg(hash).arg(some);
            let texts: Vec<Option<String>> = self.read(READING, &read)?;
            for (name, text) in some.iter().zip(texts) {
                let text = text.ok_or_else(|| self.lost_rows(name))?;
                if let Some(text) = standing.there(&text) {
                    rows.push(row(name, text).ok_or_else(|| self.lost_rows(name))?);
                }
            }
        }
        Ok(rows)
    }

    fn lost_rows(&self, found: &str) -> StoreError {
        StoreError::Unusable {
            place: self.place.clone(),
            expected: "the keys and accounts that were written",
            found: found.to_owned(),
        }
    }

    pub(in super::super) fn init(&mut self) -> Result<(), StoreError> {
        self.write("marking the store", ["init", "", "", ""]).map(drop)
    }

    pub(in super::super) fn end_key(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let time = |time: Option<i64>| time.map_or(String::new(), |time| time.to_string());
        let (expires, revoked) = (time(expires_at), time(revoked_at));
        match self.write("ending a key", ["end_key", id, &expires, &revoked])? {
            0 => Err(verbs::unknown_key(id)),
            _ => Ok(()),
        }
    }

    pub(in super::super) fn set_account(
        &mut self,
        name: &str,
        plan: Option<&str>,
        limit: Option<Option<LimitRow>>,
    ) -> Result<(), StoreError> {
        let limit = limit.map_or(String::new(), limit_text);
        self.write("setting an account", ["set_account", name, &plan_text(plan), &limit]).map(drop)
    }

    /// One small change; answers the version that it leads to.
    fn write(&mut self, doing: &'static str, words: [&str; 4]) -> Result<u64, StoreError> {
        let id = self.draw_id()?;
        let arguments: Vec<String> =
            [id.as_str()].iter().chain(&words).map(|word| (*word).to_owned()).collect();
        self.write_beside_imports(doing, Script::Write, &RING, &arguments)
    }

    /// Runs a script that writes, and waits until as many replicas as are asked for have it.
    pub(super) fn write_by(
        &mut self,
        doing: &'static str,
        script: Script,
        names: &[&str],
        arguments: &[String],
    ) -> Result<Value, StoreError> {
        let (wait, patience) = (self.wait_replicas, self.patience.max(BULK));
        let mut replies = self.run_within(doing, patience, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("EVALSHA").arg(&scripts[script as usize]).arg(names.len());
            pipeline.arg(names).arg(arguments);
            if wait > 0 {
                pipeline.cmd("WAIT").arg(wait).arg(patience.as_millis() as u64 / 2);
            }
            pipeline
        })?;
        if let Some(found) = replies.iter().find_map(super::error_of) {
            self.connection = None;
            return Err(self.unanswered(doing, found));
        }
        let reached = if wait > 0 { replies.pop().map_or(0, super::number) } else { 0 };
        if reached < wait as u64 {
            let found = format!("it is done, but only {reached} of {wait} replicas have it");
            return Err(self.unanswered(doing, found));
        }
        Ok(replies.pop().unwrap_or(Value::Nil))
    }

    /// 128 random bits.
    pub(super) fn draw_id(&self) -> Result<String, StoreError> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| self.unanswered("drawing an id", error.to_string()))?;
        Ok(hex(&bytes))
    }
}

impl Standing {
    /// A row without what says where it came from; none if its import was not committed.
    fn there<'t>(&self, text: &'t str) -> Option<&'t str> {
        let (born, rest) = text.split_once(' ').unwrap_or(("-", text));
        (born == "-" || self.imports.contains_key(born)).then_some(rest)
    }
}

/// An import with its number and version, if it led to one.
fn committed((import, text): (String, String)) -> Option<(String, (u64, u64))> {
    let mut words = text.split(' ').map(str::parse);
    let (number, _, version) = (words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?);
    (version > 0).then_some((import, (number, version)))
}
