//! Tests which files the crate has, as `cargo package` packs them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tools::{project_root, run_well};
use crate::paths::normalize_path;

/// The most bytes of the packed crate. Each build of a project that mounts riskgate fetches it; two
/// thirds are the code and one third the lists. A new fuzz corpus or a screenshot would exceed it.
const MAX_PACKED_BYTES: u64 = 1_740_000;

fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--offline", "--allow-dirty"]).args(arguments);
    cargo.current_dir(project_root());
    cargo
}

fn list_package() -> BTreeSet<PathBuf> {
    run_well(&mut cargo(&["--list"])).lines().map(PathBuf::from).collect()
}

fn find_rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_rust_files(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
}

/// The files that the macros `include_str!` and `include_bytes!` name in a source file.
fn find_included_files(source: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(source).unwrap();
    let mut found = Vec::new();
    for name in ["include_str!(", "include_bytes!("] {
        for call in text.split(name).skip(1) {
            let literal = call.trim_start().strip_prefix('"').and_then(|it| it.split_once('"'));
            let (relative, _) = literal.unwrap_or_else(|| {
                panic!("{}: expected {name}\"PATH\"), but found another", source.display())
            });
            found.push(normalize_path(&source.parent().unwrap().join(relative)));
        }
    }
    found
}

#[test]
fn the_crate_has_every_file_that_its_code_includes() {
    let listed = list_package();
    let mut sources = Vec::new();
    find_rust_files(&project_root().join("src"), &mut sources);
    let mut included = 0;
    for source in sources {
        for file in find_included_files(&source) {
            included += 1;
            let file = file.strip_prefix(project_root()).unwrap().to_owned();
            assert!(
                listed.contains(&file),
                "{} includes {}, which `include` of Cargo.toml does not name",
                source.display(),
                file.display()
            );
        }
    }
    assert!(included > 30, "{included}");
}

#[test]
fn the_crate_has_its_licences_and_none_of_the_tests() {
    let listed = list_package();
    for needed in ["LICENSE-MIT", "LICENSE-APACHE", "data/LICENSES.md", "README.md", "Cargo.lock"] {
        assert!(listed.contains(Path::new(needed)), "{needed}");
    }
    let folders: BTreeSet<_> = listed
        .iter()
        .filter(|path| path.components().count() > 1)
        .map(|path| path.components().next().unwrap().as_os_str().to_str().unwrap())
        .collect();
    assert_eq!(folders, BTreeSet::from(["conf", "data", "docs", "examples", "src"]));
}

#[test]
fn the_packed_crate_is_small() {
    let target = tempfile::tempdir().unwrap();
    let options = ["--no-verify", "--target-dir", target.path().to_str().unwrap()];
    run_well(&mut cargo(&options));
    let name = format!("package/riskgate-{}.crate", env!("CARGO_PKG_VERSION"));
    let bytes = fs::metadata(target.path().join(name)).unwrap().len();
    assert!(bytes > 500_000, "{bytes}");
    assert!(bytes < MAX_PACKED_BYTES, "expected under {MAX_PACKED_BYTES} bytes, but found {bytes}");
}
