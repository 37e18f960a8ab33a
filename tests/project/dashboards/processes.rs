//! Runs a gateway that uses every part of riskgate, and a Prometheus that scrapes it.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::project_path;
use crate::child_process::{BINARY, Process, wait_until};
use crate::free_ports::free_address;

/// How a command ended, with its standard output and standard error.
pub struct Outcome {
    pub is_good: bool,
    pub text: String,
}

pub fn run(command: &mut Command) -> Outcome {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; see scripts/setup --tests"));
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    Outcome { is_good: output.status.success(), text }
}

/// Starts a process that writes its standard error into a file.
fn spawn(command: &mut Command, log: PathBuf) -> Process {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(std::fs::File::create(log).unwrap()).spawn();
    Process(child.unwrap_or_else(|e| panic!("{program}: {e}; see scripts/setup --tests")))
}

/// A gateway with TLS, an upstream server, screening, authz, a feed, DNS learning and traces, so
/// that every metric has series. No collector and no resolver listens.
pub struct Gateway {
    http: SocketAddr,
    admin: SocketAddr,
    key: String,
    _processes: [Process; 2],
    _folder: TempDir,
}

impl Gateway {
    pub fn start() -> Gateway {
        let folder = TempDir::new().unwrap();
        let [http, https, admin, upstream, nowhere] = std::array::from_fn(|_| free_address());
        let path = |name: &str| folder.path().join(name);
        let certificate = run(Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-nodes", "-days", "90", "-subj", "/CN=gate.test", "-keyout"])
            .args([path("key.pem"), PathBuf::from("-out"), path("chain.pem")]));
        assert!(certificate.is_good, "{}", certificate.text);
        let list: String = (0..30).map(|at| format!("throw-away-{at}.example.org\n")).collect();
        std::fs::write(path("list.txt"), list).unwrap();
        std::fs::write(path("riskgate.toml"), config([http, https, admin, upstream, nowhere]))
            .unwrap();
        let command = |words: &[&str]| {
            let mut command = Command::new(BINARY);
            command.args(words).current_dir(folder.path());
            command
        };
        let address = upstream.to_string();
        let stand_in =
            spawn(&mut command(&["demo", "--upstream-only", &address]), path("upstream.log"));
        let created = command(&["keys", "create", "-c", "riskgate.toml", "--account", "acme"])
            .args(["--plan", "pro"])
            .output()
            .unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let key = String::from_utf8(created.stdout).unwrap().trim().to_owned();
        wait_until("the upstream server listens", || TcpStream::connect(upstream).is_ok());
        let log = path("stderr.log");
        let process = spawn(&mut command(&["run", "-c", "riskgate.toml"]), log);
        let _processes = [stand_in, process];
        let gateway = Gateway { http, admin, key, _processes, _folder: folder };
        wait_until("the gateway is ready", || {
            TcpStream::connect(http).is_ok()
                && gateway.get_admin("readyz").contains("\"ready\": true")
        });
        // A reload creates the series of all parts.
        let reload = format!("http://{admin}/reload");
        // A build without optimizations needs many seconds on a machine with other work.
        let reloaded = run(&mut gateway.curl(&["-X", "POST", "--max-time", "120"], &reload));
        assert!(reloaded.is_good, "{}", reloaded.text);
        gateway.send_requests();
        wait_until("every metric has a series", || {
            gateway.send_requests();
            let metrics = gateway.metrics();
            let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            let types = types.map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>();
            types.contains(&"riskgate_feed_rows") && metrics.contains("outcome=\"exported\"")
        });
        gateway
    }

