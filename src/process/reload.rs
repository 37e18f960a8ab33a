//! Reloads table, key ring, config and certificates when their sources change.
//!
//! Four times a second, the threads of this module look at the metadata of the files, and at the
//! versions of keys and overrides in the store. So they notice renames, writes in place and
//! Kubernetes' `..data` swaps alike. SIGHUP and `POST /reload` reload all parts as soon as no file
//! is being written, and after ten seconds at the latest, but for a part whose files still change
//! then. A faulty part keeps its last good state, and does not hold back the others. Of the table,
//! only the faulty half stays as it was: the lists or the overrides. If the memory does not suffice
//! for new keys, changes of known keys still take effect.

mod audit;
mod config;
mod current_inputs;
mod dns;
mod feeds;
mod keys;
mod overrides;
mod requests;
mod shared_rates;
mod sign_ups;
mod status_reporter;
mod store_connection;
mod table;
mod watch;
mod webhook;
mod write_back;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::sync::oneshot;

use crate::config::{ConfigSources, EffectiveSettings, ReloadableConfig, StoreOptions};
use crate::gate::GateState;
use crate::keys::KeyRing;
use crate::management::KnownOverrides;
use crate::observe::process_log::ProcessLog;
use crate::process::served_store::{ServedStore, ServedStoreFile};
use crate::process::served_store_sockets::StoreNameSockets;
use crate::support::certificates::{CertificateDescription, CertificateSet, CurrentCertificates};
use crate::support::lock::lock;

use audit::AuditRecorder;
pub(in crate::process) use audit::{check_audit_file, path_of_written_records_log};
pub use current_inputs::{CurrentInputs, KeyInputs};
use dns::DnsLearner;
use feeds::FeedFetcher;
pub use keys::KeyRingUpdater;
use overrides::OverrideFollower;
use requests::ReloadRequests;
pub use requests::{ReloadOutcome, ReloadTrigger};
use shared_rates::start_rate_thread;
use sign_ups::start_sign_up_thread;
pub use status_reporter::ReloadStatus;
use status_reporter::{StatusReporter, join_lines, join_problems};
use table::TableRebuilder;
pub use watch::InputWatches;
use watch::{FileWatch, MAX_SETTLE_WAIT, POLL_INTERVAL, UNSETTLED, list_certificate_files};
use webhook::WebhookThreads;

/// The background service that reloads changed parts. Starts one pass after another, on a thread.
pub struct Reloader {
    requests: tokio::sync::Mutex<ReloadRequests>,
    reload_state: Arc<Mutex<ReloadState>>,
    /// The thread until the service starts. `None` if the thread could not be started, and once the
    /// service has taken it.
    thread: tokio::sync::Mutex<Option<ReloadThread>>,
    status_reporter: StatusReporter,
    inputs: Arc<CurrentInputs>,
}

struct ReloadState {
    gate_state: Arc<GateState>,
    inputs: Arc<CurrentInputs>,
    audit: AuditRecorder,
    config: ReloadableConfig,
    /// The settings that were in force when the process started.
    startup_settings: Option<EffectiveSettings>,
    /// The settings in force, with which the log compares those of a reload.
    settings: Option<EffectiveSettings>,
    config_sources: ConfigSources,
    keys: KeyRingUpdater,
    certificates: Option<Arc<CurrentCertificates>>,
    certificate_watch: FileWatch,
    /// Why the certificates were not replaced at the last attempt.
    certificate_fault: Option<String>,
    table: TableRebuilder,
    feeds: FeedFetcher,
    dns: DnsLearner,
    webhooks: WebhookThreads,
    /// The config file and the files of secrets that it names.
    config_watch: FileWatch,
    /// Files that are read at the start only.
    startup_files_watch: FileWatch,
    have_startup_files_changed: bool,
    status_reporter: StatusReporter,
    /// The process log; `None` if the process writes no log of riskgate's.
    process_log: Option<Arc<ProcessLog>>,
    /// The signs that tell commands which store this process serves, and that store.
    served_store: Option<(ServedStoreSigns, ServedStore)>,
    /// Whether the last reading of the config files was good, so that its result is in force.
    is_latest_config_in_force: bool,
    pending_work: PendingWork,
}

/// What tells commands which store a process serves: the names of sockets, and the file in the
/// runtime directory. `None` if the process has no runtime directory.
pub type ServedStoreSigns = (StoreNameSockets, Option<ServedStoreFile>);

