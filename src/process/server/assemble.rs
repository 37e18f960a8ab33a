//! Makes the state that requests are judged by, and the one that keeps it fresh.

use std::sync::Arc;

use super::inputs::{Loaded, StartError, log_fault};
use crate::config::Overrides;
use crate::dns::LearnedCache;
use crate::gate::State;
use crate::message::request_id::RequestIds;
use crate::observe::access_log::AccessLog;
use crate::observe::metrics::Metrics;
use crate::observe::top_domains::Top;
use crate::process::reload::{Keys, Reloader, Trigger};
use crate::quota::{Ledger, LedgerOptions, unix_now};
use crate::store::StoreError;
use crate::support::certificates::Certificates;
use crate::support::snapshot::Live;

/// Makes the state that requests are judged by, and the one that keeps it fresh.
pub(in crate::process) fn assemble(
    loaded: Loaded,
    certificates: Option<Arc<Certificates>>,
    overrides: Overrides,
) -> Result<(Arc<State>, Reloader, Trigger), StartError> {
    let Loaded { config, table, declared, .. } = loaded;
    let unusable = |error: StoreError| StartError::Config(vec![error.to_string()]);
    let failed = |error: &dyn std::fmt::Display| StartError::Failed(error.to_string());
    let open = || config.store.open(config.store.deadline);
    let now = unix_now();
    let options = LedgerOptions {
        deadline: config.store.deadline,
        on_failure: config.on_failure,
        max_unsettled: config.store.max_unsettled,
    };
    let mut ring_store = open().map_err(unusable)?;
    ring_store.check().map_err(unusable)?;
    let ledger = Ledger::start(open().map_err(unusable)?, open().map_err(unusable)?, options, now)
        .map_err(unusable)?;
    let (keys, ring) = Keys::load(ring_store, declared, &config, &ledger)
        .map_err(|problem| StartError::Config(vec![problem]))?;
    let table = Arc::new(Live::new(table));
    let (judge, seed) = (Arc::clone(&table), Arc::clone(&table));
    let top = Top::start(
        open().map_err(unusable)?,
        config.top,
        Box::new(move |name| {
            let table = judge.peek();
            let verdict = table.row_of(name)?.own.verdict;
            verdict.reason.is_flagged().then_some((verdict.reason, verdict.score))
        }),
        Box::new(move || seed.peek().seed().to_vec()),
        Box::new(ledger.clock()),
    )
    .map_err(unusable)?;
    let log = AccessLog::start(config.log_target.clone(), config.access_log)
        .map_err(|error| log_fault(&config.log_target, &error))?;
    let state = Arc::new(State {
        table,
        dns: LearnedCache::default(),
        keys: Live::new(ring),
        ledger,
        top,
        ids: RequestIds::new(),
        metrics: Metrics::new().map_err(|error| failed(&error))?,
        log,
        policy: Live::new(config.policy()),
    });
    let (reloader, trigger) =
        Reloader::new(Arc::clone(&state), config, overrides, keys, certificates)
            .map_err(|error| failed(&error))?;
    Ok((state, reloader, trigger))
}
