//! Reloads table, key ring, config and certificates when their sources change.
//!
//! Polls the files and the store's key version four times a second, which detects renames, writes
//! in place and Kubernetes' `..data` swaps alike. SIGHUP and `POST /reload` reload at once. Each
//! part reloads completely or keeps its last good state; a fault in one part does not hold back the
//! others.

mod audit;
mod dns;
mod feeds;
mod inputs;
mod keys;
mod requests;
mod status_reporter;
mod store_connection;
mod table;
mod watch;
mod webhook;
mod write_back;

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::sync::oneshot;

use crate::config::{Config, ConfigSources};
use crate::gate::GateState;
use crate::gate::authz_rules::AuthzRules;
use crate::keys::KeyRing;
use crate::observe::process_log::ProcessLog;
use crate::support::certificates::{CertificateSet, CurrentCertificates};

use audit::AuditRecorder;
use dns::DnsLearner;
use feeds::FeedFetcher;
pub use inputs::{CurrentInputs, KeyInputs};
pub use keys::KeyRingUpdater;
use requests::ReloadRequests;
pub use requests::{ReloadOutcome, ReloadTrigger};
pub use status_reporter::ReloadStatus;
use status_reporter::StatusReporter;
use table::TableRebuilder;
use watch::{FileWatch, POLL_INTERVAL};
use webhook::Webhooks;

/// The background service that reloads.
pub struct Reloader {
    requests: tokio::sync::Mutex<ReloadRequests>,
    reload_state: Arc<Mutex<ReloadState>>,
    status_reporter: StatusReporter,
    inputs: Arc<CurrentInputs>,
}

struct ReloadState {
    gate_state: Arc<GateState>,
    inputs: Arc<CurrentInputs>,
    audit: AuditRecorder,
    config: Config,
    /// The config at process start. Settings that need a restart keep its values.
    startup_config: Config,
    config_sources: ConfigSources,
    keys: KeyRingUpdater,
    certificates: Option<Arc<CurrentCertificates>>,
    certificate_watches: Vec<FileWatch>,
    table: TableRebuilder,
    feeds: FeedFetcher,
    dns: DnsLearner,
    webhooks: Webhooks,
    config_watch: FileWatch,
    status_reporter: StatusReporter,
    /// The process log; `None` if the program has another one.
    process_log: Option<Arc<ProcessLog>>,
}

impl Reloader {
    /// Creates a reloader that keeps `gate_state` up to date, and the reloader's trigger. The other
    /// arguments are what `gate_state` was built from.
    pub fn new(
        gate_state: Arc<GateState>,
        inputs: Arc<CurrentInputs>,
        config_sources: ConfigSources,
        keys: KeyRingUpdater,
        certificates: Option<Arc<CurrentCertificates>>,
    ) -> std::io::Result<(Reloader, ReloadTrigger)> {
        let (trigger, requests) = ReloadRequests::new();
        let config = Config::clone(&inputs.config.peek());
        let status_reporter = StatusReporter::new(Arc::clone(&gate_state));
        let audit =
            AuditRecorder::start(&config, Arc::clone(&gate_state), status_reporter.clone())?;
        let table = TableRebuilder::start(
            Arc::clone(&gate_state),
            status_reporter.clone(),
            config.table.clone(),
            audit.clone(),
        )?;
        let trigger = trigger.with_table(table.clone());
        let (state_of_feeds, feeds) = (Arc::clone(&gate_state), config.feeds.clone());
        let (store, dns) = (config.store.clone(), config.dns.clone());
        let webhooks = Webhooks::start(
            Arc::clone(&gate_state),
            status_reporter.clone(),
            store.clone(),
            config.webhook.clone(),
        )?;
        let mut reload_state = ReloadState {
            feeds: FeedFetcher::start(state_of_feeds, status_reporter.clone(), feeds)?,
            dns: DnsLearner::start(Arc::clone(&gate_state), status_reporter.clone(), store, dns)?,
            webhooks,
            table,
            config_watch: FileWatch::new(config.file.clone()),
            certificate_watches: watch_certificates(&config),
            certificates,
            gate_state,
            inputs: Arc::clone(&inputs),
            audit,
            startup_config: config.clone(),
            config,
            config_sources,
            keys,
            status_reporter: status_reporter.clone(),
            process_log: None,
        };
        reload_state.report_keys_and_store(false);
        reload_state.update_gauges();
        reload_state.record_config_and_key_file();
        let reloader = Reloader {
            requests: tokio::sync::Mutex::new(requests),
            reload_state: Arc::new(Mutex::new(reload_state)),
            status_reporter,
            inputs,
        };
        Ok((reloader, trigger))
    }