/// What a pass could not do. The next pass tries again.
#[derive(Default)]
struct PendingWork {
    /// The audit does not have the config in force, because a config file could not be read, or had
    /// changed already.
    is_config_unrecorded: bool,
    /// The thread of `[dns]` could not be started.
    are_dns_options_unapplied: bool,
    /// The threads of `[webhook]` could not be started.
    are_webhook_options_unapplied: bool,
}

impl Reloader {
    /// Creates a reloader that keeps `gate_state` up to date, and the reloader's trigger. The other
    /// arguments are what `gate_state` was built from.
    pub fn new(
        gate_state: Arc<GateState>,
        inputs: Arc<CurrentInputs>,
        config_sources: ConfigSources,
        (keys, overrides): (KeyRingUpdater, KnownOverrides),
        certificates: Option<Arc<CurrentCertificates>>,
        watches: InputWatches,
    ) -> std::io::Result<(Reloader, ReloadTrigger)> {
        let (trigger, requests) = ReloadRequests::new();
        let config = ReloadableConfig::clone(&inputs.config.peek());
        let status_reporter = StatusReporter::new(Arc::clone(&gate_state));
        let state = || Arc::clone(&gate_state);
        let audit = AuditRecorder::start(&inputs.startup, state(), status_reporter.clone())?;
        start_sign_up_thread(state(), status_reporter.clone(), &inputs.startup)?;
        start_rate_thread(state(), status_reporter.clone(), &inputs.startup)?;
        let overrides = OverrideFollower::new(inputs.startup.store.clone(), overrides);
        let table = TableRebuilder::start(
            Arc::clone(&gate_state),
            status_reporter.clone(),
            config.table.clone(),
            (overrides, watches.table),
            audit.clone(),
        )?;
        let (state_of_feeds, feeds) = (Arc::clone(&gate_state), config.feeds.clone());
        let (store, dns) = (inputs.startup.store.clone(), config.dns.clone());
        let webhooks =
            WebhookThreads::new(Arc::clone(&gate_state), status_reporter.clone(), store.clone());
        let mut reload_state = ReloadState {
            feeds: FeedFetcher::start(state_of_feeds, status_reporter.clone(), feeds)?,
            dns: DnsLearner::start(Arc::clone(&gate_state), status_reporter.clone(), store, dns)?,
            webhooks,
            table: table.clone(),
            config_watch: watches.config,
            startup_files_watch: watches.startup_files,
            have_startup_files_changed: false,
            certificate_watch: watches.certificates,
            certificate_fault: None,
            certificates,
            gate_state,
            inputs: Arc::clone(&inputs),
            audit,
            config,
            startup_settings: watches.settings.clone(),
            settings: watches.settings,
            config_sources,
            keys,
            status_reporter: status_reporter.clone(),
            process_log: None,
            served_store: None,
            is_latest_config_in_force: true,
            pending_work: PendingWork::default(),
        };
        reload_state.report_keys_and_store(false);
        reload_state.report_certificates();
        reload_state.update_gauges();
        reload_state.record_config();
        reload_state.record_key_file();
        let reload_state = Arc::new(Mutex::new(reload_state));
        let thread = ReloadThread::start(Arc::clone(&reload_state)).ok();
        let reloader = Reloader {
            requests: tokio::sync::Mutex::new(requests),
            thread: tokio::sync::Mutex::new(thread),
            reload_state,
            status_reporter,
            inputs,
        };
        Ok((reloader, trigger.with_table(table)))
    }

    /// Lets reloads set the options of this log.
    pub fn with_process_log(self, log: &Arc<ProcessLog>) -> Reloader {
        let mut state = lock(&self.reload_state);
        state.process_log = Some(Arc::clone(log));
        drop(state);
        self
    }

    /// Lets the reloader tell commands by these signs which store this process serves.
    pub fn with_served_store_signs(
        self,
        signs: ServedStoreSigns,
        store: &StoreOptions,
    ) -> Reloader {
        let mut state = lock(&self.reload_state);
        let served = ServedStore::new(store, state.keys.store_id());
        state.served_store = Some((signs, served));
        state.update_served_store();
        drop(state);
        self
    }

    /// Reads config, certificates and keys again if they have changed since the reloader was
    /// created: a successor may have waited long for the process that it replaces. Waits for files
    /// that are being written, at most for [`MAX_FILE_CATCH_UP_TIME`].
    pub fn catch_up(&self) {
        let mut state = lock(&self.reload_state);
        let latest_end = Instant::now() + MAX_FILE_CATCH_UP_TIME;
        loop {
            state.reload_changed_parts();
            if state.are_all_files_read() || Instant::now() >= latest_end {
                return;
            }
            std::thread::sleep(SETTLE_POLL_INTERVAL);
        }
    }

