//! Keeps table, key ring and config fresh: the only writer of state beside requests.
//!
//! Looks at files four times a second, which sees renames, writes in place and Kubernetes'
//! `..data` swaps alike, and at the store's key version; SIGHUP and `POST /reload` ask at once.
//! Each part is taken whole or keeps its last good state, and none holds back the others.

mod keys;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use tokio::sync::{mpsc, oneshot};

use crate::config::{Config, Overrides};
use crate::gate::State;
use crate::keys::KeyRing;
use crate::regular_file::read_regular;
use crate::table::{Source, Table};
use crate::tls::{CertificateSet, Certificates};

pub use keys::Keys;
use watch::Watch;

const LOOK: Duration = Duration::from_millis(250);
/// How far a table that is read stands behind requests where both want a processor: it has a quarter
/// of one then (`nice`).
const BEHIND_REQUESTS: i32 = 5;

/// How the last reload of each part went: nothing, or what was wrong.
pub type Outcome = BTreeMap<&'static str, Option<String>>;

/// What stands between what is there and what serves.
#[derive(Clone, Debug, Default)]
pub struct ReloadStatus {
    /// Parts that serve their last good state, and why.
    pub failing: BTreeMap<&'static str, String>,
    /// Changed settings that take a restart.
    pub needs_restart: Vec<&'static str>,
}

/// Asks for a reload of everything, now.
#[derive(Clone)]
pub struct Trigger(mpsc::UnboundedSender<Option<oneshot::Sender<Outcome>>>);

impl Trigger {
    /// Asks and goes on.
    pub fn everything(&self) {
        // Nobody listens any more only when the process ends.
        let _ = self.0.send(None);
    }

    /// Asks and waits for how it went.
    pub async fn and_wait(&self) -> Option<Outcome> {
        let (sender, receiver) = oneshot::channel();
        self.0.send(Some(sender)).ok()?;
        receiver.await.ok()
    }
}

/// The background service that reloads.
pub struct Reloader {
    asked: tokio::sync::Mutex<mpsc::UnboundedReceiver<Option<oneshot::Sender<Outcome>>>>,
    parts: Arc<Mutex<Parts>>,
    status: Arc<Mutex<ReloadStatus>>,
}

struct Parts {
    state: Arc<State>,
    config: Config,
    /// The config that the process began with: what takes a restart is as it says.
    started_with: Config,
    overrides: Overrides,
    keys: Keys,
    certificates: Option<Arc<Certificates>>,
    certificate_watch: Vec<Watch>,
    table_watch: Watch,
    config_watch: Watch,
    /// The config file that serves says nothing.
    is_silent: bool,
    status: Arc<Mutex<ReloadStatus>>,
}

/// Whether a file holds nothing, not even a word. One that held something was emptied, or is being
/// written.
fn is_blank(path: Option<&Path>) -> bool {
    // A longer one says something.
    let read = path.and_then(|path| read_regular(path, 4_096).ok());
    let bare = |bytes: Vec<u8>| {
        bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes).trim_ascii().is_empty()
    };
    read.is_some_and(bare)
}

impl Reloader {
    /// Keeps `state` fresh, beginning with what was just read.
    pub fn new(
        state: Arc<State>,
        config: Config,
        overrides: Overrides,
        keys: Keys,
        certificates: Option<Arc<Certificates>>,
    ) -> (Reloader, Trigger) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let status = Arc::new(Mutex::new(ReloadStatus::default()));
        let mut parts = Parts {
            table_watch: Watch::new(table_path(&config)),
            config_watch: Watch::new(config.file.clone()),
            is_silent: is_blank(config.file.as_deref()),
            certificate_watch: certificate_watch(&config),
            certificates,
            state,
            started_with: config.clone(),
            config,
            overrides,
            keys,
            status: Arc::clone(&status),
        };
        parts.note_keys(false);
        parts.show();
        let reloader = Reloader {
            asked: tokio::sync::Mutex::new(receiver),
            parts: Arc::new(Mutex::new(parts)),
            status,
        };
        (reloader, Trigger(sender))
    }

    /// What stands between what is there and what serves.
    pub fn status(&self) -> Arc<Mutex<ReloadStatus>> {
        Arc::clone(&self.status)
    }
}

