//! A real proxy in front of a gateway: a process of HAProxy, nginx or Envoy.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{free_address, wait_for};

/// The program, and how it reports the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// Adds its own X-Forwarded-For lines after those of the client.
    HaProxy,
    /// The same, and also sends the client's address in a PROXY header.
    HaProxyProtocol,
    /// Appends to the client's list, in one line.
    Nginx,
    /// Sends the client's list, and its own address in a second line.
    NginxSecondLine,
    /// Appends to the client's list, in one line.
    Envoy,
}

/// A running proxy. Dropping this value kills it.
pub struct FrontProxy {
    pub address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl FrontProxy {
    /// Starts a proxy that forwards everything to `server`. It reports that the client asked for
    /// `front.test` by HTTPS.
    #[track_caller]
    pub fn start(proxy: ProxyKind, server: SocketAddr) -> FrontProxy {
        // Another process may take the free port before the proxy binds it.
        for _ in 0..5 {
            if let Some(front) = FrontProxy::try_start(proxy, server) {
                return front;
            }
        }
        panic!("{proxy:?} did not start");
    }

    /// Starts HAProxy with this certificate: chain and key. It ends TLS, offers HTTP/2, and
    /// forwards everything to `server`.
    #[track_caller]
    pub fn start_with_tls(server: SocketAddr, certificate: &(PathBuf, PathBuf)) -> FrontProxy {
        // Another process may take the free port before the proxy binds it.
        for _ in 0..5 {
            let (folder, address) = (TempDir::new().unwrap(), free_address());
            let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
            let chain_and_key = folder.path().join("site.pem");
            std::fs::write(&chain_and_key, read(&certificate.0) + &read(&certificate.1)).unwrap();
            let config = folder.path().join("haproxy.cfg");
            std::fs::write(&config, tls_config(address, server, &chain_and_key)).unwrap();
            let mut command = Command::new(find_program("haproxy", "haproxy"));
            command.arg("-db").arg("-f").arg(&config);
            if let Some(front) = FrontProxy::spawn(command, address, folder) {
                return front;
            }
        }
        panic!("HAProxy did not start");
    }

    fn try_start(proxy: ProxyKind, server: SocketAddr) -> Option<FrontProxy> {
        let (folder, address) = (TempDir::new().unwrap(), free_address());
        let text = match proxy {
            ProxyKind::HaProxy => haproxy_config(address, server, ""),
            ProxyKind::HaProxyProtocol => haproxy_config(address, server, "send-proxy-v2"),
            ProxyKind::Nginx => nginx_config(address, server, "$proxy_add_x_forwarded_for", None),
            ProxyKind::NginxSecondLine => {
                nginx_config(address, server, "$http_x_forwarded_for", Some("$remote_addr"))
            }
            ProxyKind::Envoy => envoy_config(address, server),
        };
        let config = folder.path().join("proxy.yaml");
        std::fs::write(&config, text).unwrap();
        let command = match proxy {
            ProxyKind::HaProxy | ProxyKind::HaProxyProtocol => {
                let mut command = Command::new(find_program("haproxy", "haproxy"));
                command.arg("-db").arg("-f").arg(&config);
                command
            }
            ProxyKind::Nginx | ProxyKind::NginxSecondLine => {
                let mut command = Command::new(find_program("nginx", "nginx"));
                command.arg("-p").arg(folder.path()).arg("-e").arg("stderr").arg("-c").arg(&config);
                command
            }
            ProxyKind::Envoy => {
                let mut command = Command::new(find_program("envoy", "envoy/envoy/_bin/envoy"));
                command.args(["--disable-hot-restart", "--concurrency", "1", "-l", "critical"]);
                command.arg("-c").arg(&config);
                command
            }
        };
        FrontProxy::spawn(command, address, folder)
    }

    /// Starts this command, which listens on `address` and reads its files from `folder`. Returns
    /// `None` if it ends instead.
    pub(super) fn spawn(
        mut command: Command,
        address: SocketAddr,
        folder: TempDir,
    ) -> Option<FrontProxy> {
        let log = folder.path().join("stderr.log");
        let stderr = std::fs::File::create(&log).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let child = child.spawn().unwrap();
        let mut front = FrontProxy { address, child, _folder: folder };
        let listens = wait_for("the proxy listens or has ended", || {
            let has_ended = front.child.try_wait().unwrap().is_some();
            let listens = !has_ended && TcpStream::connect(address).is_ok();
            (has_ended || listens).then_some(listens)
        });
        if !listens {
            eprintln!("{}", std::fs::read_to_string(&log).unwrap());
        }
        listens.then_some(front)
    }
}

impl Drop for FrontProxy {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of a program: among the tools of this project, or as the system finds it.
pub(super) fn find_program(name: &str, tool: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(tool);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut places = std::iter::once(own).chain(folders.map(|folder| folder.join(name)));
    places.find(|place| place.is_file()).unwrap_or_else(|| {
        panic!("expected {name} to be installed, but found none: scripts/setup --tests")
    })
}

fn haproxy_config(address: SocketAddr, server: SocketAddr, how: &str) -> String {
    format!(
        "defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option forwardfor
frontend front
    bind {address}
    http-request add-header X-Forwarded-Proto https
    http-request add-header X-Forwarded-Host front.test
    http-request add-header X-Forwarded-Port 443
    default_backend gateway
backend gateway
    server gateway {server} {how}
"
    )
}

fn tls_config(address: SocketAddr, server: SocketAddr, chain_and_key: &Path) -> String {
    format!(
        "defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option forwardfor
frontend front
    bind {address} ssl crt {} alpn h2,http/1.1
    http-request set-header X-Forwarded-Proto https
    default_backend site
backend site
    server site {server}
",
        chain_and_key.display()
    )
}

fn nginx_config(
    address: SocketAddr,
    server: SocketAddr,
    list: &str,
    second: Option<&str>,
) -> String {
    let second = second.map(|line| format!("proxy_set_header X-Forwarded-For {line};"));
    let second = second.unwrap_or_default();
    format!(
        "daemon off;
master_process off;
pid nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    proxy_headers_hash_max_size 1024;
    proxy_headers_hash_bucket_size 128;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    large_client_header_buffers 4 16k;
    upstream gateway {{ server {server}; keepalive 8; }}
    server {{
        listen {address};
        keepalive_requests 100000;
        location / {{
            proxy_pass http://gateway;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header X-Forwarded-For {list};
            {second}
            proxy_set_header X-Forwarded-Proto https;
            proxy_set_header X-Forwarded-Host front.test;
            proxy_set_header X-Forwarded-Port 443;
        }}
    }}
}}
"
    )
}

