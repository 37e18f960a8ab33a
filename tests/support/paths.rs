//! Paths of the project.

use std::path::{Component, Path, PathBuf};

/// Resolves `.` and `..` without looking at the file system.
pub fn normalize_path(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}
