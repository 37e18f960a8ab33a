//! Tests the alert rules and the dashboard in contrib/ with a real gateway and a real Prometheus.
//! Each metric and label exists, and each expression runs. Each alert fires when it should, and is
//! silent when it should be.

mod expressions;
mod processes;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use riskgate::model::refusal::MANY_INBOXES;
use riskgate::observe::metrics::OUTCOMES;
use riskgate::screening::UnreadCause;
use serde_json::Value;

use crate::child_process::wait_until;
use expressions::{Expression, Metrics, legend_labels};
use processes::{Gateway, Prometheus, run};

fn project_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read_project_file(name: &str) -> String {
    let path = project_path(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn dashboard() -> Value {
    serde_json::from_str(&read_project_file("contrib/grafana/riskgate.json")).unwrap()
}

/// All panels but the rows.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().unwrap();
    panels.iter().filter(|panel| panel["type"] != "row").collect()
}

/// The title, the query and the legend of each target.
fn targets(dashboard: &Value) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}: expected a query");
        for target in targets {
            let text = |key: &str| target[key].as_str().unwrap().to_owned();
            found.push((title.to_owned(), text("expr"), text("legendFormat")));
        }
    }
    assert!(found.len() > 60, "{}", found.len());
    found
}

/// Replaces the variables of the dashboard, as Grafana does if all nodes and routes are selected.
fn replace_variables(expression: &str) -> String {
    let text = expression.replace("$__rate_interval", "1m").replace("$job", "riskgate");
    let text = text.replace("$instance", ".*").replace("$route", ".*");
    assert!(!text.contains('$'), "{text}: expected only variables of the dashboard");
    text
}

