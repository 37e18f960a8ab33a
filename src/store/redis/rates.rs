//! Rates of clients that all nodes of a server share: a hash of sets of buckets.

use std::collections::BTreeMap;
use std::time::Instant;

use redis::Pipeline;

use super::connection::Redis;
use super::scripts::Script;
use crate::model::rate_charge::RateCharge;
use crate::store::error::StoreError;

/// A hash: the sets of buckets by their numbers. See `charge_rates.lua`.
const RATES_KEY: &str = "riskgate:{rates}:buckets";
/// The number of sets of buckets. The id of a bucket selects its set.
const SERVER_BUCKET_SETS: u64 = 32_768;
/// The most buckets in a set.
const BUCKETS_PER_SET: usize = 8;
/// How many further sets a statement cleans: it deletes their full buckets.
const SETS_CLEANED_PER_STATEMENT: u64 = 16;
/// The hash expires after this number of seconds without a write: the longest time of a rate.
const RATES_TTL_SECONDS: u64 = 31 * 86_400;
/// The most charges in one statement. The ledger waits for the statement: some one millisecond.
pub const MAX_RATE_CHARGES: usize = 125;

const OPERATION: &str = "sharing rates of clients";

impl Redis {
    /// Takes requests out of buckets that all nodes share. There may be at most
    /// [`MAX_RATE_CHARGES`] charges; their times are relative to `told_at`. Returns for each charge
    /// the nanoseconds until its bucket is full again, with the requests of all nodes that the
    /// server knows. This time may be too short, and is never too long.
    ///
    /// After an error, the server may have made the charges, so the caller must not repeat them. If
    /// the charges arrive only after this function has given them up, the server ignores them.
    pub fn charge_rates(
        &mut self,
        charges: &[RateCharge],
        told_at: Instant,
    ) -> Result<Vec<u64>, StoreError> {
        self.connect_if_needed()?;
        let mut server_time = self.rate_charge_state.server_time_at(told_at, self.link_number);
        if server_time.is_none() && !charges.is_empty() {
            // Without the server's time, the server can't know how late the charges arrive.
            self.charge_rates(&[], Instant::now())?;
            server_time = self.rate_charge_state.server_time_at(told_at, self.link_number);
        }
        let sets = select_sets(charges, self.rate_charge_state.statements_sent);
        self.rate_charge_state.statements_sent += 1;
        let (script, timeout) = ((Script::ChargeRates, &[RATES_KEY][..]), self.timeout);
        let replied: Vec<u64> = self.run_script(OPERATION, timeout, script, |pipeline| {
            let given_up_after = (told_at.elapsed() + timeout).as_micros();
            pipeline.arg(RATES_TTL_SECONDS).arg(BUCKETS_PER_SET);
            pipeline.arg(server_time.unwrap_or(0)).arg(given_up_after.to_string());
            for (set, indexes) in &sets {
                pipeline.arg(*set).arg(indexes.len());
                indexes.iter().for_each(|index| push_charge(pipeline, &charges[*index]));
            }
        })?;
        let Some((server_time, times)) = replied.split_first() else {
            return Err(self.unavailable_error(OPERATION, "a reply of another form"));
        };
        self.rate_charge_state.set_server_time(*server_time, self.link_number);
        if times.len() != charges.len() {
            let found = "charges that are too late by its clock, which may have jumped ahead";
            return Err(self.unavailable_error(OPERATION, found));
        }
        let mut until_full = vec![0; charges.len()];
        for (index, time) in sets.into_values().flatten().zip(times) {
            until_full[index] = *time;
        }
        Ok(until_full)
    }
}

/// Returns the sets that a statement names, each with the indexes of its charges. Some of the sets
/// have no charge and are only cleaned: other ones than in the statement before.
fn select_sets(charges: &[RateCharge], statement: u64) -> BTreeMap<u64, Vec<usize>> {
    let cleaned_from = statement.wrapping_mul(SETS_CLEANED_PER_STATEMENT);
    let cleaned = (0..SETS_CLEANED_PER_STATEMENT).map(|set| cleaned_from.wrapping_add(set));
    let mut sets: BTreeMap<u64, Vec<usize>> =
        cleaned.map(|set| (set % SERVER_BUCKET_SETS, Vec::new())).collect();
    for (index, charge) in charges.iter().enumerate() {
        sets.entry(bucket_id(charge) % SERVER_BUCKET_SETS).or_default().push(index);
    }
    sets
}

fn push_charge(pipeline: &mut Pipeline, charge: &RateCharge) {
    let RateCharge {
        bucket: _,
        refill_ns,
        first_request_age_ns,
        until_full_ns,
        not_full_for_ns,
        max_until_full_ns,
    } = *charge;
    pipeline.arg(&bucket_id(charge).to_be_bytes()).arg(refill_ns).arg(first_request_age_ns);
    pipeline.arg(until_full_ns).arg(not_full_for_ns).arg(max_until_full_ns);
}

/// The first half of the pseudonym: 64 bits are enough to tell buckets apart.
fn bucket_id(charge: &RateCharge) -> u64 {
    let (half, _) = charge.bucket.0.split_at(8);
    half.iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
}
