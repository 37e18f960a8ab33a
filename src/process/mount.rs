//! What another Pingora server mounts: the gate or the whole gateway, and the service that keeps
//! the state of both up to date.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::ServiceWithDependents;
use pingora::services::background::{BackgroundService, GenBackgroundService};

use crate::config::{Config, ConfigFile, ConfigSources};
use crate::gate::Gate;
use crate::process::reload::Reloader;
use crate::process::server::startup::start_gate_state_and_reloader;
use crate::process::server::{StartError, StartupInputs, check_log_paths, create_upstreams};
use crate::proxy::gateway::Gateway;

/// riskgate's state, for a Pingora server of your own: table, keys, quotas and store, as `riskgate
/// run` has them.
///
/// Take a [`Gate`] for a proxy that you write yourself, or a [`Gateway`] for the whole proxy. Then
/// add [`Mount::into_reload_service`] to your server. After the server has ended, call
/// [`Gate::close`].
///
/// A mount listens on no socket: your server has the listeners. Of `[listen]`, riskgate uses only
/// `trusted_proxies`, `client_address`, `hsts`, `max_body_bytes`, `body_timeout` and
/// `max_held_bytes`. A mount has no admin listener and handles no signals.
///
/// Leave `daemon` of Pingora's `ServerConf` false, and let a service manager such as systemd put
/// the server into the background: Pingora becomes a daemon in [`Server::run`], and the threads
/// that [`Mount::from_config_file`] has started do not survive that. The reload service ends such
/// a process.
///
/// A client behind a Unix socket (`add_uds`) has no address. riskgate then does not apply
/// `max_per_client` to the client, does not write it to the access log, and reads no field in which
/// a proxy reports the client. Let your listeners use TCP if you need any of these.
///
/// [`Server::run`]: pingora::server::Server::run
pub struct Mount {
    gate: Gate,
    config: Config,
    reloader: Reloader,
    /// The process that has read the config and started riskgate's threads.
    process_id: u32,
}

/// The reloader, in the process in which it was created.
struct ReloadService {
    reloader: Reloader,
    /// See [`Mount`].
    process_id: u32,
}

#[async_trait]
impl BackgroundService for ReloadService {
    async fn start(&self, shutdown: ShutdownWatch) {
        let present_id = std::process::id();
        if present_id != self.process_id {
            log::error!(
                "riskgate: expected to run in process {}, which has read the config, but found \
                 process {present_id}, which has none of riskgate's threads: write daemon: false \
                 in the config of Pingora, and let a service manager run the server, such as \
                 systemd",
                self.process_id
            );
            log::logger().flush();
            // No counted call could succeed here, and no key would ever be revoked.
            std::process::exit(1);
        }
        self.reloader.start(shutdown).await;
    }
}

impl Mount {
    /// Reads a config file, and everything that the file names: the table, the keys, the store.
    /// Variables named `RISKGATE__SECTION__KEY` override settings of the file, as for `riskgate
    /// run`.
    ///
    /// Relative paths in the file, and default paths, start at the *base directory*:
    /// - the directory above that of the file, if the file is in a directory named `conf`;
    /// - otherwise, the directory of the file.
    ///
    /// If the base directory is /etc/riskgate, default paths start at /var/lib/riskgate instead.
    ///
    /// The call starts the threads that talk to the store and write the access log, so create only
    /// one mount in a process. riskgate writes its own messages through the `log` crate.
    ///
    /// # Errors
    /// - [`StartError::Config`] if the config, or a file or store that the config names, is faulty.
    /// - [`StartError::Failed`] for any other failure, for example if the system gives no memory.
    pub fn from_config_file(path: impl Into<PathBuf>) -> Result<Mount, StartError> {
        let file = ConfigFile::Path(path.into());
        let overrides = ConfigSources { file, flags: Vec::new() };
        let inputs = StartupInputs::read(&overrides).map_err(StartError::Config)?;
        check_log_paths(&inputs.config)?;
        let config = inputs.config.clone();
        let (state, reloader, _) = start_gate_state_and_reloader(inputs, None, overrides)?;
        let gate = Gate::new(state, config.startup.startup_rules.clone());
        Ok(Mount { gate, config, reloader, process_id: std::process::id() })
    }

    /// The gate. Clones share its state, so each of your proxies can have one.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Creates a gateway: the gate in front of the servers of `[upstream]`. Add its
    /// [`Gateway::background_service`] to your server.
    ///
    /// # Errors
    /// Returns [`StartError::Config`] if riskgate can't start the thread that resolves
    /// `upstream.servers`.
    pub fn gateway(&self) -> Result<Gateway, StartError> {
        Ok(Gateway::new(self.gate(), create_upstreams(&self.config)?))
    }

    /// Returns the service that watches config, table and keys. Add the service to your server. The
    /// service replaces each part that has changed, while requests run. If the new state of a part
    /// is faulty, the last good state stays. Settings that `riskgate run` can't reload take effect
    /// at the next start. In another process than that of [`Mount::from_config_file`], the service
    /// logs an error and ends the process with status 1.
    ///
    /// Until the service runs, riskgate counts calls, but writes no sign-ups, shared rates, audit
    /// records or times to the store, sends no webhooks, fetches no feeds and learns nothing from
    /// the DNS.
    pub fn into_reload_service(self) -> impl ServiceWithDependents + 'static {
        let service = ReloadService { reloader: self.reloader, process_id: self.process_id };
        GenBackgroundService::new("riskgate".to_owned(), Arc::new(service))
    }
}
