//! What the DNS said, on a server: a hash of names, and the order in which they were written.

use redis::Pipeline;

use super::connection::{BULK, Redis};
use super::reply::error_of;
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{LEARNED_AT_ONCE, LearnedRow, MOST_LEARNED};

const FACTS: &str = "riskgate:{dns}:facts";
const ORDER: &str = "riskgate:{dns}:order";

impl Redis {
    pub(in super::super) fn learn(&mut self, rows: &[LearnedRow]) -> Result<(), StoreError> {
        const DOING: &str = "saving what the DNS said";
        for some in rows.chunks(LEARNED_AT_ONCE) {
            let replies = self.run_within(DOING, BULK, |scripts| {
                let mut pipeline = Pipeline::new();
                pipeline.cmd("EVALSHA").arg(&scripts[Script::Learn as usize]).arg(2);
                pipeline.arg(FACTS).arg(ORDER).arg(MOST_LEARNED);
                for LearnedRow { name, mx, until } in some {
                    pipeline.arg(name).arg(format!("{until} {mx}"));
                }
                pipeline
            })?;
            if let Some(found) = replies.iter().find_map(error_of) {
                self.connection = None;
                return Err(self.unanswered(DOING, found));
            }
        }
        Ok(())
    }

    pub(in super::super) fn learned_since(
        &mut self,
        since: u64,
    ) -> Result<(Vec<LearnedRow>, u64), StoreError> {
        const DOING: &str = "reading what the DNS said";
        let mut read = redis::pipe();
        read.cmd("HGET").arg(FACTS).arg("version");
        let newest: Option<u64> = self.read(DOING, &read)?;
        let newest = newest.unwrap_or(0);
        // Older than what is known: the server has lost something.
        let since = if since > newest { 0 } else { since };
        if since == newest {
            return Ok((Vec::new(), since));
        }
        let mut read = redis::pipe();
        read.cmd("ZRANGEBYSCORE").arg(ORDER).arg(format!("({since}")).arg("+inf");
        read.arg("WITHSCORES").arg("LIMIT").arg(0).arg(LEARNED_AT_ONCE);
        let names: Vec<(Vec<u8>, u64)> = self.read(DOING, &read)?;
        let Some((_, version)) = names.last() else { return Ok((Vec::new(), newest)) };
        let mut read = redis::pipe();
        read.cmd("HMGET").arg(FACTS).arg(names.iter().map(|(name, _)| name).collect::<Vec<_>>());
        let texts: Vec<Option<Vec<u8>>> = self.read(DOING, &read)?;
        // One that can't be read is learned anew.
        let rows = names.iter().zip(texts).filter_map(|((name, _), text)| learned(name, &text?));
        Ok((rows.collect(), *version))
    }

    pub(in super::super) fn learned_of(
        &mut self,
        name: &str,
    ) -> Result<Option<LearnedRow>, StoreError> {
        let mut read = redis::pipe();
        read.cmd("HGET").arg(FACTS).arg(name);
        let text: Option<Vec<u8>> = self.read("reading what the DNS said", &read)?;
        Ok(text.and_then(|text| learned(name.as_bytes(), &text)))
    }
}

fn learned(name: &[u8], text: &[u8]) -> Option<LearnedRow> {
    let (name, text) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(text).ok()?);
    let (until, mx) = text.split_once(' ')?;
    Some(LearnedRow { name: name.to_owned(), mx: mx.to_owned(), until: until.parse().ok()? })
}