#[async_trait]
impl BackgroundService for Reloader {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut asked = self.asked.lock().await;
        loop {
            let request = tokio::select! {
                request = asked.recv() => request,
                () = tokio::time::sleep(LOOK) => None,
                _ = shutdown.changed() => return,
            };
            let everything = request.is_some();
            // However many ask at once, one reload serves them all.
            let mut replies: Vec<oneshot::Sender<Outcome>> =
                request.flatten().into_iter().collect();
            while let Ok(further) = asked.try_recv() {
                replies.extend(further);
            }
            let parts = Arc::clone(&self.parts);
            // Reading and building take their time; no runtime thread should.
            let outcome = tokio::task::spawn_blocking(move || {
                let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
                if everything { parts.reload_all() } else { parts.look() }
            })
            .await;
            for reply in replies {
                // Whoever asked may have left.
                let _ = reply.send(outcome.as_ref().cloned().unwrap_or_default());
            }
        }
    }
}

impl Parts {
    fn look(&mut self) -> Outcome {
        let mut outcome = Outcome::new();
        if self.config_watch.is_due() {
            outcome.insert("config", self.reload_config());
        }
        if self.table_watch.is_due() {
            outcome.insert("table", self.reload_table());
        }
        // All of them are looked at, so that each keeps its time.
        let due =
            self.certificate_watch.iter_mut().filter_map(|watch| watch.is_due().then_some(()));
        if due.count() > 0 {
            outcome.insert("certificates", self.reload_certificates());
        }
        let took_something = self.keys.look(&self.state, &self.config.plans);
        let problem = self.note_keys(took_something);
        if took_something {
            outcome.insert("keys", problem);
        }
        self.show();
        outcome
    }

    fn reload_all(&mut self) -> Outcome {
        self.state.log.reopen();
        let mut outcome = Outcome::new();
        outcome.insert("config", self.reload_config());
        outcome.insert("table", self.reload_table());
        if self.certificates.is_some() {
            outcome.insert("certificates", self.reload_certificates());
        }
        self.keys.reload(&self.state, &self.config.plans);
        outcome.insert("keys", self.note_keys(true));
        self.show();
        outcome
    }

    fn reload_table(&mut self) -> Option<String> {
        let source = self.config.table.clone();
        let load = |watch: &mut Watch| -> Result<Table, String> {
            // Read again if it changed meanwhile; a folder in constant change is left alone.
            for _ in 0..3 {
                watch.mark();
                let table = Table::load(&source).map_err(|error| error.to_string());
                if !watch.has_changed() {
                    return table;
                }
            }
            Err("expected the files to be left alone while they are read".to_owned())
        };
        let watch = &mut self.table_watch;
        let serving = self.state.table.snapshot();
        let loaded = behind_requests(|| {
            let table = load(watch)?;
            table.accept(&serving).map_err(|error| error.to_string())?;
            Ok(table)
        });
        drop(serving);
        let problem = match loaded {
            Ok(table) => {
                log::info!("table {} serves, {} rows", table.version(), table.rows());
                self.state.table.publish(table);
                self.state.top.refresh(self.config.top);
                None
            }
            Err(problem) => Some(problem),
        };
        self.note("table", problem.as_deref(), true);
        problem
    }

