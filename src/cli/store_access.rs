//! How commands open a store, and what they ask it before they change anything.

use std::time::Duration;

use super::failure::Failure;
use super::output;
use crate::config::Config;
use crate::keys::{NAME_FORM, is_name};
use crate::quota::unix_now;
use crate::store::{RingRows, Store, StoreError};

/// How long a command waits for a gateway's lock on the store.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// More seconds between this machine's clock and the server's are told.
const CLOCKS_APART: i64 = 60;

pub fn store_of(config: &Config) -> Result<Store, Failure> {
    let mut store = config.store.open(PATIENCE)?;
    store.be_patient()?;
    Ok(store)
}

/// All keys and accounts, by age and by name: a store tells them in no order. A server that is no
/// store yet has none, and that is said; so is what can't be read.
pub fn rows_of(store: &mut Store) -> Result<RingRows, StoreError> {
    let mut rows = store.ring_rows()?.unwrap_or_else(|| {
        output::tell("warning: the server is empty; the first key makes it a store");
        RingRows::default()
    });
    for entry in store.foreign_entries() {
        output::tell(format!("warning: {entry}"));
    }
    for id in rows.damaged.keys.keys() {
        output::tell(format!(
            "warning: key {id}: its row can't be read; calls with it are answered with 500"
        ));
    }
    for name in &rows.damaged.accounts {
        output::tell(format!(
            "warning: account {name}: its row can't be read; its calls are answered with 500 until \
             `riskgate accounts set {name}` says its plan and limit"
        ));
    }
    rows.keys.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    rows.accounts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// The time that gateways on this store go by: the server's, where there is one.
pub fn now_of(store: &mut Store) -> Result<i64, Failure> {
    let ours = unix_now();
    let Some(theirs) = store.unix_now()? else { return Ok(ours) };
    let apart = theirs - ours;
    if apart.abs() > CLOCKS_APART {
        output::tell(format!("warning: the server's clock is {apart} s from this machine's"));
    }
    Ok(theirs)
}

pub fn checked_name(what: &str, name: &str) -> Result<(), Failure> {
    match is_name(name) {
        true => Ok(()),
        false => Err(Failure::usage(format!("{what}: expected {NAME_FORM}, but found {name:?}"))),
    }
}

pub fn known_plan(config: &Config, plan: Option<&str>) -> Result<(), Failure> {
    match plan {
        Some(plan) if !config.plans.contains_key(plan) => {
            let known: Vec<&str> = config.plans.keys().map(String::as_str).collect();
            let known = known.join(", ");
            Err(Failure::usage(format!("--plan: expected one of {known}, but found {plan:?}")))
        }
        _ => Ok(()),
    }
}
