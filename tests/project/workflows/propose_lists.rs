//! Tests `scripts/data-tools/propose-lists --open` with a repository on disk in place of that on
//! GitHub, and a stand-in for gh that writes its arguments to a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::tools::{Ran, project_root, run, run_git};

/// `gh pr list` prints the number in the file `open`, if there is one.
const GH: &str = "#!/bin/sh\nset -e\ncd \"$(dirname \"$0\")\"\necho \"$*\" >>asked\n\
    if [ \"$1 $2\" = 'pr list' ] && [ -e open ]; then cat open; fi\n";

struct Repository {
    folder: TempDir,
}

impl Repository {
    /// A checkout of a repository whose main branch has one list and two scripts.
    fn create() -> Repository {
        let repository = Repository { folder: tempfile::tempdir().unwrap() };
        run_git(repository.folder.path(), &["init", "--quiet", "--bare", "origin"]);
        run_git(repository.folder.path(), &["clone", "--quiet", "origin", "checkout"]);
        let checkout = repository.checkout();
        for folder in ["data", "scripts/data-tools", ".github/workflows", "target/lists"] {
            fs::create_dir_all(checkout.join(folder)).unwrap();
        }
        fs::write(checkout.join(".gitignore"), "/target\n").unwrap();
        fs::write(checkout.join("data/free.txt"), "one.example\n").unwrap();
        fs::write(checkout.join("scripts/data-tools/refresh-data"), "new\nPin(\"1.0.1\")\n")
            .unwrap();
        fs::write(checkout.join(".github/workflows/test.yml"), "jobs\n").unwrap();
        let script = "scripts/data-tools/propose-lists";
        fs::copy(project_root().join(script), checkout.join(script)).unwrap();
        run_git(&checkout, &["checkout", "--quiet", "-b", "main"]);
        run_git(&checkout, &["add", "."]);
        run_git(&checkout, &["commit", "--quiet", "--message", "First"]);
        run_git(&checkout, &["push", "--quiet", "origin", "main"]);
        let gh = repository.folder.path().join("gh");
        fs::write(&gh, GH).unwrap();
        fs::set_permissions(&gh, fs::Permissions::from_mode(0o755)).unwrap();
        repository
    }

    fn checkout(&self) -> PathBuf {
        self.folder.path().join("checkout")
    }

    /// Writes a proposal that replaces the text of `files`, and the version that the script names.
    fn propose(&self, files: &[&str]) {
        let checkout = self.checkout();
        for file in files {
            let text = match *file {
                "scripts/data-tools/refresh-data" => "new\nPin(\"1.0.2\")\n",
                _ => "new\n",
            };
            fs::write(checkout.join(file), text).unwrap();
        }
        self.write_proposal();
    }

    /// Makes a proposal of the changes in the checkout.
    fn write_proposal(&self) {
        let checkout = self.checkout();
        let patch = run_git(&checkout, &["diff"]);
        run_git(&checkout, &["checkout", "--quiet", "."]);
        fs::write(checkout.join("target/lists/lists.patch"), patch + "\n").unwrap();
        fs::write(checkout.join("target/lists/text.md"), "The text.\n").unwrap();
    }

    fn open(&self) -> Ran {
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        let script = self.checkout().join("scripts/data-tools/propose-lists");
        run(Command::new(script).arg("--open").env("PATH", path))
    }

    /// The arguments of each call of gh.
    fn asked(&self) -> String {
        fs::read_to_string(self.folder.path().join("asked")).unwrap_or_default()
    }

    /// The files that differ between the main branch and the pushed one.
    fn pushed_files(&self) -> String {
        let origin = self.folder.path().join("origin");
        run_git(&origin, &["diff", "--name-only", "main", "refresh-lists"])
    }
}

#[test]
fn a_proposal_becomes_a_branch_with_a_pull_request_and_tests() {
    let repository = Repository::create();
    repository.propose(&["data/free.txt", "scripts/data-tools/refresh-data"]);
    let ran = repository.open();
    assert!(ran.is_success, "{}", ran.errors);
    assert_eq!(repository.pushed_files(), "data/free.txt\nscripts/data-tools/refresh-data");
    let asked = repository.asked();
    assert!(asked.contains("pr create --head refresh-lists --title Refresh the lists"), "{asked}");
    assert!(asked.contains("target/lists/text.md"), "{asked}");
    assert!(asked.ends_with("workflow run test.yml --ref refresh-lists\n"), "{asked}");
}

#[test]
fn a_newer_proposal_replaces_that_of_the_open_pull_request() {
    let repository = Repository::create();
    repository.propose(&["data/free.txt", "scripts/data-tools/refresh-data"]);
    assert!(repository.open().is_success);
    fs::write(repository.folder.path().join("open"), "7\n").unwrap();
    run_git(&repository.checkout(), &["reset", "--quiet", "--hard", "origin/main"]);
    repository.propose(&["data/free.txt"]);
    let ran = repository.open();
    assert!(ran.is_success, "{}", ran.errors);
    assert_eq!(repository.pushed_files(), "data/free.txt");
    let asked = repository.asked();
    assert!(asked.contains("pr edit 7 --body-file "), "{asked}");
    assert_eq!(asked.matches("pr create").count(), 1, "{asked}");
}

#[test]
fn a_proposal_that_changes_other_files_is_refused() {
    let repository = Repository::create();
    repository.propose(&["data/free.txt", ".github/workflows/test.yml"]);
    let ran = repository.open();
    assert!(!ran.is_success);
    assert!(ran.errors.contains("but found .github/workflows/test.yml"), "{}", ran.errors);
    assert_eq!(repository.asked(), "");
    assert_eq!(run_git(&repository.folder.path().join("origin"), &["branch"]), "* main");
}

#[test]
fn a_proposal_that_changes_code_is_refused() {
    for text in ["new\nPin(\"1.0.2\"); evil()\n", "evil()\nPin(\"1.0.1\")\n", "Pin(\"1.0.1\")\n"] {
        let repository = Repository::create();
        fs::write(repository.checkout().join("scripts/data-tools/refresh-data"), text).unwrap();
        repository.write_proposal();
        let ran = repository.open();
        assert!(!ran.is_success && ran.errors.contains("but found other code"), "{}", ran.errors);
        assert_eq!(repository.asked(), "");
    }
}

#[test]
fn without_a_proposal_nothing_is_opened() {
    let repository = Repository::create();
    let ran = repository.open();
    assert!(ran.is_success && ran.output.contains("nothing is opened"), "{}", ran.errors);
    assert_eq!(repository.asked(), "");
}
