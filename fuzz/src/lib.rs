//! Helpers that several fuzz targets share: a scratch folder for targets that read files, and the
//! splitting of an input at its first line break. This crate asserts nothing and does not use
//! riskgate.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder in the temporary directory that only this process uses. `scripts/fuzz` chooses a
/// temporary directory in memory, and removes it after the run.
pub struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    /// Creates an empty folder.
    pub fn new(name: &str) -> ScratchFolder {
        let path = format!("riskgate-fuzz-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(path);
        let scratch = ScratchFolder { path };
        scratch.clear();
        scratch
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Empties the folder, or creates it if it is missing.
    pub fn clear(&self) {
        // The folder need not exist yet.
        let _ = fs::remove_dir_all(&self.path);
        fs::create_dir(&self.path).expect("a new folder in the scratch folder");
    }

    /// Writes a file with this content and returns its path.
    pub fn write_file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, content).expect("a writable scratch folder");
        path
    }
}

/// The text before the first line break, and the rest after the line break.
pub fn split_first_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &[]),
    }
}
