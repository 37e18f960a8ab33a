//! The listening sockets, and the services that accept on them.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use pingora::listeners::tls::Acceptor;
use pingora::server::Server;
use pingora_proxy::http_proxy;

use super::startup_inputs::StartError;
use crate::config::Config;
use crate::downstream::{ConnectionTracker, DownstreamApp};
use crate::gate::Gate;
use crate::process::listener::{self, ListenerService};
use crate::process::served_store::ServedStore;
use crate::process::systemd::Heartbeat;
use crate::proxy::gateway::Gateway;
use crate::proxy::upstream::Upstreams;
use crate::support::certificates::{self, CurrentCertificates};

/// The listening sockets by name. A name consists of the listener and its configured address, such
/// as `http 127.0.0.1:8080`.
#[derive(Default)]
pub(super) struct ListenSockets(Vec<(String, TcpListener)>);

impl ListenSockets {
    /// Returns one socket for each configured listener: the inherited socket of the same name, or a
    /// newly bound one if none was inherited. Closes each inherited socket that no listener needs.
    pub fn bind(
        config: &Config,
        inherited: Vec<(String, TcpListener)>,
        serving_pid: Option<u32>,
    ) -> Result<ListenSockets, StartError> {
        let mut inherited: HashMap<String, TcpListener> = inherited.into_iter().collect();
        let bound = configured_listeners(config).map(|(listener, address)| {
            let setting = format!("listen.{listener}");
            let name = socket_name(listener, address);
            let socket = match inherited.remove(&name) {
                Some(socket) => Ok(socket),
                None => listener::bind_listener(address),
            };
            let describe = |error| describe_bind_error(&setting, address, &error, serving_pid);
            let failed = |error| StartError::Failed(describe(error));
            Ok((name, socket.map_err(failed)?))
        });
        bound.collect::<Result<_, _>>().map(ListenSockets)
    }

    /// Duplicates all sockets. The duplicates can be transferred to a successor later.
    pub fn try_clone(&self) -> Result<Vec<(String, TcpListener)>, StartError> {
        let duplicate =
            |(name, socket): &(String, TcpListener)| Ok((name.clone(), socket.try_clone()?));
        let all: std::io::Result<Vec<(String, TcpListener)>> =
            self.0.iter().map(duplicate).collect();
        all.map_err(|error| {
            StartError::Failed(format!("expected to duplicate a socket, but found {error}"))
        })
    }

    /// Removes and returns the socket of a listener: `http`, `https`, `redirect` or `admin`.
    pub fn remove_socket(&mut self, listener_name: &str) -> Option<TcpListener> {
        let at =
            self.0.iter().position(|(found, _)| found.split(' ').next() == Some(listener_name))?;
        Some(self.0.swap_remove(at).1)
    }
}

/// The configured listeners, each with its address.
fn configured_listeners(config: &Config) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let listeners = [
        ("http", Some(config.startup.http)),
        ("admin", Some(config.startup.admin)),
        ("https", config.startup.https),
        ("redirect", config.startup.redirect),
    ];
    listeners.into_iter().filter_map(|(listener, address)| Some((listener, address?)))
}

fn socket_name(listener: &str, address: SocketAddr) -> String {
    format!("{listener} {address}")
}

/// Fails if the sockets are those of another gateway than the one of this config: this process
/// would then end a gateway that it does not replace. Two gateways share no address. If they share
/// only the address of the admin listener, they are the same gateway if they have the same store.
pub(super) fn check_predecessor(
    config: &Config,
    inherited: &[(String, TcpListener)],
    served: Option<&ServedStore>,
) -> Result<(), StartError> {
    let is_inherited = |(listener, address): &(&str, SocketAddr)| {
        inherited.iter().any(|(name, _)| *name == socket_name(listener, *address))
    };
    let shared: Vec<_> = configured_listeners(config).filter(is_inherited).collect();
    let has_other_store =
        served.is_some_and(|served| served.address != config.startup.store.shown_address());
    let is_other = shared.is_empty()
        || has_other_store && shared.iter().all(|(listener, _)| *listener == "admin");
    if !is_other {
        return Ok(());
    }
    let names: Vec<&str> = inherited.iter().map(|(name, _)| name.as_str()).collect();
    Err(StartError::Failed(format!(
        "process.runtime_dir: expected the gateway of this config to serve from it, but found \
         another, which listens at {}; write another process.runtime_dir, or stop that gateway if \
         its addresses should change",
        names.join(", ")
    )))
}

