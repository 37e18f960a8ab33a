//! The example that mounts the gates in a foreign proxy, run as its reader would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

struct Mounted {
    process: Child,
    address: SocketAddr,
    key: String,
    upstream: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn example() -> PathBuf {
    let bin = Path::new(env!("CARGO_BIN_EXE_riskgate"));
    bin.parent().unwrap().join("examples/mount")
}

fn create_key(config: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_riskgate"))
        .args(["keys", "create", "--account", "mounted", "--plan", "pro", "-c"])
        .arg(config)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn serve_upstream(listener: TcpListener) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut header = String::new();
            while !header.ends_with("\r\n\r\n") {
                if reader.read_line(&mut header).unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = sender.send(header);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    receiver
}

fn mount() -> Mounted {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("riskgate.toml");
    let store = folder.path().join("riskgate.db");
    let text = format!("[store]\nurl = \"sqlite:{}\"\n[log]\naccess = false\n", store.display());
    std::fs::write(&config, text).unwrap();
    let key = create_key(&config);
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, behind) = (free_address(), upstream.local_addr().unwrap());
    let process = Command::new(example())
        .args([address.to_string(), behind.to_string()])
        .arg(&config)
        .stdout(Stdio::null())
        .spawn()
        .expect("the example: cargo test builds it, or cargo build --example mount");
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the example does not listen");
        std::thread::yield_now();
    }
    Mounted { process, address, key, upstream: serve_upstream(upstream), _folder: folder }
}

fn get(mounted: &Mounted, path: &str, key: &str) -> (String, String) {
    let mut stream = TcpStream::connect(mounted.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn a_foreign_proxy_answers_guards_and_passes() {
    let mounted = mount();

    let (head, body) = get(&mounted, "/v1/public/domain/yopmail.com", &mounted.key);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body.starts_with(r#"{"domain":"yopmail.com","risk_score":100,"#), "{body}");

    let (head, body) = get(&mounted, "/v1/check/a%40b.com", "rg_no_such_key_at_all");
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert!(body.starts_with(r#"{"error":"unauthorized""#), "{body}");

    let (head, body) = get(&mounted, "/v1/check/a@b.com", &mounted.key);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body.contains("hi"), "{body}");
    let seen = mounted.upstream.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(seen.starts_with("GET /v1/check/a%40b.com HTTP/1.1\r\n"), "{seen}");
    assert!(seen.to_ascii_lowercase().contains("x-seen: 1\r\n"), "{seen}");
    assert!(!seen.contains(&mounted.key), "{seen}");
    // The refused request never came here.
    assert!(mounted.upstream.try_recv().is_err());

    let (_, body) = get(&mounted, "/v1/usage", &mounted.key);
    assert!(body.starts_with(r#"{"plan":"pro","month_count":2,"monthly_limit":10000,"#), "{body}");
}
