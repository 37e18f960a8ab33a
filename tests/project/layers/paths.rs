//! Reads the paths in the code of a file, and writes each of them in full.

use std::collections::BTreeMap;

/// The paths that the code of one file names. A path that leads into this crate begins with
/// `crate::`, any other path as it does in the code.
pub struct Paths {
    /// By name: the path of each name that the file imports or declares as a module.
    pub by_name: BTreeMap<String, String>,
    /// The paths of all `use` statements, with groups expanded, and the paths within the code.
    pub all: Vec<String>,
}

impl Paths {
    /// Reads the code of `module`, such as `gate/route`. The code must be formatted by rustfmt.
    pub fn from_code(module: &str, code: &str) -> Paths {
        let (imports, code) = split_use_statements(code);
        let declared = code.lines().filter_map(|line| {
            let name = strip_visibility(line.trim()).strip_prefix("mod ")?;
            let name = name.split([';', ' ']).next()?;
            Some((name.to_owned(), format!("self::{name}")))
        });
        let named = imports.iter().filter(|(name, _)| name != "_" && name != "*");
        let by_name: BTreeMap<String, String> = declared.chain(named.cloned()).collect();

        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let words = code.split(|c: char| !is_path(c)).filter(|word| word.contains("::"));
        let words = words.map(|word| word.trim_end_matches(':'));
        let used = imports.iter().map(|(_, path)| path.as_str()).chain(words);
        let all = used.map(|path| expand_path(path, module, &by_name)).collect();
        let expand = |path: &String| expand_path(path, module, &by_name);
        let by_name = by_name.iter().map(|(name, path)| (name.clone(), expand(path))).collect();
        Paths { by_name, all }
    }

    /// Returns true if the code names `item` or something below it, or if a `*` could import it.
    pub fn contain(&self, item: &str) -> bool {
        self.all.iter().any(|path| {
            let parent = path.strip_suffix("::*").filter(|parent| *parent != item);
            starts_with_path(path, item)
                || parent.is_some_and(|parent| starts_with_path(item, parent))
        })
    }
}

/// The line without `pub` or `pub(…)`.
pub fn strip_visibility(line: &str) -> &str {
    match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or("", |(_, item)| item),
        None => line.strip_prefix("pub ").unwrap_or(line),
    }
}

fn starts_with_path(path: &str, start: &str) -> bool {
    path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Splits code into the imports, each with its name and its path, and the rest of the code.
fn split_use_statements(text: &str) -> (Vec<(String, String)>, String) {
    let (mut imports, mut code) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let item = strip_visibility(line.trim());
        let used = ["use ", "extern crate "].iter().find_map(|word| item.strip_prefix(word));
        let mut used = used.unwrap_or(";").to_owned();
        while !used.ends_with(';') {
            used.push_str(lines.next().unwrap_or(";").trim());
        }
        let is_import = |c: char| c.is_alphanumeric() || "_:{}*, ;".contains(c);
        if used == ";" {
            code.push_str(line);
        } else if used.chars().all(is_import) {
            expand_use_group("", used.trim_end_matches(';'), &mut imports);
        } else {
            // A line of a text that begins with the word.
            code.push_str(&used);
        }
        code.push('\n');
    }
    (imports, code)
}