    fn reload_certificates(&mut self) -> Option<String> {
        let certificates = self.certificates.as_ref()?;
        for watch in &mut self.certificate_watch {
            watch.mark();
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
        self.note("certificates", problem.as_deref(), true);
        problem
    }

    fn reload_config(&mut self) -> Option<String> {
        self.config_watch.mark();
        let read = Config::read(&self.overrides);
        // Looked at afterwards: what was emptied while it was read is not taken either.
        let is_blank = is_blank(self.config.file.as_deref());
        let problem = match read {
            Ok(_) if is_blank && !self.is_silent => {
                Some("expected settings, but found an empty file".to_owned())
            }
            Ok(config) => {
                self.is_silent = is_blank;
                self.apply_config(config);
                None
            }
            Err(faults) => Some(faults.join("\n")),
        };
        self.note("config", problem.as_deref(), true);
        problem
    }

    fn apply_config(&mut self, config: Config) {
        let needs_restart = config.needs_restart(&self.started_with);
        if !needs_restart.is_empty() {
            log::warn!("changed but in effect only after a restart: {}", needs_restart.join(", "));
        }
        self.lock_status().needs_restart = needs_restart;
        let serving = std::mem::replace(&mut self.config, config);
        let config = &self.config;
        self.state.policy.publish(config.policy());
        self.state.ledger.set_on_failure(config.on_failure);
        self.state.log.set_enabled(config.access_log);
        self.state.top.refresh(config.top);
        let (table_path, key_file) = (table_path(config), config.key_file.clone());
        let (plans, table) = (config.plans.clone(), config.table.clone());
        if table != serving.table {
            self.table_watch = Watch::new(table_path);
            self.reload_table();
        }
        if self.config.certificates != serving.certificates {
            self.certificate_watch = certificate_watch(&self.config);
            self.reload_certificates();
        }
        if plans != serving.plans {
            self.keys.take_plans(&self.state, &plans);
            self.note_keys(true);
        }
        if key_file != serving.key_file {
            self.keys.watch(key_file);
            self.keys.read_file(&self.state, &plans);
            self.note_keys(true);
        }
    }

    /// Tells how keys and store stand; answers what is wrong with the keys.
    fn note_keys(&self, counts: bool) -> Option<String> {
        let problem = self.keys.problem();
        self.note("keys", problem.as_deref(), counts);
        self.note("store", self.keys.store_problem(), false);
        problem
    }

    /// Keeps how a part stands, tells it once, and counts it.
    fn note(&self, part: &'static str, problem: Option<&str>, counts: bool) {
        let before = match problem {
            Some(problem) => self.lock_status().failing.insert(part, problem.to_owned()),
            None => self.lock_status().failing.remove(part),
        };
        let is_news = before.as_deref() != problem;
        if counts || (is_news && part == "keys") {
            self.state.metrics.reload(part, problem.is_none());
        }
        let stands = match part {
            "keys" if self.state.keys.peek().is_none() => "has nothing to serve yet",
            _ => "keeps its last good state",
        };
        for line in problem.filter(|_| is_news).unwrap_or_default().lines() {
            log::error!("{part} {stands}: {line}");
        }
    }

    fn lock_status(&self) -> std::sync::MutexGuard<'_, ReloadStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the gauges of what serves up to date.
    fn show(&mut self) {
        let metrics = &self.state.metrics;
        let table = self.state.table.peek();
        metrics.table_rows.set(table.rows() as i64);
        metrics.table_built.set(table.built_at());
        let expires = self.certificates.as_ref().map_or(0, |serving| serving.expires_at());
        metrics.certificate_expires.set(expires);
        let keys = self.state.keys.peek();
        metrics.keys.set(keys.as_ref().as_ref().map_or(0, KeyRing::len) as i64);
    }
}

/// Does this on a thread of its own, which holds up requests as little as may be: a thread that has
/// stood back can't come forward again.
fn behind_requests<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    let standing_back = || {
        // Without it the work is done all the same.
        let _ = rustix::process::nice(BEHIND_REQUESTS);
        work()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("table".to_owned());
        let thread = thread.spawn_scoped(scope, standing_back);
        let thread = thread.map_err(|error| format!("expected a thread, but found {error}"))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn certificate_watch(config: &Config) -> Vec<Watch> {
    let files = config.certificates.iter().flat_map(|files| [&files.chain, &files.key]);
    files.map(|path| Watch::new(Some(path.clone()))).collect()
}

fn table_path(config: &Config) -> Option<PathBuf> {
    match &config.table {
        Source::Bundled => None,
        Source::Path(path) => Some(path.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn only_the_work_stands_back() {
        let before = getpriority_process(None).unwrap();
        let during = behind_requests(|| Ok(getpriority_process(None).unwrap()));
        assert_eq!(during, Ok((before + BEHIND_REQUESTS).min(19)));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
