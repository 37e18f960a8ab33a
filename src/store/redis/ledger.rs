//! The ledger operations on a server: one script for each report.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Pipeline, Value};

use super::connection::{CHUNK_ROWS, Redis};
use super::daily_usage::format_usage_field;
use super::key_names::{
    ALL_RECOVERING_KEY, DAILY_USAGE_PREFIX, DAILY_USAGE_TTL_SECONDS, LEDGER_PREFIX,
    LEDGER_TTL_SECONDS, RING_META_KEY, account_recovering_key, daily_usage_key, ledger_key,
};
use super::reply::{error_reply_text, reply_number_or_zero, strip_line_of_script};
use super::scripts::Script;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::{Grant, LeaseReport, Probe, ReportBatchContext, ReportOutcome};
use crate::store::operations::LedgerBackend;
use crate::store::rows::UsageRow;

/// For how long the store recovers after a data loss. In this time the store grants nothing beyond
/// the floor of a report. Nodes probe the store once a second, so all of them notice the loss and
/// report their totals again.
const RECOVERY_PERIOD: Duration = Duration::from_secs(3);
/// For how many seconds a server keeps an account's totals of a month after a report that the node
/// sends when the month is past. Two months, because that node's clock may be wrong and the month
/// not over.
const PAST_MONTH_TTL_SECONDS: i64 = 62 * 86_400;

impl LedgerBackend for Redis {
    fn probe(
        &mut self,
        latest_begun_month: Month,
        previous_probe: Option<&Probe>,
    ) -> Result<Probe, StoreError> {
        const OPERATION: &str = "probing the server";
        self.probed_link = None;
        let states = self.read_server_states(OPERATION)?;
        let (of_servers, unix_now) = (states.incarnation, states.unix_now);
        // In a probe, the incarnation is `SERVERS BEGINNING STORE_ID`. The first probe of these
        // data has stored BEGINNING.
        let known = previous_probe.map_or("", |known| known.incarnation.as_str());
        let known_beginning = known.split(' ').nth(1).unwrap_or("");
        let expected_store = self.ring_store.id().unwrap_or_default();
        let recovery_ms = RECOVERY_PERIOD.as_millis() as u64;
        let script = (Script::Probe, &[RING_META_KEY, ALL_RECOVERING_KEY][..]);
        let (store_id, began, recovering, refusal): (String, String, u64, String) = self
            .run_script(OPERATION, self.timeout, script, |arguments| {
                arguments.arg(&of_servers).arg(known_beginning).arg(&states.new_beginning);
                arguments.arg(latest_begun_month.number()).arg(recovery_ms).arg(&expected_store);
            })?;
        if !store_id.is_empty() && !expected_store.is_empty() && store_id != expected_store {
            self.ring_store.count_probe_of_other_store();
            return Err(self.other_store_error(OPERATION, &expected_store, &store_id));
        }
        if self.link_number != states.link_number {
            let found = "another connection than at the beginning of the probe";
            return Err(self.unavailable_error(OPERATION, found));
        }
        self.probed_link = Some(self.link_number);
        let refusal =
            states.write_refusal.unwrap_or_else(|| strip_line_of_script(&refusal).to_owned());
        self.update_missing_replicas(states.live_replicas);
        Ok(Probe {
            incarnation: format!("{of_servers} {began} {store_id}"),
            unix_now: Some(unix_now),
            recovery_left: Duration::from_millis(recovering),
            write_refusal: (!refusal.is_empty())
                .then(|| self.unavailable_error("writing", refusal).to_string()),
        })
    }

    fn report_leases(
        &mut self,
        context: ReportBatchContext<'_>,
        reports: &[LeaseReport],
    ) -> Result<Vec<ReportOutcome>, StoreError> {
        const OPERATION: &str = "reporting leases";
        if !self.is_connected() || !self.is_link_probed() {
            // The caller must probe first, because another server may answer on a new connection.
            return Err(self.unavailable_error(OPERATION, "no connection"));
        }
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let (node, replicas) = (hex::encode(context.node_id), self.wait_replicas);
        if self.missing_replicas > 0 && context.needs_replicas {
            return Err(self.too_few_replicas_error(OPERATION));
        }
        // If replicas are known to be missing, riskgate sends no WAIT, which would only delay the
        // grants until its timeout. A later probe notices when the replicas are back.
        let must_wait = replicas > 0 && self.missing_replicas == 0;
        let wait_ms = self.replica_wait_ms();
        let mut replies = self.run_scripts(OPERATION, self.timeout, |scripts| {
            let mut pipeline = redis::pipe();
            for report in reports {
                let script = &scripts[Script::ReportLease as usize];
                push_report_command(&mut pipeline, script, &node, context, report);
            }
            if must_wait {
                pipeline.cmd("WAIT").arg(replicas).arg(wait_ms);
            }
            pipeline
        })?;
        if !self.is_link_probed() {
            // riskgate has connected again meanwhile, perhaps to a server that lost data.
            return Err(self.unavailable_error(OPERATION, "another connection than the probe's"));
        }
        if must_wait {
            let reached = reply_number_or_zero(replies.pop().unwrap_or(Value::Nil));
            self.update_missing_replicas(usize::try_from(reached).unwrap_or(usize::MAX));
            if self.missing_replicas > 0 && context.needs_replicas {
                return Err(self.too_few_replicas_error(OPERATION));
            }
        }
        // An error that does not concern one account concerns the server, so the whole batch fails.
        let is_server_error = |found: &String| !is_error_of_one_account(found);
        if let Some(found) = replies.iter().filter_map(error_reply_text).find(is_server_error) {
            return Err(self.drop_link(OPERATION, found));
        }
        let mut outcomes = Vec::with_capacity(reports.len());
        for (report, reply) in reports.iter().zip(replies) {
            if let Some(found) = error_reply_text(&reply) {
                outcomes.push(Err(self.unavailable_error(OPERATION, found)));
                continue;
            }
            let Some(grant) = parse_grant(report.sequence, reply) else {
                // The connection may hold more replies to other requests.
                return Err(self.drop_link(OPERATION, "an answer to another request"));
            };
            outcomes.push(Ok(grant));
        }
        Ok(outcomes)
    }

