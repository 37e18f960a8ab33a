//! Reads contrib/prometheus/alerts.yml and alerts.test.yml.

use std::collections::BTreeSet;

/// The names of all alerts in the rules.
pub fn alert_names(rules: &str) -> Vec<&str> {
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
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