    fn curl(&self, arguments: &[&str], url: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "20"]).args(arguments).arg(url);
        curl
    }

    fn get_admin(&self, page: &str) -> String {
        run(&mut self.curl(&[], &format!("http://{}/{page}", self.admin))).text
    }

    pub fn metrics(&self) -> String {
        self.get_admin("metrics")
    }

    /// Sends one request of each kind.
    pub fn send_requests(&self) {
        let key = format!("Authorization: Bearer {}", self.key);
        for path in ["/v1/public/domain/yopmail.com", "/v1/check/a@gmail.com", "/authz", "/none"] {
            let url = format!("http://{}{path}", self.http);
            run(&mut self.curl(&["-H", &key], &url));
        }
        run(&mut self.curl(&[], &format!("http://{}/v1/usage", self.http)));
        for form in ["email=x@yopmail.com", "email=x@gmail.com", "nothing=1"] {
            run(&mut self.curl(&["-d", form], &format!("http://{}/signup", self.http)));
        }
    }
}

fn config([http, https, admin, upstream, nowhere]: [SocketAddr; 5]) -> String {
    format!(
        r#"
listen = {{ http = "{http}", https = "{https}", admin = "{admin}", certificate = [
    {{ chain = "chain.pem", key = "key.pem" }} ] }}
log.path = "access.log"
traces = {{ endpoint = "http://{nowhere}/v1/traces", sample_one_in = 1 }}
authz = {{ path = "/authz", check = ["key", "quota"] }}
table = {{ feed_dir = "feeds", overrides = "", feed = [ {{ name = "local", url = "list.txt" }} ] }}
dns = {{ learn = true, resolvers = ["{nowhere}"] }}
store = {{ url = "sqlite:riskgate.db", deadline = "5s" }}
process.runtime_dir = ""
[upstream]
servers = ["{upstream}"]
[[upstream.route]]
prefix = "/signup"
methods = ["POST"]
key = false
screen = {{ fields = ["email"], mode = "block" }}
[[rule]]
name = "provider"
if = ["is_free_provider == true"]
then = "review"
"#
    )
}

/// A Prometheus that scrapes a gateway four times a second and evaluates the alert rules.
pub struct Prometheus {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Prometheus {
    pub fn start(gateway: &Gateway) -> Prometheus {
        let (folder, address) = (TempDir::new().unwrap(), free_address());
        let config = format!(
            "global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 1s}}\n\
             rule_files: [{}]\nscrape_configs:\n\
             - job_name: riskgate\n  static_configs: [{{targets: [\"{}\"]}}]\n\
             - job_name: prometheus\n  static_configs: [{{targets: [\"{address}\"]}}]\n",
            project_path("contrib/prometheus/alerts.yml").display(),
            gateway.admin
        );
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let process = spawn(
            Command::new("prometheus")
                .arg("--config.file=prometheus.yml")
                .arg("--storage.tsdb.path=data")
                .arg(format!("--web.listen-address={address}"))
                .current_dir(folder.path()),
            folder.path().join("stderr.log"),
        );
        let prometheus = Prometheus { address, _process: process, _folder: folder };
        wait_until("Prometheus has scraped the gateway", || {
            TcpStream::connect(address).is_ok()
                && prometheus.query("up{job=\"riskgate\"} == 1").len() == 1
        });
        prometheus
    }

    /// Returns the `data` of an answer of the API. Fails if the answer is an error.
    fn get(&self, path: &str, query: &str) -> Value {
        let url = format!("http://{}/api/v1/{path}", self.address);
        let answer = run(Command::new("curl")
            .args(["-s", "-G", "--max-time", "20", "--data-urlencode"])
            .args([format!("query={query}"), url]));
        // Prometheus answers with a text while it starts.
        let Ok(answer) = serde_json::from_str::<Value>(&answer.text) else { return Value::Null };
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"].clone()
    }

    /// The series that a query selects.
    pub fn query(&self, query: &str) -> Vec<Value> {
        self.get("query", query)["result"].as_array().cloned().unwrap_or_default()
    }

    pub fn rule_groups(&self) -> Vec<Value> {
        self.get("rules", "")["groups"].as_array().unwrap().clone()
    }

    /// The rules of all groups.
    pub fn rules(&self) -> Vec<Value> {
        let groups = self.rule_groups();
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
    }
}
