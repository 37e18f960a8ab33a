//! What several targets need: a folder of their own for what is read from files, and text out of
//! bytes. It asserts nothing and reaches into no internals.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder that only this process uses, in the system's folder for such: `scripts/fuzz` names one
/// in memory, and removes it.
pub struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    /// An empty folder.
    pub fn new(name: &str) -> ScratchFolder {
        let path = format!("riskgate-fuzz-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(path);
        let scratch = ScratchFolder { path };
        scratch.clear();
        scratch
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Empties it.
    pub fn clear(&self) {
        // Not there yet is as good.
        let _ = fs::remove_dir_all(&self.path);
        fs::create_dir(&self.path).expect("a folder of our own");
    }

    /// A file in it with this content.
    pub fn write_file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, content).expect("a file of our own");
        path
    }
}

/// The text before the first line break, and what follows it.
pub fn first_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &[]),
    }
}
