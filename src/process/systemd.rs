//! Notifies systemd (sd_notify protocol) that the process is ready, reloading, stopping or alive.
//!
//! Without a service manager, these functions do nothing. systemd sends its commands as signals, so
//! this file receives none.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use sd_notify::NotifyState;

use crate::config::Config;

/// Counts the timer ticks of all accept loops but that of the admin listener. Until shutdown,
/// riskgate notifies systemd's watchdog only while this count grows. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// Counts one tick of an accept loop's timer, which shows that the loop is not blocked.
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn beat_count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Tells systemd that the process serves, and the id of the process.
pub fn notify_ready() {
    notify(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
}

/// Logs a warning if NOTIFY_SOCKET names a socket that riskgate can't write to, such as the vsock
/// of a virtual machine's host.
pub fn warn_if_unsupported_address() {
    if let Some(other) = notify_socket_address().filter(|address| !is_supported_address(address)) {
        let expected = "NOTIFY_SOCKET: expected a path, or a name that begins with @";
        log::warn!("{expected}, but found {other:?}: the service manager is told nothing");
    }
}

/// Returns the address in NOTIFY_SOCKET, if it is set.
fn notify_socket_address() -> Option<OsString> {
    Config::env_var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())
}

/// Returns true for a path, and for an abstract name, which begins with @.
fn is_supported_address(address: &OsStr) -> bool {
    matches!(address.as_bytes(), [b'/' | b'@', ..])
}

/// Tells systemd that the process reloads its config.
pub fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Tells systemd that the process accepts no more connections and finishes those that are open.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Sends the states to systemd. Does nothing if NOTIFY_SOCKET is unset or not supported.
fn notify(states: &[NotifyState<'_>]) {
    let Some(address) = notify_socket_address().filter(|address| is_supported_address(address))
    else {
        return;
    };
    if let Err(error) = send_datagram(&address, states) {
        log::warn!("expected a service manager that listens, but found {error}");
    }
}

/// Sends one datagram without blocking, because a blocked notification would delay start or exit.
fn send_datagram(address: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}

/// The background service that notifies systemd's watchdog. While the process serves, each
/// notification after the first needs an accept loop that ran since the one before. During
/// shutdown, the service sends each notification.
pub struct WatchdogNotifier(pub Heartbeat);

#[async_trait]
impl BackgroundService for WatchdogNotifier {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let Some(interval) = sd_notify::watchdog_enabled() else { return };
        let mut last = None;
        loop {
            let beats = self.0.beat_count();
            if last.replace(beats) != Some(beats) {
                notify(&[NotifyState::Watchdog]);
            }
            tokio::select! {
                () = tokio::time::sleep(interval / 3) => {}
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
        }
        // At shutdown the accept loops end, so the heartbeat count no longer grows. From now on,
        // riskgate notifies systemd regardless of the count, because systemd's watchdog must not
        // kill the process while riskgate finishes its requests. TimeoutStopSec limits that time.
        loop {
            notify(&[NotifyState::Watchdog]);
            tokio::time::sleep(interval / 3).await;
        }
    }
}
