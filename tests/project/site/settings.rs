//! The tables of settings in the documents: their defaults, ranges and meanings are those of the
//! real binary.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::markdown::read_documents;
use super::{run_riskgate, stderr_text};
use crate::documents::{reloaded_in_shipped_config, setting_names_in_shipped_config};

/// A config that has every section once. Its second route is screened.
const EVERY_SECTION: &str = r#"
[[listen.certificate]]
chain = "chain.pem"
key = "key.pem"
[[upstream.route]]
prefix = "/first"
[[upstream.route]]
prefix = "/second"
methods = ["POST"]
key = false
origins = ["https://app.example.com"]
[upstream.route.cors]
[upstream.route.screen]
fields = ["email"]
[[table.feed]]
name = "feed"
url = "list.txt"
[[rule]]
name = "rule"
then = "review"
[[admin.token]]
name = "ops"
hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
scope = "read"
"#;
/// Settings whose default the documents describe in words, and its value.
const DESCRIBED_DEFAULTS: [(&str, &str, &str); 7] = [
    ("authz.block_reasons", "all", r#"["safe","disposable","undeliverable","role_account"]"#),
    ("authz.check", "all four", r#"["key","origin","quota","screen"]"#),
    ("decide.block_reasons", "all", r#"["safe","disposable","undeliverable","role_account"]"#),
    (
        "store.deadline",
        "`1s` for a file, `50ms` for a server, `500ms` with `store.wait_replicas`",
        "1s",
    ),
    ("upstream.max_in_flight_per_address", "half of `upstream.max_in_flight`", "500"),
    ("upstream.route.counts", "as `key`", "true"),
    (
        "upstream.route.screen.block_reasons",
        "all",
        r#"["safe","disposable","undeliverable","role_account"]"#,
    ),
];

/// A row of a table of settings.
struct Row {
    kind: String,
    default: String,
    reload: String,
    meaning: String,
}

/// The rows of all tables of settings, by the name of the setting.
fn read_rows() -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for document in read_documents() {
        let (mut section, mut header) = (String::new(), Vec::new());
        for line in document.text.lines() {
            if let Some(heading) = line.strip_prefix('#') {
                let name = heading.split_once('[').map_or("", |(_, rest)| rest);
                section = name.trim_matches(['[', ']', '`']).to_owned();
            }
            let cells = split_cells(line);
            if cells.is_empty() {
                header.clear();
            } else if header.is_empty() {
                header = cells;
            } else if header[0] == "Setting" && header.len() > 3 || header[0] == "Key" {
                let cell = |name| cells[header.iter().position(|it| it == name).unwrap()].clone();
                let name = cells[0].trim_matches('`');
                let key = match header[0].as_str() {
                    "Key" => format!("{section}.{name}"),
                    _ => name.to_owned(),
                };
                let row = Row {
                    kind: cell("Type"),
                    default: cell("Default"),
                    reload: cell("Reload"),
                    meaning: cell("Meaning"),
                };
                if !name.starts_with('-') {
                    assert!(rows.insert(key.clone(), row).is_none(), "{key} has two rows");
                }
            }
        }
    }
    rows
}

/// The cells of a row of a table. `\|` is part of a cell.
fn split_cells(line: &str) -> Vec<String> {
    let Some(row) = line.strip_prefix('|').and_then(|rest| rest.trim_end().strip_suffix('|'))
    else {
        return Vec::new();
    };
    let cells = row.replace("\\|", "\0");
    cells.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// The settings of a schema, with dotted names.
fn list_settings(schema: &Value, prefix: &str, out: &mut BTreeMap<String, Value>) {
    let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let key = format!("{prefix}{name}");
        // `admin.token` is a text, or an array of tables.
        let entries = member["anyOf"].as_array().and_then(|all| all.last());
        if let Some(entries) = entries.filter(|it| it["items"].get("properties").is_some()) {
            list_settings(entries, &format!("{key}."), out);
        }
        match member.get("properties").or_else(|| member["items"].get("properties")) {
            Some(_) => list_settings(member, &format!("{key}."), out),
            None => _ = out.insert(key, member.clone()),
        }
    }
}

fn read_schema() -> BTreeMap<String, Value> {
    let folder = tempfile::tempdir().unwrap();
    let printed = run_riskgate(folder.path(), &["config", "schema"]);
    assert!(printed.status.success(), "{}", stderr_text(&printed));
    let mut settings = BTreeMap::new();
    list_settings(&serde_json::from_slice(&printed.stdout).unwrap(), "", &mut settings);
    assert!(settings.len() > 90, "{}", settings.len());
    settings
}

/// The settings in force of a config: the value in TOML, and whether it is the default.
fn read_settings(config: &str) -> BTreeMap<String, (Option<String>, bool)> {
    let folder = tempfile::tempdir().unwrap();
    // Without a config file, riskgate has its defaults.
    if !config.is_empty() {
        fs::write(folder.path().join("riskgate.toml"), config).unwrap();
    }
    let shown = run_riskgate(folder.path(), &["config", "show", "--json"]);
    assert!(shown.status.success(), "{}", stderr_text(&shown));
    let shown: Vec<Value> = serde_json::from_slice(&shown.stdout).unwrap();
    let entry = |it: &Value| {
        let key = it["key"].as_str().unwrap().to_owned();
        (key, (it["value"].as_str().map(str::to_owned), it["source"] == "default"))
    };
    shown.iter().map(entry).collect()
}

/// The default of each setting: of a section that may occur several times, in an entry that names
/// only what it must.
fn read_defaults() -> BTreeMap<String, Option<String>> {
    let mut defaults = BTreeMap::new();
    for (key, (value, is_default)) in read_settings(EVERY_SECTION) {
        // The second route has only what the first one lacks: the section `screen`.
        if key.starts_with("upstream.route.1.") && !key.contains(".screen.") {
            continue;
        }
        let parts = key.split('.').filter(|part| part.parse::<usize>().is_err());
        let name = parts.collect::<Vec<_>>().join(".");
        defaults.insert(name, if is_default { value } else { Some("required".to_owned()) });
    }
    for (key, (value, is_default)) in read_settings("") {
        assert!(is_default, "{key}");
        assert_eq!(defaults[&key], value, "{key}");
    }
    defaults
}

/// The milliseconds of a duration such as `2.5s`.
fn parse_duration(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let units = [("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6), ("d", 8.64e7)];
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<f64>().ok().map(|number| number * factor)
}

/// Whether the cell of a default states this value.
fn states_default(key: &str, cell: &str, value: Option<&str>) -> bool {
    let is_code = cell.len() > 2
        && cell.starts_with('`')
        && cell.matches('`').count() == 2
        && cell.ends_with('`');
    let Some(value) = value else {
        // A setting without a value: the cell says in words what riskgate does then.
        return !is_code && !cell.is_empty() && cell != "required";
    };
    let plain = value.trim_matches('"');
    let described = |it: &&(&str, &str, &str)| it.0 == key && it.1 == cell;
    if let Some((_, _, expected)) = DESCRIBED_DEFAULTS.iter().find(described) {
        return plain.replace("\", \"", "\",\"") == *expected;
    }
    let stated = cell.trim_matches('`').trim_matches('"');
    let same_duration = || Some(parse_duration(stated)? == parse_duration(plain)?);
    match key {
        "listen.threads" => {
            let cores = std::thread::available_parallelism().unwrap().to_string();
            cell == "one for each core" && plain == cores
        }
        "log.fields" => cell == "the first 13 below" && plain == first_log_fields(13),
        _ if plain == "required" => cell == "required",
        _ => is_code && (stated == plain || same_duration().unwrap_or(false)),
    }
}

/// The first fields of the access log in docs/configuration.md, as a list in TOML.
fn first_log_fields(count: usize) -> String {
    let documents = read_documents();
    let document = documents.iter().find(|it| it.name == "docs/configuration.md").unwrap();
    let (_, table) = document.text.split_once("| Field | Value |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells: Vec<String> = rows.map(|line| split_cells(line)[0].clone()).collect();
    let names = cells.iter().flat_map(|cell| cell.split(", ")).take(count);
    let names: Vec<String> = names.map(|name| format!("\"{}\"", name.trim_matches('`'))).collect();
    format!("[{}]", names.join(", "))
}

#[test]
fn the_documents_have_a_row_for_each_setting_and_no_other_rows() {
    let rows: BTreeSet<String> = read_rows().into_keys().collect();
    let settings: BTreeSet<String> = read_schema().into_keys().collect();
    let missing: Vec<_> = settings.difference(&rows).collect();
    let unknown: Vec<_> = rows.difference(&settings).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "no row: {missing:?}; no setting: {unknown:?}"
    );
}

#[test]
fn the_shipped_config_has_each_setting_and_no_other() {
    let shipped = setting_names_in_shipped_config();
    let settings: BTreeSet<String> = read_schema().into_keys().collect();
    let missing: Vec<_> = settings.difference(&shipped).collect();
    let unknown: Vec<_> = shipped.difference(&settings).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "conf/riskgate.toml lacks {missing:?}, and has {unknown:?}"
    );
}

#[test]
fn the_head_of_the_shipped_config_names_the_settings_that_need_no_restart() {
    let reloaded = reloaded_in_shipped_config();
    let takes_effect = |key: &str| {
        reloaded.iter().any(|(name, lacking)| {
            let rest = key.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
            key == name || rest.is_some_and(|rest| !lacking.iter().any(|it| it == rest))
        })
    };
    for (key, row) in read_rows() {
        assert!(["yes", "restart"].contains(&row.reload.as_str()), "{key}: {}", row.reload);
        assert_eq!(takes_effect(&key), row.reload == "yes", "{key}: {reloaded:?}");
    }
}

#[test]
fn the_documents_state_the_default_of_each_setting() {
    let (rows, mut faults) = (read_rows(), Vec::new());
    for (key, value) in read_defaults() {
        let cell = &rows[&key].default;
        if !states_default(&key, cell, value.as_deref()) {
            faults.push(format!("{key}: the document says {cell:?}, riskgate {value:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(states_default("x.y", "`60s`", Some("\"1m\"")));
    for (cell, value) in
        [("`61s`", Some("\"1m\"")), ("none", Some("5")), ("`5`", None), ("required", Some("5"))]
    {
        assert!(!states_default("x.y", cell, value), "{cell} {value:?}");
    }
}

#[test]
fn the_schema_has_the_meanings_ranges_and_choices_of_the_documents() {
    let (rows, mut ranges, mut choices) = (read_rows(), 0, 0);
    for (key, schema) in read_schema() {
        let row = &rows[&key];
        let meaning = row.meaning.replace('`', "");
        assert_eq!(schema["description"].as_str().unwrap_or(""), meaning, "{key}");
        let bounds: Option<Vec<u64>> =
            row.kind.split(" to ").map(|it| it.replace(',', "").parse().ok()).collect();
        if let Some(&[low, high]) = bounds.as_deref() {
            let found = (schema["minimum"].as_u64(), schema["maximum"].as_u64());
            assert_eq!(found, (Some(low), Some(high)), "{key}");
            ranges += 1;
        }
        if let Some(listed) = schema["enum"].as_array().filter(|_| row.kind.contains('`')) {
            let listed: BTreeSet<&str> = listed.iter().filter_map(Value::as_str).collect();
            let named = row.kind.split('`').skip(1).step_by(2).map(|it| it.trim_matches('"'));
            let is_span = row.kind.contains("` to `");
            assert!(is_span || named.collect::<BTreeSet<_>>() == listed, "{key}: {listed:?}");
            choices += 1;
        }
    }
    assert!(ranges > 20 && choices > 8, "{ranges} {choices}");
}
