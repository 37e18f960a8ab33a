//! Which files of `src/` import each other.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::strip_visibility;
use super::sources::SourceFile;

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
        let names: BTreeMap<(&str, &str), String> = sources
            .iter()
            .flat_map(|source| {
                let names = source.paths.by_name.iter();
                names.filter_map(|(name, path)| {
                    let path = path.strip_prefix("crate::")?;
                    Some(((source.module.as_str(), name.as_str()), path.replace("::", "/")))
                })
            })
            .collect();
        let by_module = sources.iter().map(|source| {
            let used = source.paths_below_root().filter(|_| !has_only_mod_and_use(&source.text));
            let targets = used.filter_map(|path| {
                let mut path = path.replace("::", "/");
                // Each re-export leads one folder deeper, so that four steps reach every
                // definition.
                for _ in 0..4 {
                    let (module, name) = split_module_and_name(&path, &modules)?;
                    match names.get(&(module, name)) {
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

/// Returns true if this code only declares modules and imports or re-exports their items.
fn has_only_mod_and_use(code: &str) -> bool {
    let lines = code.lines().filter(|line| !line.starts_with("#["));
    let code: String = lines.map(|line| format!("{line}\n")).collect();
    let statements = code.split_inclusive(';').map(str::trim);
    statements.filter(|text| !text.is_empty()).all(|text| {
        let item = strip_visibility(text);
        item.ends_with(';') && (item.starts_with("mod ") || item.starts_with("use "))
    })
}
