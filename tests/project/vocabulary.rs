//! Asserts that the project uses the terms of its field (Rust, HTTP, Prometheus), and not words of
//! its own for the same things.
//!
//! The test splits identifiers into words, so `PurseGuard`, `purse_guard` and "a purse" all fail.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that are not used, and the terms that are used instead.
const REPLACED_WORDS: [(&str, &str); 37] = [
    ("anew", "again"),
    ("astray", "sync error"),
    ("blind", "unbacked"),
    ("books", "accounting"),
    ("breath", "backoff"),
    ("crossing", "forwarding, proxied request"),
    ("crossings", "forwarding, proxied requests"),
    ("door", "downstream"),
    ("doors", "downstream"),
    ("farewell", "final report"),
    ("gave back", "refunded"),
    ("general way", "Pingora path"),
    ("give back", "refund"),
    ("given back", "refunded"),
    ("gives back", "refunds"),
    ("giving back", "refunding"),
    ("greeting", "preamble"),
    ("hand over", "upgrade, transfer"),
    ("handed over", "upgraded, transferred"),
    ("handover", "upgrade"),
    ("hands over", "upgrades, transfers"),
    ("heed", "handle"),
    ("knock", "probe"),
    ("lane", "fast path"),
    ("onward", "upstream"),
    ("passage", "proxy context"),
    ("pulse", "probe"),
    ("purse", "lease"),
    ("purses", "leases"),
    ("rooms", "modules"),
    ("saying", "outgoing"),
    ("shelf", "pool"),
    ("standing", "grant"),
    ("supervisor", "service manager"),
    ("troubles", "faults"),
    ("unwell", "store error"),
    ("verbs", "operations"),
];

/// The files and directories with text that people maintain.
const CHECKED_PATHS: [&str; 27] = [
    ".cargo",
    ".ci",
    ".github",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "README.md",
    "SECURITY.md",
    ".config",
    "benches",
    "clippy.toml",
    "conf",
    "contrib",
    "data/LICENSES.md",
    "data/README.md",
    "data/manifest.toml",
    "data/sources.toml",
    "deny.toml",
    "docs",
    "examples",
    "fuzz",
    "packaging",
    "scripts",
    "site",
    "src",
    "tests",
];

/// Parts of the paths of files that are not checked: data, build output, lock files, and this file.
const UNCHECKED_PATH_PARTS: [&str; 6] =
    ["/corpus/", "/seeds/", "/target/", "tests/data/", "tests/project/vocabulary.rs", ".lock"];

fn collect_files(path: &Path, files: &mut Vec<PathBuf>) {
    if UNCHECKED_PATH_PARTS.iter().any(|part| format!("{}/", path.display()).contains(part))
        || UNCHECKED_PATH_PARTS.iter().any(|end| path.display().to_string().ends_with(end))
    {
        return;
    }
    match fs::read_dir(path) {
        Ok(entries) => entries.for_each(|entry| collect_files(&entry.unwrap().path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}

/// The words of a line in lower case, each between two spaces.
fn split_words(line: &str) -> String {
    let mut words = String::from(" ");
    let mut was_lower = false;
    for char in line.chars() {
        if char.is_ascii_uppercase() && was_lower {
            words.push(' ');
        }
        was_lower = char.is_ascii_lowercase() || char.is_ascii_digit();
        match char.is_ascii_alphabetic() {
            true => words.push(char.to_ascii_lowercase()),
            false if words.ends_with(' ') => {}
            false => words.push(' '),
        }
    }
    words + " "
}

/// One fault for each line with a word of `REPLACED_WORDS`.
fn find_replaced_words(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words = split_words(line);
        for (word, term) in REPLACED_WORDS {
            if words.contains(&format!(" {word} ")) {
                faults.push(format!("{path}:{}: expected `{term}`, found `{word}`", index + 1));
            }
        }
    }
    faults
}

#[test]
fn the_project_uses_the_terms_of_its_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for name in CHECKED_PATHS {
        let path = root.join(name);
        assert!(path.exists(), "{name}: expected this file or directory");
        collect_files(&path, &mut files);
    }
    assert!(files.len() > 400, "expected the project's files, found {}", files.len());
    let mut faults = Vec::new();
    for path in &files {
        // Compiled tables and other binary files are no text.
        let Ok(text) = fs::read_to_string(path) else { continue };
        let name = path.strip_prefix(root).unwrap().display().to_string();
        faults.extend(find_replaced_words(&name, &text));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn replaced_words_are_found_in_text_and_in_identifiers() {
    for line in ["the purse is empty", "struct PurseGuard", "let purse_guard = 1;", "Give back!"] {
        assert_eq!(find_replaced_words("file", line).len(), 1, "{line}");
    }
    for line in ["purser", "planes", "understanding", "give it back"] {
        assert!(find_replaced_words("file", line).is_empty(), "{line}");
    }
}
