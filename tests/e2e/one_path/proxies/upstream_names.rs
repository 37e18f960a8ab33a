//! riskgate follows the names of upstream servers in a real DNS server, under load.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::harness::{
    BINARY, DelayingDnsProxy, DemoUpstream, DnsServer, Gateway, MockUpstream, SetOnDrop, Setup,
    get, run_command, wait_until,
};

const PATH: &str = "/v1/check/a@b.com";

fn start_gateway(dns: &DnsServer, server: &str) -> Gateway {
    start_gateway_with_resolver(dns.address, server)
}

fn start_gateway_with_resolver(resolver: SocketAddr, server: &str) -> Gateway {
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    setup
        .set("upstream.servers", &format!("[{server:?}]"))
        .set("upstream.resolvers", &format!("[\"{resolver}\"]"))
        .set_text("upstream.resolve_interval", "100ms")
        .set_text("upstream.eject_for", "1h")
        .start()
}

/// A record of the service `_check._tcp.com`.
fn service_record(priority: u16, weight: u16, port: u16) -> String {
    format!("_check._tcp SRV {priority} {weight} {port} ns.com.\n")
}

fn readiness(gateway: &Gateway) -> String {
    gateway.readyz().text()
}

#[test]
fn servers_are_exchanged_in_the_dns_without_a_failed_request() {
    let servers: [MockUpstream; 3] = std::array::from_fn(|_| MockUpstream::start());
    let record = |at: usize| service_record(0, 0, servers[at].address.port());
    let mut dns = DnsServer::start(&record(0));
    let gateway = start_gateway(&dns, "_check._tcp.com");
    let key = gateway.create_active_key("acme", &[]);
    let (is_done, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let send_until_done = || {
        let mut connection = gateway.connect();
        while !is_done.load(Ordering::Relaxed) {
            connection.send_request(&get(PATH).key(&key)).expect(200);
            sent.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&is_done);
        let loads: Vec<_> = (0..4).map(|_| scope.spawn(send_until_done)).collect();
        let wait_for_requests = |at: usize| {
            let earlier = servers[at].request_count();
            wait_until("the server gets requests", || servers[at].request_count() > earlier + 100);
        };
        wait_for_requests(0);
        dns.replace_records(&(record(0) + &record(1)));
        wait_for_requests(1);
        wait_for_requests(0);
        dns.replace_records(&record(1));
        wait_until("the first server has left", || {
            !gateway.metrics().contains(&format!("healthy{{server=\"{}\"}}", servers[0].address))
        });
        let (left, count) = (&servers[0], servers[0].request_count());
        wait_for_requests(1);
        // The DNS server is down: the last good answer stays.
        dns.stop();
        wait_until("riskgate reports the name", || readiness(&gateway).contains("_check._tcp.com"));
        wait_for_requests(1);
        dns.replace_records(&record(2));
        wait_for_requests(2);
        wait_until("the name resolves again", || !readiness(&gateway).contains("upstream"));
        // A request may have been on its way when the server left.
        assert!(left.request_count() <= count + loads.len());
        is_done.store(true, Ordering::Relaxed);
        loads.into_iter().for_each(|load| load.join().expect("a request failed"));
    });
    assert!(sent.load(Ordering::Relaxed) > 400);
    assert_eq!(gateway.sum_of_samples("riskgate_quota_refunds_total", &[]), 0.0);
}

