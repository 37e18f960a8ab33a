//! Finds metrics, labels and values in PromQL, and compares them with the metrics of a gateway.
//!
//! This is no parser of PromQL: Prometheus runs every expression. It finds names that Prometheus
//! accepts although no such series exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Labels that Prometheus adds.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

/// The labels and their values, by the name of the metric.
pub struct Metrics(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Metrics {
    /// Reads metrics in Prometheus' text format.
    pub fn parse(text: &str) -> Metrics {
        let mut metrics = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let end = line.find(['{', ' ']).unwrap();
            let labels: &mut BTreeMap<String, BTreeSet<String>> =
                metrics.entry(line[..end].to_owned()).or_default();
            let (_, pairs) = read_matchers(&line[end..]);
            for (label, value) in pairs {
                labels.entry(label).or_default().insert(value);
            }
        }
        Metrics(metrics)
    }

    /// The names of all metrics; of a histogram, the name without its suffix.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        let is_part = |name: &&String| {
            ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .is_some_and(|base| self.0.contains_key(&format!("{base}_bucket")))
        };
        // A histogram is on the dashboard through its buckets.
        self.0.keys().filter(move |name| !is_part(name) || name.ends_with("_bucket"))
    }
}

/// A metric with its matchers: pairs of a label and a value or pattern.
struct Selector {
    metric: String,
    matchers: Vec<(String, String)>,
}

/// The names in an expression.
pub struct Expression {
    selectors: Vec<Selector>,
    /// The labels of `by`, `on`, `ignoring` and `group_left`.
    grouping_labels: BTreeSet<String>,
}

impl Expression {
    pub fn parse(text: &str) -> Expression {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let mut selectors = Vec::new();
        let mut grouping_labels = BTreeSet::new();
        let mut rest = text;
        while let Some(start) = rest.find(is_word) {
            rest = &rest[start..];
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let word = &rest[..end];
            rest = &rest[end..];
            if word.starts_with("riskgate_") || word == "up" {
                let (length, matchers) = read_matchers(rest);
                selectors.push(Selector { metric: word.to_owned(), matchers });
                rest = &rest[length..];
            } else if ["by", "on", "ignoring", "group_left", "without"].contains(&word)
                && let Some(list) = rest.trim_start().strip_prefix('(')
            {
                let list = list.split(')').next().unwrap();
                let labels = list.split(',').map(str::trim).filter(|label| !label.is_empty());
                grouping_labels.extend(labels.map(str::to_owned));
            }
        }
        Expression { selectors, grouping_labels }
    }

    pub fn metric_names(&self) -> BTreeSet<String> {
        self.selectors.iter().map(|selector| selector.metric.clone()).collect()
    }

    /// Returns what is wrong: metrics, labels and values that a gateway does not have.
    pub fn faults(&self, metrics: &Metrics) -> Vec<String> {
        let mut faults = Vec::new();
        let no_labels = BTreeMap::new();
        let mut known: BTreeSet<&str> = TARGET_LABELS.into();
        for Selector { metric, matchers } in &self.selectors {
            let labels = match metrics.0.get(metric) {
                Some(labels) => labels,
                None if metric == "up" => &no_labels,
                None => {
                    faults.push(format!("no metric is called {metric}"));
                    continue;
                }
            };
            known.extend(labels.keys().map(String::as_str));
            for (label, pattern) in matchers {
                if TARGET_LABELS.contains(&label.as_str()) {
                    continue;
                }
                match labels.get(label) {
                    None => faults.push(format!("{metric} has no label {label}")),
                    Some(seen) => faults.extend(
                        pattern
                            .split('|')
                            .filter(|value| !value.starts_with('$'))
                            .filter(|value| !seen.contains(*value) && !is_text_in_source(value))
                            .map(|value| format!("{metric}: {label} is never {value:?}")),
                    ),
                }
            }
        }
        let unknown = self.grouping_labels.iter().filter(|label| !known.contains(label.as_str()));
        // The expressions over recorded rules have no metric of riskgate's own.
        if !self.selectors.is_empty() {
            faults
                .extend(unknown.map(|label| format!("none of its metrics has the label {label}")));
        }
        faults
    }
}

/// Reads `{label="value", …}` at the start of a text. Returns its length and its pairs.
fn read_matchers(text: &str) -> (usize, Vec<(String, String)>) {
    let mut pairs = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (0, pairs) };
    while let Some((label, after)) = rest.split_once('"') {
        if label.contains('}') {
            break;
        }
        let (value, after) = after.split_once('"').expect("expected the end of a value");
        let label = label.trim_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        pairs.push((label.to_owned(), value.to_owned()));
        rest = after;
    }
    let end = rest.find('}').expect("expected the end of the matchers") + 1;
    (text.len() - rest.len() + end, pairs)
}

/// Returns true if the code of riskgate has this text as a literal.
fn is_text_in_source(text: &str) -> bool {
    fn search(folder: &Path, literal: &str) -> bool {
        std::fs::read_dir(folder).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => search(&path, literal),
                false => std::fs::read_to_string(&path).is_ok_and(|code| code.contains(literal)),
            }
        })
    }
    search(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &format!("{text:?}"))
}

/// The labels that a legend shows.
pub fn legend_labels(legend: &str) -> impl Iterator<Item = &str> {
    legend.split("{{").skip(1).map(|text| text.split("}}").next().unwrap().trim())
}

#[test]
fn wrong_names_in_an_expression_are_found() {
    let metrics = Metrics::parse(
        "# HELP riskgate_a_total A.\nriskgate_a_total{route=\"domain\",outcome=\"ok\"} 1\n\
         riskgate_b{server=\"[::1]:80\"} 2\n",
    );
    let faults = |text: &str| Expression::parse(text).faults(&metrics);
    let good = "sum by (job, outcome) (rate(riskgate_a_total{route=~\"domain|$route\"}[5m])) > 0 \
                and on (instance) riskgate_b{server=\"[::1]:80\"} unless up{job=\"x\"}";
    assert_eq!(faults(good), [""; 0]);
    assert_eq!(faults("riskgate_c"), ["no metric is called riskgate_c"]);
    assert_eq!(faults("riskgate_b{outcome=\"ok\"}"), ["riskgate_b has no label outcome"]);
    assert_eq!(
        faults("riskgate_a_total{outcome!=\"no-such\"}"),
        ["riskgate_a_total: outcome is never \"no-such\""]
    );
    let fault = ["none of its metrics has the label server"];
    assert_eq!(faults("sum by (server) (riskgate_a_total)"), fault);
}
