//! Quota events on a server, in three Redis keys: a hash of the events, and the sorted sets of the
//! pending and of the finished ones.
//!
//! A pending event is `p ATTEMPTS CREATED MONTH JSON`, with account and body in the JSON. A
//! finished event is `WORD ATTEMPTS CREATED MONTH FINISHED`; the word is `delivered` or `given_up`.

use redis::FromRedisValue;

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::fill::{OnExistingKey, Staging};
use super::scripts::Script;
use crate::model::month::Month;
use crate::store::error::{StoreError, unreadable_row_error};
use crate::store::operations::QuotaEventBackend;
use crate::store::quota_events::{
    ClaimTimes, ClaimedQuotaEvent, MAX_PENDING_QUOTA_EVENTS, NewQuotaEvent, QuotaEventOutcome,
    QuotaEventRow, QuotaEventState,
};

const READ_OPERATION: &str = "reading the quota events";
/// A hash: the text of each event by its key.
const EVENTS_KEY: &str = "riskgate:{webhook}:events";
/// A sorted set: the pending events, with the Unix second at which each is due.
const DUE_KEY: &str = "riskgate:{webhook}:due";
/// A sorted set: the finished events, with the Unix second at which each was finished.
const FINISHED_KEY: &str = "riskgate:{webhook}:finished";

impl QuotaEventBackend for Redis {
    fn record_quota_events(
        &mut self,
        events: &[NewQuotaEvent],
        forgotten_before: i64,
    ) -> Result<usize, StoreError> {
        const OPERATION: &str = "recording quota events";
        let mut arguments =
            vec![MAX_PENDING_QUOTA_EVENTS.to_string(), forgotten_before.to_string()];
        for event in events {
            let text =
                format_pending(0, event.created_at, event.month, &event.account, &event.body);
            arguments.extend([event.key.clone(), event.due_at.to_string(), text]);
        }
        let names = [EVENTS_KEY, DUE_KEY, FINISHED_KEY];
        self.run_event_script(OPERATION, Script::RecordQuotaEvents, &names, &arguments)
    }

    fn claim_quota_events(
        &mut self,
        times: ClaimTimes,
        max: usize,
    ) -> Result<Vec<ClaimedQuotaEvent>, StoreError> {
        const OPERATION: &str = "claiming quota events";
        let ClaimTimes { now, latest_due, claimed_until } = times;
        let arguments = [now, latest_due, claimed_until, max as i64].map(|it| it.to_string());
        let names = [EVENTS_KEY, DUE_KEY];
        let texts: Vec<Vec<u8>> =
            self.run_event_script(OPERATION, Script::ClaimQuotaEvents, &names, &arguments)?;
        // An event with a number of attempts, of which another part can't be read, is claimed again
        // and again until an operator deletes it.
        let claimed = texts.as_chunks::<2>().0.iter().filter_map(|[key, text]| {
            let QuotaEventRow { key, account, body, created_at, attempts, .. } =
                parse_event(key, text)?;
            Some(ClaimedQuotaEvent { key, account, body, created_at, attempts })
        });
        Ok(claimed.collect())
    }

    fn finish_quota_event(
        &mut self,
        event: &ClaimedQuotaEvent,
        outcome: QuotaEventOutcome,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "finishing a quota event";
        let (word, at) = match outcome {
            QuotaEventOutcome::Delivered(at) => ("delivered", at),
            QuotaEventOutcome::GivenUp(at) => ("given_up", at),
            QuotaEventOutcome::DueAgain(at) => ("due", at),
        };
        let arguments =
            [event.key.clone(), event.attempts.to_string(), word.to_owned(), at.to_string()];
        let names = [EVENTS_KEY, DUE_KEY, FINISHED_KEY];
        let changed: u64 =
            self.run_event_script(OPERATION, Script::FinishQuotaEvent, &names, &arguments)?;
        Ok(changed == 1)
    }

    fn count_pending_quota_events(&mut self) -> Result<u64, StoreError> {
        self.query(READ_OPERATION, "ZCARD", DUE_KEY)
    }

    fn quota_events_to_copy(&mut self, month: Month) -> Result<Vec<QuotaEventRow>, StoreError> {
        let (mut events, unreadable) = self.read_quota_events()?;
        if let Some(key) = unreadable.first() {
            return Err(unreadable_row_error(&format!("the quota event {key}")));
        }
        events.retain(|it| it.state == QuotaEventState::Pending || it.month >= month);
        Ok(events)
    }
}

