//! Tests check-version and release-notes of scripts/release-tools on copies of the files that they
//! read.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::tools::{Ran, project_root, run, run_git, run_well};

/// Files that repeat the version.
pub const VERSIONED_FILES: [&str; 6] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "contrib/helm/riskgate/Chart.yaml",
    "docs/openapi.yaml",
    "fuzz/Cargo.lock",
];

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// A repository with copies of the scripts and of all files with the version.
pub fn copy_files() -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in VERSIONED_FILES
        .into_iter()
        .chain(["scripts/release-tools/check-version", "scripts/release-tools/release-notes"])
    {
        let to = copy.path().join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(project_root().join(name), to).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    run_git(copy.path(), &["init", "--quiet"]);
    copy
}

fn replace_in_file(file: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(old), "{}: expected {old}", file.display());
    fs::write(file, text.replacen(old, new, 1)).unwrap();
}

fn run_script(folder: &Path, script: &str, arguments: &[&str]) -> Ran {
    run(Command::new(folder.join("scripts/release-tools").join(script)).args(arguments))
}

#[test]
fn all_files_of_the_project_have_the_same_version() {
    let ran = run_script(project_root(), "check-version", &[]);
    assert!(ran.is_success, "{}", ran.errors);
    assert_eq!(run_script(project_root(), "check-version", &["--print"]).output.trim(), version());
}

#[test]
fn a_file_with_another_version_is_reported_with_its_line() {
    let version = version();
    for (name, old, new) in [
        ("Cargo.lock", format!("\nname = \"riskgate\"\nversion = \"{version}\""), "9.8.7"),
        ("fuzz/Cargo.lock", format!("\nname = \"riskgate\"\nversion = \"{version}\""), "9.8.7"),
        ("docs/openapi.yaml", format!("\n  version: {version}"), "9.8.7"),
        ("contrib/helm/riskgate/Chart.yaml", format!("\nappVersion: \"{version}\""), "9.8.7"),
        ("CHANGELOG.md", format!("\n## [{version}] - "), "9.8.7"),
    ] {
        let copy = copy_files();
        let before = run_script(copy.path(), "check-version", &[]);
        assert!(before.is_success, "{}", before.errors);
        replace_in_file(&copy.path().join(name), &old, &old.replace(version, new));
        let ran = run_script(copy.path(), "check-version", &[]);
        let expected = format!("expected the version {version}, but found 9.8.7");
        assert!(!ran.is_success, "{name}");
        assert!(ran.errors.contains(&format!("check-version: {name}:")), "{}", ran.errors);
        assert!(ran.errors.contains(&expected), "{}", ran.errors);
    }
}

#[test]
fn a_document_that_names_files_of_another_version_is_reported() {
    let copy = copy_files();
    for (name, mention) in [
        ("deb.md", "riskgate_9.8.7_amd64.deb"),
        ("image.md", "ghcr.io/riskgate/riskgate:9.8.7"),
        ("release.md", "releases/download/v9.8.7/SHA256SUMS"),
    ] {
        fs::write(copy.path().join(name), format!("Two lines.\nSee {mention}.\n")).unwrap();
    }
    let ran = run_script(copy.path(), "check-version", &[]);
    for name in ["deb.md:2:", "image.md:2:", "release.md:2:"] {
        assert!(ran.errors.contains(name), "{}", ran.errors);
    }
}

#[test]
fn the_changelog_has_links_for_the_version_and_for_what_comes_after() {
    for link in ["[Unreleased]: ", &format!("[{}]: ", version())] {
        let copy = copy_files();
        replace_in_file(&copy.path().join("CHANGELOG.md"), &format!("\n{link}"), "\n[x]: ");
        assert!(!run_script(copy.path(), "check-version", &[]).is_success, "{link}");
    }
}

#[test]
fn only_the_tag_of_the_version_passes() {
    let good = format!("v{}", version());
    assert!(run_script(project_root(), "check-version", &[&good]).is_success);
    let longer = format!("{good}1");
    for wrong in [version(), "v9.8.7", longer.as_str(), "v", "", "V0.1.0", "v0.1.0 v9.8.7"] {
        let ran = run_script(project_root(), "check-version", &[wrong]);
        assert!(!ran.is_success && ran.errors.contains("the tag: expected v"), "{wrong}");
    }
}

#[test]
fn the_notes_of_a_release_are_its_section_of_the_changelog() {
    let copy = copy_files();
    let changelog = "# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [0.2.0] - 2027-01-02\n\n\
        ### Added\n\n- The first item goes\n  on ([how](docs/table.md), \
        [who](https://example.com)).\n- The second.\n\nA paragraph\nof two lines.\n\n\
        ## [0.1.0] - 2026-11-26\n\nThe first.\n\n\
        [0.2.0]: https://example.com/0.2.0\n";
    fs::write(copy.path().join("CHANGELOG.md"), changelog).unwrap();
    let notes = |version: &str| run_script(copy.path(), "release-notes", &[version]);
    assert_eq!(
        notes("0.2.0").output,
        "### Added\n\n- The first item goes on \
         ([how](https://github.com/riskgate/riskgate/blob/v0.2.0/docs/table.md), \
         [who](https://example.com)).\n- The second.\n\nA paragraph of two lines.\n"
    );
    assert_eq!(notes("0.1.0").output, "The first.\n");
    for missing in ["0.3.0", "0.2", "Unreleased", ""] {
        assert!(!notes(missing).is_success, "{missing}");
    }
}

#[test]
fn the_changelog_has_notes_for_this_version() {
    let notes = run_well(
        Command::new(project_root().join("scripts/release-tools/release-notes")).arg(version()),
    );
    assert!(notes.contains("### Added"), "{notes}");
    // GitHub refuses a longer text.
    assert!(notes.len() < 125_000);
}
