//! Helpers that several fuzz targets share: a scratch folder for targets that read files, the
//! splitting of an input at its first line break, and limits of requests. This crate asserts nothing.

use std::fs;
use std::path::{Path, PathBuf};

use riskgate::message::request_head::RequestLimits;

/// The limits of requests that a config has by default.
pub const DEFAULT_LIMITS: RequestLimits = RequestLimits {
    header_bytes: 16_384,
    header_fields: 64,
    target_bytes: 2_048,
    body_bytes: 1 << 20,
    authz_path: None,
};
/// Limits that short inputs reach.
pub const SMALL_LIMITS: RequestLimits = RequestLimits {
    header_bytes: 512,
    header_fields: 8,
    target_bytes: 64,
    body_bytes: 100,
    authz_path: None,
};

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
