//! A gateway process of the real binary, in its own folder and on free ports.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tempfile::TempDir;

use super::{Connection, ListFolder, Request, Response, Secrets, free_address, get, wait_for};
use crate::redis_server::RedisServer;

pub const BINARY: &str = env!("CARGO_BIN_EXE_riskgate");

/// The number of calls that [`Gateway::warm_key`] makes, so that the account holds leased calls.
pub const WARM_UP_CALLS: u64 = 30;

/// Whether gateways use the fast path unless a test decides otherwise.
pub fn is_fast_path_enabled() -> bool {
    std::env::var_os("RISKGATE_TEST_FAST_PATH").is_some()
}

/// The settings and the command line of a gateway that is to be started.
pub struct Setup {
    folder: Arc<TempDir>,
    settings: BTreeMap<String, BTreeMap<String, String>>,
    extra_toml: String,
    environment: Vec<(String, String)>,
    /// The command line before the binary: another program that runs it.
    command_prefix: Vec<String>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup::new()
    }
}

impl Setup {
    /// A gateway with a small table, its own store, and an upstream address on which nothing
    /// listens.
    pub fn new() -> Setup {
        let folder = Arc::new(TempDir::new().unwrap());
        ListFolder::create(folder.path().join("lists"));
        let mut setup = Setup {
            folder,
            settings: BTreeMap::new(),
            extra_toml: String::new(),
            environment: vec![],
            command_prefix: vec![],
        };
        let path = |name: &str| setup.folder.path().join(name).display().to_string();
        let (lists, log, store) = (path("lists"), path("access.log"), path("riskgate.db"));
        let overrides = path("overrides.csv");
        setup = setup.set_text("table.path", &lists).set_text("log.path", &log);
        setup = setup.set_text("table.overrides", &overrides);
        setup =
            setup.set_text("listen.http", "127.0.0.1:0").set_text("listen.admin", "127.0.0.1:0");
        let process = setup.folder.path().join("run").display().to_string();
        setup = setup.set_text("process.runtime_dir", &process);
        // The whole suite runs with and without the fast path.
        if is_fast_path_enabled() {
            setup = setup.set("listen.fast_path", "true");
        }
        // A commit may take long on a disk that other processes use.
        setup = setup.set_text("store.deadline", "5s");
        setup
            .set_text("store.url", &format!("sqlite:{store}"))
            .set("upstream.health_interval", "\"0\"")
    }

    /// Uses the table inside the binary.
    pub fn with_bundled_table() -> Setup {
        Setup::new().unset("table.path")
    }

