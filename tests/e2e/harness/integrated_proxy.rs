//! A real proxy that asks riskgate, with its config of `conf/integrations`.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::front_proxy::find_program;
use super::{FrontProxy, free_address, get, wait_until};

/// The program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegratedProxy {
    Nginx,
    HaProxy,
    Envoy,
    Traefik,
    Caddy,
}

/// Starts a proxy that asks `riskgate` and forwards requests to `backend`.
#[track_caller]
pub fn start_integrated_proxy(
    proxy: IntegratedProxy,
    riskgate: SocketAddr,
    backend: SocketAddr,
) -> FrontProxy {
    start_edited(proxy, riskgate, backend, |_, _| {})
}

/// Starts HAProxy, which also offers HTTP/2 over TLS with this certificate: chain and key. Returns
/// the address for TLS.
#[track_caller]
pub fn start_haproxy_with_tls(
    riskgate: SocketAddr,
    backend: SocketAddr,
    certificate: &(PathBuf, PathBuf),
) -> (FrontProxy, SocketAddr) {
    let tls_address = Cell::new(None);
    let add_tls = |folder: &Path, address: SocketAddr| {
        let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
        std::fs::write(folder.join("site.pem"), read(&certificate.0) + &read(&certificate.1))
            .unwrap();
        let config = folder.join("haproxy.cfg");
        let (bind, tls) = (format!("    bind {address}\n"), free_address());
        tls_address.set(Some(tls));
        let with_tls = format!("{bind}    bind {tls} ssl crt site.pem alpn h2,http/1.1\n");
        let text = read(&config);
        assert!(text.contains(&bind), "{text}");
        std::fs::write(&config, text.replace(&bind, &with_tls)).unwrap();
    };
    let front = start_edited(IntegratedProxy::HaProxy, riskgate, backend, add_tls);
    (front, tls_address.get().unwrap())
}

/// Starts a proxy after `edit` has changed its configs, which are in a folder. The proxy listens on
/// the address.
#[track_caller]
fn start_edited(
    proxy: IntegratedProxy,
    riskgate: SocketAddr,
    backend: SocketAddr,
    edit: impl Fn(&Path, SocketAddr),
) -> FrontProxy {
    // Another process may take the free port before the proxy binds it.
    for _ in 0..5 {
        let (folder, address) = (TempDir::new().unwrap(), free_address());
        let addresses = [
            (8000, address),
            // Where HAProxy, Traefik and Caddy ask themselves.
            (8001, free_address()),
            (8080, riskgate),
            (9000, backend),
        ];
        copy_configs(folder.path(), &addresses);
        edit(folder.path(), address);
        let command = command_of(proxy, folder.path());
        if let Some(front) = FrontProxy::spawn(command, address, folder) {
            // Traefik listens before it has read its routers.
            wait_until("the proxy has its routes", || get("/api").send(address).status != 404);
            return front;
        }
    }
    panic!("{proxy:?} did not start");
}

/// Copies the configs into a folder. The addresses replace those with these ports.
fn copy_configs(folder: &Path, addresses: &[(u16, SocketAddr)]) {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/integrations");
    for file in std::fs::read_dir(configs).unwrap() {
        let path = file.unwrap().path();
        // The folder `hooks` has no configs of proxies.
        if path.is_dir() {
            continue;
        }
        let mut text = std::fs::read_to_string(&path).unwrap();
        // In two steps, because a free port may be one of the ports that are replaced.
        for (port, _) in addresses {
            text = text.replace(&format!("127.0.0.1:{port}"), &format!("<{port}>"));
            text = text.replace(&format!("http://:{port}"), &format!("http://:<{port}:>"));
            text =
                text.replace(&format!("port_value: {port}}}"), &format!("port_value: <{port}:>}}"));
        }
        for (port, address) in addresses {
            text = text.replace(&format!("<{port}>"), &address.to_string());
            text = text.replace(&format!("<{port}:>"), &address.port().to_string());
        }
        std::fs::write(folder.join(path.file_name().unwrap()), text).unwrap();
    }
}

fn command_of(proxy: IntegratedProxy, folder: &Path) -> Command {
    let mut command = match proxy {
        IntegratedProxy::Nginx => {
            let mut command = Command::new(find_program("nginx", "nginx"));
            command.arg("-p").arg(folder).args(["-e", "stderr", "-c", "nginx.conf"]);
            command.args(["-g", "daemon off; master_process off; pid nginx.pid;"]);
            command
        }
        IntegratedProxy::HaProxy => {
            let mut command = Command::new(find_program("haproxy", "haproxy"));
            command.args(["-db", "-f", "haproxy.cfg"]);
            command
        }
        IntegratedProxy::Envoy => {
            let mut command = Command::new(find_program("envoy", "envoy/envoy/_bin/envoy"));
            command.args(["--disable-hot-restart", "--concurrency", "1", "-l", "critical"]);
            command.args(["-c", "envoy.yaml"]);
            command
        }
        IntegratedProxy::Traefik => {
            let mut command = Command::new(find_program("traefik", "traefik/bin/traefik"));
            command.arg("--configFile=traefik.yaml");
            command
        }
        IntegratedProxy::Caddy => {
            let mut command = Command::new(find_program("caddy", "caddy/bin/caddy"));
            command.args(["run", "--adapter", "caddyfile", "--config", "Caddyfile"]);
            command.env("HOME", folder);
            command
        }
    };
    command.current_dir(folder);
    command
}
