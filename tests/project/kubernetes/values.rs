//! Values of the chart: which are refused, and how they are described.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::chart::{read_project_file, render, render_all, value_files};

#[test]
fn the_chart_sets_the_health_interval_only_without_servers_and_without_one_in_the_config() {
    let config = "[upstream]\nhealth_interval = \"9s\"\n";
    let with_interval = render(json!({"values": {"config": config}}));
    for (rendered, is_set) in [(render(json!({})), true), (with_interval, false)] {
        let env = rendered.workload().to_string();
        assert_eq!(env.contains("RISKGATE__UPSTREAM__HEALTH_INTERVAL"), is_set, "{env}");
    }
}

#[test]
fn helm_refuses_values_that_do_not_fit_and_names_the_reason() {
    let config = |text: &str| json!({"config": text});
    let env = |name: &str| json!({"extraEnv": [{"name": name, "value": "x"}]});
    let redis = |members: Value| json!({"store": {"kind": "redis", "redis": members}});
    let cases = [
        (json!({"replicas": 2}), "replicas: expected 1, because with store.kind \"sqlite\""),
        (json!({"autoscaling": {"enabled": true}}), "autoscaling.enabled: expected false, because"),
        (
            json!({"store": {"kind": "redis"}, "autoscaling": {"enabled": true, "minReplicas": 9}}),
            "autoscaling.maxReplicas: expected minReplicas, 9, or more, but found 6",
        ),
        (json!({"tls": {"enabled": true}}), "tls.secretNames: expected a Secret"),
        (json!({"ingress": {"enabled": true}}), "ingress.hosts: expected a host"),
        (config("[plans\n"), "config: expected TOML, but found an error: toml: line 2"),
        (
            config("[listen]\nhttp = \"0.0.0.0:80\"\n"),
            "config: listen.http: expected the chart to set it, from bindAddress",
        ),
        (
            config("[[listen.certificate]]\nchain = \"a\"\nkey = \"b\"\n"),
            "config: listen.certificate: expected the chart to set it, from tls.secretNames",
        ),
        (config("[drain]\ndelay = \"5s\"\n"), "from drain.delaySeconds, but found it in the text"),
        (
            config("[admin]\ntoken = \"a-token-of-the-tests\"\n"),
            "config: admin.token: expected the chart to set it, from admin.secretName",
        ),
        (
            env("RISKGATE__STORE__URL"),
            "extraEnv: RISKGATE__STORE__URL: expected the chart to set it, from store.kind",
        ),
        (env("RISKGATE_CONFIG"), "extraEnv: RISKGATE_CONFIG: expected the chart to set it"),
        (
            env("RISKGATE__UPSTREAM__HEALTH_INTERVAL"),
            "extraEnv: RISKGATE__UPSTREAM__HEALTH_INTERVAL: expected no such variable, because",
        ),
        (
            json!({"podLabels": {"app.kubernetes.io/name": "x"}}),
            "podLabels: app.kubernetes.io/name: expected the chart to set it, because Services",
        ),
        (config("check = 1\n"), "config: check: expected a section, [check], but found 1"),
        (json!({"replica": 1}), "additional properties 'replica' not allowed"),
        (json!({"store": {"kind": "mysql"}}), "at '/store/kind': value must be one of 'sqlite'"),
        (json!({"store": {"sqlite": {"size": 5}}}), "at '/store/sqlite/size': got number"),
        (redis(json!({"secretName": ""})), "at '/store/redis/secretName'"),
        (redis(json!({"waitReplicas": 9})), "at '/store/redis/waitReplicas': maximum: got 9"),
        (redis(json!({"url": "redis://x"})), "additional properties 'url' not allowed"),
        (json!({"admin": {"token": "secret"}}), "additional properties 'token' not allowed"),
        (json!({"drain": {"graceSeconds": "30s"}}), "at '/drain/graceSeconds': got string"),
        (json!({"upstream": {"servers": ["a:1,b:2"]}}), "at '/upstream/servers/0'"),
        (json!({"bindAddress": "localhost"}), "at '/bindAddress': value must be one of"),
        (json!({"service": {"type": "ExternalName"}}), "at '/service/type'"),
        (json!({"image": {"digest": "latest"}}), "at '/image/digest'"),
        (json!({"ingress": {"hosts": [{"host": "a"}]}}), "missing property 'paths'"),
        (json!({"networkPolicy": {"from": ["a"]}}), "at '/networkPolicy/from/0': got string"),
    ];
    let requests: Vec<Value> = cases.iter().map(|(values, _)| json!({"values": values})).collect();
    for ((values, reason), answer) in cases.iter().zip(render_all(&requests)) {
        let error = answer.expect_err(&format!("expected Helm to refuse {values}"));
        assert!(error.contains(reason), "{values}: expected {reason:?}, but found: {error}");
    }
}

