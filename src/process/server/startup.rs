//! Builds the state that the gate uses, and the reloader that updates this state.

use std::sync::{Arc, Mutex, Once};

use super::startup_inputs::{StartError, StartupInputs, access_log_error};
use crate::config::{Config, ConfigSources};
use crate::decide::SignUpCounter;
use crate::dns::DnsFactCache;
use crate::gate::{GateState, HeldBytes};
use crate::message::request_id::RequestIdGenerator;
use crate::observe::access_log::AccessLog;
use crate::observe::latest_forms::LatestForms;
use crate::observe::metrics::Metrics;
use crate::observe::screening_counts::ScreeningCounts;
use crate::observe::top_domains::TopList;
use crate::observe::traces::Tracer;
use crate::process::reload::{CurrentInputs, KeyRingUpdater, ReloadTrigger, Reloader};
use crate::process::trace_exporter::start_trace_exporter;
use crate::quota::{Ledger, LedgerOptions};
use crate::store::StoreError;
use crate::support::certificates::CurrentCertificates;
use crate::support::client_rates::ClientRates;
use crate::support::machine_clock::machine_unix_now;
use crate::support::serving_flag::ServingFlag;
use crate::support::snapshot::SnapshotCell;
use crate::table::Table;
use crate::webhook::WebhookControl;

/// Builds the state that the gate uses, the reloader that updates this state, and the trigger of
/// the reloader. Starts the threads that the state and the reloader need.
pub(in crate::process) fn start_gate_state_and_reloader(
    inputs: StartupInputs,
    certificates: Option<Arc<CurrentCertificates>>,
    config_sources: ConfigSources,
) -> Result<(Arc<GateState>, Reloader, ReloadTrigger), StartError> {
    let StartupInputs { config, table, overrides, declared_keys: declared, watches, .. } = inputs;
    let places = config.file_setting_places.clone();
    let unusable = |error: StoreError| StartError::Config(vec![places.place_store_error(&error)]);
    let failed = |error: &dyn std::fmt::Display| StartError::Failed(error.to_string());
    let open = || config.startup.store.open(config.startup.store.deadline);
    let (now, serving) = (machine_unix_now(), ServingFlag::default());
    let options = create_ledger_options(&config, &serving);
    let mut ring_store = open().map_err(unusable)?;
    ring_store.check_safe_if_reachable().map_err(unusable)?;
    let ledger = Ledger::start(open().map_err(unusable)?, open().map_err(unusable)?, options, now)
        .map_err(unusable)?;
    let current_inputs = Arc::new(CurrentInputs::new(config.clone()));
    let (keys, ring) =
        KeyRingUpdater::load(ring_store, declared, Arc::clone(&current_inputs), &ledger, &watches)
            .map_err(|problem| StartError::Config(vec![problem]))?;
    let table = Arc::new(SnapshotCell::new(table));
    let top = start_top_list(&config, &table, &ledger).map_err(unusable)?;
    let log =
        AccessLog::start(config.startup.log_target.clone(), config.reloadable.access_log.clone())
            .map_err(|error| access_log_error(&config, &error))?;
    let trusted_proxies = config.startup.startup_rules.client_address.trusted_proxies.clone();
    let sample_one_in = config.startup.traces.as_ref().map(|traces| traces.sample_one_in);
    let tracer = Arc::new(Tracer::new(sample_one_in));
    let state = Arc::new(GateState {
        table,
        dns: DnsFactCache::default(),
        keys: SnapshotCell::new(ring),
        serving,
        ledger,
        top_domains: top,
        request_ids: RequestIdGenerator::new(),
        metrics: Metrics::new().map_err(|error| failed(&error))?,
        access_log: log,
        tracer: Arc::clone(&tracer),
        reloadable_rules: SnapshotCell::new(config.reloadable.rules()),
        screening_counts: ScreeningCounts::default(),
        sign_ups: SignUpCounter::with_secret(config.startup.inbox_secret.as_ref())
            .map_err(StartError::Failed)?,
        refused_forms: LatestForms::default(),
        forms_decided_by_rules: LatestForms::default(),
        client_rates: ClientRates::new(config.startup.shares_rates),
        held_bytes: Arc::new(HeldBytes::new(
            config.startup.startup_rules.bodies.max_held_bytes,
            trusted_proxies,
        )),
        webhook: WebhookControl::default(),
        audit_writes: Mutex::default(),
        close_once: Once::new(),
    });
    if let Some(options) = config.startup.traces.clone() {
        start_trace_exporter(tracer, options).map_err(|error| failed(&error))?;
    }
    let (reloader, reload_trigger) = Reloader::new(
        Arc::clone(&state),
        current_inputs,
        config_sources,
        (keys, overrides),
        certificates,
        watches,
    )
    .map_err(|error| failed(&error))?;
    Ok((state, reloader, reload_trigger))
}

fn create_ledger_options(config: &Config, serving: &ServingFlag) -> LedgerOptions {
    LedgerOptions {
        store_deadline: config.startup.store.deadline,
        on_failure: config.reloadable.on_failure,
        max_unsettled: config.startup.store.max_unsettled,
        serving: serving.clone(),
    }
}

/// Starts the list of the flagged rows of the table that are looked up most.
fn start_top_list(
    config: &Config,
    table: &Arc<SnapshotCell<Table>>,
    ledger: &Ledger,
) -> Result<TopList, StoreError> {
    let (table_of_verdicts, table_of_seeds) = (Arc::clone(table), Arc::clone(table));
    TopList::start(
        config.startup.store.open(config.startup.store.deadline)?,
        config.reloadable.top_domains,
        Box::new(move |name| {
            let table = table_of_verdicts.peek();
            let verdict = table.find_row(name)?.own_answer.verdict;
            (!verdict.reason.is_safe()).then_some((verdict.reason, verdict.score))
        }),
        Box::new(move || table_of_seeds.peek().top_list_seed().to_vec()),
        Box::new(ledger.believed_now_fn()),
    )
}
