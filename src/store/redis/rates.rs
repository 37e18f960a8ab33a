//! Rates of clients that all nodes of a server share: a hash of sets of buckets.

use std::collections::BTreeMap;
use std::time::Instant;

use redis::{Pipeline, Value};

use super::connection::Redis;
use super::reply::error_reply_text;
use super::scripts::Script;
use crate::model::rate_charge::RateCharge;
use crate::store::error::StoreError;

/// A hash: the sets of buckets by their numbers. See `charge_rates.lua`.
const RATES_KEY: &str = "riskgate:{rates}:buckets";
/// The number of sets. The id of a bucket selects its set.
const SETS: u64 = 32_768;
/// The most buckets in a set.
const BUCKETS_PER_SET: usize = 8;
/// How many further sets a statement looks at, to delete the buckets in them that are full.
const SETS_CLEANED_PER_STATEMENT: u64 = 16;
/// The hash expires after this time without a charge, in seconds: that of the longest rate.
const RATES_TTL_SECONDS: u64 = 31 * 86_400;
/// The most charges at once. The ledger waits meanwhile: some one millisecond.
pub const MAX_RATE_CHARGES: usize = 125;

const OPERATION: &str = "sharing rates of clients";

impl Redis {
    /// Takes requests out of buckets that all nodes share, at most [`MAX_RATE_CHARGES`]. Returns
    /// for each the time until the bucket is full again, in nanoseconds, with the requests of all
    /// nodes that the server knows: this time may be too short, and is never too long. The times in
    /// the charges are relative to `told_at`.
    ///
    /// If this fails, the server may have made the charges all the same, so none must be repeated.
    pub fn charge_rates(
        &mut self,
        charges: &[RateCharge],
        told_at: Instant,
    ) -> Result<Vec<u64>, StoreError> {
        let server_time = self.last_charges.server_time_at(told_at);
        let sets = select_sets(charges, self.last_charges.statements);
        self.last_charges.statements += 1;
        let replies = self.run_scripts(OPERATION, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("EVALSHA").arg(&scripts[Script::ChargeRates as usize]).arg(1);
            pipeline.arg(RATES_KEY).arg(RATES_TTL_SECONDS).arg(BUCKETS_PER_SET).arg(server_time);
            for (set, indexes) in &sets {
                pipeline.arg(*set).arg(indexes.len());
                indexes.iter().for_each(|index| add_charge(&mut pipeline, &charges[*index]));
            }
            pipeline
        })?;
        if let Some(found) = replies.iter().find_map(error_reply_text) {
            self.connection = None;
            return Err(self.unavailable_error(OPERATION, found));
        }
        let reply = replies.into_iter().next().unwrap_or(Value::Nil);
        let replied: Vec<u64> = self.parse_reply(OPERATION, reply)?;
        let Some((server_time, times)) =
            replied.split_first().filter(|it| it.1.len() == charges.len())
        else {
            return Err(self.unavailable_error(OPERATION, "a reply of another form"));
        };
        self.last_charges.set_server_time(*server_time);
        let mut until_full = vec![0; charges.len()];
        for (index, time) in sets.into_values().flatten().zip(times) {
            until_full[index] = *time;
        }
        Ok(until_full)
    }
}

/// Returns the sets of a statement, with the indexes of the charges in each: those of the charges,
/// and some that are cleaned only, others in each statement.
fn select_sets(charges: &[RateCharge], statement: u64) -> BTreeMap<u64, Vec<usize>> {
    let cleaned_from = statement.wrapping_mul(SETS_CLEANED_PER_STATEMENT);
    let cleaned = (0..SETS_CLEANED_PER_STATEMENT).map(|set| cleaned_from.wrapping_add(set));
    let mut sets: BTreeMap<u64, Vec<usize>> = cleaned.map(|set| (set % SETS, Vec::new())).collect();
    for (index, charge) in charges.iter().enumerate() {
        sets.entry(bucket_id(charge) % SETS).or_default().push(index);
    }
    sets
}

fn add_charge(pipeline: &mut Pipeline, charge: &RateCharge) {
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

/// The half of the pseudonym that is enough to tell buckets apart.
fn bucket_id(charge: &RateCharge) -> u64 {
    let (half, _) = charge.bucket.0.split_at(8);
    half.iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
}
