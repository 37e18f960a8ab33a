//! Handles signals: SIGHUP reloads, SIGTERM drains, SIGINT stops, SIGQUIT upgrades to a successor.
//!
//! This handler replaces that of Pingora. Pingora's handler stops accepting at once, then sleeps
//! for a fixed time, and does not handle SIGHUP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::exit::{ExitTasks, claim_runtime_dir_or_warn};
use crate::downstream::ConnectionTracker;
use crate::process::reload::ReloadTrigger;
use crate::process::systemd;
use crate::process::upgrade::PredecessorConnection;
use crate::support::counted::CountedNoun;
use crate::support::lock::lock;
use crate::support::test_fault::{TestFault, is_injected};

/// How long the drain keeps a connection open after its last response, because the client's next
/// request may be on its way.
const DRAIN_KEEPALIVE: Duration = Duration::from_millis(250);
/// How long a drain after an upgrade keeps a connection open after its last response. The time is
/// longer than [`DRAIN_KEEPALIVE`], because nobody waits for this process to end.
const UPGRADE_DRAIN_KEEPALIVE: Duration = Duration::from_secs(10);

/// How long before the end of `drain.grace` riskgate counts the requests that will be cut.
const CUT_REQUESTS_COUNT_LEAD: Duration = Duration::from_millis(50);

/// Keeps SIGHUP from ending the process while it starts. No reload is needed at that time, because
/// the start itself reads all files.
pub(super) fn ignore_sighup() {
    // Tokio keeps its handler installed for the life of the process, even if no stream is left.
    drop(open_signal_streams(&[SignalKind::hangup()]));
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) return an error. Without this,
/// SIGXFSZ would end the process.
pub fn survive_file_size_limit() {
    let signal = rustix::process::Signal::XFSZ.as_raw();
    drop(open_signal_streams(&[SignalKind::from_raw(signal)]));
}

/// A stream for each signal that riskgate handles while it serves. A stream yields the signals that
/// arrived after the call of [`install_signal_handlers`]. If the handler of a signal could not be
/// installed, the stream of this signal is `None`.
#[derive(Default)]
pub(super) struct SignalStreams {
    hangup: Option<Signal>,
    quit: Option<Signal>,
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

/// Installs the signal handlers. If a signal arrives before the process serves, [`SignalHandler`]
/// handles the signal as soon as the process serves.
pub(super) fn install_signal_handlers() -> SignalStreams {
    let kinds = [
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::interrupt(),
    ];
    let is_late = is_injected(TestFault::InstallSignalsLate);
    let mut signal_streams = open_signal_streams(if is_late { &[] } else { &kinds }).into_iter();
    let mut take_stream = || signal_streams.next().flatten();
    SignalStreams {
        hangup: take_stream(),
        quit: take_stream(),
        terminate: take_stream(),
        interrupt: take_stream(),
    }
}

/// Opens the streams in a temporary runtime. Tokio's signal registry is global, so another runtime
/// can poll these streams later.
fn open_signal_streams(kinds: &[SignalKind]) -> Vec<Option<Signal>> {
    let warn = |error| log::warn!("expected to handle a signal, but found: {error}");
    match tokio::runtime::Builder::new_current_thread().enable_io().build() {
        Ok(runtime) => {
            let _within = runtime.enter();
            kinds.iter().map(|kind| signal(*kind).map_err(warn).ok()).collect()
        }
        Err(error) => {
            warn(error);
            Vec::new()
        }
    }
}

/// The signal handler that riskgate gives to Pingora's server.
pub(super) struct SignalHandler {
    pub connection_tracker: Arc<ConnectionTracker>,
    pub reload_trigger: ReloadTrigger,
    pub exit_tasks: Arc<ExitTasks>,
    pub drain_delay: Duration,
    /// How long the drain may take after `drain_delay`, in whole seconds.
    pub drain_grace: Duration,
    /// The process that this one replaces; `None` if this one took over no sockets.
    pub predecessor: Mutex<Option<PredecessorConnection>>,
    /// The streams that were opened at start, so that no signal is lost.
    pub signal_streams: Mutex<Option<SignalStreams>>,
}

#[async_trait]
impl ShutdownSignalWatch for SignalHandler {
    async fn recv(&self) -> ShutdownSignal {
        let signal_streams = lock(&self.signal_streams).take();
        let mut streams = signal_streams.unwrap_or_default();
        if !self.take_over_from_predecessor().await {
            self.exit_tasks.has_upgrade_failed.store(true, Ordering::Relaxed);
            self.start_drain(DRAIN_KEEPALIVE, "the upgrade failed: drains", Duration::ZERO);
            return self.drain(streams).await;
        }
        systemd::warn_if_unsupported_address();
        systemd::notify_ready();
        let (reloaded, mut reloads) = unbounded_channel();
        let mut transfer = None;
        loop {
            tokio::select! {
                () = wait_for_signal(&mut streams.hangup) => {
                    systemd::notify_reloading();
                    self.spawn_reload(reloaded.clone());
                }
                // This task sends all states, so that none follows `STOPPING`.
                Some(()) = reloads.recv() => systemd::notify_ready(),
                () = wait_for_signal(&mut streams.quit), if transfer.is_none() => {
                    transfer = Some(self.begin_transfer());
                }
                is_transferred = wait_for_transfer(&mut transfer) => {
                    transfer = None;
                    if is_transferred {
                        self.start_drain_after_transfer();
                        systemd::notify_stopping();
                        return self.drain(streams).await;
                    }
                }
                () = wait_for_signal(&mut streams.interrupt) => {
                    transfer.iter().for_each(SocketTransfer::cancel);
                    return self.stop();
                }
                () = wait_for_signal(&mut streams.terminate) => break,
            }
        }
        self.start_drain(DRAIN_KEEPALIVE, "SIGTERM: drains", self.drain_delay);
        systemd::notify_stopping();
        match self.serve_during_drain_delay(&mut streams, reloaded, transfer).await {
            DelayEnd::Drain => self.drain(streams).await,
            DelayEnd::Stop => self.stop(),
        }
    }
}

/// A transfer of the sockets to a waiting successor, in a task.
struct SocketTransfer {
    is_cancelled: Arc<AtomicBool>,
    /// Returns true if the successor has taken over.
    task: JoinHandle<bool>,
}

impl SocketTransfer {
    /// Waits until the transfer ends. Returns true if the successor has taken over. After the end,
    /// nobody may wait again.
    async fn wait(&mut self) -> bool {
        (&mut self.task).await.unwrap_or(false)
    }

