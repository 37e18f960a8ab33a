//! The ledger's verbs on a server: one script for each statement.

use std::time::{Duration, Instant};

use redis::{Pipeline, Value};

use super::connection::Redis;
use super::key_names::{
    LEDGER_PREFIX, LEDGER_TTL, RECOVERING_KEY, RING_META, ledger_key, recovering_key,
};
use super::reply::{info_field, reply_number, server_error, source, to_hex};
use super::scripts::Script;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::{BatchContext, Grant, LeaseReport, Probe};
use crate::store::rows::UsageRow;

/// For so long after a loss nodes restate their numbers: each speaks at least once a second.
const RECOVERY_PERIOD: Duration = Duration::from_secs(3);
/// Replicas acknowledge what they have once a second. One that was silent for longer, in seconds,
/// counts as missing.
const MAX_REPLICA_LAG: i64 = 2;
/// And for so long from a node's last word on a month that is over: it may not be over after all.
const PAST_MONTH_TTL: i64 = 62 * 86_400;

/// Replicas that are connected and acknowledged something lately, by `INFO replication`.
fn connected_replicas(replication: &str) -> usize {
    let is_connected = |line: &&str| {
        let fields = line.split_once(':').map_or("", |(_, fields)| fields);
        let field = |name: &str| {
            fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let lag = field("lag").and_then(|lag| lag.parse::<i64>().ok());
        field("state") == Some("online")
            && lag.is_some_and(|lag| (0..=MAX_REPLICA_LAG).contains(&lag))
    };
    let is_replica = |line: &&str| {
        line.strip_prefix("slave")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    replication.lines().filter(is_replica).filter(is_connected).count()
}

/// How often the unreadable numbers of one account are told.
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// Of how many accounts they are told in this time.
const MAX_WARNED: usize = 100;

impl Redis {
    pub(in super::super) fn pulse(
        &mut self,
        month: Month,
        known: Option<&Probe>,
    ) -> Result<Probe, StoreError> {
        const DOING: &str = "probing the server";
        let mut ask = redis::pipe();
        ask.cmd("INFO").arg("server").cmd("INFO").arg("replication").cmd("TIME");
        let mut replies = self.query(DOING, &ask)?.into_iter();
        let mut next = || replies.next().unwrap_or(Value::Nil);
        let (server, replication, time) = (source(next()), source(next()), next());
        let (Some(run), Some(history)) =
            (info_field(&server, "run_id"), info_field(&replication, "master_replid"))
        else {
            return Err(self.unavailable(DOING, "no run_id or master_replid in INFO"));
        };
        let incarnation = format!("{run}/{history}");
        let unix_now: (i64, i64) = self.parse_reply(DOING, time)?;
        // Before the space the life of the server, behind it the beginning of its data.
        let known = known.map_or("", |known| known.incarnation.as_str());
        let known_beginning = known.split(' ').nth(1).unwrap_or("");
        let data_id = format!("{run}@{}.{:06}", unix_now.0, unix_now.1);
        let settle = RECOVERY_PERIOD.as_millis() as u64;
        let mut replies = self.run_scripts(DOING, |scripts| {
            let mut pulse = redis::pipe();
            pulse.cmd("EVALSHA").arg(&scripts[Script::Probe as usize]).arg(2).arg(RING_META);
            pulse.arg(RECOVERING_KEY).arg(&incarnation).arg(known_beginning).arg(&data_id);
            pulse.arg(month.number()).arg(settle);
            pulse
        })?;
        let reply = replies.pop().unwrap_or(Value::Nil);
        if let Some(found) = server_error(&reply) {
            self.connection = None;
            return Err(self.unavailable(DOING, found));
        }
        let (store_id, began, recovering): (String, String, u64) =
            self.parse_reply(DOING, reply)?;
        self.note_replicas(connected_replicas(&replication));
        Ok(Probe {
            incarnation: format!("{incarnation} {began} {store_id}"),
            unix_now: Some(unix_now.0),
            recovery_left: Duration::from_millis(recovering),
        })
    }

    pub(in super::super) fn state(
        &mut self,
        round: BatchContext<'_>,
        statements: &[LeaseReport],
    ) -> Result<Vec<Option<Grant>>, StoreError> {
        const DOING: &str = "reporting leases";
        if !self.is_connected() {
            // Whoever speaks next must take the pulse first: it may be another server by now.
            return Err(self.unavailable(DOING, "no connection"));
        }
        if statements.is_empty() {
            return Ok(Vec::new());
        }
        let (node, wait) = (to_hex(round.node), self.wait_replicas);
        if self.missing_replicas > 0 && round.needs_replicas {
            return Err(self.too_few_replicas(DOING));
        }
        // A WAIT for replicas that are known to be missing would only cost its time, and Redis
        // looks at the end of a WAIT ten times a second. The pulse tells when they are back.
        let waits = wait > 0 && self.missing_replicas == 0;
        let wait_for = self.replica_wait_ms();
        let mut replies = self.run_scripts(DOING, |scripts| {
            let mut pipeline = redis::pipe();
            for statement in statements {
                let script = &scripts[Script::ReportLease as usize];
                add_report(&mut pipeline, script, &node, round, statement);
            }
            if waits {
                pipeline.cmd("WAIT").arg(wait).arg(wait_for);
            }
            pipeline
        })?;
        if waits {
            let reached = reply_number(replies.pop().unwrap_or(Value::Nil));
            self.note_replicas(usize::try_from(reached).unwrap_or(usize::MAX));
            if self.missing_replicas > 0 && round.needs_replicas {
                return Err(self.too_few_replicas(DOING));
            }
        }
        // Numbers that are none of ours are the account's trouble; other errors are the server's.
        let is_server_s = |found: &String| !is_account_error(found);
        if let Some(found) = replies.iter().filter_map(server_error).find(is_server_s) {
            self.connection = None;
            return Err(self.unavailable(DOING, found));
        }
        let mut grants = Vec::with_capacity(statements.len());
        for (statement, reply) in statements.iter().zip(replies) {
            if let Some(found) = server_error(&reply) {
                self.warn_about_account(DOING, &statement.account, &found.to_string());
                grants.push(None);
                continue;
            }
            let Some(grant) = parse_grant(statement.sequence, reply) else {
                // Nobody knows what else would come, and to which question.
                self.connection = None;
                return Err(self.unavailable(DOING, "an answer to another request"));
            };
            grants.push(Some(grant));
        }
        Ok(grants)
    }

    /// Tells what is wrong with one account's numbers: once a minute, since each call states them.
    fn warn_about_account(&mut self, doing: &str, account: &str, found: &str) {
        self.warned_accounts.retain(|_, told_at| told_at.elapsed() < WARN_INTERVAL);
        if self.warned_accounts.len() < MAX_WARNED && !self.warned_accounts.contains_key(account) {
            log::warn!("{}: {doing}: account {account}: {found}", self.place);
            self.warned_accounts.insert(account.to_owned(), Instant::now());
        }
    }

    /// Milliseconds to wait for replicas: so that the answer comes within the patience, also when
    /// it is that none has it. Zero would be for ever.
    pub(super) fn replica_wait_ms(&self) -> u64 {
        (self.patience * 3 / 4).as_millis().max(1) as u64
    }

    fn note_replicas(&mut self, present: usize) {
        self.missing_replicas = self.wait_replicas.saturating_sub(present);
    }

    fn too_few_replicas(&mut self, doing: &'static str) -> StoreError {
        let wanted = self.wait_replicas;
        let present = wanted.saturating_sub(self.missing_replicas);
        self.unavailable(doing, format!("only {present} of {wanted} replicas have it"))
    }

    pub(in super::super) fn missing_replicas(&self) -> usize {
        self.missing_replicas
    }

    pub(in super::super) fn others_spent(
        &mut self,
        account: &str,
        month: Month,
        node: &[u8; 16],
    ) -> Result<u64, StoreError> {
        let mut read = redis::pipe();
        read.cmd("HMGET").arg(ledger_key(account, month)).arg("spent").arg(to_hex(node));
        let reply = self.query("reading usage", &read)?.pop().unwrap_or(Value::Nil);
        let (all, own): (Option<u64>, Option<String>) = self.parse_reply("reading usage", reply)?;
        let own = own.and_then(|row| row.rsplit(' ').next()?.parse().ok()).unwrap_or(0);
        Ok(all.unwrap_or(0).saturating_sub(own))
    }

    pub(in super::super) fn usage(
        &mut self,
        month: Month,
        account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        const DOING: &str = "reading usage";
        let accounts = match account {
            Some(account) => vec![account.as_bytes().to_owned()],
            None => self.accounts_in_month(month)?,
        };
        let mut rows = Vec::new();
        for some in accounts.chunks(1_000) {
            let mut read = redis::pipe();
            for account in some {
                let numbers = ["spent", "leased", "claim"];
                let tail = format!("}}:{month}");
                let key = [LEDGER_PREFIX.as_bytes(), account, tail.as_bytes()].concat();
                read.cmd("HMGET").arg(key).arg(&numbers);
            }
            self.connect()?;
            for (account, reply) in some.iter().zip(self.send_once(DOING, &read, self.patience)?) {
                let server_s = server_error(&reply).filter(|found| !is_account_error(found));
                if let Some(found) = server_s {
                    self.connection = None;
                    return Err(self.unavailable(DOING, found));
                }
                rows.extend(usage_row(account, reply));
            }
        }
        rows.sort_by(|a, b| a.account.cmp(&b.account));
        Ok(rows)
    }

    /// Every account that has numbers of a month, whatever bytes its name is.
    fn accounts_in_month(&mut self, month: Month) -> Result<Vec<Vec<u8>>, StoreError> {
        const DOING: &str = "reading usage";
        let (head, tail) = (LEDGER_PREFIX, format!("}}:{month}"));
        let mut accounts = std::collections::BTreeSet::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd("SCAN").arg(cursor).arg("MATCH").arg(format!("{head}*{tail}"));
            scan.arg("COUNT").arg(1_000);
            let reply = self.query(DOING, &scan)?.pop().unwrap_or(Value::Nil);
            let (next, keys): (u64, Vec<Vec<u8>>) = self.parse_reply(DOING, reply)?;
            let name = |key: &Vec<u8>| {
                Some(key.strip_prefix(head.as_bytes())?.strip_suffix(tail.as_bytes())?.to_owned())
            };
            accounts.extend(keys.iter().filter_map(name));
            cursor = next;
            if cursor == 0 {
                return Ok(accounts.into_iter().collect());
            }
        }
    }
}

/// Whether an error is about what stands under one account's name: another type, or none of ours.
fn is_account_error(found: &str) -> bool {
    found.starts_with("WRONGTYPE") || found.starts_with("DAMAGED")
}

/// What an account has spent and leased; none if nothing is counted of it.
fn usage_row(account: &[u8], reply: Value) -> Option<UsageRow> {
    type Reply = (Option<u64>, Option<u64>, Option<String>);
    let (account, read) = match std::str::from_utf8(account) {
        Ok(account) => (account.to_owned(), redis::from_redis_value::<Reply>(reply).ok()),
        Err(_) => (account.escape_ascii().to_string(), None),
    };
    let Some((spent, leased, claim)) = read else {
        return Some(UsageRow { account, spent: 0, leased: 0, is_damaged: true });
    };
    let (spent, leased) = (spent?, leased?);
    let claim = claim.as_deref().and_then(|claim| claim.split_once(' '));
    let claimed = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(UsageRow {
        account,
        // What was known before a loss counts, also before the next statement says so.
        spent: spent.max(claimed(claim.map(|claim| claim.1))),
        leased: leased.max(claimed(claim.map(|claim| claim.0))),
        is_damaged: false,
    })
}

fn add_report(
    pipeline: &mut Pipeline,
    script: &str,
    node: &str,
    round: BatchContext<'_>,
    statement: &LeaseReport,
) {
    let LeaseReport { account, month, sequence, target, floor, spent, limit, known } = statement;
    let limit = limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
    pipeline.cmd("EVALSHA").arg(script).arg(2);
    pipeline.arg(ledger_key(account, *month)).arg(recovering_key(account, *month));
    pipeline.arg(node).arg(sequence).arg(target).arg(floor).arg(spent).arg(limit);
    pipeline.arg(known.sequence).arg(known.revision).arg(known.leased).arg(known.spent);
    pipeline.arg(round.recovery_left.as_millis() as u64).arg(RECOVERY_PERIOD.as_millis() as u64);
    let is_over = *month < round.month;
    pipeline.arg(if is_over { PAST_MONTH_TTL } else { LEDGER_TTL }).arg(u8::from(is_over));
}

/// The word on the statement of this number; nothing if it is none, or was harmed on its way.
fn parse_grant(sequence: u64, reply: Value) -> Option<Grant> {
    let parts: Vec<u64> = redis::from_redis_value(reply).ok()?;
    let [own, others_leased, others_spent, revision, recovering, sum] = parts.try_into().ok()?;
    let parts = [sequence, own, others_leased, others_spent, revision, recovering];
    let weighed = parts.into_iter().zip((1u128..).step_by(2));
    let expected = weighed.map(|(part, weight)| u128::from(part) * weight).sum::<u128>() % 65_521;
    let grant = Grant {
        own_leased: own,
        others_leased,
        others_spent,
        revision,
        is_recovering: recovering == 1,
    };
    (expected == u128::from(sum)).then_some(grant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corrupted_reply_is_never_taken_for_another() {
        let word = b"*6\r\n:64\r\n:1000\r\n:930\r\n:77\r\n:0\r\n:12412\r\n";
        let read = |sequence, bytes: &[u8]| {
            redis::parse_redis_value(bytes).ok().and_then(|value| parse_grant(sequence, value))
        };
        let sound = read(17, word);
        assert_eq!(sound.map(|grant| grant.own_leased), Some(64));
        assert_eq!(read(18, word), None, "the answer to another statement");
        for (at, bit) in (0..word.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut harmed = word.to_vec();
            harmed[at] ^= 1 << bit;
            let heard = read(17, &harmed);
            assert!(heard.is_none() || heard == sound, "{at} {bit}: {heard:?}");
        }
    }
}
