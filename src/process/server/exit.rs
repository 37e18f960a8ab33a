//! What is done when the process ends, and what it hands to a successor.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gate::Gate;
use crate::observe::process_log::ProcessLog;
use crate::process::upgrade::RuntimeDir;

/// What happens when the process ends in order.
pub type ExitHook = Box<dyn FnOnce() + Send>;

/// The last things, done once however the process ends.
pub(super) struct ExitTasks {
    pub gate: Gate,
    pub at_end: Mutex<Option<ExitHook>>,
    pub upgrade_state: Arc<Mutex<UpgradeState>>,
    pub process_log: Arc<ProcessLog>,
}

impl ExitTasks {
    pub fn run(&self) {
        self.gate.close();
        lock_upgrade_state(&self.upgrade_state).close_sockets();
        let at_end = self.at_end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(at_end) = at_end {
            at_end();
        }
        self.process_log.flush();
    }
}

/// What one process has that serves, and its successor takes over.
pub(super) struct UpgradeState {
    pub folder: Option<RuntimeDir>,
    /// Duplicates of the sockets that are accepted on, by name.
    pub sockets: Vec<(String, TcpListener)>,
}

/// Writes down that this process serves, so that a successor finds it.
pub(super) fn claim_runtime_dir(folder: &mut Option<RuntimeDir>) {
    let Some(folder) = folder else { return };
    match folder.claim() {
        Ok(true) => {}
        Ok(false) => log::warn!(
            "another process serves from the same process.runtime_dir: it cannot be upgraded"
        ),
        Err(error) => log::warn!("process.runtime_dir: this process cannot be upgraded: {error}"),
    }
}

impl UpgradeState {
    pub fn transfer_to_successor(&mut self, gives_up: &dyn Fn() -> bool) -> std::io::Result<()> {
        let no_folder =
            || std::io::Error::other("process.runtime_dir is not set, so no successor can connect");
        let duplicate = |(name, socket): &(String, TcpListener)| {
            Ok((name.clone(), OwnedFd::from(socket.try_clone()?)))
        };
        let sockets: std::io::Result<Vec<(String, OwnedFd)>> =
            self.sockets.iter().map(duplicate).collect();
        let sockets = sockets?;
        let named: Vec<(&str, OwnedFd)> = sockets
            .iter()
            .map(|(name, fd)| Ok((name.as_str(), fd.try_clone()?)))
            .collect::<std::io::Result<_>>()?;
        self.folder.as_mut().ok_or_else(no_folder)?.transfer_sockets(&named, gives_up)
    }

    /// Closes what would keep the sockets open when nobody accepts on them any more.
    pub fn close_sockets(&mut self) {
        self.sockets.clear();
        if let Some(folder) = &mut self.folder {
            folder.release();
        }
    }
}

pub(super) fn lock_upgrade_state(
    upgrade_state: &Mutex<UpgradeState>,
) -> MutexGuard<'_, UpgradeState> {
    upgrade_state.lock().unwrap_or_else(PoisonError::into_inner)
}
