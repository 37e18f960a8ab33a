//! What the DNS said, on a server: a hash of names, and the order in which they were written.

use redis::Pipeline;

use super::connection::{BULK_TIMEOUT, Redis};
use super::reply::server_error;
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{LEARNED_PAGE, LearnedRow, MAX_LEARNED};

const FACTS_KEY: &str = "riskgate:{dns}:facts";
const ORDER_KEY: &str = "riskgate:{dns}:order";

impl Redis {
    pub(in super::super) fn learn(&mut self, rows: &[LearnedRow]) -> Result<(), StoreError> {
        const DOING: &str = "saving DNS findings";
        for some in rows.chunks(LEARNED_PAGE) {
            let replies = self.run_scripts_within(DOING, BULK_TIMEOUT, |scripts| {
                let mut pipeline = Pipeline::new();
                pipeline.cmd("EVALSHA").arg(&scripts[Script::SaveLearned as usize]).arg(2);
                pipeline.arg(FACTS_KEY).arg(ORDER_KEY).arg(MAX_LEARNED);
                for LearnedRow { name, mx, until } in some {
                    pipeline.arg(name).arg(format!("{until} {mx}"));
                }
                pipeline
            })?;
            if let Some(found) = replies.iter().find_map(server_error) {
                self.connection = None;
                return Err(self.unavailable(DOING, found));
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
        read.cmd("HGET").arg(FACTS_KEY).arg("version");
        let newest: Option<u64> = self.query_last(DOING, &read)?;
        let newest = newest.unwrap_or(0);
        // Older than what is known: the server has lost something.
        let since = if since > newest { 0 } else { since };
        if since == newest {
            return Ok((Vec::new(), since));
        }
        let mut read = redis::pipe();
        read.cmd("ZRANGEBYSCORE").arg(ORDER_KEY).arg(format!("({since}")).arg("+inf");
        read.arg("WITHSCORES").arg("LIMIT").arg(0).arg(LEARNED_PAGE);
        let names: Vec<(Vec<u8>, u64)> = self.query_last(DOING, &read)?;
        let Some((_, version)) = names.last() else { return Ok((Vec::new(), newest)) };
        let mut read = redis::pipe();
        read.cmd("HMGET")
            .arg(FACTS_KEY)
            .arg(names.iter().map(|(name, _)| name).collect::<Vec<_>>());
        let texts: Vec<Option<Vec<u8>>> = self.query_last(DOING, &read)?;
        // One that can't be read is learned anew.
        let rows =
            names.iter().zip(texts).filter_map(|((name, _), text)| parse_learned(name, &text?));
        Ok((rows.collect(), *version))
    }

    pub(in super::super) fn find_learned(
        &mut self,
        name: &str,
    ) -> Result<Option<LearnedRow>, StoreError> {
        let mut read = redis::pipe();
        read.cmd("HGET").arg(FACTS_KEY).arg(name);
        let text: Option<Vec<u8>> = self.query_last("reading what the DNS said", &read)?;
        Ok(text.and_then(|text| parse_learned(name.as_bytes(), &text)))
    }
}

fn parse_learned(name: &[u8], text: &[u8]) -> Option<LearnedRow> {
    let (name, text) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(text).ok()?);
    let (until, mx) = text.split_once(' ')?;
    Some(LearnedRow { name: name.to_owned(), mx: mx.to_owned(), until: until.parse().ok()? })
}