    fn missing_replicas(&self) -> usize {
        self.missing_replicas
    }

    fn read_spent_by_others(
        &mut self,
        account: &str,
        month: Month,
        node_id: &[u8; 16],
    ) -> Result<u64, StoreError> {
        let fields = (ledger_key(account, month), "spent", hex::encode(node_id));
        let (all, own): (Option<u64>, Option<String>) =
            self.query_within("reading usage", self.timeout, "HMGET", fields)?;
        let own = own.and_then(|row| row.rsplit(' ').next()?.parse().ok()).unwrap_or(0);
        Ok(all.unwrap_or(0).saturating_sub(own))
    }

    fn latest_month_with_totals(&mut self) -> Result<Option<Month>, StoreError> {
        let found = self.find_keys_by_month("reading usage", LEDGER_PREFIX)?;
        Ok(found.last().map(|(month, _)| *month))
    }

    fn read_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        const OPERATION: &str = "reading usage";
        let accounts = match only_account {
            Some(account) => vec![account.as_bytes().to_owned()],
            None => self.find_accounts_of_month(LEDGER_PREFIX, month)?,
        };
        let mut rows = Vec::new();
        for chunk in accounts.chunks(CHUNK_ROWS) {
            let mut read = redis::pipe();
            for account in chunk {
                let numbers = ["spent", "leased", "claim"];
                let tail = format!("}}:{month}");
                let key = [LEDGER_PREFIX.as_bytes(), account, tail.as_bytes()].concat();
                read.cmd("HMGET").arg(key).arg(&numbers);
            }
            self.connect_if_needed()?;
            for (account, reply) in
                chunk.iter().zip(self.send_once_and_read_replies(OPERATION, &read, self.timeout)?)
            {
                let server_error_text =
                    error_reply_text(&reply).filter(|found| !is_error_of_one_account(found));
                if let Some(found) = server_error_text {
                    return Err(self.drop_link(OPERATION, found));
                }
                rows.extend(parse_usage_row(account, reply));
            }
        }
        rows.sort_by(|a, b| a.account.cmp(&b.account));
        Ok(rows)
    }

    fn list_accounts_with_calls(&mut self, month: Month) -> Result<Vec<String>, StoreError> {
        let prefixes = [LEDGER_PREFIX, DAILY_USAGE_PREFIX];
        let names = self.find_accounts_by_pattern("riskgate:*{*", &prefixes, month)?;
        // No account of riskgate has a name that is not UTF-8.
        Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect())
    }
}

impl Redis {
    /// The timeout of WAIT in milliseconds: three quarters of the operation's timeout, so that the
    /// reply arrives in time even if no replica acknowledges. Never 0, because WAIT would take that
    /// as no timeout.
    pub(super) fn replica_wait_ms(&self) -> u64 {
        (self.timeout * 3 / 4).as_millis().max(1) as u64
    }

    /// Returns true if the last probe succeeded over the present link.
    fn is_link_probed(&self) -> bool {
        self.probed_link == Some(self.link_number)
    }

    fn update_missing_replicas(&mut self, present_replicas: usize) {
        self.missing_replicas = self.wait_replicas.saturating_sub(present_replicas);
    }

    fn too_few_replicas_error(&mut self, operation: &'static str) -> StoreError {
        let wanted = self.wait_replicas;
        let present = wanted.saturating_sub(self.missing_replicas);
        self.unavailable_error(operation, format!("only {present} of {wanted} replicas have it"))
    }

    /// Finds the accounts that have a Redis key of the month with this prefix. Returns their names
    /// in order, as bytes: another program may have written names that are not UTF-8.
    pub(super) fn find_accounts_of_month(
        &mut self,
        prefix: &str,
        month: Month,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.find_accounts_by_pattern(&format!("{prefix}*"), &[prefix], month)
    }

