//! Keeps table, key ring and config fresh: the only writer of state beside requests.
//!
//! Looks at files four times a second, which sees renames, writes in place and Kubernetes'
//! `..data` swaps alike, and at the store's key version; SIGHUP and `POST /reload` ask at once.
//! Each part is taken whole or keeps its last good state, and none holds back the others.

mod dns;
mod feeds;
mod keys;
mod status_reporter;
mod table;
mod watch;
mod write_back;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use tokio::sync::{mpsc, oneshot};

use crate::config::{Config, ConfigOverrides};
use crate::gate::GateState;
use crate::keys::KeyRing;
use crate::support::certificates::{CertificateSet, CurrentCertificates};

use dns::DnsLearner;
use feeds::FeedFetcher;
pub use keys::KeyRingUpdater;
pub use status_reporter::ReloadStatus;
use status_reporter::StatusReporter;
use table::TableReader;
use watch::{FileWatch, POLL_INTERVAL};

/// How the last reload of each part went: nothing, or what was wrong.
pub type ReloadOutcome = BTreeMap<&'static str, Option<String>>;

/// Asks for a reload of everything, now.
#[derive(Clone)]
pub struct ReloadTrigger(mpsc::UnboundedSender<Option<oneshot::Sender<ReloadOutcome>>>);

impl ReloadTrigger {
    /// Asks and goes on.
    pub fn request_reload(&self) {
        // Nobody listens any more only when the process ends.
        let _ = self.0.send(None);
    }

    /// Asks and waits for how it went.
    pub async fn reload_and_wait(&self) -> Option<ReloadOutcome> {
        let (sender, receiver) = oneshot::channel();
        self.0.send(Some(sender)).ok()?;
        receiver.await.ok()
    }
}

/// The background service that reloads.
pub struct Reloader {
    requests: tokio::sync::Mutex<mpsc::UnboundedReceiver<Option<oneshot::Sender<ReloadOutcome>>>>,
    parts: Arc<Mutex<ReloadState>>,
    report: StatusReporter,
}

struct ReloadState {
    state: Arc<GateState>,
    config: Config,
    /// The config that the process began with: what takes a restart is as it says.
    startup_config: Config,
    overrides: ConfigOverrides,
    keys: KeyRingUpdater,
    certificates: Option<Arc<CurrentCertificates>>,
    certificate_watches: Vec<FileWatch>,
    table: TableReader,
    feeds: FeedFetcher,
    dns: DnsLearner,
    config_watch: FileWatch,
    report: StatusReporter,
}

impl Reloader {
    /// Keeps `state` fresh, beginning with what was just read.
    pub fn new(
        state: Arc<GateState>,
        config: Config,
        overrides: ConfigOverrides,
        keys: KeyRingUpdater,
        certificates: Option<Arc<CurrentCertificates>>,
    ) -> std::io::Result<(Reloader, ReloadTrigger)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let report = StatusReporter::new(Arc::clone(&state));
        let table = TableReader::start(Arc::clone(&state), report.clone(), config.table.clone())?;
        let (state_of_feeds, feeds) = (Arc::clone(&state), config.feeds.clone());
        let (store, dns) = (config.store.clone(), config.dns.clone());
        let mut parts = ReloadState {
            feeds: FeedFetcher::start(state_of_feeds, report.clone(), feeds)?,
            dns: DnsLearner::start(Arc::clone(&state), report.clone(), store, dns)?,
            table,
            config_watch: FileWatch::new(config.file.clone()),
            certificate_watches: watch_certificates(&config),
            certificates,
            state,
            startup_config: config.clone(),
            config,
            overrides,
            keys,
            report: report.clone(),
        };
        parts.report_keys(false);
        parts.update_gauges();
        let reloader = Reloader {
            requests: tokio::sync::Mutex::new(receiver),
            parts: Arc::new(Mutex::new(parts)),
            report,
        };
        Ok((reloader, ReloadTrigger(sender)))
    }

    /// What stands between what is there and what serves.
    pub fn status(&self) -> Arc<Mutex<ReloadStatus>> {
        self.report.status()
    }
}

#[async_trait]
impl BackgroundService for Reloader {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut asked = self.requests.lock().await;
        loop {
            let request = tokio::select! {
                request = asked.recv() => request,
                () = tokio::time::sleep(POLL_INTERVAL) => None,
                _ = shutdown.changed() => return,
            };
            let everything = request.is_some();
            // However many ask at once, one reload serves them all.
            let mut replies: Vec<oneshot::Sender<ReloadOutcome>> =
                request.flatten().into_iter().collect();
            while let Ok(further) = asked.try_recv() {
                replies.extend(further);
            }
            let parts = Arc::clone(&self.parts);
            // Reading and building take their time; no runtime thread should.
            let reloaded = tokio::task::spawn_blocking(move || {
                let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
                if everything {
                    return Some(parts.reload_all());
                }
                parts.reload_changed();
                None
            });
            if let Ok(Some((outcome, table))) = reloaded.await {
                // What is asked meanwhile does not wait for the table.
                tokio::spawn(send_outcome(replies, outcome, table));
            }
        }
    }
}

