//! Which messages the process log takes: a level for riskgate, and levels for single modules.

use std::str::FromStr;

use log::LevelFilter;

/// The level of riskgate's own modules, unless the config sets another.
const DEFAULT_OWN_LEVEL: LevelFilter = LevelFilter::Info;
/// The level of a module of another crate, unless the config names the module or one around it.
const DEFAULT_LEVEL_OF_OTHERS: LevelFilter = LevelFilter::Warn;

/// The levels of the process log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevels {
    own: LevelFilter,
    /// The levels of single modules, the longest name first.
    modules: Vec<(String, LevelFilter)>,
}

impl Default for LogLevels {
    fn default() -> LogLevels {
        LogLevels { own: DEFAULT_OWN_LEVEL, modules: Vec::new() }
    }
}

fn is_name_of_module(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl LogLevels {
    /// Parses a level for riskgate's own modules, and levels for single modules, with commas
    /// between them: `info`, `warn,riskgate::dns=debug` or `pingora_core=off`. Returns `None` for
    /// any other text.
    pub fn parse(text: &str) -> Option<LogLevels> {
        let mut levels = LogLevels::default();
        let mut has_own = false;
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                Some((module, level)) => {
                    let is_module = module.split("::").all(is_name_of_module);
                    let level = LevelFilter::from_str(level.trim()).ok()?;
                    levels.modules.push((is_module.then_some(module)?.to_owned(), level));
                }
                None if has_own => return None,
                None => (levels.own, has_own) = (LevelFilter::from_str(part).ok()?, true),
            }
        }
        levels.modules.sort_by_key(|(module, _)| std::cmp::Reverse(module.len()));
        Some(levels)
    }

    /// Returns the level of a module, such as `riskgate::dns`. If several named modules contain the
    /// module, the longest name decides.
    pub fn level_of(&self, module: &str) -> LevelFilter {
        let is_in = |outer: &str| {
            module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let named = self.modules.iter().find(|(outer, _)| is_in(outer));
        match named {
            Some((_, level)) => *level,
            None if is_own_module(module) => self.own,
            None => DEFAULT_LEVEL_OF_OTHERS,
        }
    }

    /// Returns the most detailed of all levels.
    pub fn most_detailed(&self) -> LevelFilter {
        let modules = self.modules.iter().map(|(_, level)| *level);
        modules.chain([self.own, DEFAULT_LEVEL_OF_OTHERS]).max().unwrap_or(self.own)
    }
}

/// Returns true for a module of riskgate.
pub fn is_own_module(module: &str) -> bool {
    module == "riskgate" || module.starts_with("riskgate::")
}

#[cfg(test)]
mod tests;
