//! Signals, and the end of the process: Pingora's own would stop accepting at once and then sleep
//! blindly, and knows nothing of SIGHUP.
//!
//! SIGHUP reloads, SIGTERM drains, SIGINT stops, SIGQUIT hands over to a successor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

use super::exit::{End, claim, lock};
use crate::downstream::Traffic;
use crate::process::reload::Trigger;
use crate::process::systemd;
use crate::process::upgrade::Predecessor;

/// How long after its last answer a connection counts as busy when the process ends: its next
/// request may be under way.
const LAST_CALL: Duration = Duration::from_millis(250);
/// The same when a successor serves: nothing else waits for this process to end.
const LAST_CALL_IN_PEACE: Duration = Duration::from_secs(10);

/// From now on SIGHUP ends nothing: until this process serves there is nothing to reload, and
/// what changes meanwhile is seen then.
pub(super) fn outlive_hangup() {
    // What listens for it first stays in place for as long as the process lives.
    drop(hear(&[SignalKind::hangup()]));
}

/// What was heard since it was listened for.
#[derive(Default)]
pub(super) struct Heard {
    hangup: Option<Signal>,
    quit: Option<Signal>,
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

/// From now on the signals are ours: one that comes before this process serves is heard then.
pub(super) fn heed() -> Heard {
    let kinds = [
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::interrupt(),
    ];
    let mut heard = hear(&kinds).into_iter();
    let mut next = || heard.next().flatten();
    Heard { hangup: next(), quit: next(), terminate: next(), interrupt: next() }
}

/// Listens in a runtime of its own, which is gone then: whichever runs later brings what comes.
fn hear(kinds: &[SignalKind]) -> Vec<Option<Signal>> {
    let warn = |error| log::warn!("a signal will end the process as it always does: {error}");
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

/// Our own signals.
pub(super) struct Signals {
    pub traffic: Arc<Traffic>,
    pub trigger: Trigger,
    pub end: Arc<End>,
    pub delay: Duration,
    /// The process that serves until this one does.
    pub predecessor: Mutex<Option<Predecessor>>,
    /// Signals since this process became one to be found.
    pub heard: Mutex<Option<Heard>>,
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Heard { mut hangup, mut quit, mut terminate, mut interrupt } =
            heard.unwrap_or_default();
        if !self.take_over().await {
            self.traffic.drain(LAST_CALL);
            return self.drain(interrupt, 1).await;
        }
        systemd::check();
        systemd::ready();
        loop {
            tokio::select! {
                () = next(&mut hangup) => self.reload(),
                () = next(&mut quit) => {
                    let gives_up = Arc::new(AtomicBool::new(false));
                    let handed = self.hand_over(Arc::clone(&gives_up));
                    tokio::pin!(handed);
                    let (handed, terminated) = tokio::select! {
                        handed = &mut handed => (handed, false),
                        () = next(&mut terminate) => {
                            gives_up.store(true, Ordering::Relaxed);
                            (handed.await, true)
                        }
                    };
                    if handed {
                        self.traffic.drain(LAST_CALL_IN_PEACE);
                        systemd::stopping();
                        return self.drain(interrupt, 0).await;
                    }
                    if terminated {
                        break;
                    }
                },
                () = next(&mut interrupt) => {
                    self.end.now();
                    return ShutdownSignal::FastShutdown;
                }
                () = next(&mut terminate) => break,
            }
        }
        self.traffic.drain(LAST_CALL);
        systemd::stopping();
        tokio::select! {
            () = tokio::time::sleep(self.delay) => {}
            () = next(&mut interrupt) => {
                self.end.now();
                return ShutdownSignal::FastShutdown;
            }
        }
        self.drain(interrupt, 0).await
    }
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

impl Signals {
    /// Tells the predecessor, if there is one, that this process accepts; `false` if it serves on.
    async fn take_over(&self) -> bool {
        let predecessor = self.predecessor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let post = Arc::clone(&self.end.post);
        let taken = spawn_blocking(move || {
            let mut post = lock(&post);
            let (Some(predecessor), Some(folder)) = (predecessor, &post.folder) else {
                return Ok(());
            };
            predecessor.accepting(folder)?;
            claim(&mut post.folder);
            log::info!("took over");
            Ok::<(), std::io::Error>(())
        });
        match taken.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                log::error!("the process that served did not say goodbye and serves on: {error}");
                false
            }
            Err(error) => {
                log::error!("expected to take over, but found {error}");
                false
            }
        }
    }

    /// Gives the sockets to a successor; `false` if there is none, or it failed, and we serve on.
    async fn hand_over(&self, gives_up: Arc<AtomicBool>) -> bool {
        let post = Arc::clone(&self.end.post);
        let gives_up = move || gives_up.load(Ordering::Relaxed);
        match spawn_blocking(move || lock(&post).hand_over(&gives_up)).await {
            Ok(Ok(())) => {
                log::info!("handed over to a successor");
                true
            }
            Ok(Err(error)) => {
                log::warn!("SIGQUIT: {error}: serving on");
                false
            }
            Err(error) => {
                log::error!("SIGQUIT: {error}: serving on");
                false
            }
        }
    }

    fn reload(&self) {
        let trigger = self.trigger.clone();
        tokio::spawn(async move {
            systemd::reloading();
            // How it went is in the log, in metrics and on /readyz.
            let _ = trigger.and_wait().await;
            systemd::ready();
        });
    }

    /// Stops accepting, and ends the process as soon as nothing is in flight: Pingora's grace is
    /// a blind sleep.
    async fn drain(&self, mut interrupt: Option<Signal>, code: i32) -> ShutdownSignal {
        lock(&self.end.post).leave();
        let (traffic, end) = (Arc::clone(&self.traffic), Arc::clone(&self.end));
        tokio::spawn(async move {
            let drained = async {
                traffic.closed().await;
                traffic.finished().await;
            };
            tokio::select! {
                () = drained => {}
                () = next(&mut interrupt) => {}
            }
            let last_words = spawn_blocking(move || end.now()).await;
            std::process::exit(if last_words.is_err() { 1 } else { code });
        });
        ShutdownSignal::GracefulTerminate
    }
}
