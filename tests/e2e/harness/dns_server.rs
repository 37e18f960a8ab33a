//! Starts a real DNS server for a test (Knot DNS with two zones), and a UDP proxy that delays or
//! drops queries.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use super::{free_address, wait_for};

/// The first lines of every zone.
const ZONE_HEADER: &str = "$TTL 600\n@ SOA ns.com. admin.com. 1 3600 600 86400 600\n@ NS ns.com.\n";

/// `knotd` on its own port. Dropping this value kills it.
pub struct DnsServer {
    child: Child,
    pub address: SocketAddr,
    folder: tempfile::TempDir,
}

impl DnsServer {
    /// Serves the zone `com` with these records, and the zone `broken.net`, which has no file.
    #[track_caller]
    pub fn start(records: &str) -> DnsServer {
        let folder = tempfile::tempdir().unwrap();
        write_zone(folder.path(), records);
        for _ in 0..5 {
            let address = SocketAddr::new(own_loopback_address(), free_address().port());
            let config = knot_config(folder.path(), address);
            std::fs::write(folder.path().join("knot.conf"), config).unwrap();
            let mut child = spawn_knotd(folder.path());
            let is_up = wait_for("knotd answers or has ended", || {
                if child.try_wait().unwrap().is_some() {
                    return Some(false);
                }
                let asked = TcpStream::connect(address).is_ok() && is_serving(address);
                asked.then_some(true)
            });
            if is_up {
                return DnsServer { child, address, folder };
            }
        }
        panic!("no free port was left for knotd");
    }

    /// Restarts the server with these records.
    #[track_caller]
    pub fn replace_records(&mut self, records: &str) {
        write_zone(self.folder.path(), records);
        self.stop();
        self.child = spawn_knotd(self.folder.path());
        wait_for("knotd answers again", || {
            assert!(self.child.try_wait().unwrap().is_none(), "knotd has ended: {}", self.log());
            is_serving(self.address).then_some(())
        });
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("knotd.log")).unwrap_or_default()
    }

    pub fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address for one server of this process. No other process takes its ports while the server is
/// down.
fn own_loopback_address() -> IpAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [_, _, third, fourth] = std::process::id().to_be_bytes();
    let second = 64 + (NEXT.fetch_add(1, Ordering::Relaxed) % 64) as u8;
    IpAddr::from([127, second, third, fourth])
}

fn write_zone(folder: &Path, records: &str) {
    std::fs::write(folder.join("com.zone"), format!("{ZONE_HEADER}ns A 127.0.0.1\n{records}"))
        .unwrap();
}

fn knot_config(folder: &Path, address: SocketAddr) -> String {
    let (folder, ip, port) = (folder.display(), address.ip(), address.port());
    format!(
        "server:\n  rundir: \"{folder}\"\n  listen: {ip}@{port}\n  tcp-workers: 1\n  \
         udp-workers: 1\n  background-workers: 1\nlog:\n  - target: stderr\n    any: warning\n\
         database:\n  storage: \"{folder}\"\n\
         template:\n  - id: default\n    storage: \"{folder}\"\n    journal-content: none\n    \
         zonefile-sync: -1\n\
         zone:\n  - domain: com\n    file: com.zone\n  - domain: broken.net\n    file: none.zone\n"
    )
}

fn spawn_knotd(folder: &Path) -> Child {
    let mut command = Command::new("/usr/sbin/knotd");
    command.arg("-c").arg(folder.join("knot.conf")).stdin(Stdio::null()).stdout(Stdio::null());
    let stderr = std::fs::File::create(folder.join("knotd.log")).unwrap();
    let spawned = command.stderr(stderr).spawn();
    spawned.expect("knotd: `scripts/setup --tests` installs it")
}

/// Returns true if the server answers a query for its name server's address.
fn is_serving(address: SocketAddr) -> bool {
    const NS_COM_QUERY: &[u8] = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x02ns\x03com\0\0\x01\0\x01";
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut answer = [0; 512];
    let asked = socket.send_to(NS_COM_QUERY, address).and_then(|_| socket.recv(&mut answer));
    // No error, and one record.
    asked.is_ok() && answer[3] & 15 == 0 && answer[7] == 1
}