/// Says why riskgate can't listen on an address. `serving_pid` is the process that serves from the
/// same runtime directory.
fn describe_bind_error(
    setting: &str,
    address: SocketAddr,
    error: &std::io::Error,
    serving_pid: Option<u32>,
) -> String {
    let of_gateway = serving_pid.map(|pid| {
        format!(
            "; riskgate runs already, as process {pid}, from the same process.runtime_dir: stop \
             it, or write another port and another process.runtime_dir"
        )
    });
    let advice = match error.kind() {
        ErrorKind::AddrInUse if of_gateway.is_some() => of_gateway.as_deref().unwrap_or_default(),
        ErrorKind::PermissionDenied => {
            "; write a port from 1024 on, or give the service the right to others, in systemd \
             with AmbientCapabilities=CAP_NET_BIND_SERVICE"
        }
        ErrorKind::AddrInUse => {
            "; another program uses that port: stop it, or write another port (`ss -ltnp` names a \
             program that listens there; `ss -tan` shows connections that hold the port, which \
             end within a minute if they are in TIME-WAIT)"
        }
        ErrorKind::AddrNotAvailable => {
            "; write an address of this machine, or 0.0.0.0 for all of them"
        }
        _ => "",
    };
    format!("{setting}: expected to listen on {address}, but found {error}{advice}")
}

/// The parts from which the services of all listeners but the admin listener are built, apart from
/// the sockets.
pub(super) struct ProxyServiceParts<'d> {
    pub config: &'d Config,
    pub gate: &'d Gate,
    pub upstreams: &'d Arc<Upstreams>,
    pub connection_tracker: &'d Arc<ConnectionTracker>,
    pub certificates: Option<Arc<CurrentCertificates>>,
    pub heartbeat: &'d Heartbeat,
}

impl ProxyServiceParts<'_> {
    /// Adds a service for each of the sockets `redirect`, `http` and `https` that exists.
    pub fn add_services(
        self,
        server: &mut Server,
        mut sockets: ListenSockets,
    ) -> Result<(), StartError> {
        let config = self.config;
        let upstreams = || Arc::clone(self.upstreams);
        let gateway = Gateway::behind_own_listeners(self.gate.clone(), upstreams());
        let proxy = Arc::new(http_proxy(&server.configuration, gateway));
        let app = || {
            let (proxy, connection_tracker) =
                (Arc::clone(&proxy), Arc::clone(self.connection_tracker));
            DownstreamApp::new(
                proxy,
                self.gate.clone(),
                upstreams(),
                config.startup.downstream.clone(),
                connection_tracker,
            )
        };
        let count_closed = || {
            let state = Arc::clone(self.gate.state());
            move || state.metrics.connections.connections_rejected.inc()
        };
        let mut add = |name, socket, app| {
            let service =
                ListenerService::new(name, socket, app, config.startup.downstream.write_timeout);
            let mut service = service.leaving_last_descriptors(count_closed());
            (service.threads, service.heartbeat) = (config.startup.threads, self.heartbeat.clone());
            if name == "http" {
                let tracker = Arc::clone(self.connection_tracker);
                service.tell_accepting = Box::new(move || tracker.set_http_accepting());
            }
            server.add_service(service);
        };
        if let (Some(socket), Some(https)) =
            (sockets.remove_socket("redirect"), config.startup.https)
        {
            add("redirect", socket, app().with_https_redirect(https.port()));
        }
        if let Some(socket) = sockets.remove_socket("http") {
            add("http", socket, app());
        }
        if let (Some(socket), Some(certificates)) =
            (sockets.remove_socket("https"), self.certificates)
        {
            let tls = certificates::tls_server_config(certificates).map_err(|error| {
                StartError::Failed(format!("expected a TLS config, but found {error}"))
            })?;
            add("https", socket, app().with_tls(Acceptor::from_server_config(Arc::new(tls))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
