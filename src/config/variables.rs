//! Variables: what to write in place of their names, and those of the environment that riskgate
//! does not read.

use std::collections::BTreeSet;

use super::hints::nearest_name;
use super::unknown_keys::{is_in_array, known_keys};

/// How the variables begin that set one setting each.
pub const ENV_PREFIX: &str = "RISKGATE__";
/// How other variables of riskgate begin, in small letters.
const NAME_OF_RISKGATE: &str = "riskgate_";
/// What stands behind it in variables that the documents, the tests and Kubernetes define.
const OTHER_VARIABLES: [&str; 5] = ["config", "key", "url", "binary", "home"];
const OTHER_VARIABLE_PREFIXES: [&str; 3] = ["test_", "service_", "port_"];
/// The settings that a section alone may stand for.
const MAIN_SETTINGS: [&str; 6] = ["http", "servers", "url", "token", "level", "path"];

/// Returns what to do in place of writing the name of a variable. `can_be_set` tells whether the
/// environment can set the setting, and `file_key` is the setting that may name a file with it.
pub fn hint_for_variable(key: &str, can_be_set: bool, file_key: Option<&str>) -> String {
    if !can_be_set {
        return "write the value: riskgate replaces no variables".to_owned();
    }
    let file = file_key.and_then(|key| key.rsplit('.').next());
    let file = file.map(|name| format!(", or name a file in {name}")).unwrap_or_default();
    format!("set {} in the environment{file}: riskgate replaces no variables here", variable(key))
}

/// Returns the variable that sets a setting.
pub fn variable(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.to_ascii_uppercase().replace('.', "__"))
}

/// Returns a warning of a variable that was surely meant for riskgate, which does not read it.
pub fn warning_of_unread_variable(name: &str, value: &str) -> Option<String> {
    let rest = name.to_ascii_lowercase();
    let rest = rest.strip_prefix(NAME_OF_RISKGATE)?.trim_start_matches('_');
    // Kubernetes sets RISKGATE_PORT to such a URL for a service of this name.
    let is_of_kubernetes = value.starts_with("tcp://") || value.starts_with("udp://");
    let is_other = OTHER_VARIABLES.contains(&rest)
        || OTHER_VARIABLE_PREFIXES.iter().any(|prefix| rest.starts_with(prefix));
    if name == super::CONFIG_FILE_VARIABLE
        || is_of_kubernetes
        || is_other && name.starts_with("RISKGATE_")
    {
        return None;
    }
    let meant = match rest.split('_').next() {
        Some("config" | "conf") => super::CONFIG_FILE_VARIABLE.to_owned(),
        _ => variable(&meant_setting(rest, &known_keys())?),
    };
    Some(format!("{name}: riskgate reads no such variable; did you mean {meant}?"))
}

/// Returns the setting that words with a `_` between them stand for, such as `store.url` for
/// `store_url`.
pub fn meant_setting(words: &str, known: &BTreeSet<String>) -> Option<String> {
    let words = words.replace('.', "_").replace("__", "_");
    let known: Vec<&str> = known.iter().map(String::as_str).filter(|it| !is_in_array(it)).collect();
    let flat = |key: &str| key.replace('.', "_");
    if let Some(exact) = known.iter().find(|key| flat(key) == words) {
        return Some((*exact).to_owned());
    }
    let sections: BTreeSet<&str> =
        known.iter().filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
    let in_section = |section: &str, name: &str| {
        let names = known.iter().filter_map(|key| key.strip_prefix(section)?.strip_prefix('.'));
        nearest_name(name, names).map(|near| format!("{section}.{near}"))
    };
    let (first, rest) = words.split_once('_').unwrap_or((&words, ""));
    let section = nearest_name(first, sections.iter().copied());
    if let Some(section) = section.filter(|_| !rest.is_empty())
        && let Some(meant) = in_section(section, rest)
    {
        return Some(meant);
    }
    let mut named = known.iter().filter(|key| key.rsplit('.').next() == Some(&words));
    if let (Some(only), None) = (named.next(), named.next()) {
        return Some((*only).to_owned());
    }
    let section = section.filter(|_| rest.is_empty())?;
    let mains = MAIN_SETTINGS.iter().map(|name| format!("{section}.{name}"));
    mains
        .into_iter()
        .find(|key| known.contains(&key.as_str()))
        .or_else(|| in_section("listen", first))
}
