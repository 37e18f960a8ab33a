//! Runs a real `redis-server` for a test, on its own loopback port and in its own folder. Dropping
//! a [`RedisServer`] ends the server and removes the folder.
//!
//! With `RISKGATE_TEST_REDIS_SERVER=PATH` it runs another program, such as `valkey-server`.
//!
//! The unit tests in `src/` and the tests in `tests/e2e` include this file by its path. Without an
//! installed `redis-server` these tests fail; `scripts/setup --tests` installs it.
#![allow(dead_code, reason = "each test program that includes this file uses only a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::Value;

use super::free_ports::{free_port, free_port_of_member};

/// Longer than a server needs to start or to answer on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server, or a killed server that can be started again.
pub struct RedisServer {
    child: Child,
    port: u16,
    tls_port: u16,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: tempfile::TempDir,
}

impl RedisServer {
    /// Starts a server without persistence: a kill loses all data.
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisServer::start_with_arguments(&[])
    }

    /// Starts a server that answers a write only after the write is on disk.
    #[track_caller]
    pub fn start_on_disk() -> RedisServer {
        RedisServer::start_with_arguments(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts a server with these environment variables.
    #[track_caller]
    pub fn start_with_env(environment: &[(&str, String)]) -> RedisServer {
        let owned = environment.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        RedisServer::start_process(&[], false, owned.collect())
    }

    /// Starts a server that also accepts TLS. An authority has signed the server's certificate;
    /// [`RedisServer::ca_certificate_path`] is the authority's certificate.
    #[track_caller]
    pub fn start_with_tls() -> RedisServer {
        RedisServer::start_process(&["--tls-auth-clients", "no"], true, Vec::new())
    }

    /// Like [`RedisServer::start_with_tls`], for a server that demands a certificate of clients.
    #[track_caller]
    pub fn start_with_client_tls() -> RedisServer {
        RedisServer::start_process(&["--tls-auth-clients", "yes"], true, Vec::new())
    }

    /// Starts a server in cluster mode that demands a certificate of clients, and uses TLS to other
    /// members.
    #[track_caller]
    pub fn start_tls_cluster_member() -> RedisServer {
        let arguments = ["--tls-auth-clients", "yes", "--tls-cluster", "yes"];
        let arguments = [&arguments[..], &["--cluster-enabled", "yes"]].concat();
        RedisServer::start_process(&arguments, true, Vec::new())
    }

    /// Starts a replica of another server.
    #[track_caller]
    pub fn replica_of(primary: &RedisServer) -> RedisServer {
        let port = primary.port.to_string();
        RedisServer::start_with_arguments(&["--replicaof", "127.0.0.1", &port])
    }

    /// Starts a server with further settings, written as on its command line.
    #[track_caller]
    pub fn start_with_arguments(arguments: &[&str]) -> RedisServer {
        RedisServer::start_process(arguments, false, Vec::new())
    }

    #[track_caller]
    fn start_process(
        arguments: &[&str],
        tls: bool,
        mut environment: Vec<(String, String)>,
    ) -> RedisServer {
        let mut folder = tempfile::tempdir().unwrap();
        let mut arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        if tls {
            make_certificates(folder.path());
            for (name, file) in
                [("--tls-cert-file", "server.pem"), ("--tls-key-file", "server.key")]
            {
                arguments.push(name.to_owned());
                arguments.push(folder.path().join(file).display().to_string());
            }
            arguments.push("--tls-ca-cert-file".to_owned());
            arguments.push(folder.path().join("ca.pem").display().to_string());
        }
        let is_member = arguments.iter().any(|argument| argument == "--cluster-enabled");
        let find_port = if is_member { free_port_of_member } else { free_port };
        // Another process may take the free port before the server binds it.
        for _ in 0..5 {
            let (port, tls_port) = (find_port(), if tls { find_port() } else { 0 });
            let child = spawn_redis_server(folder.path(), port, tls_port, &arguments, &environment);
            let mut server = RedisServer { child, port, tls_port, arguments, environment, folder };
            match server.wait_for_ready_or_exit() {
                Ok(()) => return server,
                Err(said) => assert!(said.contains("Address already in use"), "{said}"),
            }
            arguments = std::mem::take(&mut server.arguments);
            environment = std::mem::take(&mut server.environment);
            folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
        }
        panic!("no free port was left for redis-server");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The URL of this server for a user that [`RedisServer::run`] created with `ACL SETUSER`.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.tls_port)
    }

    /// The certificate of the authority that signed the server's certificate.
    pub fn ca_certificate_path(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate that the authority has signed, and its key.
    pub fn certificate_paths(&self) -> [PathBuf; 2] {
        ["server.pem", "server.key"].map(|file| self.folder.path().join(file))
    }

    /// Runs a Redis command. Returns the reply, or the text of the error.
    pub fn try_run(&self, words: &[&str]) -> Result<Value, String> {
        let client = redis::Client::open(self.url()).map_err(|e| e.to_string())?;
        let connection = client.get_connection_with_timeout(Duration::from_secs(2));
        let mut connection = connection.map_err(|e| e.to_string())?;
        connection.set_read_timeout(Some(TEST_TIMEOUT)).map_err(|e| e.to_string())?;
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut connection).map_err(|error| error.to_string())
    }

    /// Runs a Redis command that must succeed. Returns the reply as text, with each list element on
    /// its own line.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        match self.try_run(words) {
            Ok(value) => reply_as_text(&value),
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Runs `CLUSTER ADDSLOTS` or `CLUSTER DELSLOTS` for the slots from the first to the last.
    /// Redis 6.2 has no commands for a range.
    #[track_caller]
    pub fn run_for_slots(&self, subcommand: &str, first: usize, last: usize) {
        let slots: Vec<String> = (first..=last).map(|slot| slot.to_string()).collect();
        let words = ["CLUSTER", subcommand].into_iter().chain(slots.iter().map(String::as_str));
        self.run(&words.collect::<Vec<&str>>());
    }

    /// The names of all keys that match a pattern.
    #[track_caller]
    pub fn matching_keys(&self, pattern: &str) -> Vec<String> {
        self.run(&["KEYS", pattern]).lines().map(str::to_owned).collect()
    }

    /// Kills the server as a power cut would.
    pub fn kill(&mut self) {
        // The server may already have been killed.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Starts the server again on its port and in its folder. Kills it first if it runs.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        let RedisServer { port, tls_port, arguments, environment, folder, .. } = &*self;
        self.child = spawn_redis_server(folder.path(), *port, *tls_port, arguments, environment);
        self.wait_for_ready_or_exit().unwrap_or_else(|said| panic!("redis-server: {said}"));
    }

    /// Stops the process with SIGSTOP: the port stays open, but the server no longer answers.
    pub fn pause(&self) {
        self.send_signal("STOP");
    }

    /// Continues the process with SIGCONT.
    pub fn resume(&self) {
        self.send_signal("CONT");
    }

    fn send_signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits until the server answers. Returns the server's output if the process ends instead.
    fn wait_for_ready_or_exit(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            if self.child.try_wait().unwrap().is_some() {
                return Err(self.read_output());
            }
            // Another server on the same port would answer too, but with another process id.
            let info = self.try_run(&["INFO"]).map(|value| reply_as_text(&value));
            let process_line = format!("process_id:{}\r\n", self.child.id());
            let ready =
                |info: String| info.contains(&process_line) && info.contains("\nloading:0\r\n");
            if info.is_ok_and(ready) {
                return Ok(());
            }
            if begun.elapsed() > TEST_TIMEOUT {
                return Err(format!("did not answer in time: {}", self.read_output()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn read_output(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("words.log")).unwrap_or_default()
    }
}

/// A running Cluster.
pub struct RedisCluster {
    pub primaries: Vec<RedisServer>,
    /// The n-th replica is that of the n-th primary.
    pub replicas: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a Cluster of this many primaries, each with an equal share of the slots. Some two
    /// seconds later, it takes commands: see [`RedisCluster::wait_until_ready`].
    #[track_caller]
    pub fn begin_start(primary_count: usize, further_arguments: &[&str]) -> RedisCluster {
        let start = || RedisCluster::start_member(further_arguments);
        let primaries: Vec<RedisServer> = (0..primary_count).map(|_| start()).collect();
        for (index, primary) in primaries.iter().enumerate() {
            let border = |index: usize| index * 16_384 / primary_count;
            let (first, last) = (border(index), border(index + 1) - 1);
            primary.run_for_slots("ADDSLOTS", first, last);
            primary.run(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        let cluster = RedisCluster { primaries, replicas: Vec::new() };
        cluster.primaries[1..].iter().for_each(|primary| cluster.meet(primary));
        cluster
    }

    /// Starts a Cluster of this many primaries, and waits until it takes commands.
    #[track_caller]
    pub fn start(primary_count: usize) -> RedisCluster {
        let cluster = RedisCluster::begin_start(primary_count, &[]);
        cluster.wait_until_ready();
        cluster
    }

    /// Like [`RedisCluster::start`], with a replica of each primary.
    #[track_caller]
    pub fn start_with_replicas(primary_count: usize) -> RedisCluster {
        RedisCluster::start_with_replicas_and_arguments(primary_count, &[])
    }

    /// Like [`RedisCluster::start_with_replicas`], with further settings of each server.
    #[track_caller]
    pub fn start_with_replicas_and_arguments(
        primary_count: usize,
        further_arguments: &[&str],
    ) -> RedisCluster {
        let mut cluster = RedisCluster::begin_start(primary_count, further_arguments);
        cluster.wait_until_ready();
        for index in 0..primary_count {
            let replica = RedisCluster::start_member(further_arguments);
            cluster.meet(&replica);
            let primary = cluster.primaries[index].run(&["CLUSTER", "MYID"]);
            wait_for("the replica knows its primary", || {
                replica.try_run(&["CLUSTER", "REPLICATE", &primary]).is_ok()
            });
            cluster.replicas.push(replica);
        }
        for replica in &cluster.replicas {
            wait_for("the replica follows", || {
                replica.run(&["INFO", "replication"]).contains("master_link_status:up")
            });
        }
        // A primary votes only for a replica that it knows.
        for member in cluster.primaries.iter().chain(&cluster.replicas) {
            wait_for("each member knows all replicas", || {
                let nodes = member.run(&["CLUSTER", "NODES"]);
                nodes.lines().filter(|line| line.contains("slave")).count() == primary_count
            });
        }
        cluster
    }

    /// Starts a server that belongs to no Cluster yet.
    #[track_caller]
    pub fn start_member(further_arguments: &[&str]) -> RedisServer {
        let mut arguments = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        arguments.extend(further_arguments);
        RedisServer::start_with_arguments(&arguments)
    }

    /// Makes a server a member of this Cluster.
    #[track_caller]
    pub fn meet(&self, server: &RedisServer) {
        self.primaries[0].run(&["CLUSTER", "MEET", "127.0.0.1", &server.port.to_string()]);
    }

    /// Waits until each primary takes commands and knows all others.
    #[track_caller]
    pub fn wait_until_ready(&self) {
        let size = format!("cluster_size:{}\r\n", self.primaries.len());
        for primary in &self.primaries {
            wait_for("the Cluster takes commands", || {
                let info = primary.run(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok\r\n") && info.contains(&size)
            });
        }
    }

    /// The address of the Cluster.
    pub fn url(&self) -> String {
        let hosts = self.primaries.iter().map(|primary| format!("127.0.0.1:{}", primary.port));
        format!("redis+cluster://{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// The primary that has the slot of a Redis key. After a slot has moved, the servers may
    /// disagree for a moment, and none takes commands for it.
    #[track_caller]
    pub fn primary_of(&self, redis_key: &str) -> &RedisServer {
        let has_key = |primary: &&RedisServer| {
            // The server that does not have the slot answers with a redirection.
            primary.try_run(&["EXISTS", redis_key]).is_ok()
        };
        let find = || self.primaries.iter().find(has_key);
        wait_for("a primary has the slot", || find().is_some());
        find().expect("a primary has the slot")
    }

    /// Moves a slot with its keys from the primary that has it to another.
    #[track_caller]
    pub fn move_slot(&self, slot: &str, from: &RedisServer, to: &RedisServer) {
        let [from_id, to_id] = [from, to].map(|server| server.run(&["CLUSTER", "MYID"]));
        to.run(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &from_id]);
        from.run(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &to_id]);
        loop {
            let keys = from.run(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]);
            if keys.is_empty() {
                break;
            }
            let port = to.port.to_string();
            for key in keys.lines() {
                from.run(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            }
        }
        let others = self.primaries.iter().filter(|it| ![from.port, to.port].contains(&it.port));
        to.run(&["CLUSTER", "SETSLOT", slot, "NODE", &to_id]);
        for server in [from].into_iter().chain(others) {
            // A primary that has lost its last slot may be a replica already.
            if let Err(error) = server.try_run(&["CLUSTER", "SETSLOT", slot, "NODE", &to_id]) {
                assert!(error.contains("only with masters"), "{error}");
            }
        }
        // Two servers that take slots before they know of each other's moves may disagree for good.
        let epoch_of = |server: &RedisServer| {
            let info = server.run(&["CLUSTER", "INFO"]);
            info.lines().find(|line| line.starts_with("cluster_current_epoch")).map(str::to_owned)
        };
        wait_for("all servers know of the move", || {
            let epoch = epoch_of(to);
            [from].into_iter().chain(&self.primaries).all(|server| epoch_of(server) == epoch)
        });
    }
}

#[track_caller]
fn wait_for(what: &str, is_done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Running Sentinels that watch a server under the name `main`. More than half of them agree on a
/// failover, one second after the server has stopped to answer.
pub struct Sentinels {
    members: Vec<(Child, u16)>,
    password: Option<String>,
    _folder: tempfile::TempDir,
}

impl Sentinels {
    /// Starts this many Sentinels of a server, each with further lines of its config.
    #[track_caller]
    pub fn start(count: usize, primary: &RedisServer, further_lines: &str) -> Sentinels {
        Sentinels::start_processes(count, primary, further_lines, None)
    }

    /// Like [`Sentinels::start`], with the password of their default user.
    #[track_caller]
    pub fn start_with_password(
        count: usize,
        primary: &RedisServer,
        further_lines: &str,
        password: &str,
    ) -> Sentinels {
        Sentinels::start_processes(count, primary, further_lines, Some(password.to_owned()))
    }

    #[track_caller]
    fn start_processes(
        count: usize,
        primary: &RedisServer,
        further_lines: &str,
        password: Option<String>,
    ) -> Sentinels {
        let folder = tempfile::tempdir().unwrap();
        let start = |number: usize| {
            let (port, config) = (free_port(), folder.path().join(format!("{number}.conf")));
            let lines = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\n\
                 sentinel monitor main 127.0.0.1 {} {}\n\
                 sentinel down-after-milliseconds main 1000\n\
                 sentinel failover-timeout main 3000\n{further_lines}\n",
                folder.path().display(),
                primary.port,
                count / 2 + 1,
            );
            std::fs::write(&config, lines).unwrap();
            let mut command = Command::new(program());
            command.arg(&config).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
            (command.spawn().unwrap(), port)
        };
        let members = (0..count).map(start).collect();
        let sentinels = Sentinels { members, password, _folder: folder };
        let begun = Instant::now();
        // A failover needs Sentinels that know each other.
        let others = format!("num-other-sentinels\n{}\n", count - 1);
        let is_ready = |port: u16| {
            let info = sentinels.try_run(port, &["SENTINEL", "MASTER", "main"]);
            info.is_ok_and(|info| (info + "\n").contains(&others))
        };
        for (_, port) in &sentinels.members {
            while !is_ready(*port) {
                assert!(begun.elapsed() < TEST_TIMEOUT, "the Sentinels don't know each other");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        sentinels
    }

    /// The URL of the server that these Sentinels name.
    pub fn url(&self) -> String {
        let hosts = self.members.iter().map(|(_, port)| format!("127.0.0.1:{port}"));
        format!("redis+sentinel://{}/main", hosts.collect::<Vec<_>>().join(","))
    }

    /// The ports of the Sentinels.
    pub fn ports(&self) -> Vec<u16> {
        self.members.iter().map(|(_, port)| *port).collect()
    }

    /// Runs a command on the Sentinel with this port. Returns the reply as text, or the error.
    pub fn try_run(&self, port: u16, words: &[&str]) -> Result<String, String> {
        let user_info = self.password.as_ref().map(|password| format!(":{password}@"));
        let user_info = user_info.unwrap_or_default();
        let client = redis::Client::open(format!("redis://{user_info}127.0.0.1:{port}"));
        let connection = client.and_then(|it| it.get_connection_with_timeout(TEST_TIMEOUT));
        let mut connection = connection.map_err(|error| error.to_string())?;
        let mut command = redis::Cmd::new();
        command.arg(words);
        let reply: redis::RedisResult<Value> = command.query(&mut connection);
        reply.map(|reply| reply_as_text(&reply)).map_err(|error| error.to_string())
    }

    /// Stops one of the Sentinels with SIGSTOP: its port stays open, but it no longer answers.
    pub fn pause(&self, index: usize) {
        let kill = format!("kill -STOP {}", self.members[index].0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Kills one of the Sentinels.
    pub fn kill(&mut self, index: usize) {
        let _ = self.members[index].0.kill();
        self.members[index].0.wait().unwrap();
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        for (child, _) in &mut self.members {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `redis-server`, or what `RISKGATE_TEST_REDIS_SERVER` names: the path of a `valkey-server`.
fn program() -> std::ffi::OsString {
    std::env::var_os("RISKGATE_TEST_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

#[track_caller]
fn spawn_redis_server(
    folder: &Path,
    port: u16,
    tls_port: u16,
    arguments: &[String],
    environment: &[(String, String)],
) -> Child {
    let words = std::fs::File::create(folder.join("words.log")).unwrap();
    let mut command = Command::new(program());
    command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]);
    // By default the primary waits 5 s for further replicas before it starts a full sync.
    command.args(["--repl-diskless-sync-delay", "0", "--port", &port.to_string()]);
    if tls_port != 0 {
        command.args(["--tls-port", &tls_port.to_string()]);
    }
    command.arg("--dir").arg(folder).args(arguments).stdin(Stdio::null());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.stdout(words.try_clone().unwrap()).stderr(words);
    command.spawn().unwrap_or_else(|error| {
        panic!("redis-server: {error}: scripts/setup --tests brings it");
    })
}

fn reply_as_text(value: &Value) -> String {
    match value {
        Value::Nil => String::new(),
        Value::Okay => "OK".to_owned(),
        Value::Array(values) => {
            values.iter().map(reply_as_text).collect::<Vec<String>>().join("\n")
        }
        other => redis::from_redis_value_ref(other).unwrap_or_else(|_| format!("{other:?}")),
    }
}

/// Creates an authority and a certificate signed by it for 127.0.0.1, with the `openssl` command.
#[track_caller]
fn make_certificates(folder: &Path) {
    let openssl = |words: &str| {
        let made = Command::new("openssl")
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '))
            .args(words.split(' '))
            .current_dir(folder)
            .output()
            .unwrap_or_else(|e| panic!("openssl: {e}: scripts/setup --tests brings it"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    openssl("-days 2 -subj /CN=authority -keyout ca.key -out ca.pem");
    openssl(
        "-days 2 -subj /CN=server -CA ca.pem -CAkey ca.key -keyout server.key -out server.pem \
         -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE",
    );
}
