//! What a server keeps of changes: the audit (a stream), the last states of sources, and the
//! requests that a client may repeat with the same `Idempotency-Key`.
//!
//! A script that changes keys, accounts or overrides appends the record in the same step. Where a
//! script makes the record of a key or an account, the record has the texts of the rows before and
//! after, so that the script need not understand them.

use serde_json::Value;

use super::connection::{CHUNK_ROWS, Redis};
use super::fill::{STAGED_TTL_SECONDS, Staging};
use super::key_names::{AUDIT, REPEATABLE_REQUESTS, SOURCE_STATES};
use super::rows::{parse_account, parse_key};
use super::scripts::Script;
use crate::store::audit::{
    AuditOperation, AuditRecord, Change, ChangeAuthor, SourceState, account_to_json,
    diff_source_states, key_to_json,
};
use crate::store::contents::StoreContents;
use crate::store::error::{StoreError, unreadable_row_error};
use crate::store::operations::AuditBackend;
use crate::store::rows::{RepeatableRequestRow, latest_forgotten_request_time};

const READ_OPERATION: &str = "reading the audit";
const RECORD_OPERATION: &str = "recording a change";
/// How often riskgate tries to record a source whose state another node changes at the same time.
const MAX_SOURCE_STATE_TRIES: usize = 8;

/// A record as a stream has it: its id, and its fields with their values.
type StreamEntry = (String, Vec<(Vec<u8>, Vec<u8>)>);

impl AuditBackend for Redis {
    fn record_source_state(
        &mut self,
        author: &ChangeAuthor,
        operation: AuditOperation,
        state: &SourceState,
    ) -> Result<bool, StoreError> {
        let text = state.to_stored_text();
        for _ in 0..MAX_SOURCE_STATE_TRIES {
            let stored = self.read_bytes_of_source_state(&state.subject)?;
            let shared = self.read_bytes_of_source_state(&state.shared_subject)?;
            if stored.as_deref() == Some(text.as_bytes()) && shared.is_some() {
                return Ok(false);
            }
            let before = stored.as_ref().or(shared.as_ref());
            let has_changed = before.is_some_and(|before| *before != text.as_bytes());
            // Bytes that riskgate did not write differ from each state that it writes.
            let before = before.map(|before| String::from_utf8_lossy(before));
            let (before, after) = diff_source_states(before.as_deref().unwrap_or(""), &text);
            let change = Change { operation, target: state.subject.clone(), before, after };
            let subjects = [state.subject.clone(), state.shared_subject.clone(), text.clone()];
            let mut arguments: Vec<Vec<u8>> = format_change(author, &change)
                .into_iter()
                .chain(subjects)
                .map(Into::into)
                .collect();
            arguments.push(stored.unwrap_or_default());
            arguments.push(u8::from(has_changed).to_string().into_bytes());
            arguments.push(shared.unwrap_or_default());
            let (script, keys) = (Script::RecordSourceState, [AUDIT, SOURCE_STATES]);
            // Else another node has changed the state of the source.
            if self.run_write_script::<u64>(RECORD_OPERATION, script, &keys, &arguments)? == 1 {
                return Ok(has_changed);
            }
        }
        Err(self.unavailable_error(RECORD_OPERATION, "a source that other nodes keep changing"))
    }

    fn read_audit_before(
        &mut self,
        before_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let Some(from) = start_beyond(before_id, (0, 0), "+") else { return Ok(Vec::new()) };
        self.read_records("XREVRANGE", &from, "-", count)
    }

    fn read_audit_after(
        &mut self,
        after_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let last = (u64::MAX, u64::MAX);
        let Some(from) = start_beyond(after_id, last, "-") else { return Ok(Vec::new()) };
        self.read_records("XRANGE", &from, "+", count)
    }