    /// Sets a setting to a value in TOML syntax.
    pub fn set(mut self, key: &str, value: &str) -> Setup {
        let (section, key) = key.split_once('.').unwrap();
        if (section, key) == ("store", "url") && value.starts_with("\"redis") {
            // A Redis server needs no time for a disk.
            self.settings.get_mut("store").unwrap().remove("deadline");
        }
        self.settings
            .entry(section.to_owned())
            .or_default()
            .insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn unset(mut self, key: &str) -> Setup {
        let (section, key) = key.split_once('.').unwrap();
        self.settings.get_mut(section).unwrap().remove(key);
        self
    }

    pub fn set_text(self, key: &str, value: &str) -> Setup {
        self.set(key, &format!("{value:?}"))
    }

    pub fn upstream(self, servers: &[SocketAddr]) -> Setup {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        self.set("upstream.servers", &format!("{servers:?}"))
    }

    /// Adds TOML after all settings, such as `[[upstream.route]]`.
    pub fn append_toml(mut self, text: &str) -> Setup {
        self.extra_toml.push_str(text);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the gateway and its commands through another program, which replaces itself with them.
    pub fn run_under(mut self, words: &[&str]) -> Setup {
        self.command_prefix = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Uses a store on a Redis server, which other gateways may share.
    pub fn with_redis(self, server: &RedisServer) -> Setup {
        self.set_text("store.url", &server.url())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn lists(&self) -> ListFolder {
        ListFolder { path: self.path("lists") }
    }

    /// The text of the config file.
    pub fn toml(&self) -> String {
        let mut out = String::new();
        for (section, settings) in &self.settings {
            writeln!(out, "[{section}]").unwrap();
            for (key, value) in settings {
                writeln!(out, "{key} = {value}").unwrap();
            }
        }
        out + &self.extra_toml
    }

    /// Also listens for TLS, with these certificates: chain and key of each.
    pub fn with_certificates(self, certificates: &[(PathBuf, PathBuf)]) -> Setup {
        let setup = self.set_text("listen.https", "127.0.0.1:0");
        certificates.iter().fold(setup, |setup, (chain, key)| {
            setup
                .append_toml(&format!("[[listen.certificate]]\nchain = {chain:?}\nkey = {key:?}\n"))
        })
    }

    /// Writes the config file and returns its path.
    pub fn write_config(&self) -> PathBuf {
        let path = self.path("riskgate.toml");
        std::fs::write(&path, self.toml()).unwrap();
        path
    }

    /// Runs a command of the binary with this config.
    #[track_caller]
    pub fn cli(&self, arguments: &[&str]) -> CommandOutput {
        self.run_cli(&self.write_config(), arguments)
    }

    #[track_caller]
    fn run_cli(&self, config: &Path, arguments: &[&str]) -> CommandOutput {
        let words = [&self.command_prefix[..], &[BINARY.to_owned()]].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments).arg("-c").arg(config);
        let ran =
            run_command(command.envs(self.environment.iter().map(|(name, value)| (name, value))));
        let secrets = self.secrets();
        secrets.assert_no_key_in("a command's stderr", &ran.stderr);
        if !matches!(arguments, ["keys", "create" | "rotate", ..]) {
            secrets.assert_no_key_in("a command's stdout", &ran.stdout);
        }
        ran
    }

    /// The secrets that this gateway must not show.
    pub fn secrets(&self) -> Secrets {
        let setting = |section: &str, key: &str| {
            let value = self.settings.get(section)?.get(key)?;
            Some(value.trim_matches('"').to_owned())
        };
        let password = setting("store", "url").and_then(|url| {
            let (user, _) = url.rsplit_once('@')?;
            Some(user.rsplit_once(':')?.1.to_owned())
        });
        // Passes the variables that a key file names by `env`, but none that another library reads.
        let is_key = |(name, value): &&(String, String)| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !name.starts_with("RISKGATE__") && value.len() >= 16 && value.bytes().all(plain)
        };
        let keys = self.environment.iter().filter(is_key);
        let texts = keys.map(|(_, value)| value.clone()).chain(password);
        Secrets {
            prefixes: setting("keys", "prefix").into_iter().collect(),
            texts: texts.chain(setting("admin", "token")).collect(),
        }
    }

    /// Starts the gateway and waits until it is ready.
    #[track_caller]
    pub fn start(mut self) -> Gateway {
        // Another process may take a free port before the gateway binds it.
        for _ in 0..5 {
            let (http, admin) = (free_address(), free_address());
            self = self.set_text("listen.http", &http.to_string());
            self = self.set_text("listen.admin", &admin.to_string());
            if self.settings["listen"].contains_key("https") {
                self = self.set_text("listen.https", &free_address().to_string());
            }
            let config = self.write_config();
            let mut gateway = Gateway::spawn(self, config, http, admin);
            if gateway.wait_until_ready() {
                return gateway;
            }
            let said = gateway.stderr();
            assert!(said.contains("expected to listen on"), "the gateway did not start: {said}");
            self = gateway.into_setup();
        }
        panic!("no free port was left for the gateway");
    }
}

impl Drop for Setup {
    /// Checks, after every test, that the gateway wrote no secret.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let secrets = self.secrets();
        for entry in std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_file() && path.extension().is_some_and(|extension| extension == "log") {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                secrets.assert_no_secret_in(&path.display().to_string(), &text);
            }
        }
    }
}

/// A running gateway. Dropping this value kills it.
pub struct Gateway {
    pub http: SocketAddr,
    pub admin: SocketAddr,
    pub config: PathBuf,
    setup: Option<Setup>,
    child: Child,
    stderr: PathBuf,
}

