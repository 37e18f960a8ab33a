//! DNS facts on a server, in two Redis keys. A hash holds the facts by name. A sorted set holds the
//! names by the version at which each fact was written.

use super::connection::{BULK_TIMEOUT, Redis};
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::operations::DnsFactBackend;
use crate::store::rows::{DNS_FACTS_PER_PAGE, DnsFactRow, MAX_DNS_FACTS};

/// A hash: `EXPIRY HOST_TEXT` by name, and the newest version under `version`.
pub(super) const DNS_FACTS_KEY: &str = "riskgate:{dns}:facts";
/// A sorted set: the names, with the version at which each was written as score.
pub(super) const DNS_NAMES_BY_VERSION_KEY: &str = "riskgate:{dns}:order";

impl DnsFactBackend for Redis {
    fn save_dns_facts(&mut self, facts: &[DnsFactRow]) -> Result<(), StoreError> {
        const OPERATION: &str = "saving DNS facts";
        for chunk in facts.chunks(DNS_FACTS_PER_PAGE) {
            let script = (Script::SaveDnsFacts, &[DNS_FACTS_KEY, DNS_NAMES_BY_VERSION_KEY][..]);
            self.run_script::<()>(OPERATION, BULK_TIMEOUT, script, |pipeline| {
                pipeline.arg(MAX_DNS_FACTS);
                for fact in chunk {
                    let (until, host_text) = (fact.expires_at, fact.format_host_text());
                    pipeline.arg(&fact.name).arg(format!("{until} {host_text}"));
                }
            })?;
        }
        Ok(())
    }

    fn read_dns_facts_page(
        &mut self,
        after_version: u64,
    ) -> Result<(Vec<DnsFactRow>, u64), StoreError> {
        const OPERATION: &str = "reading DNS facts";
        let newest: Option<u64> = self.query(OPERATION, "HGET", (DNS_FACTS_KEY, "version"))?;
        let newest = newest.unwrap_or(0);
        // If the caller knows a newer version, the server has lost data.
        let since = if after_version > newest { 0 } else { after_version };
        if since == newest {
            return Ok((Vec::new(), since));
        }
        let range = (DNS_NAMES_BY_VERSION_KEY, format!("({since}"), "+inf");
        let page = (range, "WITHSCORES", "LIMIT", 0, DNS_FACTS_PER_PAGE);
        let names: Vec<(Vec<u8>, u64)> = self.query(OPERATION, "ZRANGEBYSCORE", page)?;
        let Some((_, version)) = names.last() else { return Ok((Vec::new(), newest)) };
        let fields: Vec<_> = names.iter().map(|(name, _)| name).collect();
        let texts: Vec<Option<Vec<u8>>> =
            self.query(OPERATION, "HMGET", (DNS_FACTS_KEY, fields))?;
        // A fact that can't be read is skipped, and riskgate queries the DNS again.
        let rows =
            names.iter().zip(texts).filter_map(|((name, _), text)| parse_dns_fact(name, &text?));
        Ok((rows.collect(), *version))
    }

    fn find_dns_fact(&mut self, name: &str) -> Result<Option<DnsFactRow>, StoreError> {
        let text: Option<Vec<u8>> =
            self.query("reading DNS facts", "HGET", (DNS_FACTS_KEY, name))?;
        Ok(text.and_then(|text| parse_dns_fact(name.as_bytes(), &text)))
    }
}

fn parse_dns_fact(name: &[u8], text: &[u8]) -> Option<DnsFactRow> {
    let (name, text) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(text).ok()?);
    let (until, host_text) = text.split_once(' ')?;
    Some(DnsFactRow::from_host_text(name.to_owned(), host_text, until.parse().ok()?))
}
