//! What people know from other servers, and what riskgate has in its place.
//!
//! `hints` finds the settings of riskgate whose names are near to a name.

use std::sync::LazyLock;

/// The names of settings and sections that riskgate does not have. The file describes its form.
const COUNTERPARTS_TEXT: &str = include_str!("counterparts.txt");

static COUNTERPARTS: LazyLock<Vec<Counterpart>> =
    LazyLock::new(|| parse_counterparts(COUNTERPARTS_TEXT));

/// Names of settings and sections that riskgate does not have.
pub struct Counterpart {
    /// The section in which the names have this meaning, or [`SECTION_NAMES`]; empty: anywhere.
    section: &'static str,
    /// The names. If `section` is empty, a name whose first word is one of them counts too. An
    /// empty list means every name for which nothing else has a hint.
    names: Vec<&'static str>,
    /// What to write, or why nothing is to be written.
    pub hint: String,
    /// The setting that a person meant by such a name; empty if none. riskgate then does not report
    /// this setting as missing.
    pub setting: &'static str,
}

/// The `section` of entries whose names are names of sections.
pub const SECTION_NAMES: &str = "[]";

/// Names that people write below `cors` for the origins of a route.
pub const NAMES_OF_CORS_ORIGINS: [&str; 5] =
    ["origins", "origin", "allow_origins", "allow_origin", "allowed_origins"];

fn parse_counterparts(text: &'static str) -> Vec<Counterpart> {
    let mut all: Vec<Counterpart> = Vec::new();
    let mut section = "";
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let begun = all.last_mut().filter(|it| it.section == section);
        match (line.strip_prefix("@ "), line.strip_prefix("    "), begun) {
            (Some(name), ..) => section = if name == "anywhere" { "" } else { name },
            (None, Some(words), Some(last)) => {
                let gap = if last.hint.is_empty() { "" } else { " " };
                last.hint.extend([gap, words]);
            }
            (None, None, Some(last)) if last.hint.is_empty() => last.add_names(line),
            _ => {
                let mut new =
                    Counterpart { section, names: Vec::new(), hint: String::new(), setting: "" };
                new.add_names(line);
                all.push(new);
            }
        }
    }
    all
}

impl Counterpart {
    fn add_names(&mut self, line: &'static str) {
        let (names, setting) = line.split_once(" -> ").unwrap_or((line, ""));
        self.names.extend(names.split(' ').filter(|name| *name != "*"));
        self.setting = setting;
    }
}

/// What to write in place of a middleware.
pub fn hint_for_middleware() -> &'static str {
    find_in_section(SECTION_NAMES, "middlewares").map_or("", |it| &it.hint)
}

/// What to write in place of the files of a certificate in another form.
pub fn hint_for_certificate() -> &'static str {
    find_counterpart("", "sslcertificate").map_or("", |it| &it.hint)
}

/// Returns what riskgate has in place of a name in just this section, even if the name is near to
/// that of a setting.
pub fn find_in_section(section: &str, name: &str) -> Option<&'static Counterpart> {
    let name = name.to_ascii_lowercase();
    COUNTERPARTS
        .iter()
        .find(|it| !section.is_empty() && it.section == section && it.names.contains(&&*name))
}

/// Returns what riskgate has in place of a name that is near to none of its section.
pub fn find_counterpart(section: &str, name: &str) -> Option<&'static Counterpart> {
    let squashed = without_case_and_separators(name);
    let first = without_case_and_separators(name.split(['_', '-']).next().unwrap_or_default());
    let is_meant = |own: &&str| squashed == *own || first == *own;
    let anywhere = || {
        let mut all = COUNTERPARTS.iter().filter(|it| it.section.is_empty());
        all.find(|it| it.names.iter().any(&is_meant))
    };
    let rest = || COUNTERPARTS.iter().find(|it| it.names.is_empty() && it.section == section);
    find_in_section(section, name).or_else(anywhere).or_else(rest)
}

/// Returns a name in lower case, without `_` and `-`.
fn without_case_and_separators(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '-'], "")
}
