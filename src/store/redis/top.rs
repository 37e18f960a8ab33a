//! Top counts in Redis: one hash of rows, and for each day a set of dedup hashes.

use redis::{Pipeline, Value};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::TOP_ROWS_KEY;
use super::reply::error_reply_text;
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::operations::top::TopListBackend;
use crate::store::rows::{MAX_TOP_ROW_ACCOUNTS, TopCredit, TopRow};

/// How long the dedup hashes of a day are kept, in seconds.
const DEDUP_SETS_TTL_SECONDS: u64 = 2 * 86_400;
/// The most dedup hashes in one script, so that it does not block the server for long.
const MAX_HASHES_PER_SCRIPT: usize = 2_000;

fn dedup_hashes_key(unix_day: i64) -> String {
    format!("riskgate:{{top}}:marks:{unix_day}")
}

impl TopListBackend for Redis {
    fn top_rows_and_dedup_hashes(
        &mut self,
        unix_day: i64,
    ) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        let dedup_hashes: Vec<Vec<u8>> =
            self.scan_collection("SSCAN", &dedup_hashes_key(unix_day))?;
        let parse_hash = |text: Vec<u8>| std::str::from_utf8(&text).ok()?.parse().ok();
        Ok((self.top_rows()?, dedup_hashes.into_iter().filter_map(parse_hash).collect()))
    }

    fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = self.scan_collection("HSCAN", TOP_ROWS_KEY)?;
        // A row that can't be read is skipped; its count starts again from zero.
        let row = |(domain, text): (Vec<u8>, Vec<u8>)| {
            parse_top_row(String::from_utf8(domain).ok()?, std::str::from_utf8(&text).ok()?)
        };
        Ok(pairs.into_iter().filter_map(row).collect())
    }

    /// Each dedup hash counts once. So a script that runs twice adds nothing the second time, and
    /// many credits can be split over several scripts.
    fn add_credits(
        &mut self,
        credits: &[TopCredit],
        evicted_domains: &[String],
        unix_day: i64,
        half_life_seconds: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        let mut rows = Vec::with_capacity(credits.len());
        let (mut evicted, mut credits) = (evicted_domains, credits);
        while !credits.is_empty() || !evicted.is_empty() {
            let mut hash_count = 0;
            let fitting = credits.iter().take_while(|credit| {
                hash_count += credit.dedup_hashes.len() + 1;
                hash_count <= MAX_HASHES_PER_SCRIPT
            });
            // A chunk has at least one credit, however many dedup hashes that credit has.
            let (chunk, rest) =
                credits.split_at(fitting.count().clamp(credits.len().min(1), CHUNK_ROWS));
            let (evicted_chunk, rest_evicted) = evicted.split_at(evicted.len().min(CHUNK_ROWS));
            rows.extend(self.add_page_of_credits(
                chunk,
                evicted_chunk,
                unix_day,
                half_life_seconds,
            )?);
            (credits, evicted) = (rest, rest_evicted);
        }
        Ok(rows)
    }
}

impl Redis {
    fn add_page_of_credits(
        &mut self,
        credits: &[TopCredit],
        evicted_domains: &[String],
        unix_day: i64,
        half_life_seconds: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        const OPERATION: &str = "saving the top counts";
        let mut replies = self.run_scripts_within(OPERATION, BULK_TIMEOUT, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline
                .cmd("EVALSHA")
                .arg(&scripts[Script::CreditTop as usize])
                .arg(2)
                .arg(TOP_ROWS_KEY);
            pipeline
                .arg(dedup_hashes_key(unix_day))
                .arg(half_life_seconds.to_string())
                .arg(DEDUP_SETS_TTL_SECONDS);
            pipeline.arg(MAX_TOP_ROW_ACCOUNTS).arg(evicted_domains.len()).arg(evicted_domains);
            for credit in credits {
                pipeline.arg(&credit.domain).arg(credit.initial_count.to_string()).arg(credit.at);
                pipeline.arg(credit.dedup_hashes.len());
                for (dedup_hash, account) in &credit.dedup_hashes {
                    pipeline.arg(dedup_hash.to_string()).arg(account.to_string());
                }
            }
            pipeline
        })?;
        let reply = replies.pop().unwrap_or(Value::Nil);
        if let Some(found) = error_reply_text(&reply) {
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

    /// Returns all elements of a Redis set or hash, read in chunks. An element may come twice.
    fn scan_collection<T: redis::FromRedisValue>(
        &mut self,
        scan_command: &str,
        redis_key: &str,
    ) -> Result<Vec<T>, StoreError> {
        const OPERATION: &str = "reading the top counts";
        let mut all = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd(scan_command).arg(redis_key).arg(cursor).arg("COUNT").arg(CHUNK_ROWS);
            let (next, chunk): (u64, Vec<T>) = self.query_last_reply(OPERATION, &scan)?;
            all.extend(chunk);
            cursor = next;
            if cursor == 0 {
                return Ok(all);
            }
        }
    }
}

pub(super) fn format_top_row(row: &TopRow) -> String {
    let accounts: Vec<String> = row.account_hashes.iter().map(u64::to_string).collect();
    format!("{} {} {}", row.count, row.at, accounts.join(","))
}

/// Returns `None` if riskgate did not write the text.
fn parse_top_row(domain: String, text: &str) -> Option<TopRow> {
    let mut fields = text.split(' ');
    let (count, at) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let accounts = fields.next()?.split(',').filter_map(|account| account.parse().ok()).collect();
    Some(TopRow { domain, count, at, account_hashes: accounts }).filter(|row| row.count.is_finite())
}
