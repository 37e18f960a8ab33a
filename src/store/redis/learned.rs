//! DNS facts on a server: a hash of the facts by name, and a sorted set of the names by the version
//! at which each was written.

use redis::Pipeline;

use super::connection::{BULK_TIMEOUT, Redis};
use super::reply::server_error;
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::rows::{DNS_FACTS_PAGE, DnsFactRow, MAX_DNS_FACTS};

/// A hash: `EXPIRY MX` by name, and the newest version under `version`.
const FACTS_KEY: &str = "riskgate:{dns}:facts";
/// A sorted set: the names, with the version at which each was written as score.
const ORDER_KEY: &str = "riskgate:{dns}:order";

impl Redis {
    pub(in super::super) fn save_dns_facts(
        &mut self,
        rows: &[DnsFactRow],
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "saving DNS facts";
        for chunk in rows.chunks(DNS_FACTS_PAGE) {
            let replies = self.run_scripts_within(OPERATION, BULK_TIMEOUT, |scripts| {
                let mut pipeline = Pipeline::new();
                pipeline.cmd("EVALSHA").arg(&scripts[Script::SaveLearned as usize]).arg(2);
                pipeline.arg(FACTS_KEY).arg(ORDER_KEY).arg(MAX_DNS_FACTS);
                for DnsFactRow { name, mx, until } in chunk {
                    pipeline.arg(name).arg(format!("{until} {mx}"));
                }
                pipeline
            })?;
            if let Some(found) = replies.iter().find_map(server_error) {
                self.connection = None;
                return Err(self.unavailable_error(OPERATION, found));
            }
        }
        Ok(())
    }

    pub(in super::super) fn dns_facts_since(
        &mut self,
        since: u64,
    ) -> Result<(Vec<DnsFactRow>, u64), StoreError> {
        const OPERATION: &str = "reading DNS facts";
        let mut read = redis::pipe();
        read.cmd("HGET").arg(FACTS_KEY).arg("version");
        let newest: Option<u64> = self.query_last(OPERATION, &read)?;
        let newest = newest.unwrap_or(0);
        // If the caller knows a newer version, the server has lost data.
        let since = if since > newest { 0 } else { since };
        if since == newest {
            return Ok((Vec::new(), since));
        }
        let mut read = redis::pipe();
        read.cmd("ZRANGEBYSCORE").arg(ORDER_KEY).arg(format!("({since}")).arg("+inf");
        read.arg("WITHSCORES").arg("LIMIT").arg(0).arg(DNS_FACTS_PAGE);
        let names: Vec<(Vec<u8>, u64)> = self.query_last(OPERATION, &read)?;
        let Some((_, version)) = names.last() else { return Ok((Vec::new(), newest)) };
        let mut read = redis::pipe();
        read.cmd("HMGET")
            .arg(FACTS_KEY)
            .arg(names.iter().map(|(name, _)| name).collect::<Vec<_>>());
        let texts: Vec<Option<Vec<u8>>> = self.query_last(OPERATION, &read)?;
        // A fact that can't be read is skipped, and riskgate queries the DNS again.
        let rows =
            names.iter().zip(texts).filter_map(|((name, _), text)| parse_dns_fact(name, &text?));
        Ok((rows.collect(), *version))
    }

    pub(in super::super) fn find_dns_fact(
        &mut self,
        name: &str,
    ) -> Result<Option<DnsFactRow>, StoreError> {
        let mut read = redis::pipe();
        read.cmd("HGET").arg(FACTS_KEY).arg(name);
        let text: Option<Vec<u8>> = self.query_last("reading DNS facts", &read)?;
        Ok(text.and_then(|text| parse_dns_fact(name.as_bytes(), &text)))
    }
}

fn parse_dns_fact(name: &[u8], text: &[u8]) -> Option<DnsFactRow> {
    let (name, text) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(text).ok()?);
    let (until, mx) = text.split_once(' ')?;
    Some(DnsFactRow { name: name.to_owned(), mx: mx.to_owned(), until: until.parse().ok()? })
}
