//! The latency of requests while the store is stopped, compared with a running store.
//!
//! The bench runs the real gateway on the loopback interface and a real redis-server. SIGSTOP stops
//! redis-server, which then neither answers nor closes its connections. One client sends request
//! after request on one connection. The bench counts responses other than 200.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::redis_server::RedisServer;

const BINARY: &str = env!("CARGO_BIN_EXE_riskgate");

/// A gateway that is killed when this is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both calls fail only if the gateway has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn bench_stopped_store(requests: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let server = RedisServer::start();
    let (http, admin) = (free_address(), free_address());
    let config = folder.path().join("riskgate.toml");
    let text = format!(
        "[listen]\nhttp = \"{http}\"\nadmin = \"{admin}\"\nthreads = 1\n[log]\naccess = false\n\
         [store]\nurl = \"{}\"\n[plans]\nfree = 1000000000\n",
        server.url()
    );
    std::fs::write(&config, text).expect("a config");
    let key = create_key(&config);
    let gateway = Command::new(BINARY)
        .args(["run", "-c"])
        .arg(&config)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a gateway");
    let _gateway = KillOnDrop(gateway);
    let mut connection = connect_once_serving(http, &key);

    println!("a request's latency, µs ({requests} on one connection)\n");
    println!("{:<28}{:>8}{:>8}{:>8}{:>10}", "", "p50", "p99", "p99.9", "worst");
    print_latencies("store running", &mut connection, &key, requests);
    server.pause();
    print_latencies("store stopped", &mut connection, &key, requests);
    server.resume();
    print_latencies("store running again", &mut connection, &key, requests);
    println!();
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address")
}

fn create_key(config: &Path) -> String {
    let output = Command::new(BINARY)
        .args(["keys", "create", "--account", "acme", "-c"])
        .arg(config)
        .output()
        .expect("a key");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a key").trim().to_owned()
}

fn connect_once_serving(http: SocketAddr, key: &str) -> TcpStream {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < Duration::from_secs(20), "the gateway does not serve");
        if let Ok(mut connection) = TcpStream::connect(http) {
            connection.set_nodelay(true).expect("a socket");
            if request_status(&mut connection, key) == 200 {
                return connection;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn request_status(connection: &mut TcpStream, key: &str) -> u16 {
    let request = format!(
        "GET /v1/public/domain/yopmail.com HTTP/1.1\r\nHost: bench\r\n\
         Authorization: Bearer {key}\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).expect("a request");
    let mut response = [0; 4096];
    let mut length = 0;
    loop {
        length += connection.read(&mut response[length..]).expect("an answer");
        let text = String::from_utf8_lossy(&response[..length]);
        // Every body is a JSON object.
        if text.contains("\r\n\r\n") && text.ends_with('}') {
            return text[9..12].parse().expect("a status");
        }
    }
}

fn print_latencies(case: &str, connection: &mut TcpStream, key: &str, requests: usize) {
    let mut times = Vec::with_capacity(requests);
    let mut failed_count = 0;
    for _ in 0..requests {
        let started = Instant::now();
        let status = request_status(connection, key);
        times.push(started.elapsed().as_secs_f64() * 1e6);
        failed_count += usize::from(status != 200);
    }
    times.sort_by(f64::total_cmp);
    let percentile = |quantile: f64| times[((times.len() - 1) as f64 * quantile) as usize];
    let refused =
        if failed_count == 0 { String::new() } else { format!("  ({failed_count} were 500)") };
    println!(
        "{case:<28}{:>8.0}{:>8.0}{:>8.0}{:>10.0}{refused}",
        percentile(0.5),
        percentile(0.99),
        percentile(0.999),
        percentile(1.0)
    );
}