impl Redis {
    /// Stages copied events. Pending ones are due at once.
    pub(super) fn stage_quota_events(
        &mut self,
        staging: &mut Staging,
        events: &[QuotaEventRow],
    ) -> Result<(), StoreError> {
        let (mut texts, mut due, mut finished) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            let (set, at, word) = match event.state {
                QuotaEventState::Pending => (&mut due, event.created_at, ""),
                QuotaEventState::Delivered(at) => (&mut finished, at, "delivered"),
                QuotaEventState::GivenUp(at) => (&mut finished, at, "given_up"),
            };
            let QuotaEventRow { key, account, month, body, created_at, attempts, .. } = event;
            let text = match event.state {
                QuotaEventState::Pending => {
                    format_pending(*attempts, *created_at, *month, account, body)
                }
                _ => format!("{word} {attempts} {created_at} {} {at}", month.number()),
            };
            texts.push((key, text));
            set.push((at, key));
        }
        self.stage_hash(staging, EVENTS_KEY, OnExistingKey::MergeHash, &texts)?;
        for (name, members) in [(DUE_KEY, due), (FINISHED_KEY, finished)] {
            self.stage_sorted_set(staging, name, OnExistingKey::MergeSortedSet, &members)?;
        }
        Ok(())
    }

    /// Deletes the readable events of months after `month`.
    pub(super) fn delete_quota_events_after(
        &mut self,
        operation: &'static str,
        month: Month,
    ) -> Result<(), StoreError> {
        let (mut events, _) = self.read_quota_events()?;
        events.retain(|event| event.month > month);
        let keys: Vec<&str> = events.iter().map(|event| event.key.as_str()).collect();
        for chunk in keys.chunks(CHUNK_ROWS) {
            let mut delete = redis::pipe();
            delete.cmd("HDEL").arg(EVENTS_KEY).arg(chunk);
            delete.cmd("ZREM").arg(DUE_KEY).arg(chunk);
            delete.cmd("ZREM").arg(FINISHED_KEY).arg(chunk);
            self.query_with_retry(operation, BULK_TIMEOUT, &delete)?;
        }
        Ok(())
    }

    /// Reads all readable events, in the order of their keys, and the keys of the others.
    fn read_quota_events(&mut self) -> Result<(Vec<QuotaEventRow>, Vec<String>), StoreError> {
        let (mut events, mut unreadable) = (std::collections::BTreeMap::new(), Vec::new());
        self.scan_hash_fields(READ_OPERATION, EVENTS_KEY, |key, text| {
            let name = key.escape_ascii().to_string();
            match parse_event(&key, &text) {
                Some(event) => drop(events.insert(event.key.clone(), event)),
                None => unreadable.push(name),
            }
        })?;
        Ok((events.into_values().collect(), unreadable))
    }

    /// Runs a script without waiting for replicas. If a failover then loses the change, riskgate
    /// may send a message twice, and the receiver recognizes the repeat.
    fn run_event_script<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        script: Script,
        redis_keys: &[&str],
        arguments: &[String],
    ) -> Result<T, StoreError> {
        self.run_script(operation, BULK_TIMEOUT, (script, redis_keys), |pipeline| {
            pipeline.arg(arguments);
        })
    }
}

fn format_pending(
    attempts: u32,
    created_at: i64,
    month: Month,
    account: &str,
    body: &str,
) -> String {
    let texts = serde_json::json!([account, body]);
    format!("p {attempts} {created_at} {} {texts}", month.number())
}

/// Returns `None` if riskgate did not write the text.
fn parse_event(key: &[u8], text: &[u8]) -> Option<QuotaEventRow> {
    let (key, text) = (std::str::from_utf8(key).ok()?, std::str::from_utf8(text).ok()?);
    let mut fields = text.splitn(5, ' ');
    let (word, attempts, created_at) = (fields.next()?, fields.next()?, fields.next()?);
    let (month, last) = (fields.next()?, fields.next()?);
    let (state, [account, body]) = match word {
        "p" => (QuotaEventState::Pending, serde_json::from_str(last).ok()?),
        "delivered" => (QuotaEventState::Delivered(last.parse().ok()?), Default::default()),
        "given_up" => (QuotaEventState::GivenUp(last.parse().ok()?), Default::default()),
        _ => return None,
    };
    Some(QuotaEventRow {
        key: key.to_owned(),
        account,
        month: Month::from_number(month.parse().ok()?)?,
        body,
        created_at: created_at.parse().ok()?,
        attempts: attempts.parse().ok()?,
        state,
    })
}
