//! Directories in which a command prepares a file before it moves the file into place.
//!
//! Each directory has a name of its own, so that processes that run at the same time don't touch
//! each other's files. A lock shows that the process of a directory still runs. On a file system
//! with locks, the next process removes what a killed process left behind.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory that only its owner can read; removed with all that is in it when dropped.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    /// Locked while this process works in the directory.
    _lock: File,
}

impl WorkDir {
    /// Creates a directory with a random name in `parent`, which must exist. The name begins with
    /// `prefix`. Removes the directories with this prefix that nobody has locked.
    pub fn create_in(parent: &Path, prefix: &str) -> io::Result<WorkDir> {
        remove_abandoned(parent, prefix);
        loop {
            let random = RandomState::new().build_hasher().finish();
            let path = parent.join(format!("{prefix}{random:016x}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                outcome => outcome?,
            }
            // Before the directory is locked, another process may take it for an abandoned one.
            match File::open(&path) {
                Ok(lock) if lock_if_free(&lock) && is_still_at(&lock, &path) => {
                    return Ok(WorkDir { path, _lock: lock });
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // The creation of the next directory tries to remove what can't be removed now.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns false if another process has the lock. A file system without locks counts as free.
fn lock_if_free(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(found)) => (open.dev(), open.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

fn remove_abandoned(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_work_dir = entry.file_name().to_string_lossy().starts_with(prefix)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_work_dir
            && let Ok(lock) = File::open(entry.path())
            && lock.try_lock().is_ok()
        {
            // What can't be removed does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