/// Says how it went, once the table was read too.
async fn send_outcome(
    replies: Vec<oneshot::Sender<ReloadOutcome>>,
    mut outcome: ReloadOutcome,
    table: oneshot::Receiver<Option<String>>,
) {
    let nobody = |_| Some("expected the table to be read, but its reader has stopped".to_owned());
    outcome.insert("table", table.await.unwrap_or_else(nobody));
    for reply in replies {
        // Whoever asked may have left.
        let _ = reply.send(outcome.clone());
    }
}

impl ReloadState {
    /// Takes what has changed; the table's reader looks for itself.
    fn reload_changed(&mut self) {
        if self.config_watch.is_due() {
            self.reload_config();
        }
        // All of them are looked at, so that each keeps its time.
        let due =
            self.certificate_watches.iter_mut().filter_map(|watch| watch.is_due().then_some(()));
        if due.count() > 0 {
            self.reload_certificates();
        }
        let took_something = self.keys.look(&self.state, &self.config.plans);
        self.report_keys(took_something);
        self.update_gauges();
    }

    /// Everything; the table is still being read.
    fn reload_all(&mut self) -> (ReloadOutcome, oneshot::Receiver<Option<String>>) {
        self.state.access_log.reopen();
        let mut outcome = ReloadOutcome::new();
        outcome.insert("config", self.reload_config());
        let table = self.table.read_table(self.config.table.clone());
        if self.certificates.is_some() {
            outcome.insert("certificates", self.reload_certificates());
        }
        self.keys.reload(&self.state, &self.config.plans);
        outcome.insert("keys", self.report_keys(true));
        self.update_gauges();
        (outcome, table)
    }

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
        self.report.record("certificates", problem.as_deref(), true);
        problem
    }

    fn reload_config(&mut self) -> Option<String> {
        self.config_watch.mark_read();
        let problem = match Config::read(&self.overrides) {
            Ok(config) => {
                self.apply_config(config);
                None
            }
            Err(faults) => Some(faults.join("\n")),
        };
        self.report.record("config", problem.as_deref(), true);
        problem
    }

    fn apply_config(&mut self, config: Config) {
        let needs_restart = config.settings_needing_restart(&self.startup_config);
        if !needs_restart.is_empty() {
            log::warn!(
                "these settings changed and take effect at the next restart: {}",
                needs_restart.join(", ")
            );
        }
        self.report.set_needs_restart(needs_restart);
        let serving = std::mem::replace(&mut self.config, config);
        let config = &self.config;
        self.state.policy.publish(config.gate_policy());
        self.state.ledger.set_on_failure(config.on_failure);
        self.state.access_log.set_enabled(config.access_log);
        self.state.top_domains.set_options(config.top);
        let (plans, key_file) = (config.plans.clone(), config.key_file.clone());
        if config.table != serving.table {
            // How it goes is told where tables are read.
            drop(self.table.read_table(config.table.clone()));
        }
        if config.feeds != serving.feeds {
            self.feeds.set_feeds(config.feeds.clone());
        }
        if config.dns != serving.dns
            && let Err(error) = self.dns.set_options(config.dns.clone())
        {
            log::error!("expected a thread that asks the DNS, but found {error}");
        }
        if self.config.certificates != serving.certificates {
            self.certificate_watches = watch_certificates(&self.config);
            self.reload_certificates();
        }
        if plans != serving.plans {
            self.keys.apply_plans(&self.state, &plans);
            self.report_keys(true);
        }
        if key_file != serving.key_file {
            self.keys.set_key_file(key_file);
            self.keys.reload_key_file(&self.state, &plans);
            self.report_keys(true);
        }
    }

    /// Tells how keys and store stand; answers what is wrong with the keys.
    fn report_keys(&self, is_counted: bool) -> Option<String> {
        let problem = self.keys.problem();
        self.report.record("keys", problem.as_deref(), is_counted);
        self.report.record("store", self.keys.store_problem(), false);
        problem
    }

    /// Brings the gauges of what serves up to date.
    fn update_gauges(&mut self) {
        let metrics = &self.state.metrics;
        let expires = self.certificates.as_ref().map_or(0, |serving| serving.expires_at());
        metrics.reloads.certificate_expiry.set(expires);
        let keys = self.state.keys.peek();
        metrics.reloads.keys.set(keys.as_ref().as_ref().map_or(0, KeyRing::len) as i64);
    }
}

fn watch_certificates(config: &Config) -> Vec<FileWatch> {
    let files = config.certificates.iter().flat_map(|files| [&files.chain, &files.key]);
    files.map(|path| FileWatch::new(Some(path.clone()))).collect()
}