    /// Finds the accounts that have a Redis key of the month with one of these prefixes, in one
    /// scan. `pattern` matches the prefixes with any name behind them.
    fn find_accounts_by_pattern(
        &mut self,
        pattern: &str,
        prefixes: &[&str],
        month: Month,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let tail = format!("}}:{month}");
        let keys = self.find_redis_keys("reading usage", &format!("{pattern}{tail}"))?;
        let name = |key: &Vec<u8>| {
            let rest = prefixes.iter().find_map(|prefix| key.strip_prefix(prefix.as_bytes()))?;
            Some(rest.strip_suffix(tail.as_bytes())?.to_owned())
        };
        let accounts: BTreeSet<Vec<u8>> = keys.iter().filter_map(name).collect();
        Ok(accounts.into_iter().collect())
    }
}

/// Returns true if an error reply concerns the Redis keys of one account only:
/// - a Redis key is of another type, or its contents can't be read;
/// - the slot of the Redis keys is moving from one server of a Cluster to another;
/// - a Cluster has the Redis keys in several slots, because the account's name begins with `}`.
fn is_error_of_one_account(found: &str) -> bool {
    ["WRONGTYPE", "DAMAGED", "TRYAGAIN", "CROSSSLOT"].iter().any(|code| found.starts_with(code))
}

/// Parses the reply about an account's totals. `None` if the account has no totals. If the totals
/// can't be read, sets `is_damaged`.
fn parse_usage_row(account: &[u8], reply: Value) -> Option<UsageRow> {
    type UsageReply = (Option<u64>, Option<u64>, Option<String>);
    let (account, read) = match std::str::from_utf8(account) {
        Ok(account) => (account.to_owned(), redis::from_redis_value::<UsageReply>(reply).ok()),
        Err(_) => (account.escape_ascii().to_string(), None),
    };
    let Some((spent, leased, claim)) = read else {
        return Some(UsageRow { account, spent: 0, leased: 0, is_damaged: true });
    };
    let (spent, leased) = (spent?, leased?);
    let claim = claim.as_deref().and_then(|claim| claim.split_once(' '));
    let claimed = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(UsageRow {
        account,
        // After a data loss, `claim` holds the totals that nodes knew before the loss, with the
        // changes since. These totals count here at once, although only the next report after the
        // recovery raises `spent` and `leased` to them.
        spent: spent.max(claimed(claim.map(|claim| claim.1))),
        leased: leased.max(claimed(claim.map(|claim| claim.0))),
        is_damaged: false,
    })
}

fn push_report_command(
    pipeline: &mut Pipeline,
    script_digest: &str,
    node_id: &str,
    context: ReportBatchContext<'_>,
    report: &LeaseReport,
) {
    let LeaseReport { account, month, sequence, target, floor, spent, limit, known, usage } =
        report;
    let limit = limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
    let usage_months: BTreeSet<Month> = usage.iter().map(|count| count.month).collect();
    pipeline.cmd("EVALSHA").arg(script_digest).arg(2 + usage_months.len());
    pipeline.arg(ledger_key(account, *month)).arg(account_recovering_key(account, *month));
    for usage_month in &usage_months {
        pipeline.arg(daily_usage_key(account, *usage_month));
    }
    pipeline.arg(node_id).arg(sequence).arg(target).arg(floor).arg(spent).arg(limit);
    pipeline
        .arg(known.sequence)
        .arg(known.revision)
        .arg(known.leased_by_all)
        .arg(known.spent_by_all);
    pipeline.arg(context.recovery_left.as_millis() as u64).arg(RECOVERY_PERIOD.as_millis() as u64);
    let is_past = *month < context.latest_begun_month;
    pipeline
        .arg(if is_past { PAST_MONTH_TTL_SECONDS } else { LEDGER_TTL_SECONDS })
        .arg(u8::from(is_past))
        .arg(DAILY_USAGE_TTL_SECONDS)
        .arg(known.own_leased)
        .arg(known.reported_leased)
        .arg(known.reported_spent);
    for count in usage {
        let index = usage_months.iter().position(|usage_month| *usage_month == count.month);
        // The first two Redis keys are about the totals, and Lua counts from 1.
        let number = index.map_or(0, |index| index + 3);
        pipeline.arg(number).arg(format_usage_field(count, node_id)).arg(count.calls);
    }
}

/// Parses the reply to the report with the number `sequence`. Returns `None` if the checksum shows
/// that the reply is corrupted or answers another report.
fn parse_grant(sequence: u64, reply: Value) -> Option<Grant> {
    let parts: Vec<u64> = redis::from_redis_value(reply).ok()?;
    let [own_leased, others_leased, others_spent, revision, recovering, sum] =
        parts.try_into().ok()?;
    let parts = [sequence, own_leased, others_leased, others_spent, revision, recovering];
    let weighted = parts.into_iter().zip((1u128..).step_by(2));
    let expected = weighted.map(|(part, weight)| u128::from(part) * weight).sum::<u128>() % 65_521;
    let grant =
        Grant { own_leased, others_leased, others_spent, revision, is_recovering: recovering == 1 };
    (expected == u128::from(sum)).then_some(grant)
}

#[cfg(test)]
mod tests;