    /// Returns the config and the rows of the keys, as the reloader last read them.
    pub fn inputs(&self) -> Arc<CurrentInputs> {
        Arc::clone(&self.inputs)
    }

    /// Returns the status of the reloadable parts, which the reloader keeps up to date.
    pub fn status(&self) -> Arc<Mutex<ReloadStatus>> {
        self.status_reporter.status()
    }
}

#[async_trait]
impl BackgroundService for Reloader {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        lock(&self.reload_state).begin();
        let mut requests = self.requests.lock().await;
        let mut requested: Option<RequestedReload> = None;
        let (mut thread, mut has_told_fault) = (self.thread.lock().await.take(), false);
        loop {
            let interval = if requested.is_some() { SETTLE_POLL_INTERVAL } else { POLL_INTERVAL };
            let replies = tokio::select! {
                replies = requests.wait_and_take_all(interval) => replies,
                _ = shutdown.changed() => {
                    requests.close();
                    return;
                }
            };
            if let Some(replies) = replies {
                let new = || RequestedReload { replies: Vec::new(), begun_at: Instant::now() };
                requested.get_or_insert_with(new).replies.extend(replies);
            }
            let requested_at = requested.as_ref().map(|reload| reload.begun_at);
            if thread.is_none() {
                match ReloadThread::start(Arc::clone(&self.reload_state)) {
                    Ok(started) => thread = Some(started),
                    Err(error) if !has_told_fault => {
                        has_told_fault = true;
                        log::error!("reload: expected a thread, but found {error}; trying on");
                    }
                    Err(_) => {}
                }
            }
            let Some(running) = &thread else { continue };
            let Ok(reloaded) = running.reload(requested_at).await else {
                // The thread has panicked. The next pass starts another thread.
                thread = None;
                continue;
            };
            if let Some((outcome, table)) = reloaded {
                let replies = requested.take().map_or(Vec::new(), |reload| reload.replies);
                // The loop does not wait for the table's thread, which may take long.
                tokio::spawn(add_table_outcome_and_send(replies, outcome, table));
            }
        }
    }
}

/// The outcome of a requested reload without the table, and the receiver for the outcome of the
/// table. `None` if no reload was requested, or if the requested one still waits for files to
/// settle.
type RequestedOutcome = Option<(ReloadOutcome, oneshot::Receiver<Option<String>>)>;

/// The thread that reads files and builds key rings. This work would block the runtime's threads.
/// The thread lasts as long as the service, unless it panics, because a process near its limit of
/// memory may get no other thread.
struct ReloadThread(std::sync::mpsc::Sender<(Option<Instant>, oneshot::Sender<RequestedOutcome>)>);

impl ReloadThread {
    fn start(reload_state: Arc<Mutex<ReloadState>>) -> std::io::Result<ReloadThread> {
        let (sender, passes) =
            std::sync::mpsc::channel::<(Option<Instant>, oneshot::Sender<RequestedOutcome>)>();
        let reload = move || {
            for (requested_at, reply) in passes {
                let mut state = lock(&reload_state);
                // The service may have ended, and waits for no reply then.
                let _ = reply.send(state.reload(requested_at));
            }
        };
        std::thread::Builder::new().name("reload".to_owned()).spawn(reload)?;
        Ok(ReloadThread(sender))
    }

    /// Lets the thread do one pass, as [`ReloadState::reload`] describes it.
    ///
    /// # Errors
    /// If the thread has panicked.
    async fn reload(
        &self,
        requested_at: Option<Instant>,
    ) -> Result<RequestedOutcome, oneshot::error::RecvError> {
        let (reply, reloaded) = oneshot::channel();
        // If the thread has ended, this drops `reply`, and the receiver gets an error.
        let _ = self.0.send((requested_at, reply));
        reloaded.await
    }
}

/// How long a successor waits at most for files that are being written when it takes over.
const MAX_FILE_CATCH_UP_TIME: Duration = Duration::from_millis(1_500);
/// How often riskgate checks whether the files of a requested reload are still being written.
const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A reload that was requested and waits until no file is being written.
struct RequestedReload {
    replies: Vec<oneshot::Sender<ReloadOutcome>>,
    begun_at: Instant,
}