    fn read_source_state(&mut self, subject: &str) -> Result<Option<String>, StoreError> {
        let read = self.read_bytes_of_source_state(subject)?;
        Ok(read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn find_audit_record(&mut self, id: &str) -> Result<Option<AuditRecord>, StoreError> {
        // An SQLite store has other ids.
        let Some((milliseconds, number)) = AuditRecord::parse_id(id) else { return Ok(None) };
        let id = format!("{milliseconds}-{number}");
        Ok(self.read_records("XRANGE", &id, &id, 1)?.pop())
    }

    fn find_repeatable_request(
        &mut self,
        id: &str,
    ) -> Result<Option<RepeatableRequestRow>, StoreError> {
        const OPERATION: &str = "looking for a request";
        let request = (REPEATABLE_REQUESTS, id);
        let value: Option<String> = self.query_within(OPERATION, self.timeout, "HGET", request)?;
        let forgotten_at = latest_forgotten_request_time(self.told_time.now().unix_now);
        Ok(value.and_then(|value| {
            let mut parts = value.splitn(4, ' ').map(str::to_owned);
            let (at, digest, salt, key_id) =
                (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
            let is_remembered = at.parse::<i64>().ok()? > forgotten_at;
            is_remembered.then_some(RepeatableRequestRow {
                id: id.to_owned(),
                digest,
                salt,
                key_id,
            })
        }))
    }
}

/// The start of a range beyond an id: `whole` without a valid id. `None` if the id is `outermost`:
/// the server refuses the range beyond it.
fn start_beyond(id: Option<&str>, outermost: (u64, u64), whole: &str) -> Option<String> {
    match id.and_then(AuditRecord::parse_id) {
        None => Some(whole.to_owned()),
        Some(id) if id == outermost => None,
        Some((milliseconds, number)) => Some(format!("({milliseconds}-{number}")),
    }
}

impl Redis {
    fn read_records(
        &mut self,
        command: &str,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let range = (AUDIT, from, to, "COUNT", count);
        let entries: Vec<StreamEntry> = self.query(READ_OPERATION, command, range)?;
        Ok(entries.into_iter().map(parse_entry).collect())
    }

    fn read_bytes_of_source_state(&mut self, subject: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.query(RECORD_OPERATION, "HGET", (SOURCE_STATES, subject))
    }

    /// Appends a record of a change that no script of the ring makes.
    pub(super) fn record_change(
        &mut self,
        author: &ChangeAuthor,
        change: &Change,
    ) -> Result<(), StoreError> {
        let arguments = format_change(author, change);
        self.run_write_script(RECORD_OPERATION, Script::RecordChange, &[AUDIT], &arguments)
    }

    /// The subject and the state of each source.
    pub(super) fn read_source_states(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        let states: Vec<(Vec<u8>, Vec<u8>)> =
            self.query(READ_OPERATION, "HGETALL", SOURCE_STATES)?;
        let to_texts = |(subject, state): (Vec<u8>, Vec<u8>)| {
            let name = subject.escape_ascii().to_string();
            let texts = String::from_utf8(subject).ok().zip(String::from_utf8(state).ok());
            texts.ok_or_else(|| unreadable_row_error(&format!("the state of the source {name}")))
        };
        states.into_iter().map(to_texts).collect()
    }

    /// The id of the last record; `None` if there is no record.
    pub(super) fn last_audit_record_id(&mut self) -> Result<Option<String>, StoreError> {
        Ok(self.read_audit_before(None, 1)?.pop().map(|record| record.id))
    }

    /// Stages the records of another store together with the records of this store, in the order of
    /// their times. Returns the id of this store's last record.
    pub(super) fn stage_audit(
        &mut self,
        staging: &mut Staging,
        contents: &StoreContents,
    ) -> Result<Option<String>, StoreError> {
        let own = self.read_audit_up_to((u64::MAX, u64::MAX))?;
        let last_own = own.last().map(|record| record.id.clone());
        let mut latest = 0;
        let copied = contents.audit.iter().map(|record| {
            // Ids only grow, even if a clock went back. So the time has a field of its own.
            latest = latest.max(u64::try_from(record.at).unwrap_or(0).saturating_mul(1_000));
            ((latest, 0), record)
        });
        let mut records: Vec<((u64, u64), &AuditRecord)> = copied.collect();
        records.extend(own.iter().map(|it| (AuditRecord::parse_id(&it.id).unwrap_or((0, 0)), it)));
        // The sort is stable, so records of one store stay in their order.
        records.sort_by_key(|(id, _)| *id);
        let staged = staging.staged_name(AUDIT);
        let mut last_id = (0, 0);
        for chunk in records.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            for (id, record) in chunk {
                last_id = if *id > last_id { *id } else { (last_id.0, last_id.1 + 1) };
                let AuditRecord { author, operation, target, before, after, .. } = record;
                write.cmd("XADD").arg(&staged).arg(format!("{}-{}", last_id.0, last_id.1));
                write.arg("at").arg(record.at).arg("author").arg(author.to_json().to_string());
                write.arg("operation").arg(operation).arg("target").arg(target);
                write.arg("form").arg("json").arg("before").arg(before.to_string());
                write.arg("after").arg(after.to_string());
            }
            write.cmd("EXPIRE").arg(&staged).arg(STAGED_TTL_SECONDS);
            self.send_staged(staging, write)?;
        }
        Ok(last_own)
    }
}

/// Formats the id of a request and what the store remembers of it; empty without a request.
pub(super) fn format_request(request: Option<&RepeatableRequestRow>) -> String {
    request.map_or(String::new(), |RepeatableRequestRow { id, digest, salt, key_id }| {
        format!("{id} {digest} {salt} {key_id}")
    })
}

/// The author, the operation, the target, and the states before and after.
pub(super) fn format_change(author: &ChangeAuthor, change: &Change) -> [String; 5] {
    let Change { operation, target, before, after } = change;
    let (author, operation) = (author.to_json().to_string(), operation.as_str().to_owned());
    [author, operation, target.clone(), before.to_string(), after.to_string()]
}

/// Parses a record. A field that riskgate did not write gets a default, so that the other records
/// can be read.
fn parse_entry((id, fields): StreamEntry) -> AuditRecord {
    let fields = fields.iter().map(|(name, value)| (&name[..], String::from_utf8_lossy(value)));
    let fields: Vec<_> = fields.collect();
    let field = |name: &str| {
        fields.iter().find_map(|(known, value)| (*known == name.as_bytes()).then_some(&**value))
    };
    let text = |name| field(name).unwrap_or_default().to_owned();
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    let target = text("target");
    let state = |name| {
        let state = field(name).unwrap_or_default();
        match field("form") {
            Some("key") => parse_key(&target, state).as_ref().map_or(Value::Null, key_to_json),
            Some("account") => {
                parse_account(&target, state).as_ref().map_or(Value::Null, account_to_json)
            }
            _ => json(state),
        }
    };
    let author = ChangeAuthor::from_json(&json(field("author").unwrap_or_default()));
    AuditRecord {
        // Earlier versions took the time from the server's clock, and wrote it only in the id.
        at: field("at").and_then(|at| at.parse().ok()).unwrap_or_else(|| {
            AuditRecord::parse_id(&id)
                .map_or(0, |(milliseconds, _)| milliseconds.cast_signed() / 1_000)
        }),
        author: author.unwrap_or_else(|| ChangeAuthor::riskgate("unknown")),
        operation: text("operation"),
        before: state("before"),
        after: state("after"),
        id,
        target,
    }
}
