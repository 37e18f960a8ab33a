//! What the process does when it ends, and what it transfers to its successor. The successor is the
//! process that replaces this one in an upgrade.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};

use crate::downstream::ConnectionTracker;
use crate::gate::Gate;
use crate::observe::process_log::ProcessLog;
use crate::process::runtime_dir::RuntimeDir;
use crate::process::served_store_sockets::StoreNameSockets;
use crate::process::upgrade::transfer_sockets;
use crate::support::lock::lock;

/// What a caller of `run` wants done when the process ends without a crash.
pub type ExitHook = Box<dyn FnOnce() + Send>;

/// What the process does last, whichever of the handled signals ends it. If `drain.grace` ends
/// before all requests have responses, two threads may call [`ExitTasks::run`] at once.
pub(super) struct ExitTasks {
    once: Once,
    gate: Gate,
    connection_tracker: Arc<ConnectionTracker>,
    /// How many requests had no whole response just before the end of `drain.grace`.
    pub cut_requests: AtomicUsize,
    /// Whether this process should have replaced another process, which keeps serving.
    pub has_upgrade_failed: AtomicBool,
    exit_hook: Mutex<Option<ExitHook>>,
    pub upgrade_state: Arc<Mutex<UpgradeState>>,
    process_log: Arc<ProcessLog>,
}

impl ExitTasks {
    pub fn new(
        gate: Gate,
        connection_tracker: &Arc<ConnectionTracker>,
        exit_hook: Option<ExitHook>,
        upgrade_state: UpgradeState,
        process_log: &Arc<ProcessLog>,
    ) -> Arc<ExitTasks> {
        Arc::new(ExitTasks {
            once: Once::new(),
            gate,
            connection_tracker: Arc::clone(connection_tracker),
            cut_requests: AtomicUsize::new(0),
            has_upgrade_failed: AtomicBool::new(false),
            exit_hook: Mutex::new(exit_hook),
            upgrade_state: Arc::new(Mutex::new(upgrade_state)),
            process_log: Arc::clone(process_log),
        })
    }

    /// Closes the gate and the duplicate sockets, releases the runtime directory if the listeners
    /// are closed, calls the exit hook, logs how the process ended, and writes the rest of the log.
    /// Only the first call does this; a further call waits until the first one is done.
    pub fn run(&self) {
        self.once.call_once(|| self.run_tasks());
    }

    /// Runs the tasks. If the exit code is not 0, ends the process.
    pub fn run_and_exit_if_failed(&self) {
        self.run();
        if self.exit_code() != 0 {
            std::process::exit(self.exit_code());
        }
    }

    /// The exit code of the process, whoever ends its drain.
    pub fn exit_code(&self) -> i32 {
        i32::from(self.has_upgrade_failed.load(Ordering::Relaxed))
    }

    /// Makes the access log reopen its file, after another program has renamed the file.
    pub fn reopen_access_log(&self) {
        self.gate.state().access_log.request_reopen();
    }

    /// Runs the tasks, however often they ran before.
    fn run_tasks(&self) {
        self.gate.close();
        let mut upgrade_state = lock(&self.upgrade_state);
        upgrade_state.close_duplicate_sockets();
        // At SIGINT, the accept loops may still hold the ports. Then the system releases the
        // directory, together with the ports, when the process has ended.
        if self.connection_tracker.are_listeners_closed() {
            upgrade_state.release_dir();
        }
        drop(upgrade_state);
        let exit_hook = lock(&self.exit_hook).take();
        if let Some(exit_hook) = exit_hook {
            exit_hook();
        }
        self.log_ending();
        self.process_log.flush();
    }

    fn log_ending(&self) {
        let cut = self.cut_requests.load(Ordering::Relaxed);
        let cut = cut.max(self.connection_tracker.count_requests_in_flight());
        let cut_text = match cut {
            0 => "all requests had their responses".to_owned(),
            1 => "1 request was cut".to_owned(),
            _ => format!("{cut} requests were cut"),
        };
        let text = match self.connection_tracker.drain_began_at() {
            Some(at) => {
                format!(
                    "ended {:.1}s after the drain began: {cut_text}",
                    at.elapsed().as_secs_f64()
                )
            }
            None => format!("SIGINT: ended without a drain: {cut_text}"),
        };
        match cut {
            0 => log::info!("{text}"),
            _ => log::warn!("{text}"),
        }
    }
}

/// What the serving process changes when a successor replaces it, or when it ends: its runtime
/// directory, its duplicate sockets, and the sockets that describe its store to commands.
pub(super) struct UpgradeState {
    pub runtime_dir: Option<RuntimeDir>,
    /// Duplicates of the listening sockets, by name.
    pub duplicate_sockets: Vec<(String, TcpListener)>,
    /// The sockets that tell commands which store this process serves.
    pub store_sockets: StoreNameSockets,
}

/// Claims the runtime directory, so that a successor finds this process. If that fails, logs a
/// warning.
pub(super) fn claim_runtime_dir_or_warn(runtime_dir: &mut Option<RuntimeDir>) {
    let Some(runtime_dir) = runtime_dir else { return };
    match runtime_dir.claim() {
        Ok(true) => {}
        Ok(false) => log::warn!(
            "another process serves from the same process.runtime_dir: this process cannot be \
             upgraded; write another process.runtime_dir"
        ),
        Err(error) => log::warn!("process.runtime_dir: this process cannot be upgraded: {error}"),
    }
}

impl UpgradeState {
    /// Sends the duplicate sockets to the successor that waits in the runtime directory. On
    /// success, this process has released the directory. Fails if another process has claimed the
    /// directory: the successor waits for that process.
    pub fn transfer_sockets_to_successor(
        &mut self,
        is_cancelled: &dyn Fn() -> bool,
    ) -> std::io::Result<()> {
        let no_runtime_dir = || {
            std::io::Error::other(
                "no runtime directory (process.runtime_dir), where a successor connects",
            )
        };
        let runtime_dir = self.runtime_dir.as_mut().ok_or_else(no_runtime_dir)?;
        if !runtime_dir.claim()? {
            let found = "another process serves from the same process.runtime_dir";
            return Err(std::io::Error::other(found));
        }
        transfer_sockets(runtime_dir, &self.duplicate_sockets, is_cancelled)
    }

    /// Releases the runtime directory, so that another process can claim it. A released directory
    /// means that the ports are free: call this once the listeners are closed, or once another
    /// process has the sockets.
    pub fn release_dir(&mut self) {
        if let Some(runtime_dir) = &mut self.runtime_dir {
            runtime_dir.release();
        }
    }

    /// Closes the duplicate sockets, which would keep the ports open after the accept loops have
    /// ended. Tells commands that this process drains.
    pub fn close_duplicate_sockets(&mut self) {
        self.duplicate_sockets.clear();
        if let Err(error) = self.store_sockets.set_draining() {
            log::warn!("commands can't check whether this process has ended: {error}");
        }
    }
}