/// Expands the groups of a `use`: `a::{b, c::d as e}` is `b` with the path `a::b`, and `e` with the
/// path `a::c::d`.
fn expand_use_group(before: &str, text: &str, imports: &mut Vec<(String, String)>) {
    let text = text.trim();
    let Some((head, group)) = text.split_once('{') else {
        let (path, name) = text.split_once(" as ").unwrap_or((text, ""));
        let path = format!("{before}{path}");
        let path = path.strip_suffix("::self").unwrap_or(&path);
        let last = path.rsplit("::").next().unwrap_or_default();
        let name = if name.is_empty() { last } else { name };
        imports.push((name.to_owned(), path.to_owned()));
        return;
    };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !group[start..at].trim().is_empty() {
                    expand_use_group(&format!("{before}{head}"), &group[start..at], imports);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The full path: a name at its start is replaced by the path of that name, and `self`, `super` and
/// `riskgate` by the path from `crate`.
fn expand_path(path: &str, module: &str, by_name: &BTreeMap<String, String>) -> String {
    let mut path = path.to_owned();
    // An imported name may itself be imported from an imported module.
    for _ in 0..4 {
        let (first, rest) = path.split_at(path.find("::").unwrap_or(path.len()));
        match by_name.get(first) {
            Some(target) if !starts_with_path(target, first) => path = format!("{target}{rest}"),
            _ => break,
        }
    }
    let mut parts = path.trim_start_matches("::").split("::").peekable();
    let mut full = Vec::new();
    if parts.next_if(|part| ["crate", "riskgate"].contains(part)).is_some() {
        full.push("crate");
    } else if parts.peek().is_some_and(|part| ["self", "super"].contains(part)) {
        full.extend(["crate"].into_iter().chain(module.split('/')));
        parts.next_if_eq(&"self");
    }
    while parts.next_if_eq(&"super").is_some() {
        // The root has no parent.
        full.truncate(full.len().max(2) - 1);
    }
    full.extend(parts);
    full.join("::")
}

fn full_paths(module: &str, code: &str) -> Vec<String> {
    Paths::from_code(module, code).all
}

#[test]
fn groups_and_other_names_are_expanded() {
    let paths = |code| full_paths("store/rows", code);
    assert_eq!(paths("use crate::{config::Config as _};"), ["crate::config::Config"]);
    assert_eq!(paths("use redis as r;"), ["redis"]);
    assert_eq!(paths("extern crate redis as r;"), ["redis"]);
    assert_eq!(
        paths("pub(in crate::store) use std::{\n    fs,\n    time::{self, Instant},\n};"),
        ["std::fs", "std::time", "std::time::Instant"]
    );
    let by_name = Paths::from_code("store/rows", "use a::{b::{self as c}, d as _, *};").by_name;
    assert_eq!(by_name, BTreeMap::from([("c".to_owned(), "a::b".to_owned())]));
}

#[test]
fn paths_from_self_and_super_begin_at_the_root() {
    let paths = |code| full_paths("store/rows", code);
    assert_eq!(paths("use super::super::config::Config as _;"), ["crate::config::Config"]);
    assert_eq!(paths("use super::{url, super::Gateway};"), ["crate::store::url", "crate::Gateway"]);
    assert_eq!(paths("self::row::Row::new();"), ["crate::store::rows::row::Row::new"]);
    assert_eq!(paths("use super::super::super::dns::Dns;"), ["crate::dns::Dns"]);
    assert_eq!(paths("riskgate::cli::main()"), ["crate::cli::main"]);
}

#[test]
fn imported_names_are_replaced_in_the_code() {
    let paths = |code| full_paths("store", code);
    assert_eq!(paths("use std::env;\nenv::var(\"A\")"), ["std::env", "std::env::var"]);
    assert_eq!(
        paths("use std::{self as s};\nuse s::time::SystemTime as T;\nT::now();"),
        ["std", "std::time::SystemTime", "std::time::SystemTime::now"]
    );
    assert_eq!(paths("use crate as c;\nc::Gateway::new()"), ["crate", "crate::Gateway::new"]);
    assert_eq!(
        paths("mod redis;\npub use redis::Redis;\nfn f() -> ::redis::Client"),
        ["crate::store::redis::Redis", "redis::Client"]
    );
}

#[test]
fn a_star_contains_what_it_could_import() {
    let contains = |code, item| Paths::from_code("model/month", code).contain(item);
    assert!(contains("use std::*;", "std::fs"));
    assert!(contains("use std::time::*;", "std::time::SystemTime::now"));
    assert!(!contains("use std::fmt::*;", "std::fs"));
    assert!(contains("use redis::*;", "redis"));
    assert!(!contains("use redis_tools::Redis;", "redis"));
}

#[test]
fn text_that_begins_with_use_is_no_import() {
    let code = "let text = \"the list \\\n    use (or not)\";\nredis::open();";
    assert_eq!(full_paths("model/month", code), ["redis::open"]);
}
