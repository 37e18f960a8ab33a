//! The objects of the chart: Kubernetes would take them, and they name each other rightly.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::chart::{
    KUBERNETES_VERSIONS, Rendered, has_labels, read_project_file, render, render_all, value_files,
};

/// Everything that the chart can create, with the Deployment.
const EVERYTHING: &str = r#"{
    "store": {"kind": "redis"},
    "autoscaling": {"enabled": true},
    "ingress": {"enabled": true, "hosts": [{"host": "a.example", "paths": ["/"]}]},
    "networkPolicy": {
        "enabled": true,
        "adminFrom": [{"podSelector": {}}],
        "egress": [{"ports": [{"port": 6379}]}]
    },
    "serviceMonitor": {"enabled": true, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": true},
    "keys": {"secretName": "riskgate-keys"},
    "tls": {"enabled": true, "secretNames": ["api-example-com"]},
    "service": {"type": "LoadBalancer", "annotations": {"a.example/b": "c"}},
    "upstream": {"servers": ["a.example:9000"]},
    "overrides": "domain\n",
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "podAnnotations": {"a.example/c": "d"},
    "podLabels": {"team": "sign-up"},
    "extraEnv": [{"name": "RISKGATE__LOG__LEVEL", "value": "debug"}],
    "extraEnvFrom": [{"configMapRef": {"name": "proxy"}}],
    "extraVolumes": [{"name": "lists", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "lists", "mountPath": "/lists"}]
}"#;

fn everything() -> Value {
    serde_json::from_str(EVERYTHING).unwrap()
}

