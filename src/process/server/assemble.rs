//! Makes the state that requests are judged by, and the one that keeps it fresh.

use std::path::PathBuf;
use std::sync::Arc;

use pingora_core::services::background::GenBackgroundService;

use super::{Loaded, StartError};
use crate::config::{Config, Overrides};
use crate::dns::LearnedCache;
use crate::gate::{Gate, State};
use crate::message::request_id::RequestIds;
use crate::observe::access_log::{AccessLog, LogTarget};
use crate::observe::metrics::Metrics;
use crate::observe::top_domains::Top;
use crate::process::reload::{Keys, Reloader, Trigger};
use crate::quota::{Ledger, LedgerOptions, unix_now};
use crate::store::{StoreError, StoreUrl};
use crate::support::certificates::Certificates;
use crate::support::regular_file::is_same_file;
use crate::support::snapshot::Live;

/// A gate for a Pingora server of your own: the same state, kept fresh the same way.
pub struct Mount {
    gate: Gate,
    reloader: Reloader,
}

impl Mount {
    /// Reads config, table, keys and store as `riskgate run` would, and listens nowhere.
    pub fn new(overrides: Overrides) -> Result<Mount, StartError> {
        let loaded = Loaded::read(&overrides).map_err(StartError::Config)?;
        check_files(&loaded.config)?;
        let trusted_proxies = loaded.config.trusted_proxies.clone();
        let (state, reloader, _) = assemble(loaded, None, overrides)?;
        Ok(Mount { gate: Gate::new(state, trusted_proxies), reloader })
    }

    /// The gate: it can be cloned into as many proxies as there are.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// The service that reloads table, keys and config; add it to your server.
    pub fn into_service(self) -> GenBackgroundService<Reloader> {
        GenBackgroundService::new("riskgate".to_owned(), Arc::new(self.reloader))
    }
}

/// Whether the files that the process writes can be written, and no other file is written to.
pub(super) fn check_files(config: &Config) -> Result<(), StartError> {
    let log = AccessLog::check(&config.log_target);
    log.map_err(|error| log_fault(&config.log_target, &error))?;
    let LogTarget::File(log) = &config.log_target else { return Ok(()) };
    let mut others: Vec<(&str, PathBuf)> = Vec::new();
    if let StoreUrl::Sqlite(store) = &config.store.url {
        // SQLite writes beside its file too, and what is appended there damages a store as well.
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut file = store.as_os_str().to_owned();
            file.push(suffix);
            others.push(("the store's", PathBuf::from(file)));
        }
    }
    others.extend(config.file.iter().map(|file| ("the config", file.clone())));
    others.extend(config.key_file.iter().map(|file| ("keys.file", file.clone())));
    let overrides = config.table.overrides.iter();
    others.extend(overrides.map(|file| ("table.overrides", file.clone())));
    for (whose, other) in others {
        if is_same_file(log, &other) {
            let expected = format!("config: log.path: expected another file than {whose}");
            let found = log.display();
            return Err(StartError::Config(vec![format!("{expected}, but found {found}")]));
        }
    }
    Ok(())
}

/// Why the log can't be written where the config says.
fn log_fault(target: &LogTarget, error: &std::io::Error) -> StartError {
    let target = match target {
        LogTarget::File(path) => path.display().to_string(),
        LogTarget::Stdout => "standard output".to_owned(),
    };
    let what = format!("config: log.path: expected a file to append to, but found {error}");
    StartError::Config(vec![format!("{what}: {target}")])
}

/// Makes the state that requests are judged by, and the one that keeps it fresh.
pub(super) fn assemble(
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