impl Gateway {
    fn spawn(setup: Setup, config: PathBuf, http: SocketAddr, admin: SocketAddr) -> Gateway {
        let stderr = setup.path(&format!("stderr-{}.log", http.port()));
        let words = [&setup.command_prefix[..], &[BINARY.to_owned()]].concat();
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(["run", "-c"])
            .arg(&config)
            .envs(setup.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Gateway { http, admin, config, setup: Some(setup), child, stderr }
    }

    fn wait_until_ready(&mut self) -> bool {
        wait_for("the gateway is ready or has ended", || {
            if self.child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            let ready = std::net::TcpStream::connect(self.admin).is_ok()
                && std::net::TcpStream::connect(self.http).is_ok();
            if !ready {
                return None;
            }
            // A gateway without keys is not ready and says so; some tests are about that.
            let answer = self.readyz();
            (answer.status == 200 || answer.text().contains("keys")).then_some(true)
        })
    }

    fn into_setup(mut self) -> Setup {
        self.setup.take().unwrap()
    }

    pub fn setup(&self) -> &Setup {
        self.setup.as_ref().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.setup().path(name)
    }

    pub fn lists(&self) -> ListFolder {
        self.setup().lists()
    }

    /// Writes the config file again, with one setting changed.
    pub fn edit_config(&self, change: impl FnOnce(String) -> String) {
        let text = std::fs::read_to_string(&self.config).unwrap();
        std::fs::write(&self.config, change(text)).unwrap();
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap()
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.http)
    }

    /// The address of the TLS listener.
    #[track_caller]
    pub fn with_certificates(&self) -> SocketAddr {
        self.setup().settings["listen"]["https"].trim_matches('"').parse().unwrap()
    }

