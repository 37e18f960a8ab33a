use super::*;
use crate::config::Config;

/// The settings of a schema, with dotted keys.
fn list_settings(schema: &Value, prefix: &str, out: &mut Vec<(String, Value)>) {
    let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let key = format!("{prefix}{name}");
        let alternative = &member["anyOf"][1];
        if alternative["items"].get("properties").is_some() {
            list_settings(alternative, &format!("{key}."), out);
            out.push((key, member.clone()));
            continue;
        }
        match member.get("properties").or_else(|| member["items"].get("properties")) {
            Some(_) => list_settings(member, &format!("{key}."), out),
            None => out.push((key, member.clone())),
        }
    }
}

#[test]
fn every_setting_has_a_type_and_a_meaning() {
    let mut listed = Vec::new();
    list_settings(&Config::schema(), "", &mut listed);
    assert!(listed.len() > 90, "{}", listed.len());
    for (key, schema) in &listed {
        let has_type = ["type", "enum", "anyOf"].iter().any(|word| schema.get(word).is_some());
        assert!(has_type, "{key}");
        let is_shipped_plan = key.starts_with("plans.");
        assert!(is_shipped_plan || schema.get("description").is_some(), "{key}: no meaning");
    }
    let find = |key: &str| &listed.iter().find(|(listed, _)| listed == key).unwrap().1;
    assert_eq!(find("listen.http")["default"], "127.0.0.1:8080");
    assert_eq!(find("upstream.deadline")["default"], "2500ms");
    assert_eq!(find("upstream.route.screen.mode")["enum"][0], "shadow");
    assert_eq!(find("upstream.servers")["default"], json!(["127.0.0.1:9000"]));
}