    /// Lets reloads change what this log contains.
    pub fn with_process_log(self, log: &Arc<ProcessLog>) -> Reloader {
        let mut state = self.reload_state.lock().unwrap_or_else(PoisonError::into_inner);
        state.process_log = Some(Arc::clone(log));
        drop(state);
        self
    }

    /// Returns the config and the rows of the keys, as the reloader last read them.
    pub fn inputs(&self) -> Arc<CurrentInputs> {
        Arc::clone(&self.inputs)
    }

    /// Returns the status that the reloader keeps up to date: faults by part, settings that need a
    /// restart, and the states of the feeds and of DNS learning.
    pub fn status(&self) -> Arc<Mutex<ReloadStatus>> {
        self.status_reporter.status()
    }
}

#[async_trait]
impl BackgroundService for Reloader {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut requests = self.requests.lock().await;
        loop {
            let replies = tokio::select! {
                replies = requests.wait_and_take_all(POLL_INTERVAL) => replies,
                _ = shutdown.changed() => return,
            };
            let is_requested = replies.is_some();
            let reload_state = Arc::clone(&self.reload_state);
            // Reading and building block, so they run outside the runtime's threads.
            let reloaded = tokio::task::spawn_blocking(move || {
                let mut reload_state = reload_state.lock().unwrap_or_else(PoisonError::into_inner);
                if is_requested {
                    return Some(reload_state.reload_all_parts());
                }
                reload_state.reload_changed_parts();
                None
            });
            if let Ok(Some((outcome, table))) = reloaded.await {
                // The table's thread may need long, so the loop does not wait for it.
                tokio::spawn(add_table_outcome_and_send(
                    replies.unwrap_or_default(),
                    outcome,
                    table,
                ));
            }
        }
    }
}

/// Waits for the outcome of the table, adds it to `outcome`, and sends all to the requesters.
async fn add_table_outcome_and_send(
    reply_senders: Vec<oneshot::Sender<ReloadOutcome>>,
    mut outcome: ReloadOutcome,
    table_outcome: oneshot::Receiver<Option<String>>,
) {
    let reader_stopped =
        |_| Some("expected the table to be read, but its reader has stopped".to_owned());
    outcome.insert("table", table_outcome.await.unwrap_or_else(reader_stopped));
    for reply in reply_senders {
        // The requester may be gone.
        let _ = reply.send(outcome.clone());
    }
}

impl ReloadState {
    /// Reloads each part whose source has changed, apart from the table: the table's thread polls
    /// its own files.
    fn reload_changed_parts(&mut self) {
        if self.config_watch.has_settled_change() {
            self.reload_config();
        }
        // Every watch is polled, because each one measures how long its file has been unchanged.
        let due = self
            .certificate_watches
            .iter_mut()
            .filter_map(|watch| watch.has_settled_change().then_some(()));
        if due.count() > 0 {
            self.reload_certificates();
        }
        let declared = Arc::clone(self.keys.declared_keys());
        let keys_changed = self.keys.reload_if_changed(&self.gate_state, &self.config.plans);
        if !Arc::ptr_eq(&declared, self.keys.declared_keys()) {
            self.record_config_and_key_file();
        }
        self.report_keys_and_store(keys_changed);
        self.update_gauges();
    }

    /// Reloads all parts but the table, asks the table's thread for a rebuild, and reopens the
    /// access log. Returns the outcomes of the other parts, and a receiver for the outcome of the
    /// table.
    fn reload_all_parts(&mut self) -> (ReloadOutcome, oneshot::Receiver<Option<String>>) {
        self.gate_state.access_log.request_reopen();
        let mut outcome = ReloadOutcome::new();
        outcome.insert("config", self.reload_config());
        let table = self.table.request_rebuild(self.config.table.clone());
        if self.certificates.is_some() {
            outcome.insert("certificates", self.reload_certificates());
        }
        self.keys.reload_store_and_key_file(&self.gate_state, &self.config.plans);
        outcome.insert("keys", self.report_keys_and_store(true));
        self.record_config_and_key_file();
        self.update_gauges();
        (outcome, table)
    }

    /// Reads the certificates again, if there is an HTTPS listener. If they are faulty, returns the
    /// problem, and the listener keeps its last good certificates.
    fn reload_certificates(&mut self) -> Option<String> {
        let certificates = self.certificates.as_ref()?;
        for watch in &mut self.certificate_watches {
            watch.mark_read();
        }
        let problem = match CertificateSet::load(&self.config.certificates) {
            Ok(Some(set)) => {
                certificates.publish(set);
                None
            }
            Ok(None) => Some("expected at least one listen.certificate, but found none".to_owned()),
            Err(faults) => {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Some(faults.join("\n"))
            }
        };
        self.status_reporter.record_part("certificates", problem.as_deref(), true);
        problem
    }