/// The paths of all values in values.yaml, and the paths without a comment above them.
fn read_value_paths() -> (BTreeSet<String>, BTreeSet<String>) {
    let text = read_project_file("contrib/helm/riskgate/values.yaml");
    let (mut all, mut uncommented) = (BTreeSet::new(), BTreeSet::new());
    let mut parents: Vec<&str> = Vec::new();
    let mut has_comment = false;
    for line in text.lines() {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let name = line.trim_start().split(':').next().unwrap();
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if line.contains(':') && is_name && depth <= parents.len() {
            parents.truncate(depth);
            parents.push(name);
            let is_section = line.ends_with(':');
            all.insert(parents.join("."));
            if !has_comment && !is_section {
                uncommented.insert(parents.join("."));
            }
        }
        has_comment = line.trim_start().starts_with('#');
    }
    (all, uncommented)
}

/// Adds the path of each property of a schema. Checks that each property has a description and that
/// each object with properties refuses others.
fn collect_schema_paths(schema: &Value, parent: &str, paths: &mut BTreeSet<String>) {
    let Some(properties) = schema["properties"].as_object() else { return };
    assert_eq!(schema["additionalProperties"], false, "{parent}");
    for (name, property) in properties {
        let path = if parent.is_empty() { name.clone() } else { format!("{parent}.{name}") };
        assert!(property["description"].as_str().is_some_and(|it| it.len() > 5), "{path}");
        assert!(property["type"].is_string() || property["type"].is_array(), "{path}");
        collect_schema_paths(property, &path, paths);
        paths.insert(path);
    }
}

#[test]
fn each_value_has_a_comment_and_a_description_in_the_schema() {
    let schema = read_project_file("contrib/helm/riskgate/values.schema.json");
    let mut described = BTreeSet::new();
    collect_schema_paths(&serde_json::from_str(&schema).unwrap(), "", &mut described);
    // Helm adds `global` to the values of each chart.
    assert!(described.remove("global"));
    let (named, uncommented) = read_value_paths();
    let missing: Vec<_> = described.difference(&named).collect();
    assert!(missing.is_empty(), "values.yaml lacks {missing:?}");
    assert!(described.len() > 80, "{}", described.len());
    // What Kubernetes defines, such as a security context, has no properties in the schema.
    let of_kubernetes = ["resources.", "podSecurityContext.", "securityContext."];
    let is_ours = |path: &&String| !of_kubernetes.iter().any(|it| path.starts_with(it));
    let undescribed: Vec<_> = named.difference(&described).filter(is_ours).collect();
    assert!(undescribed.is_empty(), "values.schema.json lacks {undescribed:?}");
    let uncommented: Vec<_> = uncommented.iter().filter(is_ours).collect();
    assert!(uncommented.is_empty(), "no comment in values.yaml: {uncommented:?}");
}

/// A change of the config.
struct Change {
    setting: String,
    config: String,
    needs_restart: bool,
}

/// A change of each setting of docs/configuration.md, and of each list with a table of its own.
fn read_changes() -> Vec<Change> {
    let text = read_project_file("docs/configuration.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let settings = rows.filter_map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[0].trim_end_matches('`');
        let reload = cells.iter().find(|cell| ["yes", "restart"].contains(cell))?;
        let (section, key) = name.split_once('.')?;
        let config = format!("[{section}]\n{key} = 1\n");
        Some(Change { setting: name.to_owned(), config, needs_restart: *reload == "restart" })
    });
    let lists = ["upstream.route", "table.feed", "rule", "admin.token"].map(|name| {
        let config = format!("[[{name}]]\nname = \"a\"\n");
        Change { setting: format!("[[{name}]]"), config, needs_restart: false }
    });
    settings.chain(lists).collect()
}

#[test]
fn a_change_of_the_config_replaces_the_pods_only_if_a_setting_needs_a_restart() {
    let changes = read_changes();
    let configs = changes.iter().map(|change| change.config.as_str());
    let requests: Vec<Value> = std::iter::once("")
        .chain(configs)
        .map(|config| json!({"values": {"config": config}}))
        .collect();
    let mut answers = render_all(&requests).into_iter();
    let template = |answer: &super::chart::Rendered| answer.workload()["spec"]["template"].clone();
    let unchanged = template(&answers.next().unwrap().unwrap());
    let (mut restarts, mut reloads, mut own) = (0, 0, 0);
    for (Change { setting, needs_restart, .. }, answer) in changes.iter().zip(answers) {
        match answer {
            Ok(rendered) => {
                let is_replaced = template(&rendered) != unchanged;
                assert_eq!(is_replaced, *needs_restart, "{setting}");
                *(if *needs_restart { &mut restarts } else { &mut reloads }) += 1;
            }
            // The chart sets it: its value changes the pod, or a file that riskgate reads.
            Err(error) => {
                assert!(
                    error.contains(&format!("config: {setting}: expected the chart")),
                    "{error}"
                );
                own += 1;
            }
        }
    }
    assert!(restarts > 35 && reloads > 25 && own > 10, "{restarts} {reloads} {own}");
}

#[test]
fn each_example_of_values_says_what_it_is_for() {
    let files = value_files();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let text = read_project_file(&format!("contrib/helm/riskgate/{file}"));
        assert!(text.starts_with("# "), "{file}");
    }
}
