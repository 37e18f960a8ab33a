//! Tests the documents as readers use them: their links, their commands and their examples with
//! the real binary, and the site that `scripts/site` builds of them.
//!
//! `tests/project/documents.rs` compares the documents with the code, and
//! `tests/e2e/one_path/operators/cli.rs` checks what the commands print.

mod blocks;
mod book;
mod commands;
mod links;
mod markdown;
mod requests;
mod settings;
mod shell;

use std::path::Path;
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_riskgate");

fn project_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs riskgate in a directory, with the default settings unless the words name a config.
fn run_riskgate(directory: &Path, words: &[impl AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(words).current_dir(directory).env_remove("RISKGATE_CONFIG");
    command.output().unwrap_or_else(|error| panic!("{BINARY}: {error}"))
}

/// The standard error of a program, for the text of a failure.
fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
