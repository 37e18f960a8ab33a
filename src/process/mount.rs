//! What a Pingora server of somebody else's mounts: the gate, and the service that keeps its state
//! fresh.

use std::sync::Arc;

use pingora_core::services::background::GenBackgroundService;

use super::server::assemble::assemble;
use super::server::inputs::{Loaded, StartError, check_files};
use crate::config::Overrides;
use crate::gate::Gate;
use crate::process::reload::Reloader;

/// A gate for a Pingora server of your own: the same state, kept fresh the same way.
pub struct Mount {
    gate: Gate,
    reloader: Reloader,
}

impl Mount {
    /// Reads config, table, keys and store as `riskgate run` would, and listens nowhere.
    pub fn new(overrides: Overrides) -> Result<Mount, StartError> {
        let loaded = Loaded::read(&overrides).map_err(StartError::Config)?;
        check_files(&loaded.config)?;
        let trusted_proxies = loaded.config.trusted_proxies.clone();
        let (state, reloader, _) = assemble(loaded, None, overrides)?;
        Ok(Mount { gate: Gate::new(state, trusted_proxies), reloader })
    }

    /// The gate: it can be cloned into as many proxies as there are.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// The service that reloads table, keys and config; add it to your server.
    pub fn into_service(self) -> GenBackgroundService<Reloader> {
        GenBackgroundService::new("riskgate".to_owned(), Arc::new(self.reloader))
    }
}
