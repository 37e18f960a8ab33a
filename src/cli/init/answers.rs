//! The options of `riskgate init`, and the answers of which it makes the config.

use std::net::SocketAddr;
use std::path::{Component, PathBuf};

use crate::support::regular_file::parent_dir;

/// Linux lets only privileged processes listen on lower ports.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;
/// The port in the container if the port of the machine is privileged.
const UNPRIVILEGED_PORT_IN_CONTAINER: u16 = 8080;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The config to write; riskgate.toml in it if this is a folder.
    #[arg(value_name = "FILE", default_value = "riskgate.toml")]
    pub file: PathBuf,
    /// The address for requests.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// The server behind riskgate, with https:// before it if it speaks TLS; without one, riskgate
    /// answers everything itself.
    #[arg(long, value_name = "HOST:PORT")]
    pub upstream: Option<String>,
    /// The path to which the server's sign-up form is posted.
    #[arg(long, value_name = "PATH", requires = "upstream")]
    pub sign_up: Option<String>,
    /// The account of the first key.
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Also write riskgate.service, a unit for systemd, beside the config.
    #[arg(long, conflicts_with = "compose")]
    pub systemd: bool,
    /// Also write compose.yaml beside the config. No key is made then: `riskgate keys create` in
    /// the container makes it.
    #[arg(long)]
    pub compose: bool,
}

impl Args {
    /// Returns the path of the config to write.
    pub fn config_file(&self) -> PathBuf {
        let file = match self.file.is_dir() {
            true => self.file.components().as_path().join("riskgate.toml"),
            false => self.file.clone(),
        };
        // systemd takes no path with `..` in it.
        let is_resolved = self.systemd && file.components().any(|it| it == Component::ParentDir);
        match parent_dir(&file).canonicalize() {
            Ok(folder) if is_resolved => folder.join(file.file_name().unwrap_or_default()),
            _ => file,
        }
    }
}

/// The server behind riskgate.
#[derive(Clone)]
pub struct Upstream {
    /// `HOST:PORT`, or the name of an SRV record.
    pub server: String,
    pub speaks_tls: bool,
}

/// The answers of the options, of a person, or by default.
pub struct Answers {
    pub listen: SocketAddr,
    pub upstream: Option<Upstream>,
    pub sign_up: Option<String>,
    pub account: String,
}

impl Answers {
    /// Returns whether a process needs a capability to listen on the port.
    pub fn has_privileged_port(&self) -> bool {
        self.listen.port() < FIRST_UNPRIVILEGED_PORT
    }

    /// Returns the address for requests in a container: one that clients outside of the container
    /// reach, with a port that the process may use without a capability.
    pub fn listen_in_container(&self) -> SocketAddr {
        let port = match self.has_privileged_port() {
            true => UNPRIVILEGED_PORT_IN_CONTAINER,
            false => self.listen.port(),
        };
        SocketAddr::from(([0, 0, 0, 0], port))
    }
}
