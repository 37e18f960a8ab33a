//! A gateway process of the real binary, in its own folder and on free ports.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::{
    BINARY, CommandOutput, Connection, ListFolder, Request, Response, Setup, get, wait_for,
    wait_until,
};

/// The number of calls that [`Gateway::create_key_with_lease`] makes, so that the account holds
/// leased calls.
pub const CALLS_TO_OBTAIN_LEASE: u64 = 30;

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
    pub(super) fn spawn(
        setup: Setup,
        config: PathBuf,
        http: SocketAddr,
        admin: SocketAddr,
    ) -> Gateway {
        let stderr = setup.path(&format!("stderr-{}.log", http.port()));
        let words = [&setup.command_prefix[..], &[BINARY.to_owned()]].concat();
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(["run", "-c"])
            .arg(&config)
            .current_dir(setup.path(""))
            .envs(setup.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Gateway { http, admin, config, setup: Some(setup), child, stderr }
    }

    pub(super) fn wait_for_ready_or_exit(&mut self) -> bool {
        wait_for("the gateway is ready or has ended", || {
            if self.child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            if std::net::TcpStream::connect(self.admin).is_err() {
                return None;
            }
            // A gateway without keys or without a clock is not ready and says so; some tests are
            // about that.
            let answer = self.readyz();
            let is_waiting = ["keys", "never set"].iter().any(|part| answer.text().contains(part));
            (answer.status == 200 || is_waiting).then_some(true)
        })
    }

    pub fn into_setup(mut self) -> Setup {
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

    /// Replaces the text of the config file with the result of `change`.
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
    pub fn https_address(&self) -> SocketAddr {
        self.setup().settings["listen"]["https"].trim_matches('"').parse().unwrap()
    }

    /// Starts a process with the same config that waits to take over from this gateway.
    pub fn spawn_successor(&self) -> Successor {
        self.spawn_successor_with(&[])
    }

    /// As [`Gateway::spawn_successor`], with these variables too.
    pub fn spawn_successor_with(&self, variables: &[(&str, &str)]) -> Successor {
        let stderr = self.path("stderr-successor.log");
        let child = Command::new(BINARY)
            .args(["run", "--upgrade", "-c"])
            .arg(&self.config)
            .current_dir(self.path(""))
            .envs(self.setup().environment.iter().map(|(name, value)| (name, value)))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Successor { child: Some(child), stderr }
    }

    /// Waits until the old process has ended. From then on this value stands for the successor,
    /// which has taken over.
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

    /// Requests the verdict on a domain, on a new connection.
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
        let matching = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        matching.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    #[track_caller]
    pub fn cli(&self, arguments: &[&str]) -> CommandOutput {
        self.cli_with_input(arguments, b"")
    }

    /// Runs a command with this gateway's config, which reads this from its standard input.
    #[track_caller]
    pub fn cli_with_input(&self, arguments: &[&str], input: &[u8]) -> CommandOutput {
        self.setup().run_cli(&self.config, arguments, input)
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
        wait_for("a new key is accepted", || self.is_key_active(&key).then_some(()));
        key
    }

    /// Creates a key, and makes [`CALLS_TO_OBTAIN_LEASE`] calls with it. After them, the account
    /// holds leased calls if its limit is large, so that its calls don't wait for the store.
    #[track_caller]
    pub fn create_key_with_lease(&self, account: &str) -> String {
        let key = self.create_active_key(account, &[]);
        let mut connection = self.connect();
        for _ in 0..CALLS_TO_OBTAIN_LEASE {
            connection.send_request(&get("/v1/public/top-domains").key(&key)).expect(200);
        }
        key
    }

    /// Returns true if the gateway has a key ring with this key.
    fn is_key_active(&self, key: &str) -> bool {
        !matches!(self.get("/v1/usage", key).status, 401 | 500)
    }

    /// As [`Gateway::create_active_key`]; returns the key and its id.
    #[track_caller]
    pub fn create_active_key_with_id(&self, account: &str, more: &[&str]) -> (String, String) {
        let made = self.cli(&[&["keys", "create", "--json", "--account", account], more].concat());
        let made = made.expect(0).json();
        let key = made["key"].as_str().unwrap().to_owned();
        wait_for("a new key is accepted", || self.is_key_active(&key).then_some(()));
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
    pub fn start_after_exit(self) -> Gateway {
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

    /// The complete lines of the access log, parsed as JSON.
    pub fn read_access_log(&self) -> Vec<Value> {
        self.read_access_log_from(0)
    }

    /// How many bytes the whole lines of the access log have.
    pub fn access_log_length(&self) -> usize {
        let text = std::fs::read(self.path("access.log")).unwrap_or_default();
        memchr::memrchr(b'\n', &text).map_or(0, |end| end + 1)
    }

    /// The lines of the access log from this byte on.
    pub fn read_access_log_from(&self, start: usize) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("access.log")).unwrap_or_default();
        let whole = text[start..].rsplit_once('\n').map_or("", |(lines, _)| lines);
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        whole.lines().map(parse).collect()
    }
}

fn send_signal(process: &Child, name: &str) {
    let kill = format!("kill -{name} {}", process.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    if name == "STOP" {
        // A thread that runs stops a moment later.
        wait_until("all threads have stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
            tasks.flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
            })
        });
    }
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
        let ended = self.child.wait();
        if std::thread::panicking() {
            let messages = std::fs::read_to_string(&self.stderr);
            eprintln!(
                "the gateway ended with {ended:?} and wrote: {}",
                messages.unwrap_or_default()
            );
        }
    }
}

/// Returns a gateway with the bundled table, and a key whose account has no limit. All tests that
/// change nothing share this gateway.
pub fn shared_gateway() -> &'static (Gateway, String) {
    static SHARED_GATEWAY: OnceLock<(Gateway, String)> = OnceLock::new();
    SHARED_GATEWAY.get_or_init(|| {
        let gateway =
            Setup::with_bundled_table().set("plans.free", "100").set("plans.all", "\"unlimited\"");
        let gateway = gateway.start();
        let key = gateway.create_active_key("readers", &["--plan", "all"]);
        // Rust never drops a static value. Therefore this shell kills the gateway and removes its
        // folder when the test process ends and closes the shell's standard input.
        let folder = gateway.path("");
        let last = format!(
            "read -r line; kill -9 {}; rm -rf '{folder}' || rm -rf '{folder}'",
            gateway.child.id(),
            folder = folder.display()
        );
        let watcher = Command::new("sh").args(["-c", &last]).stdin(Stdio::piped()).spawn();
        std::mem::forget(watcher.unwrap());
        (gateway, key)
    })
}
