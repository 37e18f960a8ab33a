//! The fast path and the Pingora path behave alike. The same bytes go to two gateways, with and
//! without the fast path. Both must send the same responses, count the same calls, forward the same
//! requests to the upstream server, and close the connection in the same way. The upstream server
//! echoes the request that it received.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use riskgate::config::{Config, ConfigFile, ConfigSources};
use riskgate::downstream::{ConnectionTracker, DownstreamApp};
use riskgate::keys::format_key_hash;
use riskgate::pingora::server::configuration::ServerConf;
use riskgate::pingora::services::Service;
use riskgate::pingora_proxy::http_proxy;
use riskgate::process::listener::{ListenerService, bind_listener};
use riskgate::process::server::create_upstreams;
use riskgate::{Gateway, Mount};

use super::ScratchFolder;

/// The key that the seeds contain.
const KEY: &str = "rg_comparison00000000000000000000001";
const MAX_INPUT_BYTES: usize = 16 * 1024;
const TEST_TIMEOUT: Duration = Duration::from_secs(15);

static LISTENER_ADDRESSES: LazyLock<[SocketAddr; 2]> = LazyLock::new(|| {
    let upstream_address = start_upstream();
    [
        start_gateway("fast-path", true, upstream_address),
        start_gateway("pingora-path", false, upstream_address),
    ]
});

/// Panics if a promise is broken for this input.
pub fn check_input(bytes: &[u8]) {
    if bytes.len() > MAX_INPUT_BYTES {
        return;
    }
    let [with_fast_path, without_fast_path] =
        LISTENER_ADDRESSES.map(|address| normalize_responses(&send_and_read(address, bytes)));
    assert_eq!(with_fast_path, without_fast_path, "with the fast path and without");
}

/// Sends the bytes, shuts down the sending side, and returns all bytes until the gateway closes.
fn send_and_read(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("a listener that accepts connections");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a time for reading");
    // riskgate may already have refused the request and closed the connection.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    answers
}

/// The responses without values that differ between two runs. The fields of an upstream response
/// are sorted, because the order of fields with different names has no meaning (RFC 9110 section
/// 5.3).
fn normalize_responses(answers: &[u8]) -> Vec<String> {
    let is_generated_id =
        |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let text = String::from_utf8_lossy(answers);
    let line = |line: &str| match line.split_once(": ") {
        Some(("Date" | "retry-after", _)) => String::new(),
        Some(("x-request-id", id)) if is_generated_id(id.trim_end()) => String::new(),
        Some(("ratelimit", value)) => value.split(";t=").next().unwrap_or_default().to_owned(),
        _ => line.to_owned(),
    };
    let answer = |answer: &str| {
        let (header, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
        let mut fields: Vec<String> = header.split("\r\n").map(line).collect();
        if header.contains("x-riskgate-source") {
            fields.sort();
        }
        fields.join("\n") + "\n\n" + body
    };
    text.split("HTTP/1.1 ").map(answer).collect()
}

/// Starts a gateway in its own thread, with a gate and a store of its own. Returns its address.
fn start_gateway(name: &str, fast_path: bool, upstream_address: SocketAddr) -> SocketAddr {
    // The server runs as long as the process.
    let scratch = Box::leak(Box::new(ScratchFolder::new(name)));
    let hash = format_key_hash(KEY);
    let key = format!("[[key]]\nid = \"one\"\naccount = \"acme\"\nhash = \"{hash}\"\n");
    let keys = scratch.write_file("keys.toml", key.as_bytes());
    let config = format!(
        "[listen]\nfast_path = {fast_path}\n[log]\naccess = false\n[upstream]\nservers = [\"{upstream_address}\"]\n\
         health_interval = \"0\"\n[[upstream.route]]\nprefix = \"/v1/form\"\n\
         methods = [\"GET\", \"POST\"]\n[store]\nurl = \"sqlite:{0}/riskgate.db\"\n\
         deadline = \"5s\"\n[keys]\n\
         file = {keys:?}\n[plans]\nfree = 1000000000\n[top]\nmin_accounts = 16\n",
        scratch.path().display()
    );
    let path = scratch.write_file("riskgate.toml", config.as_bytes());
    let gate = Mount::from_config_file(&path).expect("a gate").gate();
    let file = ConfigFile::Path(path);
    let overrides = ConfigSources { file, flags: Vec::new() };
    let config = Config::read(&overrides).expect("a good config");
    let upstreams = create_upstreams(&config).expect("a server");
    let gateway = Gateway::new(gate.clone(), Arc::clone(&upstreams));
    let proxy = Arc::new(http_proxy(&Arc::new(ServerConf::default()), gateway));
    let tracker = Arc::new(ConnectionTracker::new(config.startup.connection_limits.clone()));
    let app = DownstreamApp::new(proxy, gate, upstreams, config.startup.downstream, tracker);
    let socket = bind_listener(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = socket.local_addr().expect("an address");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (_running, shutdown) = tokio::sync::watch::channel(false);
            let mut service = ListenerService::new("test", socket, app, TEST_TIMEOUT);
            service.start_service(None, shutdown, 1).await;
        });
    });
    address
}

/// Starts an upstream server that answers with the request that it received, without its request
/// id. Returns the server's address.
fn start_upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || echo_requests(stream));
        }
    });
    address
}

fn echo_requests(mut stream: TcpStream) {
    let mut arrived = Vec::new();
    let mut part = [0; 8_192];
    loop {
        while let Some(length) = first_request_length(&arrived) {
            let request: Vec<u8> = arrived.drain(..length).collect();
            let request = String::from_utf8_lossy(&request);
            let (header, body) = request.split_once("\r\n\r\n").unwrap_or((&request, ""));
            let field = |line: &str| {
                let (name, value) = line.split_once(':').unwrap_or((line, ""));
                format!("{}:{value}", name.to_ascii_lowercase())
            };
            let mut fields: Vec<String> = header.split("\r\n").skip(1).map(field).collect();
            fields.retain(|line| !line.starts_with("x-request-id"));
            fields.sort();
            let first = request.split(" HTTP/1.1\r\n").next().unwrap_or_default();
            let body = format!("{first}\n{}\n\n{body}", fields.join("\n"));
            let response_header =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let answer =
                if request.starts_with("HEAD") { response_header } else { response_header + &body };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(count) => arrived.extend_from_slice(&part[..count]),
        }
    }
}

/// The length of the first request, or None while the request is incomplete.
fn first_request_length(arrived: &[u8]) -> Option<usize> {
    let end = 4 + arrived.windows(4).position(|at| at == b"\r\n\r\n")?;
    let header = String::from_utf8_lossy(&arrived[..end]).to_ascii_lowercase();
    let length = header.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = end + length.map_or(0, |length| length.trim().parse().expect("a length"));
    (arrived.len() >= length).then_some(length)
}
