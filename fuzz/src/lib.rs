//! What must hold for any bytes. Each module is a fuzz target: its `check_input` panics if an input
//! breaks a promise.
//!
//! The programs in `fuzz_targets/` let libFuzzer search for such inputs (`scripts/fuzz`).
//! `tests/fuzz.rs` compiles the same modules, and tries the seeds and random changes of them.

pub mod authorization;
pub mod config;
pub mod domain;
pub mod fast_path;
pub mod form_body;
pub mod http2_request;
pub mod key_file;
pub mod origin_pattern;
pub mod preamble;
pub mod request_chunks;
pub mod request_head;
pub mod request_target;
pub mod table_file;
pub mod table_lists;
pub mod upstream_response;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

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

/// The folders that this process created.
static CREATED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the folders of all targets that ran in this process; no target may run later.
pub fn remove_scratch_folders() {
    for path in CREATED.lock().expect("a list of folders").drain(..) {
        let _ = fs::remove_dir_all(path);
    }
}

/// A folder in the temporary directory that only this process uses. `scripts/fuzz` and
/// `tests/fuzz.rs` remove it after the run.
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
        CREATED.lock().expect("a list of folders").push(scratch.path.clone());
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
