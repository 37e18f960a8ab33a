//! Builds small tables for the tests, and checks their answers.

use std::fs;
use std::sync::LazyLock;

use crate::model::domain::Domain;
use crate::table::{Table, TableAnswer, TableFaults, TableLocation};

/// 2026-11-21, when the bundled lists are less than 90 days old.
pub(super) const NOW: i64 = 1_795_219_200;

pub(super) static BUNDLED_TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::load(&TableLocation::Bundled).unwrap());

const SOURCES_TOML: &str = "\
[[source]]
name = \"tlds\"
date = \"2026-11-01\"
[[source]]
name = \"alpha\"
vote = \"a\"
date = \"2026-11-02\"
[[source]]
name = \"beta\"
vote = \"b\"
date = \"2026-10-02\"
";

pub(super) const OVERRIDE_HEADER: &str =
    "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,mx_provider_label\n";

/// For each file name that a test may use, the kind of list. Some kinds bring a further line of the
/// manifest with them.
const LIST_KIND_BY_FILE: [(&str, &str); 23] = [
    ("overrides.csv", "override"),
    ("special.txt", "special_use"),
    ("tlds.txt", "tlds\"\nsource = \"tlds"),
    ("protected.txt", "protected"),
    ("corporate.txt", "corporate"),
    ("alias.txt", "alias"),
    ("agent-inboxes.txt", "agent_inbox"),
    ("a.txt", "disposable\"\ntier = \"a"),
    ("b.txt", "disposable\"\ntier = \"b"),
    ("c.txt", "disposable\"\ntier = \"c"),
    ("d.txt", "disposable\"\ntier = \"d"),
    ("role.txt", "role"),
    ("free-subdomains.txt", "free_subdomain"),
    ("known.txt", "known"),
    ("cleared.txt", "cleared"),
    ("free.txt", "free"),
    ("providers.txt", "free"),
    ("labels.csv", "label"),
    ("mx.csv", "mx"),
    ("mx-labels.csv", "mx_label"),
    ("mx-addresses.csv", "mx_address"),
    ("seed.txt", "seed"),
    ("seen.tsv", "seen\"\nsource = \"beta"),
];

/// Writes these files into a directory with a manifest that names them. The text of a file
/// `manifest.toml` is appended to that manifest.
pub(super) fn write_lists(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut manifest = String::new();
    for (file, kind) in LIST_KIND_BY_FILE {
        if files.iter().any(|(name, _)| *name == file) {
            manifest.push_str(&format!("[[list]]\nfile = \"{file}\"\nkind = \"{kind}\"\n"));
        }
    }
    fs::write(folder.path().join("sources.toml"), SOURCES_TOML).unwrap();
    for (file, text) in files {
        match *file {
            "manifest.toml" => manifest.push_str(text),
            "overrides.csv" => {
                fs::write(folder.path().join(file), format!("{OVERRIDE_HEADER}{text}")).unwrap();
            }
            _ => fs::write(folder.path().join(file), text).unwrap(),
        }
    }
    fs::write(folder.path().join("manifest.toml"), manifest).unwrap();
    folder
}

pub(super) fn try_load_lists(files: &[(&str, &str)]) -> Result<Table, TableFaults> {
    let folder = write_lists(files);
    Table::load(&TableLocation::Path(folder.path().to_owned()))
}

pub(super) fn load_lists(files: &[(&str, &str)]) -> Table {
    try_load_lists(files).unwrap_or_else(|error| panic!("{error}"))
}

/// Loads these files and returns the faults, without the directory's path. Panics if there are
/// none.
pub(super) fn load_faults(files: &[(&str, &str)]) -> Vec<String> {
    let folder = write_lists(files);
    let Err(error) = Table::load(&TableLocation::Path(folder.path().to_owned())) else {
        panic!("no fault in {files:?}");
    };
    let prefix = format!("{}/", folder.path().display());
    error.faults().iter().map(|fault| fault.to_string().replace(&prefix, "")).collect()
}

pub(super) fn look_up<'t>(table: &'t Table, name: &str) -> TableAnswer<'t> {
    table.lookup(&Domain::parse(name).unwrap(), NOW)
}

/// Formats the answer for a name: reason and score, then `+free`, `+corporate` and the label, if
/// they apply.
pub(super) fn describe_answer(table: &Table, name: &str) -> String {
    let found = look_up(table, name);
    let verdict = found.verdict;
    let mut text = format!("{} {}", verdict.reason, verdict.score.value());
    for (applies, mark) in
        [(verdict.is_free_provider, " +free"), (verdict.is_corporate_email, " +corporate")]
    {
        text.push_str(if applies { mark } else { "" });
    }
    found.mail_service_label.map_or(text.clone(), |label| format!("{text} {label}"))
}

pub(super) fn assert_answers(table: &Table, expected: &[(&str, &str)]) {
    for (name, expected) in expected {
        assert_eq!(describe_answer(table, name), *expected, "{name}");
    }
}
