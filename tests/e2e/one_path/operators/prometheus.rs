//! The metrics as a real Prometheus reads them.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{
    CertificateAuthority, CommandOutput, DemoUpstream, Gateway, MockUpstream, Request, Setup,
    free_address, get, request, run_command, wait_for, wait_until,
};

/// A Prometheus server that scrapes a gateway four times a second. Dropping this value kills it.
struct Prometheus {
    address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Prometheus {
    fn start(gateway: &Gateway) -> Prometheus {
        let (folder, address) = (TempDir::new().unwrap(), free_address());
        let config = format!(
            "global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}\nscrape_configs:\n\
             - job_name: riskgate\n  static_configs: [{{targets: [\"{}\"]}}]\n",
            gateway.admin
        );
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let log = std::fs::File::create(folder.path().join("stderr.log")).unwrap();
        let child = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("expected prometheus to be installed: scripts/setup --tests");
        let prometheus = Prometheus { address, child, _folder: folder };
        wait_until("Prometheus has scraped the gateway", || {
            std::net::TcpStream::connect(address).is_ok() && prometheus.query("up == 1") == [1.0]
        });
        prometheus
    }

    /// The values of the series that a query selects.
    fn query(&self, query: &str) -> Vec<f64> {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-G", "--max-time", "20", "--data-urlencode", &format!("query={query}")]);
        let answer = run_command(curl.arg(format!("http://{}/api/v1/query", self.address)));
        let Ok(answer) = serde_json::from_str::<Value>(&answer.stdout) else { return Vec::new() };
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let series = answer["data"]["result"].as_array().unwrap().clone();
        series.iter().map(|s| s["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check_metrics(gateway: &Gateway) -> CommandOutput {
    let file = gateway.path("metrics.txt");
    std::fs::write(&file, gateway.metrics()).unwrap();
    let shell = format!("promtool check metrics < {}", file.display());
    run_command(Command::new("sh").args(["-c", &shell]))
}

fn start_busy_gateway() -> (Gateway, MockUpstream, String) {
    let upstream = MockUpstream::start();
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let route = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
                 [upstream.route.screen]\nfields = [\"email\"]\n";
    let gateway = setup.set("plans.free", "1000000").append_toml(route).start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, upstream, key)
}

fn requests_of_all_kinds(key: &str) -> Vec<Request> {
    let form = "application/x-www-form-urlencoded";
    vec![
        get("/v1/public/domain/yopmail.com").key(key),
        get("/v1/public/domain/gmail.com").key(key),
        get("/v1/public/domain/some-name-that-no-list-has.de").key(key),
        get("/v1/check/a@b.com").key(key),
        get("/v1/usage"),
        get("/nowhere"),
        request("POST", "/signup").with_header("Content-Type", form).body("email=x@yopmail.com"),
    ]
}

#[test]
fn promtool_finds_nothing_to_criticize() {
    let (gateway, _upstream, key) = start_busy_gateway();
    let checked = check_metrics(&gateway).expect(0);
    assert_eq!((checked.stdout.as_str(), checked.stderr.as_str()), ("", ""));
    requests_of_all_kinds(&key).iter().for_each(|asked| drop(gateway.send_request(asked)));
    let checked = check_metrics(&gateway).expect(0);
    assert_eq!((checked.stdout.as_str(), checked.stderr.as_str()), ("", ""));
    let metrics = gateway.metrics();
    for line in metrics.lines().filter(|line| line.starts_with("# TYPE ")) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[2].ends_with("_total"), words[3] == "counter", "{line}");
    }
    let verdict = |reason: &str, source: &str| {
        let labels = [format!("reason={reason:?}"), format!("source={source:?}")];
        let labels = labels.each_ref().map(String::as_str);
        gateway.sum_of_samples("riskgate_verdicts_total", &labels)
    };
    assert_eq!(verdict("disposable", "list"), 2.0);
    assert_eq!(verdict("safe", "list"), 1.0);
    assert_eq!(verdict("safe", "none"), 1.0);
    let of_domain = ["route=\"domain\""];
    assert_eq!(gateway.sum_of_samples("riskgate_request_duration_seconds_count", &of_domain), 3.0);
    // There is no certificate.
    assert!(!metrics.contains("riskgate_tls_certificate_expires"), "{metrics}");
    assert!(metrics.contains("riskgate_build_info{version="), "{metrics}");
}

#[test]
fn prometheus_sees_counters_grow_over_a_reload_and_no_series_vanish() {
    let (gateway, _upstream, key) = start_busy_gateway();
    let prometheus = Prometheus::start(&gateway);
    let asked = requests_of_all_kinds(&key);
    let series = "count({job=\"riskgate\",__name__=~\"riskgate_.*\"})";
    let send_all = || asked.iter().for_each(|asked| drop(gateway.send_request(asked)));
    // Creating the key has sent requests too.
    let earlier = gateway.sum_of_samples("riskgate_requests_total", &[]);
    send_all();
    let before = wait_for("the requests are counted", || {
        let counted = prometheus.query("sum(riskgate_requests_total)");
        (counted == [earlier + asked.len() as f64]).then(|| prometheus.query(series))
    });
    for round in 0..10 {
        send_all();
        if round == 5 {
            gateway.edit_config(|toml| toml.replace("\"/signup\"", "\"/register\""));
            gateway.send_signal("HUP");
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let total = earlier + (11 * asked.len()) as f64;
    wait_until("all requests are counted", || {
        prometheus.query("sum(riskgate_requests_total)") == [total]
    });
    for counter in ["requests_total", "screened_total", "verdicts_total", "store_commits_total"] {
        let resets = format!("sum(resets(riskgate_{counter}[1m]))");
        assert_eq!(prometheus.query(&resets), [0.0], "{counter}");
    }
    assert!(prometheus.query(series) >= before, "series vanished");
    assert_eq!(prometheus.query("sum(riskgate_request_duration_seconds_count)"), [total]);
}

#[test]
fn metrics_tell_how_upstream_servers_answer() {
    let (upstream, ended) = (MockUpstream::start(), DemoUpstream::start(&[]));
    let dead = ended.address;
    let setup = Setup::new().with_upstreams(&[dead, upstream.address]);
    let gateway =
        setup.set_text("upstream.health_interval", "1h").set("plans.free", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    drop(ended);
    let (dead, live) = (format!("server=\"{dead}\""), format!("server=\"{}\"", upstream.address));
    let attempts = |server: &str, outcome: &str| {
        let labels = [server, &format!("outcome={outcome:?}")];
        gateway.sum_of_samples("riskgate_upstream_requests_total", &labels)
    };
    for _ in 0..10 {
        gateway.get("/v1/check/a@b.com", &key).expect(200);
    }
    assert_eq!(attempts(&live, "response"), 10.0);
    let durations = "riskgate_upstream_response_header_seconds_count";
    assert_eq!(gateway.sum_of_samples(durations, &[&live]), 10.0);
    // The first attempt at the dead server takes it out of rotation.
    assert_eq!(attempts(&dead, "connect_failed"), 1.0);
    assert_eq!(gateway.sum_of_samples("riskgate_upstream_retries_total", &[]), 1.0);
    assert_eq!(gateway.sum_of_samples("riskgate_upstream_healthy", &[&live]), 1.0);
    assert_eq!(gateway.sum_of_samples("riskgate_upstream_healthy", &[&dead]), 0.0);
    assert!(gateway.metrics().contains(&format!("riskgate_upstream_healthy{{{dead}}} 0")));
    wait_until("no exchange is in flight", || {
        gateway.metrics().contains("riskgate_upstream_exchanges_in_flight 0")
    });
}

#[test]
fn metrics_tell_how_old_certificates_and_lists_are() {
    let setup = Setup::with_bundled_table();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificates =
        ["first", "second"].map(|name| authority.issue_certificate(name, "DNS:gate.test"));
    let gateway = setup.with_certificates(&certificates).start();
    for (chain, _) in &certificates {
        let label = format!("certificate=\"{}\"", chain.display());
        let name = "riskgate_tls_certificate_expires_timestamp_seconds";
        assert!(gateway.sum_of_samples(name, &[&label]) > 1.7e9, "{label}");
    }
    let published = "riskgate_table_source_published_timestamp_seconds";
    let metrics = gateway.metrics();
    let published = metrics.lines().filter(|line| line.starts_with(published));
    assert!(published.count() > 5, "{metrics}");
}
