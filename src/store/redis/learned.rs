//! DNS findings on a server: a hash by name, and the order in which they were written.

use redis::Pipeline;

use super::connection::{BULK_TIMEOUT, Redis};
use super::reply::server_error;
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{LEARNED_PAGE, LearnedRow, MAX_LEARNED};

const FACTS_KEY: &str = "riskgate:{dns}:facts";
const ORDER_KEY: &str = "riskgate:{dns}:order";

impl Redis {
    pub(in super::super) fn save_learned(&mut self, rows: &[LearnedRow]) -> Result<(), StoreError> {
        const OPERATION: &str = "saving DNS findings";
        for chunk in rows.chunks(LEARNED_PAGE) {
            let replies = self.run_scripts_within(OPERATION, BULK_TIMEOUT, |scripts| {
                let mut pipeline = Pipeline::new();
                pipeline.cmd("EVALSHA").arg(&scripts[Script::SaveLearned as usize]).arg(2);
                pipeline.arg(FACTS_KEY).arg(ORDER_KEY).arg(MAX_LEARNED);
                for LearnedRow { name, mx, until } in chunk {
                    pipeline.arg(name).arg(format!("{until} {mx}"));
                }
                pipeline
            })?;
            if let Some(found) = replies.iter().find_map(server_error) {
                self.connection = None;
                return Err(self.unavailable(OPERATION, found));
            }
        }
        Ok(())
    }

    pub(in super::super) fn learned_since(
        &mut self,
        since: u64,
    ) -> Result<(Vec<LearnedRow>, u64), StoreError> {
        const OPERATION: &str = "reading DNS findings";
        let mut read = redis::pipe();
        read.cmd("HGET").arg(FACTS_KEY).arg("version");
        let newest: Option<u64> = self.query_last(OPERATION, &read)?;
        let newest = newest.unwrap_or(0);
        // The server is older than the known version: it has lost data.
        let since = if since > newest { 0 } else { since };
        if since == newest {
            return Ok((Vec::new(), since));
        }
        let mut read = redis::pipe();
        read.cmd("ZRANGEBYSCORE").arg(ORDER_KEY).arg(format!("({since}")).arg("+inf");
        read.arg("WITHSCORES").arg("LIMIT").arg(0).arg(LEARNED_PAGE);
        let names: Vec<(Vec<u8>, u64)> = self.query_last(OPERATION, &read)?;
        let Some((_, version)) = names.last() else { return Ok((Vec::new(), newest)) };
        let mut read = redis::pipe();
        read.cmd("HMGET")
            .arg(FACTS_KEY)
            .arg(names.iter().map(|(name, _)| name).collect::<Vec<_>>());
        let texts: Vec<Option<Vec<u8>>> = self.query_last(OPERATION, &read)?;
        // A finding that can't be read is skipped; DNS is queried again.
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
        let text: Option<Vec<u8>> = self.query_last("reading DNS findings", &read)?;
        Ok(text.and_then(|text| parse_learned(name.as_bytes(), &text)))
    }
}

fn parse_learned(name: &[u8], text: &[u8]) -> Option<LearnedRow> {
    let (name, text) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(text).ok()?);
    let (until, mx) = text.split_once(' ')?;
    Some(LearnedRow { name: name.to_owned(), mx: mx.to_owned(), until: until.parse().ok()? })
}