#[test]
fn a_name_that_does_not_resolve_at_the_start_only_degrades() {
    let server = MockUpstream::start();
    let mut dns = DnsServer::start("other A 127.0.0.1\n");
    let name = format!("later.com:{}", server.address.port());
    let gateway = start_gateway(&dns, &name);
    let key = gateway.create_active_key("acme", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    let refused = gateway.get(PATH, &key).expect(500);
    assert!(refused.text().contains("upstream_unavailable"), "{}", refused.text());
    let problem = "upstream: later.com: expected its addresses in the DNS, but found no such name";
    assert!(readiness(&gateway).contains(problem), "{}", readiness(&gateway));
    let checked = gateway.cli(&["check"]).expect(0);
    assert!(
        checked.stderr.contains("warning: upstream.servers: later.com: "),
        "{}",
        checked.stdout
    );
    dns.replace_records("later A 127.0.0.1\n");
    wait_until("the name resolves", || !readiness(&gateway).contains("upstream"));
    gateway.get(PATH, &key).expect(200);
    assert_eq!(server.request_count(), 1);
}

#[test]
fn both_families_of_addresses_are_servers() {
    let server = MockUpstream::start();
    let dns = DnsServer::start("both A 127.0.0.1\nboth AAAA ::1\n");
    let port = server.address.port();
    let gateway = start_gateway(&dns, &format!("both.com:{port}"));
    let key = gateway.create_active_key("acme", &[]);
    // Nobody listens on ::1.
    for _ in 0..20 {
        gateway.get(PATH, &key).expect(200);
    }
    let healthy = |server: String| {
        let label = format!("server=\"{server}\"");
        gateway.sum_of_samples("riskgate_upstream_healthy", &[&label])
    };
    assert_eq!(healthy(format!("127.0.0.1:{port}")), 1.0);
    assert!(gateway.metrics().contains(&format!("server=\"[::1]:{port}\"")));
    assert_eq!(server.request_count(), 20);
}

#[test]
fn services_have_weights_and_priorities() {
    let [first, second, reserve]: [DemoUpstream; 3] =
        std::array::from_fn(|_| DemoUpstream::start(&[]));
    let record = |priority, weight, server: &DemoUpstream| {
        service_record(priority, weight, server.address.port())
    };
    let records = record(0, 30, &first) + &record(0, 10, &second) + &record(10, 10, &reserve);
    let dns = DnsServer::start(&records);
    let gateway = start_gateway(&dns, "_check._tcp.com");
    let key = gateway.create_active_key("acme", &[]);
    let addresses = [&first, &second, &reserve].map(|server| server.address);
    let responses = || {
        addresses.map(|address| {
            let labels = [&format!("server=\"{address}\""), "outcome=\"response\""];
            gateway.sum_of_samples("riskgate_upstream_requests_total", &labels)
        })
    };
    for _ in 0..40 {
        gateway.get(PATH, &key).expect(200);
    }
    assert_eq!(responses(), [30.0, 10.0, 0.0]);
    // riskgate retries once, so not both servers may fail at the same time.
    for server in [first, second] {
        drop(server);
        for _ in 0..10 {
            gateway.get(PATH, &key).expect(200);
        }
    }
    assert_eq!(responses(), [30.0, 20.0, 10.0]);
}

#[test]
fn the_hosts_file_of_the_system_counts() {
    let server = MockUpstream::start();
    let name = format!("localhost:{}", server.address.port());
    let gateway = Setup::new().set("upstream.servers", &format!("[{name:?}]")).start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get(PATH, &key).expect(200);
}

#[test]
fn a_successor_serves_with_the_servers_that_the_dns_has_when_it_takes_over() {
    let servers: [MockUpstream; 2] = std::array::from_fn(|_| MockUpstream::start());
    let record = |at: usize| service_record(0, 0, servers[at].address.port());
    let mut dns = DnsServer::start(&record(0));
    let proxy = DelayingDnsProxy::start(Some(dns.address), Duration::ZERO);
    let mut gateway = Setup::new()
        .set("plans.free", "\"unlimited\"")
        .set("upstream.servers", "[\"_check._tcp.com\"]")
        .set("upstream.resolvers", &format!("[\"{}\"]", proxy.address))
        .set_text("upstream.resolve_interval", "1h")
        .start();
    let key = gateway.create_active_key("acme", &[]);
    let mut take_over = |at: usize, delay: Duration| {
        let successor = gateway.spawn_successor();
        successor.wait_until_ready();
        dns.replace_records(&record(at));
        proxy.delay_answers(delay);
        gateway.send_signal("QUIT");
        gateway.replace_process(successor);
        let status = gateway.get(PATH, &key).status;
        (status, servers.each_ref().map(MockUpstream::request_count))
    };
    assert_eq!(take_over(1, Duration::ZERO), (200, [0, 1]));
    // A slow DNS does not delay the take-over for long: its answer counts once it is there. The
    // addresses take two queries, one after the other.
    assert_eq!(take_over(0, Duration::from_millis(800)), (200, [0, 2]));
    wait_until("the first server gets requests", || {
        gateway.get(PATH, &key).expect(200);
        servers[0].request_count() > 0
    });
}

/// The types of the records with an IPv4 and an IPv6 address.
const A: u16 = 1;
const AAAA: u16 = 28;

/// The addresses of the servers at port 9000.
fn servers_at_port_9000(gateway: &Gateway) -> Vec<String> {
    let metrics = gateway.metrics();
    let lines = metrics.lines().filter_map(|line| {
        let label = line.strip_prefix("riskgate_upstream_healthy{server=\"")?;
        Some(label.split_once(":9000\"")?.0.to_owned())
    });
    lines.collect()
}

#[test]
fn an_empty_answer_without_a_soa_removes_the_addresses_of_its_family() {
    let mut dns = DnsServer::start("both A 127.0.0.1\nboth AAAA ::1\n");
    let proxy = DelayingDnsProxy::start(Some(dns.address), Duration::ZERO);
    let gateway = start_gateway_with_resolver(proxy.address, "both.com:9000");
    let servers = || servers_at_port_9000(&gateway);
    wait_until("both families are known", || servers() == ["127.0.0.1", "[::1]"]);
    proxy.answer_nothing_to_queries_of_type(AAAA);
    wait_until("IPv6 is gone", || servers() == ["127.0.0.1"]);
    assert!(!readiness(&gateway).contains("upstream"), "{}", readiness(&gateway));
    // The host moves from IPv4 to IPv6.
    dns.replace_records("both AAAA ::2\n");
    proxy.answer_nothing_to_queries_of_type(A);
    wait_until("only IPv6 is there", || servers() == ["[::2]"]);
    wait_until("nothing fails", || !readiness(&gateway).contains("upstream"));
    // A failed query still keeps what is known, and a host keeps its last address.
    proxy.fail_queries_of_type(AAAA);
    wait_until("riskgate reports it", || readiness(&gateway).contains("the last good answer"));
    assert_eq!(servers(), ["[::2]"]);
}

#[test]
fn a_failed_query_of_one_family_keeps_the_last_good_addresses_of_this_family() {
    let mut dns = DnsServer::start("both A 127.0.0.1\nboth AAAA ::1\n");
    let proxy = DelayingDnsProxy::start(Some(dns.address), Duration::ZERO);
    let gateway = start_gateway_with_resolver(proxy.address, "both.com:9000");
    let servers = || servers_at_port_9000(&gateway);
    wait_until("both families are known", || servers() == ["127.0.0.1", "[::1]"]);
    proxy.fail_queries_of_type(AAAA);
    dns.replace_records("both A 127.0.0.2\nboth AAAA ::2\n");
    wait_until("IPv4 has changed", || servers().contains(&"127.0.0.2".to_owned()));
    assert_eq!(servers(), ["127.0.0.2", "[::1]"], "the last good address of IPv6 stays");
    let problem = "upstream: both.com: expected its addresses in the DNS, but found ";
    wait_until("riskgate reports it", || readiness(&gateway).contains(problem));
    assert!(readiness(&gateway).contains(" for IPv6; the last good answer is used"));
    proxy.fail_queries_of_type(A);
    wait_until("IPv6 has changed", || servers().contains(&"[::2]".to_owned()));
    assert_eq!(servers(), ["127.0.0.2", "[::2]"], "the last good address of IPv4 stays");
    // The zone itself says that there is no such address.
    proxy.fail_queries_of_type(0);
    dns.replace_records("both A 127.0.0.3\n");
    wait_until("IPv6 is gone", || servers() == ["127.0.0.3"]);
    wait_until("nothing fails", || !readiness(&gateway).contains("upstream"));
}

/// Answers every query for an IPv4 address with 127.0.0.1, and every other with nothing.
const LINK_LOCAL_DNS_SERVER: &str = r#"
import socket, sys
server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
server.bind(("fe80::1", 53, 0, socket.if_nametoindex("server")))
open(sys.argv[1], "w").close()
while True:
    query, client = server.recvfrom(4096)
    end = query.index(b"\0", 12) + 5
    is_a = query[end - 4:end - 2] == b"\0\1"
    head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_a else b"\0\0") + b"\0\0\0\0"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x7f\0\0\1" if is_a else b""
    server.sendto(head + query[12:end] + answer, client)
