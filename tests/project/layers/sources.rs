//! Reads the files of `src/` without their tests and comments.

use std::fs;
use std::path::{Path, PathBuf};

use super::paths::Paths;

/// One file of `src/` without its tests and comments.
pub struct SourceFile {
    /// Its path below `src/` without `.rs`: `gate/route/upstream_route`.
    pub module: String,
    pub text: String,
    pub paths: Paths,
}

impl SourceFile {
    pub fn folder(&self) -> &str {
        self.module.split('/').next().unwrap()
    }

    /// Returns true if this module is one of `modules`, or lies below one of them.
    pub fn is_within_modules(&self, modules: &[&str]) -> bool {
        modules.iter().any(|module| {
            self.module
                .strip_prefix(module)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// What follows `crate::` in each path into this crate: `gate::route::Route`.
    pub fn paths_below_root(&self) -> impl Iterator<Item = &str> {
        self.paths.all.iter().filter_map(|path| path.strip_prefix("crate::"))
    }
}

/// Every file of `src/` except `lib.rs` and the tests.
pub fn read_source_files() -> Vec<SourceFile> {
    let src = project_root().join("src");
    let mut sources = Vec::new();
    for path in find_rust_files("src") {
        let relative = path.strip_prefix(&src).unwrap().with_extension("");
        let module = relative.to_str().unwrap().to_owned();
        let is_test = module.split('/').any(|part| part == "tests");
        if module != "lib" && !is_test {
            let text = strip_tests_and_comments(&fs::read_to_string(&path).unwrap());
            let paths = Paths::from_code(&module, &text);
            sources.push(SourceFile { module, text, paths });
        }
    }
    assert!(sources.len() > 100, "expected the files of src/, but found {}", sources.len());
    sources
}

pub fn find_rust_files(folder: &str) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![project_root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                files.push(path);
            }
        }
    }
    files
}

pub fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Removes comment lines and the module `tests`, and keeps the code after that module.
fn strip_tests_and_comments(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//")).peekable();
    while let Some(line) = lines.next() {
        let is_tests = |next: &&str| ["mod tests;", "mod tests {"].contains(next);
        match lines.next_if(|next| line == "#[cfg(test)]" && is_tests(next)) {
            Some("mod tests {") => drop(lines.find(|line| *line == "}")),
            Some(_) => {}
            None => code.extend([line, "\n"]),
        }
    }
    code
}

#[test]
fn code_after_the_tests_is_kept() {
    let strip = strip_tests_and_comments;
    let declared = "mod a;\n#[cfg(test)]\nmod tests;\n\nuse b::C;\n";
    assert_eq!(strip(declared), "mod a;\n\nuse b::C;\n");
    let inline = "// A\nuse a::B;\n#[cfg(test)]\nmod tests {\n    fn c() {\n    }\n}\nuse d::E;\n";
    assert_eq!(strip(inline), "use a::B;\nuse d::E;\n");
    let helper = "#[cfg(test)]\nmod sabotage;\n";
    assert_eq!(strip(helper), helper);
}
