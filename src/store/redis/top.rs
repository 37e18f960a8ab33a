//! Top counts in Redis: one hash of rows, and for each day a set of dedup hashes.

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::TOP_ROWS_KEY;
use super::scripts::Script;
use crate::store::error::{StoreError, unreadable_row_error};
use crate::store::operations::TopListBackend;
use crate::store::rows::{MAX_TOP_ROW_ACCOUNTS, TopCredit, TopRow};

/// How long the dedup hashes of a day are kept, in seconds.
const DEDUP_SETS_TTL_SECONDS: u64 = 2 * 86_400;
/// The most credits and dedup hashes in one script, so that the script does not block the server
/// for long. A single credit may have more.
const MAX_HASHES_PER_SCRIPT: usize = 2_000;

const READ_OPERATION: &str = "reading the top counts";

fn dedup_hashes_key(unix_day: i64) -> String {
    format!("riskgate:{{top}}:marks:{unix_day}")
}

impl TopListBackend for Redis {
    fn top_rows_and_dedup_hashes(
        &mut self,
        unix_day: i64,
    ) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        let parse_hash = |text: Vec<u8>| std::str::from_utf8(&text).ok()?.parse::<u64>().ok();
        let mut dedup_hashes = Vec::new();
        self.scan_set_members(READ_OPERATION, &dedup_hashes_key(unix_day), |text| {
            dedup_hashes.extend(parse_hash(text));
        })?;
        Ok((self.top_rows()?, dedup_hashes))
    }

    fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        let rows = self.scan_top_rows()?;
        // A row that can't be read is skipped, and its next credit replaces it.
        Ok(rows.into_iter().filter_map(Result::ok).collect())
    }

    fn top_rows_to_copy(&mut self) -> Result<Vec<TopRow>, StoreError> {
        let rows = self.scan_top_rows()?.into_iter();
        let read = |row: Result<TopRow, String>| {
            row.map_err(|domain| unreadable_row_error(&format!("the top count of {domain}")))
        };
        rows.map(read).collect()
    }

    /// Splits the credits over several scripts. If a script runs twice, it adds nothing the second
    /// time, because each dedup hash counts once.
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
        let dedup_hashes_key = dedup_hashes_key(unix_day);
        let script = (Script::CreditTop, &[TOP_ROWS_KEY, &dedup_hashes_key][..]);
        let texts: Vec<String> = self.run_script(OPERATION, BULK_TIMEOUT, script, |pipeline| {
            pipeline.arg(half_life_seconds.to_string()).arg(DEDUP_SETS_TTL_SECONDS);
            pipeline.arg(MAX_TOP_ROW_ACCOUNTS).arg(evicted_domains.len()).arg(evicted_domains);
            for credit in credits {
                pipeline.arg(&credit.domain).arg(credit.initial_count.to_string()).arg(credit.at);
                pipeline.arg(credit.dedup_hashes.len());
                for (dedup_hash, account) in &credit.dedup_hashes {
                    pipeline.arg(dedup_hash.to_string()).arg(account.to_string());
                }
            }
        })?;
        let row = |(credit, text): (&TopCredit, String)| {
            parse_top_row(credit.domain.clone(), &text)
                .ok_or_else(|| self.unavailable_error(OPERATION, format!("{text:?}")))
        };
        credits.iter().zip(texts).map(row).collect()
    }

    /// Reads the rows of the top list. A row that can't be read is an error with its domain.
    fn scan_top_rows(&mut self) -> Result<Vec<Result<TopRow, String>>, StoreError> {
        let parse = |domain: Vec<u8>, text: Vec<u8>| {
            let name = domain.escape_ascii().to_string();
            let row = String::from_utf8(domain).ok().zip(std::str::from_utf8(&text).ok());
            row.and_then(|(domain, text)| parse_top_row(domain, text)).ok_or(name)
        };
        let mut rows = Vec::new();
        self.scan_hash_fields(READ_OPERATION, TOP_ROWS_KEY, |domain, text| {
            rows.push(parse(domain, text));
        })?;
        Ok(rows)
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
