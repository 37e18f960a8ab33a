//! Sign-ups on a server: a stream.

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::fill::{OnExistingKey, Staging};
use super::scripts::Script;
use crate::model::sign_up::{SignUp, times_of_kept_sign_ups};
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::operations::SignUpBackend;
use crate::store::sign_ups::{
    MAX_ENTRIES_DELETED_PER_STEP, MAX_SIGN_UPS, NumberedEntry, OLDEST_SIGN_UPS_PER_WRITE,
    SIGN_UPS_PER_WRITE, SignUpCursor, SignUpDeletion, change_of_deleted_sign_ups, encode_deletion,
    encode_sign_up,
};

/// A stream: the sign-ups, and deletions of them. The id of an entry is `NUMBER-0`. See
/// `append_sign_ups.lua` and `delete_sign_ups.lua`.
const SIGN_UPS_KEY: &str = "riskgate:{sign_ups}:stream";

const DELETE_OPERATION: &str = "deleting sign-ups";

/// An entry of the stream: its id, and its fields with their values.
type StreamEntry = (String, Vec<(String, Vec<u8>)>);

impl SignUpBackend for Redis {
    fn append_sign_ups(
        &mut self,
        sign_ups: &[SignUp],
        mut read_up_to: SignUpCursor,
    ) -> Result<SignUpCursor, StoreError> {
        if sign_ups.is_empty() && self.told_time.now().allows_deletion() {
            return self.append_page_and_delete_old(&[], read_up_to);
        }
        for page in sign_ups.chunks(SIGN_UPS_PER_WRITE) {
            read_up_to = self.append_page_and_delete_old(page, read_up_to)?;
        }
        Ok(read_up_to)
    }

    fn read_sign_up_entries(
        &mut self,
        from: u64,
        count: usize,
    ) -> Result<Vec<NumberedEntry>, StoreError> {
        let (mut read, mut start) = (Vec::new(), format!("{from}-0"));
        // Each query asks for `count` entries, so that many foreign entries take few queries. For a
        // reader, a page with the entry of its cursor alone means the end, as an empty one does.
        let enough = count.min(2);
        loop {
            let range = (SIGN_UPS_KEY, &start, "+", "COUNT", count);
            let entries: Vec<StreamEntry> = self.query("reading sign-ups", "XRANGE", range)?;
            read.extend(entries.iter().filter_map(parse_entry));
            match entries.last() {
                Some((last, _)) if entries.len() == count && read.len() < enough => {
                    start = format!("({last}");
                }
                _ => break,
            }
        }
        read.truncate(count);
        Ok(read)
    }

    fn delete_sign_ups(
        &mut self,
        author: &ChangeAuthor,
        deletion: &SignUpDeletion<'_>,
    ) -> Result<usize, StoreError> {
        let SignUpDeletion { found, inboxes } = deletion;
        // A user without this right fails here, before the audit has a record. There is no entry
        // 0-1.
        let nothing = (SIGN_UPS_KEY, "0-1");
        self.query_within::<u64>(DELETE_OPERATION, self.timeout, "XDEL", nothing)?;
        self.record_change(author, &change_of_deleted_sign_ups(found.count))?;
        let (earlier, last) = found.split_numbers_to_delete();
        let deletions = inboxes.iter().map(|inbox| hex::encode(encode_deletion(*inbox)));
        let mut arguments = vec![
            MAX_SIGN_UPS.to_string(),
            self.told_time.now().unix_now.to_string(),
            found.read_up_to.to_string(),
            inboxes.len().to_string(),
            last.len().to_string(),
        ];
        arguments.extend(deletions);
        arguments.extend(last.iter().map(u64::to_string));
        let script = Script::DeleteSignUps;
        let written_since: usize =
            self.run_write_script(DELETE_OPERATION, script, &[SIGN_UPS_KEY], &arguments)?;
        for numbers in earlier.chunks(MAX_ENTRIES_DELETED_PER_STEP) {
            let ids: Vec<String> = numbers.iter().map(|number| format!("{number}-0")).collect();
            self.query::<u64>(DELETE_OPERATION, "XDEL", (SIGN_UPS_KEY, ids))?;
        }
        Ok(found.count + written_since)
    }
}

impl Redis {
    /// Appends a page of sign-ups. If the time is settled, deletes some old entries. Returns up to
    /// where the caller has now read.
    fn append_page_and_delete_old(
        &mut self,
        page: &[SignUp],
        read_up_to: SignUpCursor,
    ) -> Result<SignUpCursor, StoreError> {
        const OPERATION: &str = "saving sign-ups";
        let (now, max_deleted) = (self.told_time.now(), page.len() + OLDEST_SIGN_UPS_PER_WRITE);
        let kept_times = now.allows_deletion().then(|| times_of_kept_sign_ups(now.unix_now));
        let [earliest, latest] = match kept_times {
            Some(times) => [times.start().to_string(), times.end().to_string()],
            None => [String::new(), String::new()],
        };
        let script = (Script::AppendSignUps, &[SIGN_UPS_KEY][..]);
        let last_number = self.run_script(OPERATION, BULK_TIMEOUT, script, |pipeline| {
            pipeline.arg(MAX_SIGN_UPS).arg(&earliest).arg(&latest).arg(max_deleted);
            pipeline.arg(read_up_to.number);
            for sign_up in page {
                pipeline.arg(sign_up.at).arg(&encode_sign_up(sign_up)[..]);
            }
        })?;
        Ok(read_up_to.after_appended(page, last_number))
    }

    pub(super) fn has_sign_ups(&mut self, operation: &'static str) -> Result<bool, StoreError> {
        let first = (SIGN_UPS_KEY, "-", "+", "COUNT", 1);
        Ok(!self.query::<Vec<StreamEntry>>(operation, "XRANGE", first)?.is_empty())
    }

    /// Stages the sign-ups of another store. The sign-ups get new numbers, in the same order.
    pub(super) fn stage_sign_ups(
        &mut self,
        staging: &mut Staging,
        sign_ups: &[SignUp],
    ) -> Result<(), StoreError> {
        if sign_ups.is_empty() {
            return Ok(());
        }
        let staged = staging.add_move(SIGN_UPS_KEY, OnExistingKey::Fail, None);
        let mut number = 0;
        for page in sign_ups.chunks(CHUNK_ROWS) {
            let mut write = redis::pipe();
            for sign_up in page {
                number += 1;
                write.cmd("XADD").arg(&staged).arg(format!("{number}-0")).arg("at").arg(sign_up.at);
                write.arg("pseudonyms").arg(&encode_sign_up(sign_up)[..]);
            }
            self.send_staged(staging, write)?;
        }
        Ok(())
    }
}

/// `None` if the id is none that riskgate gives a sign-up.
fn parse_entry((id, fields): &StreamEntry) -> Option<NumberedEntry> {
    let number = id.strip_suffix("-0")?.parse().ok()?;
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|it| &it.1[..]);
    let at = field("at").and_then(|at| std::str::from_utf8(at).ok()?.parse().ok());
    Some(match (at, field("pseudonyms")) {
        (Some(at), Some(bytes)) => NumberedEntry::new(number, at, bytes),
        _ => NumberedEntry { number, entry: None },
    })
}
