//! The JSON Schema of the config file, for editors.
//!
//! The types come from reading `CONFIG_WITH_EACH_SECTION`. The meanings come from the tables in
//! the documents.

use serde_json::{Map, Value, json};

use super::description::{SettingDescription, SettingKind, without_indexes};
use super::settings::Settings;

/// The documents with a table of settings.
const DOCUMENTS_WITH_SETTINGS: [&str; 2] =
    [include_str!("../../docs/configuration.md"), include_str!("../../docs/signup-form.md")];
/// A config with the sections that are read only if a config has them, once each.
const CONFIG_WITH_EACH_SECTION: &str = r#"
[[listen.certificate]]
chain = "chain.pem"
[[upstream.route]]
prefix = "/signup"
[upstream.route.screen]
[upstream.route.cors]
[[table.feed]]
name = "feed"
[[admin.token]]
name = "token"
[[rule]]
name = "rule"
"#;

impl Settings {
    /// The settings of [`CONFIG_WITH_EACH_SECTION`].
    pub(super) fn of_each_section() -> Settings {
        let mut settings = Settings::default();
        // The text is TOML, so this can't fail.
        let _ = settings.read_toml("config", CONFIG_WITH_EACH_SECTION);
        settings
    }
}

/// Returns the schema (JSON Schema 2020-12) of a config file with these settings.
pub fn render_schema(descriptions: &[SettingDescription]) -> Value {
    let mut root = object_schema();
    for description in descriptions {
        insert_setting(&mut root, description);
    }
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("The config of riskgate");
    // An operator may add plans.
    root["properties"]["plans"]["additionalProperties"] = kind_schema(&SettingKind::CallLimit);
    root
}

fn object_schema() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

fn insert_setting(root: &mut Value, description: &SettingDescription) {
    let mut at = root;
    let parts: Vec<&str> = description.key.split('.').collect();
    let Some((name, sections)) = parts.split_last() else { return };
    for section in sections {
        at = match section.parse::<usize>() {
            // An entry of an array of tables: the schema of all its entries.
            Ok(_) => {
                let array = || json!({"type": "array", "items": object_schema()});
                if at["type"] == "string" {
                    // `admin.token` is a text, or an array of tables.
                    let description = at["description"].clone();
                    *at = json!({"anyOf": [at.take(), array()], "description": description});
                }
                if at.get("anyOf").is_some() {
                    &mut at["anyOf"][1]["items"]
                } else {
                    if at["type"] != "array" {
                        *at = array();
                    }
                    &mut at["items"]
                }
            }
            Err(_) => {
                let members = at["properties"].as_object_mut();
                let Some(members) = members else { return };
                members.entry(*section).or_insert_with(object_schema)
            }
        };
    }
    let mut schema = kind_schema(&description.kind);
    if let Some(default) = description.default.as_deref().and_then(json_of_toml) {
        schema["default"] = default;
    }
    if let Some(meaning) = find_meaning(&description.key) {
        schema["description"] = Value::String(meaning);
    }
    at["properties"][*name] = schema;
}

fn kind_schema(kind: &SettingKind) -> Value {
    match kind {
        SettingKind::Text | SettingKind::Secret => json!({"type": "string"}),
        SettingKind::Integer(range) => {
            json!({"type": "integer", "minimum": range.start(), "maximum": range.end()})
        }
        SettingKind::Boolean => json!({"type": "boolean"}),
        SettingKind::Duration => {
            json!({"type": "string", "pattern": r"^(0|[0-9.]+(ms|s|m|h|d))$"})
        }
        SettingKind::Choice(choices) => json!({"enum": choices}),
        SettingKind::List => json!({"type": "array", "items": {"type": "string"}}),
        SettingKind::IntegerList => json!({"type": "array", "items": {"type": "integer"}}),
        SettingKind::TextOrList => {
            json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
        }
        SettingKind::CallLimit => {
            json!({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "unlimited"}]})
        }
    }
}

/// Returns a TOML value as JSON.
fn json_of_toml(value: &str) -> Option<Value> {
    let table: Map<String, Value> = toml::from_str(&format!("value = {value}")).ok()?;
    table.get("value").cloned()
}

/// Returns the meaning of a setting: the last cell of its row in the documents. A row below a
/// heading such as `[[upstream.route]]` has the name of the key alone.
fn find_meaning(key: &str) -> Option<String> {
    let key = without_indexes(key);
    let (section, name) = key.rsplit_once('.').unwrap_or(("", &key));
    let (dotted, plain) = (format!("| `{section}.{name}` |"), format!("| `{name}` |"));
    for document in DOCUMENTS_WITH_SETTINGS {
        let mut is_below_heading = false;
        for line in document.lines() {
            if line.starts_with('#') {
                is_below_heading = line.contains(&format!("[{section}]"));
            }
            if line.starts_with(&dotted) || is_below_heading && line.starts_with(&plain) {
                let cell = line.trim_end().strip_suffix('|')?.rsplit(" | ").next()?;
                return Some(cell.trim().replace('`', "")).filter(|text| !text.is_empty());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