/// A UDP proxy in front of a DNS server that delays queries, drops them, or lets those of one type
/// fail.
pub struct DelayingDnsProxy {
    pub address: SocketAddr,
    pub query_count: Arc<AtomicU64>,
    /// The type of records whose queries fail; 0 if none does.
    failing_type: Arc<AtomicU16>,
    /// The type of records of which the proxy says that there are none; 0 if it says so of none.
    absent_type: Arc<AtomicU16>,
    /// How long each answer is delayed, in milliseconds.
    delay_ms: Arc<AtomicU64>,
    is_done: Arc<AtomicBool>,
}

impl DelayingDnsProxy {
    /// Forwards each query after `delay`. Without a server it answers nothing.
    pub fn start(server: Option<SocketAddr>, delay: Duration) -> DelayingDnsProxy {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let slow = DelayingDnsProxy {
            address: socket.local_addr().unwrap(),
            query_count: Arc::default(),
            failing_type: Arc::default(),
            absent_type: Arc::default(),
            delay_ms: Arc::default(),
            is_done: Arc::default(),
        };
        let failing_type = Arc::clone(&slow.failing_type);
        let absent_type = Arc::clone(&slow.absent_type);
        let delay_ms = Arc::clone(&slow.delay_ms);
        let (asked, is_done) = (Arc::clone(&slow.query_count), Arc::clone(&slow.is_done));
        std::thread::spawn(move || {
            let mut question = [0; 4_096];
            while !is_done.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                asked.fetch_add(1, Ordering::Relaxed);
                if query_type(&question[..length]) == failing_type.load(Ordering::Relaxed) {
                    // A response, SERVFAIL.
                    (question[2], question[3]) = (question[2] | 0x80, 2);
                    let _ = socket.send_to(&question[..length], from);
                    continue;
                }
                if query_type(&question[..length]) == absent_type.load(Ordering::Relaxed) {
                    // A response, NOERROR, with the question alone.
                    (question[2], question[3]) = (question[2] | 0x80, 0x80);
                    question[6..12].fill(0);
                    let _ = socket.send_to(&question[..question_end(&question)], from);
                    continue;
                }
                let Some(server) = server else { continue };
                let (question, socket) = (question[..length].to_vec(), socket.try_clone().unwrap());
                let delay = Duration::from_millis(delay_ms.load(Ordering::Relaxed));
                std::thread::spawn(move || {
                    std::thread::sleep(delay);
                    let inner = UdpSocket::bind("127.0.0.1:0").unwrap();
                    inner.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                    let mut answer = [0; 4_096];
                    let passed = inner.send_to(&question, server);
                    if let Ok(length) = passed.and_then(|_| inner.recv(&mut answer)) {
                        let _ = socket.send_to(&answer[..length], from);
                    }
                });
            }
        });
        slow.delay_answers(delay);
        slow
    }

    /// From now on, the answers to new queries are delayed so long.
    pub fn delay_answers(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// From now on, queries for records of this type fail; 0 stands for no type.
    pub fn fail_queries_of_type(&self, record_type: u16) {
        self.failing_type.store(record_type, Ordering::Relaxed);
    }

    /// From now on, queries for records of this type get an empty answer without a SOA record, as
    /// dnsmasq and the resolvers of containers send it; 0 stands for no type.
    pub fn answer_nothing_to_queries_of_type(&self, record_type: u16) {
        self.absent_type.store(record_type, Ordering::Relaxed);
    }
}

/// The type of the records that a query asks for.
fn query_type(query: &[u8]) -> u16 {
    let end = question_end(query);
    u16::from_be_bytes([query[end - 4], query[end - 3]])
}

/// Where the question of a query ends.
fn question_end(query: &[u8]) -> usize {
    let mut at = 12;
    while query[at] != 0 {
        at += 1 + usize::from(query[at]);
    }
    // The type and the class.
    at + 5
}

impl Drop for DelayingDnsProxy {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Relaxed);
    }
}