"#;

/// Runs a command of riskgate where the resolver is reached through the second of two interfaces:
/// both have link-local addresses.
const IN_A_NETWORK_OF_ITS_OWN: &str = r#"
set -e
unshare -n sleep 60 &
server=$!
trap 'kill $server $dns' EXIT
while [ "$(readlink /proc/self/ns/net)" = "$(readlink /proc/$server/ns/net)" ]; do sleep 0.02; done
ip link add decoy type veth peer name nowhere
ip link add resolver type veth peer name server netns $server
for interface in decoy nowhere resolver; do
  ip link set $interface addrgenmode none up
done
ip -6 addr add fe80::2/64 dev decoy nodad
ip -6 addr add fe80::3/64 dev resolver nodad
in_server="nsenter -t $server -n"
$in_server ip link set server addrgenmode none up
$in_server ip -6 addr add fe80::1/64 dev server nodad
$in_server python3 "$1/dns.py" "$1/ready" &
dns=$!
until [ -e "$1/ready" ]; do kill -0 $dns; sleep 0.02; done
echo "nameserver fe80::1%resolver" > "$1/resolv.conf"
mount --bind "$1/resolv.conf" /etc/resolv.conf
"$2" check -c "$1/riskgate.toml"
"#;

/// Builds the command that runs a script of a shell with network and mounts of its own. The script
/// gets the folder of the setup and the program.
fn command_with_own_network(setup: &Setup, script: &str) -> Command {
    let is_root = run_command(Command::new("id").arg("-u")).expect(0).stdout.trim() == "0";
    let mut command = Command::new("unshare");
    command.arg(if is_root { "-nm" } else { "-rnm" }).args(["sh", "-c", script]);
    command.arg("sh").arg(setup.path("")).arg(BINARY);
    command
}

