//! Runs contrib/prometheus/alerts.test.yml with promtool, also against rules that are changed.
//!
//! Prometheus reads the rules and returns them as JSON, and JSON is YAML too. So the test needs no
//! YAML parser to change the rules.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::processes::{Outcome, run};
use super::{project_path, read_project_file};

/// A change of all alerts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// No alert ever fires.
    NeverFire,
    /// Every alert also fires whenever it should be silent. It fires as before if it should fire.
    FireWhenSilent,
}

/// The names of all alerts in these groups.
pub fn alert_names(groups: &[Value]) -> BTreeSet<String> {
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let alerts = rules.filter(|rule| rule["type"] == "alerting");
    alerts.map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs the tests of the rules against these groups, changed.
pub fn run_rule_tests(groups: &[Value], mutation: Mutation) -> Outcome {
    let folder = TempDir::new().unwrap();
    let rules = match mutation {
        Mutation::None => read_project_file("contrib/prometheus/alerts.yml"),
        _ => changed_rules(groups, mutation).to_string(),
    };
    std::fs::write(folder.path().join("alerts.yml"), rules).unwrap();
    let tests = folder.path().join("alerts.test.yml");
    std::fs::copy(project_path("contrib/prometheus/alerts.test.yml"), &tests).unwrap();
    run(Command::new("promtool").args(["test", "rules"]).arg(&tests))
}

fn changed_rules(groups: &[Value], mutation: Mutation) -> Value {
    let change = |rule: &Value| {
        let query = rule["query"].as_str().unwrap();
        if rule["type"] == "recording" {
            return json!({"record": rule["name"], "expr": query});
        }
        let query = match mutation {
            Mutation::None => query.to_owned(),
            Mutation::NeverFire => format!("({query}) unless on () vector(1)"),
            Mutation::FireWhenSilent => format!("({query}) or on () vector(1)"),
        };
        json!({
            "alert": rule["name"], "expr": query, "for": format!("{}s", rule["duration"]),
            "labels": rule["labels"],
        })
    };
    let groups = groups.iter().map(|group| {
        let rules = group["rules"].as_array().unwrap().iter().map(change).collect::<Vec<_>>();
        json!({"name": group["name"], "rules": rules})
    });
    json!({"groups": groups.collect::<Vec<_>>()})
}

/// The alerts in the lines of promtool's output that begin with `start`: `exp:` or `got:`.
pub fn alerts_in_lines(output: &str, start: &str) -> BTreeSet<String> {
    output.lines().filter_map(|line| line.trim().strip_prefix(start)).flat_map(alerts_in).collect()
}

/// The alerts that promtool got and did not expect.
pub fn unexpected_alerts(output: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut expected = BTreeSet::new();
    for line in output.lines().map(str::trim) {
        if let Some(list) = line.strip_prefix("exp:") {
            expected = alerts_in(list).collect();
        } else if let Some(list) = line.strip_prefix("got:") {
            found.extend(alerts_in(list).filter(|alert| !expected.contains(alert)));
        }
    }
    found
}

fn alerts_in(text: &str) -> impl Iterator<Item = String> {
    let names = text.split("alertname=\"").skip(1);
    names.map(|name| name.split('"').next().unwrap().to_owned())
}

/// The labels that an alert has where a test expects it.
pub fn labels_in_test<'t>(tests: &'t str, alert: &str) -> BTreeSet<&'t str> {
    let name = format!("{{labels: '{{alertname=\"{alert}\"");
    let mut labels = BTreeSet::new();
    for line in tests.lines().filter(|line| line.contains("labels: ")) {
        let line = line.trim().trim_start_matches("- ");
        if line.starts_with(&name) || line.contains(&format!(",alertname=\"{alert}\"")) {
            let words = line.split(['{', ',']).filter_map(|pair| pair.split_once("=\""));
            labels.extend(words.map(|(label, _)| label));
        }
    }
    labels
}

/// The labels that a template names.
pub fn labels_in_template(template: &str) -> impl Iterator<Item = &str> {
    template.split("$labels.").skip(1).map(|text| {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        &text[..end.unwrap_or(text.len())]
    })
}