/// Waits for the outcome of the table, adds it to `outcome`, and sends `outcome` to the requesters.
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
    /// Lets all threads change the store and send to other servers, because this process serves.
    fn begin(&mut self) {
        self.gate_state.serving.set_serving();
        self.gate_state.ledger.tell_time();
        self.apply_webhook_options();
        self.gate_state.sign_ups.exchange_thread().request_turn();
    }

    /// Reloads all parts if a reload was requested and no file is being written, or once the
    /// request is [`MAX_SETTLE_WAIT`] old. Otherwise, reloads the parts that have changed.
    fn reload(&mut self, requested_at: Option<Instant>) -> RequestedOutcome {
        if let Some(at) = requested_at
            && (self.are_files_settled() || at.elapsed() >= MAX_SETTLE_WAIT)
        {
            return Some(self.reload_all_parts());
        }
        self.reload_changed_parts();
        None
    }

    /// Reloads each part whose source has changed, apart from the table, whose thread polls its own
    /// files. Tries what an earlier pass could not do.
    fn reload_changed_parts(&mut self) {
        if self.config_watch.is_read_due() {
            self.reload_config();
        }
        if self.certificate_watch.is_read_due() {
            self.reload_certificates();
        }
        if self.startup_files_watch.is_read_due() {
            self.startup_files_watch.mark_read();
            self.have_startup_files_changed = true;
            self.report_settings_needing_restart();
        }
        let declared = Arc::clone(self.keys.declared_keys());
        let keys_changed = self.keys.reload_if_changed(&self.gate_state, &self.config.plans);
        if !Arc::ptr_eq(&declared, self.keys.declared_keys()) {
            self.record_key_file();
        }
        if self.pending_work.is_config_unrecorded {
            self.record_config();
        }
        if self.pending_work.are_dns_options_unapplied {
            self.apply_dns_options();
        }
        if self.pending_work.are_webhook_options_unapplied {
            self.apply_webhook_options();
        }
        self.report_keys_and_store(keys_changed);
        self.report_certificates();
        self.update_gauges();
    }

    /// Reloads all parts but the table, asks the table's thread for a rebuild, and reopens the
    /// access log. Reads no files that are being written: the outcome of their part then has the
    /// text [`UNSETTLED`]. Returns the outcomes of these parts, and a receiver for the outcome of
    /// the table.
    fn reload_all_parts(&mut self) -> (ReloadOutcome, oneshot::Receiver<Option<String>>) {
        self.gate_state.access_log.request_reopen();
        let mut outcome = ReloadOutcome::new();
        let unsettled = || Some(UNSETTLED.to_owned());
        let is_settled = self.config_watch.is_settled();
        outcome.insert("config", if is_settled { self.reload_config() } else { unsettled() });
        let table = self.table.request_rebuild(Some(self.config.table.clone()));
        if self.certificates.is_some() || !self.config.certificates.is_empty() {
            let is_settled = self.certificate_watch.is_settled();
            let problem = if is_settled { self.reload_certificates() } else { unsettled() };
            outcome.insert("certificates", problem);
        }
        self.keys.reload_store_and_key_file(&self.gate_state, &self.config.plans);
        outcome.insert("keys", self.report_keys_and_store(true));
        self.record_key_file();
        self.update_gauges();
        (outcome, table)
    }

    /// Returns true if no file of the config, the certificates or the keys has changed since it was
    /// read.
    fn are_all_files_read(&self) -> bool {
        !self.config_watch.has_changed_since_read()
            && !self.certificate_watch.has_changed_since_read()
            && !self.keys.has_key_file_changed()
    }

    /// Returns true unless a file of the config, the certificates or the keys may be being written
    /// at this moment.
    fn are_files_settled(&mut self) -> bool {
        // Every watch is asked, because each one measures how long its files have been unchanged.
        let (config, certificates) =
            (self.config_watch.is_settled(), self.certificate_watch.is_settled());
        self.keys.is_key_file_settled() && config && certificates
    }

    /// Reads the certificates again. If they are faulty, returns the fault, and the HTTPS listener
    /// keeps its last good certificates. Without such a listener, a fault would keep the next start
    /// from adding the listener.
    fn reload_certificates(&mut self) -> Option<String> {
        self.certificate_watch.mark_read();
        let loaded = CertificateSet::load(&self.config.certificates);
        let faults = loaded.as_ref().err();
        let mut is_transient =
            faults.is_some_and(|faults| faults.iter().any(|it| it.is_transient()));
        self.certificate_fault = match (loaded, &self.certificates) {
            (Ok(Some(set)), Some(serving)) => {
                let fault = self.find_reason_to_keep(&serving.describe(), set.descriptions());
                is_transient = fault.is_some();
                if fault.is_none() {
                    serving.publish(set);
                }
                fault
            }
            // The listener serves until the restart that the removal of listen.https needs.
            (Ok(_), _) => None,
            (Err(faults), _) => Some(join_lines(&faults)),
        };
        self.certificate_watch.schedule_retry_if(is_transient);
        let is_good = self.certificate_fault.is_none();
        self.gate_state.metrics.reloads.count_reload("certificates", is_good);
        self.gate_state.metrics.reloads.set_failing("certificates", !is_good);
        self.report_certificates();
        self.certificate_fault.clone()
    }

    /// Says why the certificates in use are kept for now: some that are new are not valid, and more
    /// of those in use are valid than of all in the files.
    fn find_reason_to_keep(
        &self,
        serving: &[CertificateDescription],
        new: &[CertificateDescription],
    ) -> Option<String> {
        let now = self.known_now()?;
        let is_valid = |it: &&CertificateDescription| it.judge(now).is_valid();
        if new.iter().filter(is_valid).count() >= serving.iter().filter(is_valid).count() {
            return None;
        }
        let are_new = new.iter().filter(|it| !serving.contains(it));
        join_problems(are_new.filter_map(|it| it.describe_problem(now)))
    }

    /// The believed time in Unix seconds; `None` while nobody knows it.
    fn known_now(&self) -> Option<i64> {
        let ledger = &self.gate_state.ledger;
        (!ledger.waits_for_clock()).then(|| ledger.believed_now())
    }

    /// Reports why the certificates were not replaced, and which of the serving ones are not valid.
    fn report_certificates(&self) {
        let mut problems: Vec<String> = self.certificate_fault.iter().cloned().collect();
        // Without a known time, nobody can say which certificate is valid.
        if let (Some(serving), Some(now)) = (&self.certificates, self.known_now()) {
            problems.extend(serving.describe().iter().filter_map(|it| it.describe_problem(now)));
        }
        let problem = join_problems(problems);
        self.status_reporter.record_part("certificates", problem.as_deref(), false);
    }

    /// Lets the audit record what has changed in the config. The audit reads the config files once
    /// more, so it must find what is in force. If the files differ from that, or can't be read, a
    /// later pass tries again.
    fn record_config(&mut self) {
        self.pending_work.is_config_unrecorded = !self.is_latest_config_in_force
            || self.config_watch.has_changed_since_read()
            || !self.audit.record_config(&self.config_sources, &self.inputs.startup.admin);
    }

    /// Lets the audit record what has changed in the key file. If the file has changed since it was
    /// read, does nothing.
    fn record_key_file(&self) {
        if self.keys.has_key_file_changed() {
            return;
        }
        self.audit.record_key_file(self.config.key_file.as_deref(), self.keys.declared_keys());
    }

    /// Reports the problems of the keys and of the store, or that both have none. Updates the signs
    /// of the served store. If `is_counted` is true, the metrics count a reload of the keys.
    /// Returns the problem of the keys, if any.
    fn report_keys_and_store(&mut self, is_counted: bool) -> Option<String> {
        let problem = self.keys.key_problems();
        self.status_reporter.record_part("keys", problem.as_deref(), is_counted);
        self.status_reporter.record_part("store", self.keys.store_problem(), false);
        let is_store_read = self.keys.is_store_read();
        self.status_reporter.update(|status| status.is_store_read = is_store_read);
        self.update_served_store();
        problem
    }

    /// Updates the signs that tell commands which store this process serves. The file is written
    /// only while this process has claimed the runtime directory.
    fn update_served_store(&mut self) {
        let Some(((sockets, file), served)) = &mut self.served_store else { return };
        served.id = self.keys.store_id();
        let of_file = file.as_mut().map_or(Ok(()), |file| file.update(served));
        for outcome in [of_file, sockets.update(served)] {
            if let Err(error) = outcome {
                log::warn!("commands can't check which store serves: {error}");
            }
        }
    }

    /// Updates the gauges of keys and certificates.
    fn update_gauges(&mut self) {
        let metrics = &self.gate_state.metrics;
        let serving = self.certificates.as_ref().map(|it| it.describe()).unwrap_or_default();
        let expiries = serving.into_iter().map(|it| (it.chain, it.validity.expires_at));
        metrics.reloads.certificate_expires_at.set_all(&expiries.collect::<Vec<_>>());
        let keys = self.gate_state.keys.peek();
        metrics.reloads.keys_in_ring.set(keys.as_ref().as_ref().map_or(0, KeyRing::len) as i64);
    }
}