#[test]
fn a_link_local_resolver_is_asked_through_the_interface_that_resolv_conf_names() {
    let setup = Setup::new().set("upstream.servers", "[\"name.test:9000\"]");
    setup.write_config();
    std::fs::write(setup.path("dns.py"), LINK_LOCAL_DNS_SERVER).unwrap();
    let ran = run_command(&mut command_with_own_network(&setup, IN_A_NETWORK_OF_ITS_OWN)).expect(0);
    assert!(!ran.stderr.contains("upstream.servers"), "{}", ran.stderr);
}

/// A DNS server with a wildcard in the domain `wild.test`.
const DNS_SERVER_WITH_A_WILDCARD: &str = r#"
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
open(sys.argv[1], "w").close()
def encode(name):
    return b"".join(bytes([len(it)]) + it.encode() for it in name.split(".")) + b"\0"
SERVICE, ADDRESSES = 33, {"complete": "127.0.0.2", "target": "127.0.0.3", "two.dots.test": "127.0.0.4"}
while True:
    query, client = server.recvfrom(4096)
    end = query.index(b"\0", 12) + 5
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode().lower())
        at += 1 + query[at]
    name, kind = ".".join(labels), int.from_bytes(query[end - 4:end - 2], "big")
    address = "127.0.0.66" if name.endswith(".wild.test") else ADDRESSES.get(name)
    data = None
    if kind == SERVICE and name == "_check._tcp.test":
        data = b"\0\0\0\0" + (9000).to_bytes(2, "big") + encode("target")
    elif kind == 1 and address:
        data = socket.inet_aton(address)
    answer = data and b"\xc0\x0c" + query[end - 4:end] + b"\0\0\0\1" + len(data).to_bytes(2, "big") + data
    head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if data else b"\0\0") + b"\0\0\0\0"
    server.sendto(head + query[12:end] + (answer or b""), client)
"#;

/// Runs `riskgate doctor` where the system has a search list, options and a hosts file.
const WITH_A_SEARCH_LIST: &str = r#"
set -e
ip link set lo up
python3 "$1/dns.py" "$1/ready" &
dns=$!
trap 'kill $dns' EXIT
until [ -e "$1/ready" ]; do kill -0 $dns; sleep 0.02; done
printf 'search wild.test\nnameserver 127.0.0.1\noptions ndots:2\n' > "$1/resolv.conf"
printf '127.0.0.5 listed\n' > "$1/hosts"
mount --bind "$1/resolv.conf" /etc/resolv.conf
mount --bind "$1/hosts" /etc/hosts
"$2" doctor -c "$1/riskgate.toml"
"#;

#[test]
fn the_search_list_applies_to_names_that_are_not_complete_and_not_in_the_hosts_file() {
    for (server, expected) in [
        ("complete.:9000", "127.0.0.2:9000"),
        ("_check._tcp.test", "127.0.0.3:9000"),
        ("two.dots.test:9000", "127.0.0.4:9000"),
        ("listed:9000", "127.0.0.5:9000"),
        ("short:9000", "127.0.0.66:9000"),
        ("one.dot:9000", "127.0.0.66:9000"),
    ] {
        let setup = Setup::new().set("upstream.servers", &format!("[{server:?}]"));
        setup.write_config();
        std::fs::write(setup.path("dns.py"), DNS_SERVER_WITH_A_WILDCARD).unwrap();
        let ran = run_command(&mut command_with_own_network(&setup, WITH_A_SEARCH_LIST)).expect(1);
        let refused = format!("{expected}: Connection refused");
        assert!(ran.stdout.contains(&refused), "{server}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stdout.matches(":9000: ").count(), 1, "{server}: {}", ran.stdout);
    }
}

#[test]
fn a_system_that_gives_no_thread_to_resolve_names_is_a_fault() {
    // No address space has a stack of this size.
    let setup = Setup::new().env("RUST_MIN_STACK", &(1_u64 << 47).to_string());
    let found = "upstream: expected to resolve names, but found Resource temporarily unavailable";
    let stderr = setup.cli(&["check"]).expect(78).stderr;
    assert!(stderr.contains(found) && !stderr.contains("panicked"), "{stderr}");
}
