//! Which files of `src/` import each other.

use std::collections::{BTreeMap, BTreeSet};

use super::SourceFile;

/// Which modules each module imports from. A name that a module re-exports counts as imported
/// from the module that defines it.
pub struct Imports {
    pub by_module: BTreeMap<String, BTreeSet<String>>,
}

impl Imports {
    pub fn from_sources(sources: &[SourceFile]) -> Imports {
        let modules: BTreeSet<&str> = sources.iter().map(|source| source.module.as_str()).collect();
        // By module and name: the path of each name that the module imports with `use`. Other
        // modules may import the name from this module.
        let names: BTreeMap<(&str, String), String> = sources
            .iter()
            .flat_map(|source| {
                let used = source.paths_in_use_statements().into_iter();
                used.map(|path| {
                    let name = path.rsplit("::").next().unwrap_or_default().to_owned();
                    ((source.module.as_str(), name), source.absolute_module_path(&path))
                })
            })
            .collect();
        let by_module = sources.iter().map(|source| {
            let used =
                if source.has_only_mod_and_use() { Vec::new() } else { source.all_module_paths() };
            let targets = used.iter().filter_map(|path| {
                let mut path = source.absolute_module_path(path);
                // Each re-export leads one folder deeper, so that four steps reach every definition.
                for _ in 0..4 {
                    let (module, name) = split_module_and_name(&path, &modules)?;
                    match names.get(&(module, name.to_owned())) {
                        Some(origin) if module != source.module => path = origin.clone(),
                        _ => return Some(module.to_owned()),
                    }
                }
                None
            });
            let targets = targets.filter(|module| *module != source.module);
            (source.module.clone(), targets.collect())
        });
        Imports { by_module: by_module.collect() }
    }

    /// Returns modules of which each imports the next, and the last imports the first. Empty if no
    /// modules import each other in a circle.
    pub fn find_circle(&self) -> Vec<&str> {
        let mut left: BTreeSet<&str> = self.by_module.keys().map(String::as_str).collect();
        // A module that imports none of the modules in `left` belongs to no circle.
        while let Some(done) =
            left.iter().find(|module| self.find_imported_module(module, &left).is_none())
        {
            let done = *done;
            left.remove(done);
        }
        let mut path: Vec<&str> = left.first().copied().into_iter().collect();
        while let Some(module) = path.last().and_then(|last| self.find_imported_module(last, &left))
        {
            if let Some(start) = path.iter().position(|known| *known == module) {
                return path.split_off(start);
            }
            path.push(module);
        }
        path
    }

    /// One of `modules` that `module` imports.
    fn find_imported_module<'m>(
        &self,
        module: &str,
        modules: &BTreeSet<&'m str>,
    ) -> Option<&'m str> {
        modules.iter().copied().find(|other| self.by_module[module].contains(*other))
    }
}

/// Splits a path such as `gate/route/Route` into the longest module at its start, and the name
/// after it; None if the path begins with no module.
fn split_module_and_name<'p>(
    path: &'p str,
    modules: &BTreeSet<&str>,
) -> Option<(&'p str, &'p str)> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let module = ends.rev().map(|end| &path[..end]).find(|module| modules.contains(module))?;
    let rest = path[module.len()..].trim_start_matches('/');
    Some((module, rest.split('/').next().unwrap_or_default()))
}

impl SourceFile {
    /// Returns true if this file only declares modules and imports or re-exports their items.
    fn has_only_mod_and_use(&self) -> bool {
        let statements = self.text.split_inclusive(';').map(str::trim);
        statements.filter(|text| !text.is_empty()).all(|text| {
            let public = ["pub ", "pub(crate) ", "pub(super) "];
            let text = public.iter().find_map(|word| text.strip_prefix(word)).unwrap_or(text);
            text.ends_with(';') && (text.starts_with("mod ") || text.starts_with("use "))
        })
    }

    /// The paths of all `use` statements, with groups expanded and without `as` names.
    fn paths_in_use_statements(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut lines = self.text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            let Some(("" | "pub " | "pub(crate) " | "pub(super) ", used)) = line.split_once("use ")
            else {
                continue;
            };
            let mut used = used.to_owned();
            while !used.ends_with(';') {
                used.push_str(lines.next().unwrap_or(";"));
            }
            expand_use_group("", used.trim_end_matches(';'), &mut paths);
        }
        paths
    }

    /// All paths to other modules: those of `use` statements, and those within the code.
    fn all_module_paths(&self) -> Vec<String> {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let words = self.text.split(|c: char| !is_path(c)).filter(|word| word.contains("::"));
        let words = words.map(|word| word.trim_end_matches(':').to_owned());
        self.paths_in_use_statements().into_iter().chain(words).collect()
    }

    /// The path from the root of the crate, with `/` for `::`: `gate/route/find`.
    fn absolute_module_path(&self, path: &str) -> String {
        let mut base: Vec<&str> = self.module.split('/').collect();
        let mut parts = path.split("::").peekable();
        match parts.peek().copied() {
            Some("crate" | "riskgate") => {
                base.clear();
                parts.next();
            }
            Some("self") => drop(parts.next()),
            _ => {}
        }
        while parts.next_if_eq(&"super").is_some() {
            base.pop();
        }
        base.extend(parts);
        base.join("/")
    }
}

/// Expands the groups of a `use`: `a::{b, c::d as e}` is `a::b` and `a::c::d`.
fn expand_use_group(before: &str, text: &str, paths: &mut Vec<String>) {
    let text = text.trim();
    let Some((head, group)) = text.split_once('{') else {
        let name = text.split(" as ").next().unwrap_or_default().trim_end_matches("::self");
        let path = format!("{before}{name}");
        paths.push(path.trim_end_matches("::self").to_owned());
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
                    expand_use_group(&format!("{before}{head}"), &group[start..at], paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}