#[test]
fn kubernetes_and_the_prometheus_operator_accept_the_objects() {
    let mut requests: Vec<Value> = value_files()
        .into_iter()
        .map(|file| json!({"file": file, "kubernetes": KUBERNETES_VERSIONS}))
        .collect();
    for is_upgrade in [false, true] {
        requests.push(json!({
            "values": everything(), "kubernetes": KUBERNETES_VERSIONS, "is_upgrade": is_upgrade
        }));
    }
    let sqlite = json!({"existingClaim": "data", "storageClassName": "fast"});
    requests.push(json!({
        "values": {"store": {"sqlite": sqlite}}, "kubernetes": KUBERNETES_VERSIONS
    }));
    let mut kinds = BTreeSet::new();
    for (request, answer) in requests.iter().zip(render_all(&requests)) {
        let rendered = answer.unwrap_or_else(|error| panic!("{request}: {error}"));
        kinds.extend(rendered.objects.iter().map(|it| it["kind"].as_str().unwrap().to_owned()));
    }
    let expected = [
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "StatefulSet",
    ];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn an_object_with_a_member_that_kubernetes_does_not_know_is_refused() {
    let context = json!({"podSecurityContext": {"runAsRoot": false}});
    let context = json!({"values": context, "kubernetes": ["1.37"]});
    let volumes = json!({"extraVolumes": [{"name": "a", "emptyDirectory": {}}]});
    let volumes = json!({"values": volumes, "kubernetes": ["1.37"]});
    for (answer, member) in render_all(&[context, volumes]).iter().zip(["runAsRoot", "emptyDir"]) {
        let error = answer.as_ref().unwrap_err();
        assert!(error.contains("StatefulSet riskgate") && error.contains(member), "{error}");
    }
}

/// The selectors in objects that select the pods of the gateway.
fn pod_selectors(rendered: &Rendered) -> Vec<(&str, &Value)> {
    let mut selectors = vec![
        ("workload", &rendered.workload()["spec"]["selector"]["matchLabels"]),
        ("Service", &rendered.object("Service", "")["spec"]["selector"]),
        ("admin Service", &rendered.object("Service", "-admin")["spec"]["selector"]),
        ("budget", &rendered.object("PodDisruptionBudget", "")["spec"]["selector"]["matchLabels"]),
        ("policy", &rendered.object("NetworkPolicy", "")["spec"]["podSelector"]["matchLabels"]),
    ];
    let pod = &rendered.workload()["spec"]["template"]["spec"];
    let spread = pod["topologySpreadConstraints"].as_array().unwrap();
    assert_eq!(spread.len(), 2);
    selectors.extend(spread.iter().map(|it| ("spread", &it["labelSelector"]["matchLabels"])));
    selectors
}

#[test]
fn objects_select_the_pods_of_the_gateway_and_not_the_pod_of_the_job() {
    let rendered = render(json!({"values": everything()}));
    let labels = &rendered.workload()["spec"]["template"]["metadata"]["labels"];
    let job = rendered.object("Job", "-store-init");
    let of_job = &job["spec"]["template"]["metadata"]["labels"];
    for (name, selector) in pod_selectors(&rendered) {
        assert!(has_labels(labels, selector), "{name}: {selector} {labels}");
        assert!(!has_labels(of_job, selector), "{name}: {selector} {of_job}");
    }
    assert_eq!(labels["team"], "sign-up");
    // The ServiceMonitor selects the admin Service alone, and names a port of it.
    let monitor = &rendered.object("ServiceMonitor", "")["spec"];
    let selector = &monitor["selector"]["matchLabels"];
    let admin = rendered.object("Service", "-admin");
    assert!(has_labels(&admin["metadata"]["labels"], selector));
    assert!(!has_labels(&rendered.object("Service", "")["metadata"]["labels"], selector));
    assert_eq!(monitor["endpoints"][0]["port"], admin["spec"]["ports"][0]["name"]);
    // The alerts expect this name of the job, whatever the name of the chart is.
    let relabelings = json!([{"targetLabel": "job", "replacement": "riskgate"}]);
    assert_eq!(monitor["endpoints"][0]["relabelings"], relabelings);
}

#[test]
fn each_port_that_an_object_names_is_a_port_of_the_container() {
    let rendered = render(json!({"values": everything()}));
    let container = &rendered.workload()["spec"]["template"]["spec"]["containers"][0];
    let ports = container["ports"].as_array().unwrap();
    let names: Vec<&Value> = ports.iter().map(|port| &port["name"]).collect();
    assert_eq!(names, ["http", "https", "admin"]);
    let services =
        rendered.of_kind("Service").flat_map(|it| it["spec"]["ports"].as_array().unwrap());
    let mut named: Vec<&Value> = services.map(|port| &port["targetPort"]).collect();
    assert_eq!(named, ["http", "https", "admin"]);
    let policy = &rendered.object("NetworkPolicy", "")["spec"]["ingress"];
    let rules = policy.as_array().unwrap();
    named = rules.iter().flat_map(|rule| rule["ports"].as_array().unwrap()).collect();
    assert_eq!(
        named,
        [&json!({"port": "http"}), &json!({"port": "https"}), &json!({"port": "admin"})]
    );
    // Only the admin port is closed to all but the named peers.
    assert!(rules[0]["from"].is_null() && rules[1]["from"].is_array(), "{policy}");
    let ingress = &rendered.object("Ingress", "")["spec"]["rules"][0]["http"]["paths"][0];
    assert_eq!(
        ingress["backend"]["service"],
        json!({"name": "riskgate", "port": {"name": "http"}})
    );
}

#[test]
fn the_scraper_sends_its_token_or_the_admin_token_unless_the_metrics_are_public() {
    let monitor = |is_public: bool, own: Value| {
        let mut values = everything();
        values["admin"] = json!({"secretName": "mine", "metricsPublic": is_public});
        values["serviceMonitor"] = own;
        let rendered = render(json!({"values": values}));
        rendered.object("ServiceMonitor", "")["spec"]["endpoints"][0]["authorization"].clone()
    };
    let of_admin = json!({"enabled": true});
    let reading = json!({"enabled": true, "secretName": "reading", "secretKey": "prometheus"});
    for (own, name, key) in [(&of_admin, "mine", "token"), (&reading, "reading", "prometheus")] {
        let expected = json!({"type": "Bearer", "credentials": {"name": name, "key": key}});
        assert_eq!(monitor(false, own.clone()), expected);
        assert_eq!(monitor(true, own.clone()), Value::Null);
    }
}

#[test]
fn pods_have_no_rights_that_riskgate_does_not_need() {
    let rendered = render(json!({"values": everything()}));
    for owner in [rendered.workload(), rendered.object("Job", "-store-init")] {
        let pod = &owner["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["enableServiceLinks"], false);
        let context = &pod["securityContext"];
        assert_eq!(context["runAsNonRoot"], true);
        assert_eq!(context["runAsUser"], 65532);
        assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
        let container = &pod["containers"][0];
        let context = &container["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
        assert!(container["resources"]["limits"]["memory"].is_string());
        assert_eq!(
            container["image"],
            concat!("ghcr.io/riskgate/riskgate:", env!("CARGO_PKG_VERSION"))
        );
        for volume in pod["volumes"].as_array().unwrap() {
            assert!(volume["hostPath"].is_null(), "{volume}");
        }
    }
    assert_eq!(rendered.object("ServiceAccount", "")["automountServiceAccountToken"], false);
}

#[test]
fn one_pod_with_a_file_keeps_its_volume_and_several_pods_have_none() {
    let rendered = render(json!({}));
    let workload = rendered.workload();
    assert_eq!(workload["kind"], "StatefulSet");
    assert_eq!(workload["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], "Retain");
    assert_eq!(workload["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "state");
    assert!(
        rendered.of_kind("Job").chain(rendered.of_kind("PodDisruptionBudget")).next().is_none()
    );
    let service = workload["spec"]["serviceName"].as_str().unwrap();
    assert_eq!(
        rendered.object("Service", &service["riskgate".len()..])["spec"]["clusterIP"],
        "None"
    );
    let several = render(json!({"values": {"store": {"kind": "redis"}, "replicas": 3}}));
    assert_eq!(several.workload()["kind"], "Deployment");
    assert_eq!(several.workload()["spec"]["replicas"], 3);
    // The autoscaler and the chart must not both set the number of pods.
    assert_eq!(render(json!({"values": everything()})).workload()["spec"]["replicas"], Value::Null);
}

#[test]
fn a_server_becomes_a_store_before_the_first_installation_only() {
    let rendered = render(json!({"values": {"store": {"kind": "redis"}}}));
    let annotations = &rendered.object("Job", "-store-init")["metadata"]["annotations"];
    assert_eq!(annotations["helm.sh/hook"], "pre-install");
}

#[test]
fn the_job_gets_all_settings_with_which_the_pods_reach_the_store() {
    let settings = "[store]\nsentinel_user = \"gates\"\ntls_key = \"/tls/key.pem\"\n";
    let mut values = everything();
    values["config"] = json!(format!("[plans]\nfree = 7\n{settings}"));
    let rendered = render(json!({"values": values}));
    let job = rendered.object("Job", "-store-init");
    let [pod, of_gateway] = [job, rendered.workload()].map(|it| &it["spec"]["template"]["spec"]);
    let (container, gateway) = (&pod["containers"][0], &of_gateway["containers"][0]);
    let list = |value: &Value| value.as_array().unwrap().clone();
    assert_eq!(container["envFrom"], gateway["envFrom"]);
    assert!(list(&container["env"]).contains(&values["extraEnv"][0]));
    assert!(list(&container["volumeMounts"]).contains(&values["extraVolumeMounts"][0]));
    assert!(list(&pod["volumes"]).contains(&values["extraVolumes"][0]));
    let config = rendered.object("ConfigMap", "-store-init");
    let text = config["data"]["riskgate.toml"].as_str().unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(lines, settings.lines().collect::<Vec<&str>>());
    let weight = &config["metadata"]["annotations"]["helm.sh/hook-weight"];
    assert_eq!(
        (weight, &job["metadata"]["annotations"]["helm.sh/hook-weight"]),
        (&json!("-1"), &Value::Null)
    );
}

#[test]
fn the_chart_has_the_version_of_the_crate_and_the_alerts_of_contrib() {
    let chart = read_project_file("contrib/helm/riskgate/Chart.yaml");
    for line in ["version: ", "appVersion: "] {
        let found = chart.lines().find_map(|it| it.strip_prefix(line)).unwrap();
        assert_eq!(found.trim_matches('"'), env!("CARGO_PKG_VERSION"));
    }
    let [ours, original] = ["helm/riskgate/files", "prometheus"]
        .map(|folder| read_project_file(&format!("contrib/{folder}/alerts.yml")));
    assert!(
        ours == original,
        "cp contrib/prometheus/alerts.yml contrib/helm/riskgate/files/ renews the copy in the chart"
    );
    let rendered = render(json!({"values": everything()}));
    let groups = &rendered.object("PrometheusRule", "")["spec"]["groups"];
    let rules = groups.as_array().unwrap().iter().flat_map(|it| it["rules"].as_array().unwrap());
    let alerts = rules.filter(|rule| rule["alert"].is_string()).count();
    assert_eq!(alerts, original.matches("- alert: ").count());
    assert!(alerts > 10, "{alerts}");
}
