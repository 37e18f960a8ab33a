//! Top counts in Redis: one hash of rows, and for each day a set of dedup hashes.

use redis::{Pipeline, Value};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::TOP_KEY;
use super::reply::server_error;
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{MAX_TOP_ACCOUNTS, TopCredit, TopRow};

/// How long the dedup hashes of a day are kept, in seconds.
const DEDUP_HASHES_TTL_SECONDS: u64 = 2 * 86_400;
/// The most dedup hashes in one script, so that it does not block the server for long.
const MAX_HASHES_PER_SCRIPT: usize = 2_000;

fn dedup_hashes_key(day: i64) -> String {
    format!("riskgate:{{top}}:marks:{day}")
}

impl Redis {
    pub(in super::super) fn top_rows_and_hashes(
        &mut self,
        day: i64,
    ) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        let dedup_hashes: Vec<Vec<u8>> = self.scan_all("SSCAN", &dedup_hashes_key(day))?;
        let parse_hash = |text: Vec<u8>| std::str::from_utf8(&text).ok()?.parse().ok();
        Ok((self.top_rows()?, dedup_hashes.into_iter().filter_map(parse_hash).collect()))
    }

    pub(in super::super) fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = self.scan_all("HSCAN", TOP_KEY)?;
        // A row that can't be read is skipped; its count starts again from zero.
        let row = |(domain, text): (Vec<u8>, Vec<u8>)| {
            parse_top_row(String::from_utf8(domain).ok()?, std::str::from_utf8(&text).ok()?)
        };
        Ok(pairs.into_iter().filter_map(row).collect())
    }

    /// Each dedup hash counts once, so a repeated script adds nothing, and many credits may be
    /// split over several scripts.
    pub(in super::super) fn credit_top(
        &mut self,
        credits: &[TopCredit],
        evicted: &[String],
        day: i64,
        half_life: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        let mut rows = Vec::with_capacity(credits.len());
        let (mut evicted, mut credits) = (evicted, credits);
        while !credits.is_empty() || !evicted.is_empty() {
            let mut hash_count = 0;
            let fitting = credits.iter().take_while(|credit| {
                hash_count += credit.hashes.len() + 1;
                hash_count <= MAX_HASHES_PER_SCRIPT
            });
            // A chunk has at least one credit, whatever its number of dedup hashes.
            let (chunk, rest) =
                credits.split_at(fitting.count().clamp(credits.len().min(1), CHUNK_ROWS));
            let (evicted_chunk, rest_evicted) = evicted.split_at(evicted.len().min(CHUNK_ROWS));
            rows.extend(self.credit_page(chunk, evicted_chunk, day, half_life)?);
            (credits, evicted) = (rest, rest_evicted);
        }
        Ok(rows)
    }

    fn credit_page(
        &mut self,
        credits: &[TopCredit],
        evicted: &[String],
        day: i64,
        half_life: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        const OPERATION: &str = "saving the top counts";
        let mut replies = self.run_scripts_within(OPERATION, BULK_TIMEOUT, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("EVALSHA").arg(&scripts[Script::CreditTop as usize]).arg(2).arg(TOP_KEY);
            pipeline
                .arg(dedup_hashes_key(day))
                .arg(half_life.to_string())
                .arg(DEDUP_HASHES_TTL_SECONDS);
            pipeline.arg(MAX_TOP_ACCOUNTS).arg(evicted.len()).arg(evicted);
            for credit in credits {
                pipeline.arg(&credit.domain).arg(credit.initial_count.to_string()).arg(credit.at);
                pipeline.arg(credit.hashes.len());
                for (dedup_hash, account) in &credit.hashes {
                    pipeline.arg(dedup_hash.to_string()).arg(account.to_string());
                }
            }
            pipeline
        })?;
        let reply = replies.pop().unwrap_or(Value::Nil);
        if let Some(found) = server_error(&reply) {
            self.connection = None;
            return Err(self.unavailable_error(OPERATION, found));
        }
        let texts: Vec<String> = self.parse_reply(OPERATION, reply)?;
        let row = |(credit, text): (&TopCredit, String)| {
            parse_top_row(credit.domain.clone(), &text)
                .ok_or_else(|| self.unavailable_error(OPERATION, format!("{text:?}")))
        };
        credits.iter().zip(texts).map(row).collect()
    }

    /// All elements of a collection, a chunk at a time; an element may come twice.
    fn scan_all<T: redis::FromRedisValue>(
        &mut self,
        command: &str,
        key: &str,
    ) -> Result<Vec<T>, StoreError> {
        const OPERATION: &str = "reading the top counts";
        let mut all = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd(command).arg(key).arg(cursor).arg("COUNT").arg(CHUNK_ROWS);
            let (next, chunk): (u64, Vec<T>) = self.query_last(OPERATION, &scan)?;
            all.extend(chunk);
            cursor = next;
            if cursor == 0 {
                return Ok(all);
            }
        }
    }
}

pub(super) fn format_top_row(row: &TopRow) -> String {
    let accounts: Vec<String> = row.accounts.iter().map(u64::to_string).collect();
    format!("{} {} {}", row.count, row.at, accounts.join(","))
}

/// Returns `None` if riskgate did not write the text.
fn parse_top_row(domain: String, text: &str) -> Option<TopRow> {
    let mut fields = text.split(' ');
    let (count, at) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let accounts = fields.next()?.split(',').filter_map(|account| account.parse().ok()).collect();
    Some(TopRow { domain, count, at, accounts }).filter(|row| row.count.is_finite())
}
