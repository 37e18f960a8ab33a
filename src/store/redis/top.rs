//! Top counts on a server: one hash of rows, and one set of marks for each day.

use redis::{Pipeline, Value};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::TOP_KEY;
use super::reply::server_error;
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{MAX_TOP_ACCOUNTS, TopCredit, TopRow};

/// Marks of a day are kept for so many seconds.
const SIGHTINGS_TTL: u64 = 2 * 86_400;
/// Marks in one script, so that it never holds the server up.
const MAX_SIGHTINGS: usize = 2_000;

fn sightings_key(day: i64) -> String {
    format!("riskgate:{{top}}:marks:{day}")
}

impl Redis {
    pub(in super::super) fn top(
        &mut self,
        day: i64,
    ) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        let marks: Vec<Vec<u8>> = self.scan_all("SSCAN", &sightings_key(day))?;
        let mark = |text: Vec<u8>| std::str::from_utf8(&text).ok()?.parse().ok();
        Ok((self.top_rows()?, marks.into_iter().filter_map(mark).collect()))
    }

    pub(in super::super) fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = self.scan_all("HSCAN", TOP_KEY)?;
        // One that can't be read counts from nothing again.
        let row = |(domain, text): (Vec<u8>, Vec<u8>)| {
            parse_top_row(String::from_utf8(domain).ok()?, std::str::from_utf8(&text).ok()?)
        };
        Ok(pairs.into_iter().filter_map(row).collect())
    }

    /// Said twice it counts once, by the marks: so many credits may go in several scripts.
    pub(in super::super) fn credit_top(
        &mut self,
        credits: &[TopCredit],
        gone: &[String],
        day: i64,
        half_life: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        let mut rows = Vec::with_capacity(credits.len());
        let mut gone = gone;
        let mut credits = credits;
        while !credits.is_empty() || !gone.is_empty() {
            let mut marks = 0;
            let fits = credits.iter().take_while(|credit| {
                marks += credit.sightings.len() + 1;
                marks <= MAX_SIGHTINGS
            });
            // One credit alone may have more: as many as there are accounts that ask for it.
            let (some, more) =
                credits.split_at(fits.count().clamp(credits.len().min(1), CHUNK_ROWS));
            let (some_gone, more_gone) = gone.split_at(gone.len().min(CHUNK_ROWS));
            rows.extend(self.credit_page(some, some_gone, day, half_life)?);
            (credits, gone) = (more, more_gone);
        }
        Ok(rows)
    }

    fn credit_page(
        &mut self,
        credits: &[TopCredit],
        gone: &[String],
        day: i64,
        half_life: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        const DOING: &str = "saving the top counts";
        let mut replies = self.run_scripts_within(DOING, BULK_TIMEOUT, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("EVALSHA").arg(&scripts[Script::CreditTop as usize]).arg(2).arg(TOP_KEY);
            pipeline.arg(sightings_key(day)).arg(half_life.to_string()).arg(SIGHTINGS_TTL);
            pipeline.arg(MAX_TOP_ACCOUNTS).arg(gone.len()).arg(gone);
            for credit in credits {
                pipeline.arg(&credit.domain).arg(credit.base.to_string()).arg(credit.at);
                pipeline.arg(credit.sightings.len());
                for (mark, account) in &credit.sightings {
                    pipeline.arg(mark.to_string()).arg(account.to_string());
                }
            }
            pipeline
        })?;
        let reply = replies.pop().unwrap_or(Value::Nil);
        if let Some(found) = server_error(&reply) {
            self.connection = None;
            return Err(self.unavailable(DOING, found));
        }
        let texts: Vec<String> = self.parse_reply(DOING, reply)?;
        let row = |(credit, text): (&TopCredit, String)| {
            parse_top_row(credit.domain.clone(), &text)
                .ok_or_else(|| self.unavailable(DOING, format!("{text:?}")))
        };
        credits.iter().zip(texts).map(row).collect()
    }

    /// Whatever a collection holds, a chunk at a time; something may come twice.
    fn scan_all<T: redis::FromRedisValue>(
        &mut self,
        command: &str,
        key: &str,
    ) -> Result<Vec<T>, StoreError> {
        const DOING: &str = "reading the top counts";
        let mut all = Vec::new();
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            scan.cmd(command).arg(key).arg(cursor).arg("COUNT").arg(CHUNK_ROWS);
            let (next, some): (u64, Vec<T>) = self.query_last(DOING, &scan)?;
            all.extend(some);
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

/// None if the text is not one of ours.
fn parse_top_row(domain: String, text: &str) -> Option<TopRow> {
    let mut words = text.split(' ');
    let (count, at) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let accounts = words.next()?.split(',').filter_map(|account| account.parse().ok()).collect();
    Some(TopRow { domain, count, at, accounts }).filter(|row| row.count.is_finite())
}