#[test]
fn every_metric_and_label_of_rules_and_panels_exists() {
    let gateway = Gateway::start();
    let prometheus = Prometheus::start(&gateway);
    let metrics = Metrics::parse(&gateway.metrics());
    let mut expressions: Vec<(String, String)> = prometheus
        .rules()
        .into_iter()
        .map(|rule| {
            (rule["name"].as_str().unwrap().to_owned(), rule["query"].as_str().unwrap().to_owned())
        })
        .collect();
    let dashboard = dashboard();
    expressions.extend(targets(&dashboard).into_iter().map(|(title, query, _)| (title, query)));
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            let (selector, label) =
                query.strip_prefix("label_values(").unwrap().rsplit_once(", ").unwrap();
            let label = label.trim_end_matches(')');
            expressions.push((query.to_owned(), format!("count by ({label}) ({selector})")));
        }
    }
    let faults: Vec<String> = expressions
        .iter()
        .flat_map(|(name, text)| {
            let faults = Expression::parse(text).faults(&metrics);
            faults.into_iter().map(move |fault| format!("{name}: {fault}"))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Each metric that riskgate has is on the dashboard, so that no panel was forgotten.
    let shown: BTreeSet<String> = targets(&dashboard)
        .iter()
        .flat_map(|(_, query, _)| Expression::parse(query).metric_names())
        .collect();
    let hidden: Vec<&String> = metrics.names().filter(|name| !shown.contains(*name)).collect();
    assert!(hidden.is_empty(), "no panel shows {hidden:?}");
}

#[test]
fn each_outcome_is_in_a_panel() {
    let dashboard = dashboard();
    let shown: BTreeSet<String> = targets(&dashboard)
        .iter()
        .filter_map(|(_, query, _)| query.split_once("outcome=~\"")?.1.split('"').next())
        .flat_map(|outcomes| outcomes.split('|').map(str::to_owned))
        .collect();
    let hidden: Vec<_> = OUTCOMES.into_iter().filter(|it| !shown.contains(*it)).collect();
    assert!(hidden.is_empty(), "no panel shows {hidden:?}");
}

#[test]
fn the_dashboard_and_the_alerts_know_each_reason_of_an_unread_form() {
    let causes = UnreadCause::ALL.map(UnreadCause::as_str);
    let reasons = [&causes[..], &[MANY_INBOXES]].concat().join("|");
    let rules = read_project_file("contrib/prometheus/alerts.yml");
    let alert = |name: &str| {
        let rest = rules.split_once(&format!("- alert: {name}\n")).unwrap().1;
        rest.split_once("for:").unwrap().0.to_owned()
    };
    let is_matched =
        |text: &str, operator: &str| text.contains(&format!("reason{operator}\"{reasons}\""));
    assert!(is_matched(&alert("RiskgateFormsUnscreened"), "=~"), "expected {reasons}");
    assert!(is_matched(&alert("RiskgateScreeningFlagsMany"), "!~"), "expected {reasons}");
    let panel = targets(&dashboard()).into_iter().find(|it| it.0 == "Forms without a verdict");
    assert!(is_matched(&panel.unwrap().1, "=~"), "expected {reasons}");
}

#[test]
fn every_query_of_the_dashboard_finds_series_with_the_labels_of_its_legend() {
    let gateway = Gateway::start();
    let prometheus = Prometheus::start(&gateway);
    for (title, query, legend) in targets(&dashboard()) {
        let query = replace_variables(&query);
        let mut series = Vec::new();
        wait_until(&format!("{title}: {query} finds series"), || {
            gateway.send_requests();
            series = prometheus.query(&query);
            !series.is_empty()
        });
        for label in legend_labels(&legend) {
            let has_label = series.iter().all(|it| it["metric"].get(label).is_some());
            assert!(has_label, "{title}: expected the label {label} in {series:?}");
        }
    }
}

#[test]
fn prometheus_evaluates_all_rules_and_no_alert_of_a_healthy_gateway_fires() {
    let gateway = Gateway::start();
    let prometheus = Prometheus::start(&gateway);
    wait_until("Prometheus has evaluated the rules twice", || {
        gateway.send_requests();
        prometheus.query("min(prometheus_rule_group_iterations_total) >= 2").len() == 1
            && prometheus.rules().iter().all(|rule| rule["health"] == "ok")
    });
    // The collector of traces does not answer. Before the first scrape, there is no node.
    let mut active = Vec::new();
    wait_until("only RiskgateTracesLost is active", || {
        let rules = prometheus.rules();
        let is_active =
            |rule: &&Value| rule["alerts"].as_array().is_some_and(|alerts| !alerts.is_empty());
        active = rules.iter().filter(is_active).map(|rule| rule["name"].clone()).collect();
        active == ["RiskgateTracesLost"]
    });
    for rule in prometheus.rules() {
        assert_eq!(rule["lastError"].as_str().unwrap_or_default(), "", "{rule}");
    }
}

#[test]
fn promtool_accepts_the_rules() {
    let checked = run(Command::new("promtool")
        .args(["check", "rules", "--lint-fatal"])
        .arg(project_path("contrib/prometheus/alerts.yml")));
    assert!(checked.is_good && checked.text.contains("SUCCESS"), "{}", checked.text);
}

#[test]
fn every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_is_silent() {
    let rules = read_project_file("contrib/prometheus/alerts.yml");
    let tests = read_project_file("contrib/prometheus/alerts.test.yml");
    let names = rules::alert_names(&rules);
    assert!(names.len() > 40, "{names:?}");
    // Each test lists all alerts that fire at a time, so an alert is silent in those of the others.
    let checked = run(Command::new("promtool")
        .args(["test", "rules"])
        .arg(project_path("contrib/prometheus/alerts.test.yml")));
    assert!(checked.is_good && checked.text.contains("SUCCESS"), "{}", checked.text);
    for name in names {
        assert!(!rules::labels_in_test(&tests, name).is_empty(), "no test in which {name} fires");
    }
}

#[test]
fn every_alert_has_texts_and_a_paragraph_in_the_runbook() {
    let gateway = Gateway::start();
    let prometheus = Prometheus::start(&gateway);
    let operations = read_project_file("docs/operations.md");
    let tests = read_project_file("contrib/prometheus/alerts.test.yml");
    let headings: BTreeSet<&str> =
        operations.lines().filter_map(|line| line.strip_prefix("#### ")).collect();
    let mut alerts = BTreeSet::new();
    for rule in prometheus.rules().iter().filter(|rule| rule["type"] == "alerting") {
        let name = rule["name"].as_str().unwrap();
        let text = |key: &str| rule["annotations"][key].as_str().unwrap_or_default();
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        assert!(!text("summary").is_empty(), "{name}");
        let url = "https://github.com/riskgate/riskgate/blob/main/docs/operations.md#";
        let anchor = text("runbook_url").strip_prefix(url);
        assert_eq!(anchor, Some(name.to_lowercase().as_str()), "{name}");
        assert!(headings.contains(name), "docs/operations.md: expected `#### {name}`");
        // A label that the alert does not have would be an empty word in the text.
        let labels = rules::labels_in_test(&tests, name);
        for label in rules::labels_in_template(text("description")) {
            let is_known = label == "job" || labels.contains(label);
            assert!(is_known, "{name}: the description names {label}, the alert has {labels:?}");
        }
        alerts.insert(name.to_owned());
    }
    let orphans: Vec<_> = headings.iter().filter(|it| !alerts.contains(**it)).collect();
    assert!(orphans.is_empty(), "docs/operations.md has paragraphs without an alert: {orphans:?}");
}

#[test]
fn every_panel_has_a_place_of_its_own_an_id_a_description_and_a_unit() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeMap::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: expected an id of its own");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}: {}", panel["gridPos"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            if let Some(other) = cells.insert(cell, title) {
                panic!("{title} and {other} overlap at {cell:?}");
            }
        }
    }
    let mut titles = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(titles.insert(title), "{title}: expected a title of its own");
        let description = panel["description"].as_str().unwrap();
        assert!(description.ends_with('.'), "{title}: {description:?}");
        let defaults = &panel["fieldConfig"]["defaults"];
        assert!(!defaults["unit"].as_str().unwrap().is_empty(), "{title}");
        assert!(!defaults["thresholds"]["steps"].as_array().unwrap().is_empty(), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
    }
    // The runbook names panels by their titles.
    for text in read_project_file("docs/operations.md").split("the panel \"").skip(1) {
        let title = text.split('"').next().unwrap();
        assert!(titles.contains(title), "docs/operations.md names the panel {title}");
    }
}

