//! The settings of a gateway, and commands of the binary with these settings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::{
    BINARY, CommandOutput, Gateway, GatewaySecrets, ListFolder, free_address,
    run_command_with_input,
};
use crate::redis_server::RedisServer;

/// Returns true if gateways use the fast path unless a test decides otherwise.
pub fn is_fast_path_the_default() -> bool {
    std::env::var_os("RISKGATE_TEST_PINGORA_PATH").is_none()
}

/// The settings and the command line of a gateway that is to be started.
pub struct Setup {
    folder: Arc<TempDir>,
    pub(super) settings: BTreeMap<String, BTreeMap<String, String>>,
    extra_toml: String,
    pub(super) environment: Vec<(String, String)>,
    /// The command line before the binary: another program that runs it.
    pub(super) command_prefix: Vec<String>,
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
        if !is_fast_path_the_default() {
            setup = setup.set("listen.fast_path", "false");
        }
        // An answer of the store may take long on a machine that has other work.
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

    pub fn with_upstreams(self, servers: &[SocketAddr]) -> Setup {
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
        self.cli_with_input(arguments, b"")
    }

    /// Runs a command of the binary with this config, which reads this from its standard input.
    #[track_caller]
    pub fn cli_with_input(&self, arguments: &[&str], input: &[u8]) -> CommandOutput {
        self.run_cli(&self.write_config(), arguments, input)
    }

    #[track_caller]
    pub(super) fn run_cli(&self, config: &Path, arguments: &[&str], input: &[u8]) -> CommandOutput {
        let words = [&self.command_prefix[..], &[BINARY.to_owned()]].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments).arg("-c").arg(config);
        // Nothing that lies about where the tests run counts.
        command.current_dir(self.path(""));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let ran = run_command_with_input(&mut command, input);
        let secrets = self.secrets();
        secrets.assert_no_key_in("a command's stderr", &ran.stderr);
        if !matches!(arguments, ["keys", "create" | "rotate", ..]) {
            secrets.assert_no_key_in("a command's stdout", &ran.stdout);
        }
        ran
    }

    /// The secrets that this gateway must not show.
    pub fn secrets(&self) -> GatewaySecrets {
        let setting = |section: &str, key: &str| {
            let value = self.settings.get(section)?.get(key)?;
            Some(value.trim_matches('"').to_owned())
        };
        let password = setting("store", "url").and_then(|url| {
            let (user, _) = url.rsplit_once('@')?;
            Some(user.rsplit_once(':')?.1.to_owned())
        });
        // A variable that a key file may name by `env`; riskgate's own settings are no keys.
        let is_key = |(name, value): &&(String, String)| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !name.starts_with("RISKGATE__") && value.len() >= 16 && value.bytes().all(plain)
        };
        let keys = self.environment.iter().filter(is_key);
        let texts = keys.map(|(_, value)| value.clone()).chain(password);
        GatewaySecrets {
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
            if gateway.wait_for_ready_or_exit() {
                return gateway;
            }
            let stderr = gateway.stderr();
            assert!(
                stderr.contains("expected to listen on"),
                "the gateway did not start: {stderr}"
            );
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
                let bytes = std::fs::read(&path).unwrap();
                // Chance makes addresses of the bytes of a store that a test has linked here.
                if bytes.starts_with(b"SQLite format 3\0") {
                    continue;
                }
                let text = String::from_utf8_lossy(&bytes).into_owned();
                secrets.assert_no_secret_in(&path.display().to_string(), &text);
            }
        }
    }
}
