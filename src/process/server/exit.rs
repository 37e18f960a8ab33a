//! What is done when the process ends, and what it hands to a successor.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gate::Gate;
use crate::observe::process_log::ErrorLog;
use crate::process::upgrade::Folder;

/// What happens when the process ends in order.
pub type AtEnd = Box<dyn FnOnce() + Send>;

/// The last things, done once however the process ends.
pub(super) struct End {
    pub gate: Gate,
    pub at_end: Mutex<Option<AtEnd>>,
    pub post: Arc<Mutex<Post>>,
    pub error_log: Arc<ErrorLog>,
}

impl End {
    pub fn now(&self) {
        self.gate.close();
        lock(&self.post).leave();
        let at_end = self.at_end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(at_end) = at_end {
            at_end();
        }
        self.error_log.flush();
    }
}

/// What one process has that serves, and its successor takes over.
pub(super) struct Post {
    pub folder: Option<Folder>,
    /// Duplicates of the sockets that are accepted on, by name.
    pub sockets: Vec<(String, TcpListener)>,
}

/// Writes down that this process serves, so that a successor finds it.
pub(super) fn claim(folder: &mut Option<Folder>) {
    let Some(folder) = folder else { return };
    match folder.claim() {
        Ok(true) => {}
        Ok(false) => log::warn!(
            "another process serves from the same process.folder: no hand-over from this one"
        ),
        Err(error) => log::warn!("process.folder: no hand-over, since {error}"),
    }
}

impl Post {
    pub fn hand_over(&mut self, gives_up: &dyn Fn() -> bool) -> std::io::Result<()> {
        let no_folder = || std::io::Error::other("no process.folder, so no successor");
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
        self.folder.as_mut().ok_or_else(no_folder)?.hand_over(&named, gives_up)
    }

    /// Closes what would keep the sockets open when nobody accepts on them any more.
    pub fn leave(&mut self) {
        self.sockets.clear();
        if let Some(folder) = &mut self.folder {
            folder.release();
        }
    }
}

pub(super) fn lock(post: &Mutex<Post>) -> MutexGuard<'_, Post> {
    post.lock().unwrap_or_else(PoisonError::into_inner)
}
