//! Pods of the chart as processes: riskgate accepts their config, gets ready, and ends in time.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::chart::{NAMESPACE, Rendered, read_project_file, render, value_files};
use super::pod::{Pod, Secrets};
use super::process::{BINARY, get, run_to_success, wait_until};
use crate::redis_server::RedisServer;

const TOKEN: &str = "a-token-of-the-tests";

/// The Secrets that the examples of values name.
fn make_secrets(server: &RedisServer, with_tls: bool) -> Secrets {
    let folder = tempfile::tempdir().unwrap();
    let url = if with_tls { server.tls_url() } else { server.url() };
    let mut secrets = Secrets::from([
        ("riskgate-admin", vec![("token", TOKEN.to_owned())]),
        ("riskgate-store", vec![("url", format!("{url}\n"))]),
        ("riskgate-keys", vec![("keys.toml", read_project_file("conf/keys.example.toml"))]),
    ]);
    if with_tls {
        let ca = std::fs::read_to_string(server.ca_certificate_path()).unwrap();
        secrets.insert("redis-ca", vec![("ca.crt", ca)]);
    }
    for (name, host) in [("api-example-com", "a.example"), ("api-example-org", "b.example")] {
        let mut openssl = Command::new("openssl");
        openssl
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '));
        openssl.args("-days 2 -keyout tls.key -out tls.crt -subj".split(' '));
        let names = format!("subjectAltName=DNS:{host}");
        openssl.arg(format!("/CN={name}")).args(["-addext", &names]);
        assert!(openssl.current_dir(folder.path()).output().unwrap().status.success());
        let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
        secrets.insert(name, vec![("tls.crt", read("tls.crt")), ("tls.key", read("tls.key"))]);
    }
    secrets
}

fn pod_of_workload(rendered: &Rendered, secrets: &Secrets) -> Pod {
    Pod::new(rendered, rendered.workload(), secrets)
}

#[test]
fn riskgate_accepts_the_config_of_each_example_of_values() {
    let server = RedisServer::start_with_tls();
    // An example waits until a replica has each change.
    let replica = RedisServer::replica_of(&server);
    wait_until("the replica follows", || {
        replica.run(&["INFO", "replication"]).contains("master_link_status:up")
    });
    for file in &value_files() {
        let with_tls =
            read_project_file(&format!("contrib/helm/riskgate/{file}")).contains("redis-ca");
        let secrets = make_secrets(&server, with_tls);
        // No name of a server of the examples resolves here, which is a warning.
        let rendered = render(json!({"file": file, "values": {"upstream": {"servers": []}}}));
        if let Some(job) = rendered.of_kind("Job").next() {
            Pod::new(&rendered, job, &secrets).run_to_end();
        }
        pod_of_workload(&rendered, &secrets).exec(&["check"]);
    }
}

#[test]
fn the_settings_of_the_chart_reach_riskgate() {
    let server = RedisServer::start_with_tls();
    let secrets = make_secrets(&server, true);
    let values = json!({
        "store": {"kind": "redis", "redis": {"caSecretName": "redis-ca", "waitReplicas": 2}},
        "upstream": {"servers": ["10.0.0.1:9000", "10.0.0.2:9000"]},
        "admin": {"metricsPublic": true},
        "keys": {"secretName": "riskgate-keys"},
        "tls": {"enabled": true, "secretNames": ["api-example-com", "api-example-org"]},
        "drain": {"delaySeconds": 0, "graceSeconds": 90},
        "config": format!(
            "[check]\nanswer = \"table\"\n[[admin.token]]\nname = \"prometheus\"\n\
             scope = \"read\"\nhash = \"sha256:{}\"\n",
            "0".repeat(64)
        ),
        "overrides": "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,\
                      mx_provider_label\nshop.example.co,subtree,safe,0,,true,\n",
        "extraEnv": [{"name": "RISKGATE__LOG__LEVEL", "value": "debug"}],
    });
    let rendered = render(json!({"values": values}));
    let pod = pod_of_workload(&rendered, &secrets);
    let shown: Vec<Value> = serde_json::from_str(&pod.exec(&["config", "show", "--json"])).unwrap();
    let setting = |key: &str| {
        let found = shown.iter().find(|it| it["key"] == key).unwrap_or_else(|| panic!("{key}"));
        found["value"].as_str().unwrap_or("none").to_owned()
    };
    for (key, value) in [
        ("upstream.servers", "[\"10.0.0.1:9000\", \"10.0.0.2:9000\"]"),
        ("store.wait_replicas", "2"),
        ("admin.metrics_public", "true"),
        ("admin.token.0.scope", "\"read\""),
        ("drain.delay", "\"0s\""),
        ("drain.grace", "\"90s\""),
        ("log.level", "\"debug\""),
        ("check.answer", "\"table\""),
    ] {
        assert_eq!(setting(key), value, "{key}");
    }
    let json = serde_json::to_string(&shown).unwrap();
    for text in
        ["tls/api-example-com/tls.crt", "keys/keys.toml", "overrides.csv", "store-ca/ca.crt"]
    {
        // The folders of the volumes have the names of the volumes.
        let file = text.rsplit('/').next().unwrap();
        assert!(json.contains(file), "{text}: {json}");
    }
    assert_eq!(pod.spec["terminationGracePeriodSeconds"], 100);
}