#[test]
fn rates_use_the_interval_that_grafana_chooses() {
    for (title, query, _) in targets(&dashboard()) {
        for range in query.split('[').skip(1) {
            assert!(range.starts_with("$__rate_interval]"), "{title}: {query}");
        }
    }
}

#[test]
fn the_dashboard_is_what_its_script_writes() {
    let script = project_path("contrib/grafana/generate.py");
    let written = run(Command::new("python3").arg(script).arg("--print"));
    assert!(written.is_good, "{}", written.text);
    let stored = read_project_file("contrib/grafana/riskgate.json");
    assert_eq!(written.text, stored, "run contrib/grafana/generate.py");
}

#[test]
fn grafanas_schema_knows_every_setting_and_unit_of_the_dashboard() {
    let packages = project_path("target/tools/grafana-foundation-sdk");
    let checked = run(Command::new("python3")
        .arg(project_path("tests/project/dashboards/check_schema.py"))
        .arg(project_path("contrib/grafana/riskgate.json"))
        .env("PYTHONPATH", &packages));
    let hint = "scripts/setup --tests installs Grafana's schema";
    assert!(checked.is_good, "{hint}: {}", checked.text);
    assert_eq!(
        checked.text.trim(),
        "70 panels: good".replace("70", &panels(&dashboard()).len().to_string())
    );
}