fn envoy_config(address: SocketAddr, server: SocketAddr) -> String {
    let type_of = |name: &str| format!("\"@type\": type.googleapis.com/envoy.extensions.{name}");
    let manager = type_of("filters.network.http_connection_manager.v3.HttpConnectionManager");
    let router = type_of("filters.http.router.v3.Router");
    let endpoint = |address: SocketAddr| {
        let (ip, port) = (address.ip(), address.port());
        format!("address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }}")
    };
    let forwarded_fields = [
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "front.test"),
        ("x-forwarded-port", "443"),
    ];
    let forwarded_fields = forwarded_fields.map(|(name, value)| {
        format!(
            "{{ header: {{ key: {name}, value: '{value}' }}, append_action: APPEND_IF_EXISTS_OR_ADD }}"
        )
    });
    let (listens, asks, forwarded_fields) =
        (endpoint(address), endpoint(server), forwarded_fields.join(", "));
    format!(
        "static_resources:
  listeners:
  - name: front
    {listens}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          {manager}
          stat_prefix: front
          use_remote_address: true
          route_config:
            request_headers_to_add: [{forwarded_fields}]
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes: [{{ match: {{ prefix: \"/\" }}, route: {{ cluster: gateway }} }}]
          http_filters:
          - {{ name: envoy.filters.http.router, typed_config: {{ {router} }} }}
  clusters:
  - name: gateway
    type: STATIC
    load_assignment:
      cluster_name: gateway
      endpoints: [{{ lb_endpoints: [{{ endpoint: {{ {asks} }} }}] }}]
"
    )
}