    /// Cancels the transfer, unless it ends in this moment.
    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }
}

/// How the process ends after `drain.delay`.
enum DelayEnd {
    Drain,
    Stop,
}

/// Waits until a transfer ends; without a transfer, for ever. See [`SocketTransfer::wait`].
async fn wait_for_transfer(transfer: &mut Option<SocketTransfer>) -> bool {
    match transfer {
        Some(transfer) => transfer.wait().await,
        None => std::future::pending().await,
    }
}

async fn wait_for_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

impl SignalHandler {
    /// Tells the predecessor that this process accepts connections, and claims the runtime
    /// directory once the predecessor has confirmed. Returns true if this process may serve.
    /// Without a predecessor, returns true at once. Returns false if the predecessor did not
    /// confirm and keeps serving.
    async fn take_over_from_predecessor(&self) -> bool {
        let predecessor = lock(&self.predecessor).take();
        let upgrade_state = Arc::clone(&self.exit_tasks.upgrade_state);
        let replaced = spawn_blocking(move || {
            let mut upgrade_state = lock(&upgrade_state);
            let (Some(predecessor), Some(runtime_dir)) = (predecessor, &upgrade_state.runtime_dir)
            else {
                return Ok(());
            };
            predecessor.confirm_accepting(runtime_dir)?;
            claim_runtime_dir_or_warn(&mut upgrade_state.runtime_dir);
            log::info!("took over");
            Ok::<(), std::io::Error>(())
        });
        match replaced.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                log::error!(
                    "the old process did not confirm the upgrade and keeps serving: {error}"
                );
                false
            }
            Err(error) => {
                log::error!("expected to take over, but found {error}");
                false
            }
        }
    }

    /// Waits for `drain.delay`, in which the process still accepts connections. So SIGHUP still
    /// reloads, and SIGQUIT still upgrades to a successor, which ends the delay. A transfer that
    /// began before the delay may still end.
    async fn serve_during_drain_delay(
        &self,
        streams: &mut SignalStreams,
        reloaded: UnboundedSender<()>,
        mut transfer: Option<SocketTransfer>,
    ) -> DelayEnd {
        let delay = tokio::time::sleep(self.drain_delay);
        tokio::pin!(delay);
        loop {
            tokio::select! {
                () = &mut delay => {
                    if let Some(transfer) = transfer {
                        self.end_transfer(transfer).await;
                    }
                    return DelayEnd::Drain;
                }
                is_transferred = wait_for_transfer(&mut transfer) => {
                    transfer = None;
                    if is_transferred {
                        self.start_drain_after_transfer();
                        return DelayEnd::Drain;
                    }
                }
                () = wait_for_signal(&mut streams.hangup) => {
                    // The delay may end before the reload begins.
                    self.exit_tasks.reopen_access_log();
                    self.spawn_reload(reloaded.clone());
                }
                () = wait_for_signal(&mut streams.quit), if transfer.is_none() => {
                    transfer = Some(self.begin_transfer());
                }
                () = wait_for_signal(&mut streams.interrupt) => {
                    transfer.iter().for_each(SocketTransfer::cancel);
                    return DelayEnd::Stop;
                }
            }
        }
    }

    /// Ends a transfer because this process is about to close its listeners.
    async fn end_transfer(&self, mut transfer: SocketTransfer) {
        transfer.cancel();
        match transfer.wait().await {
            true => self.start_drain_after_transfer(),
            // A successor may have the sockets. It then waits a second at most for the claim.
            false => lock(&self.exit_tasks.upgrade_state).release_dir(),
        }
    }

    /// Begins to transfer the sockets to a waiting successor. If no successor waits or the transfer
    /// fails, this process goes on as before.
    fn begin_transfer(&self) -> SocketTransfer {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let (upgrade_state, cancelled) =
            (Arc::clone(&self.exit_tasks.upgrade_state), Arc::clone(&is_cancelled));
        let connection_tracker = Arc::clone(&self.connection_tracker);
        let task = tokio::spawn(async move {
            let is_cancelled = move || cancelled.load(Ordering::Relaxed);
            let transferred = spawn_blocking(move || {
                lock(&upgrade_state).transfer_sockets_to_successor(&is_cancelled)
            });
            let transferred = transferred.await;
            let consequence = match connection_tracker.is_draining() {
                true => "draining on",
                false => "serving on",
            };
            match &transferred {
                Ok(Ok(())) => log::info!("a successor has taken over"),
                Ok(Err(error)) => log::warn!("SIGQUIT: {error}: {consequence}"),
                Err(error) => log::error!("SIGQUIT: {error}: {consequence}"),
            }
            matches!(transferred, Ok(Ok(())))
        });
        SocketTransfer { is_cancelled, task }
    }

    fn start_drain_after_transfer(&self) {
        self.start_drain(UPGRADE_DRAIN_KEEPALIVE, "SIGQUIT: drains", Duration::ZERO);
    }

    /// Starts the drain of the connections. Logs how many requests are left, for how long the
    /// process still accepts connections (`delay`), and how long the drain may take.
    fn start_drain(&self, keepalive: Duration, cause: &str, delay: Duration) {
        self.connection_tracker.start_drain(keepalive);
        let left = CountedNoun(self.connection_tracker.count_requests_in_flight(), "request");
        let delay = match delay {
            Duration::ZERO => String::new(),
            delay => format!("accepts connections for {delay:?} (drain.delay), "),
        };
        let grace = self.drain_grace;
        log::info!("{cause}: {delay}{left} left, ends after {grace:?} at the latest");
    }

    /// Ends the process without a drain.
    fn stop(&self) -> ShutdownSignal {
        self.exit_tasks.run();
        ShutdownSignal::FastShutdown
    }

    /// Reloads in a task, which then sends to `reloaded`.
    fn spawn_reload(&self, reloaded: UnboundedSender<()>) {
        let reload_trigger = self.reload_trigger.clone();
        tokio::spawn(async move {
            // The log, the metrics and /readyz show the outcome, so this task ignores it.
            let _ = reload_trigger.reload_and_wait().await;
            let _ = reloaded.send(());
        });
    }

    /// Stops accepting. As soon as no connection is open, or at SIGINT, a task ends the process.
    /// Without this task, Pingora would always wait for all of `drain_grace`. SIGHUP reopens the
    /// access log, to which the last requests are written; nothing reloads any more.
    async fn drain(&self, mut streams: SignalStreams) -> ShutdownSignal {
        lock(&self.exit_tasks.upgrade_state).close_duplicate_sockets();
        let (connections, exit_tasks) =
            (Arc::clone(&self.connection_tracker), Arc::clone(&self.exit_tasks));
        // At the end of the grace period, Pingora drops the connections. So riskgate counts the
        // requests that are cut a moment earlier.
        let (counted, tasks) = (Arc::clone(&connections), Arc::clone(&exit_tasks));
        let count_at = self.drain_grace.saturating_sub(CUT_REQUESTS_COUNT_LEAD);
        let end_of_grace = tokio::time::sleep(count_at);
        tokio::spawn(async move {
            end_of_grace.await;
            tasks.cut_requests.store(counted.count_requests_in_flight(), Ordering::Relaxed);
        });
        tokio::spawn(async move {
            let drained = async {
                connections.wait_until_listeners_closed().await;
                // A successor that waits binds the ports as soon as the directory is released.
                lock(&exit_tasks.upgrade_state).release_dir();
                connections.wait_until_all_connections_close().await;
            };
            tokio::pin!(drained);
            loop {
                tokio::select! {
                    () = &mut drained => break,
                    () = wait_for_signal(&mut streams.interrupt) => break,
                    () = wait_for_signal(&mut streams.hangup) => exit_tasks.reopen_access_log(),
                    () = wait_for_signal(&mut streams.quit) => {
                        log::warn!("SIGQUIT: the listeners are closed already: draining on");
                    }
                }
            }
            let tasks = Arc::clone(&exit_tasks);
            let finish = move || {
                tasks.run();
                tasks.exit_code()
            };
            let finished = spawn_blocking(finish.clone()).await;
            // At the end of the grace period, Pingora ends the runtime. Then no thread starts.
            let finish_here = |error: JoinError| if error.is_panic() { 1 } else { finish() };
            std::process::exit(finished.unwrap_or_else(finish_here));
        });
        ShutdownSignal::GracefulTerminate
    }
}