/// Creates a key in the pod, and asks with it.
#[track_caller]
fn create_key_and_ask(pod: &Pod) -> String {
    let key = pod.exec(&["keys", "create", "--account", "acme", "--plan", "pro"]);
    let ask = || get(pod.address(8080), "/v1/public/domain/yopmail.com", Some(&key));
    wait_until("the key works", || ask().is_some_and(|(status, _)| status == 200));
    let (_, body) = ask().unwrap();
    assert!(body.contains("\"reason\":\"disposable\""), "{body}");
    key
}

#[test]
fn a_pod_with_a_file_gets_ready_serves_reloads_and_drains_in_its_grace_period() {
    let values = |limit: u32| {
        // No list can be fetched here.
        let feed = "[[table.feed]]\nname = \"castle\"\nenabled = false\n";
        let config = format!("{feed}[check]\nanswer = \"table\"\n[plans]\nfree = {limit}\n");
        json!({"values": {
            "config": config, "drain": {"delaySeconds": 2, "graceSeconds": 3},
            "admin": {"metricsPublic": true}
        }})
    };
    let rendered = render(values(100));
    let secrets = Secrets::from([("riskgate-admin", vec![("token", TOKEN.to_owned())])]);
    let pod = pod_of_workload(&rendered, &secrets);
    let mut running = pod.start();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        running.wait_for_probe(probe, 200);
    }
    create_key_and_ask(&pod);
    assert_eq!(get(pod.address(9090), "/status", None).unwrap().0, 401);
    let status = get(pod.address(9090), "/status", Some(TOKEN)).unwrap();
    assert_eq!(status.0, 200);
    // Each folder that riskgate writes to is a volume, so it reports no fault.
    let readiness = get(pod.address(9090), "/readyz", Some(TOKEN)).unwrap().1;
    assert!(readiness.contains("\"degraded\": []"), "{readiness}");
    assert!(!running.log().contains("warn"), "{}", running.log());

    let reloads = || {
        let metrics = get(pod.address(9090), "/metrics", None).unwrap().1;
        let line = "riskgate_reloads_total{outcome=\"ok\",part=\"config\"} ";
        metrics.lines().find_map(|it| it.strip_prefix(line)?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let before = reloads();
    pod.update_config(&render(values(200)));
    wait_until("riskgate reads the new ConfigMap", || reloads() > before);

    pod.update_admin_token("another-token-of-the-tests");
    let ask = |token| get(pod.address(9090), "/status", Some(token)).unwrap().0;
    wait_until("the new token works", || ask("another-token-of-the-tests") == 200);
    assert_eq!(ask(TOKEN), 401);

    let begun = Instant::now();
    running.process.send_sigterm();
    running.wait_for_probe("readinessProbe", 503);
    assert_eq!(running.probe("livenessProbe"), 200);
    let grace = pod.spec["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert_eq!(grace, 15);
    assert!(running.process.wait_for_end(begun) < Duration::from_secs(grace));
}

#[test]
fn two_pods_on_one_server_get_ready_after_the_job_and_share_keys() {
    let server = RedisServer::start();
    let secrets = make_secrets(&server, false);
    let values = json!({"store": {"kind": "redis"}, "replicas": 2});
    let rendered = render(json!({"values": values}));
    let pods = [(); 2].map(|()| pod_of_workload(&rendered, &secrets));
    let running = pods.each_ref().map(Pod::start);
    for pod in &running {
        pod.wait_for_probe("startupProbe", 200);
        // Without the Job, no pod gets ready, and no probe restarts it.
        pod.wait_for_probe("readinessProbe", 503);
        assert_eq!(pod.probe("livenessProbe"), 200);
    }
    let job = Pod::new(&rendered, rendered.object("Job", "-store-init"), &secrets);
    job.run_to_end();
    // Helm may run it again: it changes nothing then.
    let (first, second) = (server.run(&["DBSIZE"]), job.run_to_end());
    assert_eq!(server.run(&["DBSIZE"]), first, "{second}");
    for pod in &running {
        pod.wait_for_probe("readinessProbe", 200);
        assert!(!pod.log().contains("answers 500"), "{}", pod.log());
    }
    let key = create_key_and_ask(&pods[0]);
    let ask = || get(pods[1].address(8080), "/v1/public/domain/gmail.com", Some(&key));
    wait_until("the key works in both pods", || ask().is_some_and(|(status, _)| status == 200));
}

#[test]
fn keys_move_from_a_file_to_a_server_as_the_readme_says() {
    let server = RedisServer::start();
    let secrets = make_secrets(&server, false);
    let rendered = render(json!({}));
    let old = pod_of_workload(&rendered, &secrets);
    let running = old.start();
    running.wait_for_probe("readinessProbe", 200);
    let key = create_key_and_ask(&old);
    let readme = read_project_file("contrib/helm/riskgate/README.md");
    let command = readme.lines().find_map(|line| line.trim().strip_prefix("riskgate store copy "));
    let (from, to) = command.unwrap().split_once(' ').unwrap();
    assert!(to.starts_with("redis://"), "{to}");
    old.exec(&["store", "copy", &old.localize(from), &server.url()]);
    drop(running);

    let rendered =
        render(json!({"values": {"store": {"kind": "redis", "redis": {"init": false}}}}));
    assert!(rendered.of_kind("Job").next().is_none());
    let new = pod_of_workload(&rendered, &secrets);
    let running = new.start();
    running.wait_for_probe("readinessProbe", 200);
    let (status, _) = get(new.address(8080), "/v1/public/domain/gmail.com", Some(&key)).unwrap();
    assert_eq!(status, 200);
}

#[test]
fn the_notes_name_commands_of_riskgate_and_objects_of_the_release() {
    for (file, kind) in
        [("ci/default-values.yaml", "statefulset"), ("ci/redis-values.yaml", "deployment")]
    {
        let rendered = render(json!({"file": file}));
        let notes = &rendered.notes;
        for text in [
            format!("rollout status {kind}/riskgate -n {NAMESPACE}"),
            format!("exec {kind}/riskgate -n {NAMESPACE} -- riskgate keys create"),
            format!("port-forward service/riskgate -n {NAMESPACE} 8080:80"),
            "create secret generic riskgate-admin".to_owned(),
            format!(
                "TOKEN=$(kubectl get secret riskgate-admin -n {NAMESPACE} \\\n     -o \
                 go-template='{{{{index .data \"token\" | base64decode}}}}')"
            ),
            "-H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:9090/readyz".to_owned(),
        ] {
            assert!(notes.contains(&text), "{text}: {notes}");
        }
        let commands = notes.lines().filter_map(|line| line.split_once("-- riskgate "));
        for (_, command) in commands {
            let words = command.trim_end_matches(')').split(' ').chain(["--help"]);
            run_to_success(Command::new(BINARY).args(words));
        }
    }
}
