//! What another Pingora server mounts: the gate, and the service that updates its state.

use std::sync::Arc;

use pingora::services::background::GenBackgroundService;

use super::server::inputs::{StartError, StartupInputs, check_log_file};
use super::server::startup::build_state;
use crate::config::ConfigOverrides;
use crate::gate::Gate;
use crate::process::reload::Reloader;

/// A gate for a Pingora server of your own, with the same state and the same reloads as `riskgate
/// run`.
pub struct Mount {
    gate: Gate,
    reloader: Reloader,
}

impl Mount {
    /// Reads config, table, keys and store as `riskgate run` would, and listens nowhere.
    pub fn new(overrides: ConfigOverrides) -> Result<Mount, StartError> {
        let loaded = StartupInputs::read(&overrides).map_err(StartError::Config)?;
        check_log_file(&loaded.config)?;
        let trusted_proxies = loaded.config.trusted_proxies.clone();
        let (state, reloader, _) = build_state(loaded, None, overrides)?;
        Ok(Mount { gate: Gate::new(state, trusted_proxies), reloader })
    }

    /// The gate. Clones share its state, so each of your proxies can have one.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// The service that reloads table, keys and config; add it to your server.
    pub fn into_reload_service(self) -> GenBackgroundService<Reloader> {
        GenBackgroundService::new("riskgate".to_owned(), Arc::new(self.reloader))
    }
}