    /// Reads the config again and applies it. If the config is faulty, returns the problem, and the
    /// last good config stays in force.
    fn reload_config(&mut self) -> Option<String> {
        self.config_watch.mark_read();
        let problem = match Config::read(&self.config_sources) {
            Ok(config) => {
                self.apply_config(config);
                self.record_config_and_key_file();
                log::info!("config reloaded");
                None
            }
            Err(faults) => Some(faults.join("\n")),
        };
        self.status_reporter.record_part("config", problem.as_deref(), true);
        problem
    }

    /// Lets the audit record what has changed in the config and in the key file.
    fn record_config_and_key_file(&self) {
        self.audit.record_config(&self.config_sources, &self.startup_config.admin);
        self.audit.record_key_file(self.config.key_file.as_deref(), self.keys.declared_keys());
    }

    /// Applies a new config. Settings that need a restart are only reported.
    fn apply_config(&mut self, config: Config) {
        let needs_restart = config.settings_needing_restart(&self.startup_config);
        if !needs_restart.is_empty() {
            log::warn!(
                "these settings changed and take effect at the next restart: {}",
                needs_restart.join(", ")
            );
        }
        self.status_reporter.set_needs_restart(needs_restart);
        self.inputs.config.publish(config.clone());
        let previous_config = std::mem::replace(&mut self.config, config);
        let config = &self.config;
        let mut rules = config.reloadable_rules();
        if rules.authz.is_none() && self.startup_config.authz.is_some() {
            // Proxies still ask on the path that the config had at the start. A 404 would look like a
            // refusal to some of them.
            log::warn!("authz: the section is gone, so every proxy that asks gets 200 from now on");
            rules.authz = Some(Arc::new(AuthzRules::admit_all()));
        }
        self.gate_state.reloadable_rules.publish(rules);
        self.gate_state.ledger.set_on_failure(config.on_failure);
        self.gate_state.access_log.set_options(config.access_log.clone());
        if let Some(log) = &self.process_log {
            log.set_options(config.process_log.clone());
        }
        self.gate_state.top_domains.set_options(config.top_domains);
        let (plans, key_file) = (config.plans.clone(), config.key_file.clone());
        if config.table != previous_config.table {
            // The table's thread reports the outcome, so nobody waits for it here.
            drop(self.table.request_rebuild(config.table.clone()));
        }
        if config.feeds != previous_config.feeds {
            self.feeds.set_feeds(config.feeds.clone());
        }
        if config.dns != previous_config.dns
            && let Err(error) = self.dns.set_options(config.dns.clone())
        {
            log::error!("expected a thread for DNS queries, but found {error}");
        }
        if config.webhook != previous_config.webhook
            && let Err(error) = self.webhooks.set_options(config.webhook.clone())
        {
            log::error!("expected threads for webhooks, but found {error}");
        }
        if self.config.certificates != previous_config.certificates {
            self.certificate_watches = watch_certificates(&self.config);
            self.reload_certificates();
        }
        if plans != previous_config.plans {
            self.keys.apply_plans(&self.gate_state, &plans);
            self.report_keys_and_store(true);
        }
        if key_file != previous_config.key_file {
            self.keys.set_key_file(key_file);
            self.keys.reload_key_file(&self.gate_state, &plans);
            self.report_keys_and_store(true);
        }
    }

    /// Reports the problems of the keys and of the store, or that there are none. If `is_counted`
    /// is true, the metrics count a reload of the keys. Returns the problem of the keys, if any.
    fn report_keys_and_store(&self, is_counted: bool) -> Option<String> {
        let problem = self.keys.key_problems();
        self.status_reporter.record_part("keys", problem.as_deref(), is_counted);
        self.status_reporter.record_part("store", self.keys.store_problem(), false);
        problem
    }

    /// Updates the gauges of keys and certificates.
    fn update_gauges(&mut self) {
        let metrics = &self.gate_state.metrics;
        let expiries = self.certificates.as_ref().map(|serving| serving.expiries());
        metrics.reloads.certificate_expires_at.set_all(&expiries.unwrap_or_default());
        let keys = self.gate_state.keys.peek();
        metrics.reloads.keys_in_ring.set(keys.as_ref().as_ref().map_or(0, KeyRing::len) as i64);
    }
}

fn watch_certificates(config: &Config) -> Vec<FileWatch> {
    let files = config.certificates.iter().flat_map(|files| [&files.chain, &files.key]);
    files.map(|path| FileWatch::new(Some(path.clone()))).collect()
}
