//! Finds and runs the tools of these tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a finished command printed.
pub struct Ran {
    pub is_success: bool,
    pub output: String,
    pub errors: String,
}

pub fn project_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The path of a tool below target/tools, where scripts/setup installs it. If the tool is not
/// there: its name, to be found in PATH.
pub fn find_tool(path: &str) -> PathBuf {
    let installed = project_root().join("target/tools").join(path);
    if installed.exists() {
        return installed;
    }
    PathBuf::from(Path::new(path).file_name().unwrap())
}

/// Runs a command to its end. Panics if the program is missing.
pub fn run(command: &mut Command) -> Ran {
    let ended = command.output().unwrap_or_else(|e| {
        let program = command.get_program().to_string_lossy();
        panic!("{program}: {e}; scripts/setup --tests installs it")
    });
    Ran {
        is_success: ended.status.success(),
        output: String::from_utf8(ended.stdout).unwrap(),
        errors: String::from_utf8(ended.stderr).unwrap(),
    }
}

/// Runs a command that must succeed, and returns its output without spaces at the ends.
pub fn run_well(command: &mut Command) -> String {
    let ran = run(command);
    assert!(ran.is_success, "{command:?}: {}{}", ran.output, ran.errors);
    ran.output.trim().to_owned()
}

/// Runs git in a folder, without the settings of this user.
pub fn run_git(folder: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=Test", "-c", "user.email=test@example.com"]);
    git.args(["-c", "init.defaultBranch=main", "-c", "commit.gpgSign=false"]);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    run_well(git.args(arguments).current_dir(folder))
}
