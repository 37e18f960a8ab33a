//! Directories in which a command prepares a file before it moves the file into place.
//!
//! Each directory has a name of its own, so that processes that run at the same time don't touch
//! each other's files. A lock shows that the process of a directory still runs. riskgate removes
//! what a killed process left behind.

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
    /// `prefix`. Removes the directories with this prefix whose processes have ended.
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
        // What can't be removed now is removed when the next directory is created.
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
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_an_ended_process_is_removed_and_one_in_use_stays() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join("work-0");
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join("half"), "a").unwrap();
        fs::write(parent.path().join("work-file"), "a").unwrap();
        let first = WorkDir::create_in(parent.path(), "work-").unwrap();
        assert!(!abandoned.exists());
        let second = WorkDir::create_in(parent.path(), "work-").unwrap();
        assert!(first.path().exists() && second.path().exists());
        assert!(parent.path().join("work-file").exists());
        let (one, other) = (first.path().to_owned(), second.path().to_owned());
        drop((first, second));
        assert!(!one.exists() && !other.exists());
    }

    #[test]
    fn threads_can_create_directories_at_once() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let work = WorkDir::create_in(parent.path(), "work-").unwrap();
                        fs::write(work.path().join("file"), "a").unwrap();
                        assert!(work.path().join("file").exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