    /// Starts another process with the same config, which is to take over.
    pub fn spawn_successor(&self) -> Successor {
        let stderr = self.path("stderr-successor.log");
        let child = Command::new(BINARY)
            .args(["run", "--upgrade", "-c"])
            .arg(&self.config)
            .envs(self.setup().environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Successor { child: Some(child), stderr }
    }

    /// From now on this value is the other process, which has taken over. The old process has
    /// ended.
    #[track_caller]
    pub fn replace_process(&mut self, mut successor: Successor) {
        self.wait_for_exit();
        self.child = successor.child.take().unwrap();
        self.stderr.clone_from(&successor.stderr);
    }

    #[track_caller]
    pub fn send_request(&self, request: &Request) -> Response {
        request.send(self.http)
    }

    #[track_caller]
    pub fn get(&self, target: impl AsRef<[u8]>, key: &str) -> Response {
        self.send_request(&get(target).key(key))
    }

    /// The table's response for a domain, on a connection of its own.
    #[track_caller]
    pub fn get_domain(&self, name: &str, key: &str) -> Response {
        self.get(format!("/v1/public/domain/{name}"), key)
    }

    #[track_caller]
    pub fn get_month_count(&self, key: &str) -> u64 {
        self.get("/v1/usage", key).expect(200).json()["month_count"].as_u64().unwrap()
    }

    #[track_caller]
    pub fn get_admin_page(&self, target: &str) -> Response {
        let answer = get(target).with_header("Host", "localhost").send(self.admin);
        let page = String::from_utf8_lossy(&answer.body);
        // The OpenAPI document shows examples and is the same for every gateway.
        if target != "/openapi.yaml" {
            self.setup().secrets().assert_no_secret_in(target, &page);
        }
        answer
    }

    pub fn readyz(&self) -> Response {
        self.get_admin_page("/readyz")
    }

    pub fn metrics(&self) -> String {
        self.get_admin_page("/metrics").expect(200).text()
    }

    /// The sum of those samples of a metric whose line contains all of `labels`.
    pub fn sum_of_samples(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.metrics();
        let mine = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        mine.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    #[track_caller]
    pub fn cli(&self, arguments: &[&str]) -> CommandOutput {
        self.setup().run_cli(&self.config, arguments)
    }

    /// Creates a key in the store. The gateway may not know the key yet.
    #[track_caller]
    pub fn create_key(&self, account: &str, more: &[&str]) -> String {
        let all = [&["keys", "create", "--account", account], more].concat();
        self.cli(&all).expect(0).stdout.trim_end().to_owned()
    }

    /// Creates a key, and waits until the gateway accepts it. No call is counted for it.
    #[track_caller]
    pub fn create_active_key(&self, account: &str, more: &[&str]) -> String {
        let key = self.create_key(account, more);
        wait_for("a new key opens", || self.is_key_active(&key).then_some(()));
        key
    }

    /// Creates a key, and makes [`WARM_UP_CALLS`] calls with it. If the limit is large, the account
    /// then holds leased calls, and the fast path serves its requests.
    #[track_caller]
    pub fn create_warm_key(&self, account: &str) -> String {
        let key = self.create_active_key(account, &[]);
        let mut connection = self.connect();
        for _ in 0..WARM_UP_CALLS {
            connection.ask(&get("/v1/public/top-domains").key(&key)).expect(200);
        }
        key
    }

    /// Returns true if the gateway has a key ring with this key.
    fn is_key_active(&self, key: &str) -> bool {
        !matches!(self.get("/v1/usage", key).status, 401 | 500)
    }

    /// Creates a key and returns it with its id.
    #[track_caller]
    pub fn create_active_key_with_id(&self, account: &str, more: &[&str]) -> (String, String) {
        let made = self.cli(&[&["keys", "create", "--json", "--account", account], more].concat());
        let made = made.expect(0).json();
        let key = made["key"].as_str().unwrap().to_owned();
        wait_for("a new key opens", || self.is_key_active(&key).then_some(()));
        (key, made["id"].as_str().unwrap().to_owned())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn send_signal(&self, name: &str) {
        send_signal(&self.child, name);
    }

    /// Kills the gateway as a power cut would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until the process has ended by itself.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for("the gateway has ended", || self.exit_status())
    }

    /// Stops the gateway with SIGTERM, and keeps its folder.
    #[track_caller]
    pub fn shut_down(mut self) -> Setup {
        self.send_signal("TERM");
        assert!(self.wait_for_exit().success(), "{}", self.stderr());
        self.into_setup()
    }

    /// Starts another gateway in the folder of this gateway, which has ended.
    #[track_caller]
    pub fn start_again(self) -> Gateway {
        self.into_setup().start()
    }

    /// Stops the gateway with SIGTERM, and starts another in the same folder.
    #[track_caller]
    pub fn restart(self) -> Gateway {
        self.shut_down().start()
    }

    /// Kills the gateway, and starts another in the same folder.
    #[track_caller]
    pub fn crash_and_restart(mut self) -> Gateway {
        self.kill();
        self.into_setup().start()
    }

    /// The lines of the access log.
    pub fn read_access_log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("access.log")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        whole.lines().map(parse).collect()
    }
}

fn send_signal(process: &Child, name: &str) {
    let kill = format!("kill -{name} {}", process.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// A process that waits to take over. Dropping this value kills it.
pub struct Successor {
    child: Option<Child>,
    stderr: PathBuf,
}

impl Successor {
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap()
    }

    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().unwrap().try_wait().unwrap()
    }

    /// Waits until the process is ready to take over.
    #[track_caller]
    pub fn wait_until_ready(&self) {
        wait_for("the successor waits", || {
            self.stderr().contains("ready to take over").then_some(())
        });
    }

    pub fn send_signal(&self, name: &str) {
        send_signal(self.child.as_ref().unwrap(), name);
    }

    pub fn kill(&mut self) {
        let child = self.child.as_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    #[track_caller]
    pub fn expect(self, code: i32) -> CommandOutput {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

pub fn run_command(command: &mut Command) -> CommandOutput {
    let output = command.stdin(Stdio::null()).output().unwrap();
    CommandOutput {
        code: output.status.code().expect("an end by exit"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// One gateway with the bundled table, shared by all tests that change nothing; and a key without a
/// limit.
pub fn shared_gateway() -> &'static (Gateway, String) {
    static SHARED: OnceLock<(Gateway, String)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let gateway =
            Setup::with_bundled_table().set("plans.free", "100").set("plans.all", "\"unlimited\"");
        let gateway = gateway.start();
        let key = gateway.create_active_key("readers", &["--plan", "all"]);
        // A static value is never dropped, so this shell waits for the end of the test process and
        // kills the gateway.
        let last = format!("read -r line; kill -9 {}", gateway.child.id());
        let watcher = Command::new("sh").args(["-c", &last]).stdin(Stdio::piped()).spawn();
        std::mem::forget(watcher.unwrap());
        (gateway, key)
    })
}
